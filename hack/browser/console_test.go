package browser

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

const story = `apiVersion: leasehold.dev/v1alpha1
kind: Job
metadata:
  name: invoice-42
  labels: {app: billing, tier: back}
spec:
  clock: 100
  ttl: 30
  workers:
  - name: worker-a
  - name: worker-b
`

// The story plays in the directory, and the pages follow it without being loaded again.
func TestStory(t *testing.T) {
	list := open(t)
	s := serve(t, nil)
	list.run(chromedp.Navigate(s.url+"/"), js("window.sameAsEver = true"))
	list.until("an empty directory", `document.body.innerText.includes("No jobs are declared here yet")`)
	row := func(words string) string {
		return fmt.Sprintf("document.querySelector('#rows')?.innerText.match(/%s/)", words)
	}

	s.write("story.yaml", story)
	list.until("the first lease", row(`invoice-42[^]*Leased[^]*worker-a[^]*1[^]*until 130`))
	s.write("bad.yaml", strings.Replace(strings.Replace(story, "ttl: 30", "ttl: -5", 1), "invoice-42", "invoice-43", 1))
	list.until("a mistake with file and line", row(`bad\.yaml:8: spec\.ttl: Invalid value: -5: must be greater than 0`))
	s.write("worse.yaml", ": : :\n")
	list.until("a mistake in a file", `document.querySelector("#mistakes").innerText.includes("worse.yaml:")`)

	s.do("tick", "job/invoice-42", "--to", "130")
	list.until("the second lease", row(`invoice-42[^]*Leased[^]*worker-b[^]*2[^]*until 160`))

	list.run(chromedp.Click(`//a[text()="invoice-42"]`), chromedp.WaitVisible("#when"))
	list.run(js("window.sameAsEver = true"))
	list.until("both leases", `document.querySelectorAll(".lease").length === 2`)
	s.do("tick", "job/invoice-42", "--to", "138")
	s.do("renew", "job/invoice-42", "--worker", "worker-b", "--fence", "2")
	list.until("the heartbeat", `document.querySelector(".mark.renewed").getAttribute("aria-label").includes("worker-b renewed fence 2 until 168")`)
	s.do("tick", "job/invoice-42", "--to", "144")
	s.do("complete", "job/invoice-42", "--worker", "worker-a", "--fence", "1", "--result", "by a")
	list.until("the refusal", `document.querySelector(".mark.refused").getAttribute("aria-label").startsWith("StaleFence: worker-a's complete with fence 1 was refused")`)
	list.until("no tip without a reason", `getComputedStyle(document.querySelector(".mark.refused .tip")).visibility === "hidden"`)
	list.run(chromedp.Focus(".mark.refused"))
	list.until("the reason by keyboard", `getComputedStyle(document.querySelector(".mark.refused .tip")).visibility === "visible"`)
	list.shots("job-refused")
	list.run(js("document.activeElement.blur()"))

	s.do("tick", "job/invoice-42", "--to", "156")
	s.do("complete", "job/invoice-42", "--worker", "worker-b", "--fence", "2", "--result", "by b")
	list.until("the result", `document.querySelector("#state").innerText === "Complete" && document.querySelector("#result").innerText === "by b"`)
	// A program that goes past the manifest is seen, too.
	s.do("store", "complete", "invoice-42", "--owner", "worker-a", "--fence", "1", "--now", "160", "--result", "by a")
	list.until("a refusal at the store", `document.querySelector("#events").innerText.includes("Done")`)
	if !value[bool](list, "window.sameAsEver === true") {
		t.Error("the page was loaded again")
	}
	list.shots("job")
	list.run(chromedp.Click(`//a[text()="Wall time"]`), chromedp.WaitVisible(`//a[text()="Wall time" and @aria-current="true"]`))
	list.until("by wall time", `document.querySelector(".timeline").getAttribute("aria-label").endsWith("by wall time")`)
	list.run(chromedp.Navigate(s.url + "/"))
	list.until("live", `document.querySelector("#connection").dataset.state === "live"`)
	list.shots("jobs")
}

// What a manifest contains is text, wherever it shows.
func TestMarkupIsText(t *testing.T) {
	const evil = `<img src=x onerror="hacked=1"><script>hacked=2</script>`
	quoted := "'</pre></textarea>" + evil + "'"
	b := open(t)
	s := serve(t, map[string]string{
		"name.yaml": strings.Replace(story, "invoice-42", "'"+evil+"'", 1),
		"rest.yaml": strings.NewReplacer(
			"{app: billing, tier: back}", "{app: "+quoted+"}",
			"  - name: worker-a\n", "  - name: worker-a\n    complete: {fence: 7, result: "+quoted+"}\n",
		).Replace(strings.Replace(story, "invoice-42", "labels", 1)),
		"good.yaml": strings.NewReplacer(
			"  labels:", "  annotations: {note: "+quoted+"}\n  labels:",
			"  ttl: 30\n", "  ttl: 30\n  data: {text: "+quoted+"}\n",
		).Replace(story),
	})
	clean := func() {
		t.Helper()
		if v := value[string](b, `typeof hacked + document.querySelectorAll("[src=x], [onerror], main script").length`); v != "undefined0" {
			t.Errorf("markup became more than text: %v", v)
		}
	}
	b.run(chromedp.Navigate(s.url + "/"))
	b.until("a lease", `document.body.innerText.includes("Leased")`)
	s.do("complete", "job/invoice-42", "--worker", "worker-a", "--fence", "1", "--result", strings.Trim(quoted, "'"))
	b.until("all three", `document.querySelectorAll("#rows tr[id]:not(.more)").length === 3 && document.body.innerText.includes("Complete")`)
	b.until("the name as text", "document.body.innerText.includes(`"+evil+"`)")
	clean()
	b.run(chromedp.Navigate(s.url + "/job?id=labels"))
	b.until("a label as text", "document.querySelector('.title .label').innerText === `app="+strings.Trim(quoted, "'")+"`")
	clean()
	b.run(chromedp.Navigate(s.url + "/job?id=invoice-42"))
	b.until("the result as text", "document.querySelector('#result').innerText === `"+strings.Trim(quoted, "'")+"`")
	clean()
	b.shot("markup.png", 1280, 844, false)
}

// With 5,000 jobs, a keystroke in the filter is on the screen within 200 ms.
func TestFilterIsQuick(t *testing.T) {
	const files, each = 50, 100
	b := open(t)
	all := map[string]string{}
	for f := range files {
		var text strings.Builder
		for i := range each {
			text.WriteString("---\n" + strings.Replace(story, "invoice-42", fmt.Sprintf("invoice-%d", f*each+i), 1))
		}
		all[fmt.Sprintf("jobs-%d.yaml", f)] = text.String()
	}
	s := serve(t, all)
	s.metric(`leasehold_jobs{state="Leased"} 5000`)
	b.run(chromedp.Navigate(s.url+"/"), js(`
		window.took = [];
		window.began = 0;
		addEventListener("input", () => { began = performance.now(); }, true);
		new MutationObserver(() => requestAnimationFrame(() => {
			const channel = new MessageChannel(); // answers after the frame
			channel.port1.onmessage = () => { if (began) took.push(performance.now() - began); began = 0; };
			channel.port2.postMessage(0);
		})).observe(document.getElementById("live"), { subtree: true, childList: true, attributes: true, characterData: true });
		0`))
	b.until("live", `document.querySelector("#connection").dataset.state === "live" && document.body.innerText.includes("5,000")`)
	b.run(js(`dispatchEvent.call(document.body, new KeyboardEvent("keydown", { key: "/", bubbles: true }))`))
	b.until("the filter by keyboard", `document.activeElement.id === "filter"`)
	best := 1e9
	for round := range 3 { // the machine may be busy with something else
		b.run(js("took.length = 0; document.querySelector('#filter').value = ''; 0"))
		typed := ""
		for i, key := range "owner:worker-a invoice-123" {
			typed += string(key)
			b.run(chromedp.SendKeys("#filter", string(key)))
			b.until("a repaint after "+typed, fmt.Sprintf("took.length >= %d", i+1))
		}
		b.until("what was asked for", `document.querySelector("#rows").dataset.count === "11 of 5,000 jobs"`)
		took := value[[]float64](b, "took")
		worst := slices.Max(took)
		slices.Sort(took)
		t.Logf("round %d: median %.0f ms, worst %.0f ms of %d keystrokes", round+1, took[len(took)/2], worst, len(took))
		if best = min(best, worst); best <= 200 {
			break
		}
		b.run(js("document.querySelector('#filter').value = ''; document.querySelector('#filter').dispatchEvent(new Event('input')); 0"))
		b.until("all", `document.querySelector("#rows").dataset.count === "5,000 of 5,000 jobs"`)
	}
	if best > 200 {
		t.Errorf("the quickest of three rounds took %.0f ms for a keystroke", best)
	}
	b.shot("filter.png", 1280, 844, false)
}
