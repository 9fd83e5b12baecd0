package timeline

import (
	"bytes"
	"encoding/xml"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"leasehold.dev/leasehold/store"
)

var update = flag.Bool("update", false, "write the golden files")

// history is what the rules note, a second of wall time apart.
type history struct {
	r *store.Record
	t *testing.T
}

func (h *history) events() []store.Event {
	events := h.r.Events()
	for i := range events {
		e := &events[i]
		e.Seq, e.Count, e.At, e.By = int64(i+1), 1, time.Unix(1_000_000_000+int64(i), 0), "test"
	}
	return events
}

func told(t *testing.T) Input {
	h := history{&store.Record{Row: store.Row{ID: "invoice-42"}}, t}
	r := h.r
	must := func(_ store.Verdict, err error) {
		if err != nil {
			t.Helper()
			t.Fatal(err)
		}
	}
	r.Enqueue()
	must(r.Claim("worker-a", 100, 30))
	must(r.Renew("worker-a", 1, 110, 30))
	must(r.Claim("worker-b", 140, 30))
	must(r.Complete("worker-a", 1, 152, "by a"))
	must(r.Renew("worker-a", 1, 153, 30))
	must(r.Release("worker-b", 2))
	must(r.Claim("worker-a", 160, 30))
	must(r.Complete("worker-a", 3, 185, "by a"))
	must(r.Claim("worker-c", 190, 30))
	return Input{ID: "invoice-42", Workers: []string{"worker-a", "worker-b"}, TTL: 30, Now: 190, Row: r, Events: h.events()}
}

// layout prints what was laid out.
func layout(t *Timeline) string {
	var b strings.Builder
	for _, l := range t.Lanes {
		fmt.Fprintf(&b, "%s gone=%v\n", l.Worker, l.Gone)
		for _, c := range l.Bars {
			fmt.Fprintf(&b, "  %g-%g fence %d +%d %s: %s\n", c.From, c.To, c.Fence, c.More, c.End, c.Text)
		}
		for _, s := range l.Stale {
			fmt.Fprintf(&b, "  stale %g-%g\n", s.From, s.To)
		}
		for _, m := range l.Marks {
			fmt.Fprintf(&b, "  %g %s: %s\n", m.At, m.Kind, m.Text)
		}
	}
	fmt.Fprintf(&b, "from %g to %g, %s", t.From, t.To, t.Note)
	return b.String()
}

func TestLayout(t *testing.T) {
	in := told(t)
	for by, want := range map[Axis]string{
		Clock: `worker-a gone=false
  100-140 fence 1 +0 expired: worker-a took fence 1 until 130 (clock 100); it ran out
  160-185 fence 3 +0 completed: worker-a took fence 3 until 190 (clock 160); it was completed
  stale 140-153
  110 renewed: worker-a renewed fence 1 until 140 (clock 110)
  152 refused: StaleFence: worker-a's complete with fence 1 was refused: fence 2 is current, and worker-b's (clock 152)
  153 refused: StaleFence: worker-a's renew with fence 1 was refused: fence 2 is current, and worker-b's (clock 153)
  185 completed: worker-a completed it with fence 3 (clock 185)
worker-b gone=false
  140-153 fence 2 +0 released: worker-b took fence 2 until 170 (clock 140); it was released
  153 released: worker-b released fence 2
worker-c gone=true
  190 refused: Done: worker-c's claim was refused: worker-a has completed it with fence 3 (clock 190)
from 100 to 190, `,
		Wall: `worker-a gone=false
  1.000000001e+09-1.000000003e+09 fence 1 +0 expired: worker-a took fence 1 until 130 (clock 100); it ran out`,
	} {
		got := layout(New(in, by))
		if by == Wall {
			got = strings.Join(strings.SplitN(got, "\n", 3)[:2], "\n")
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("by %s: %s", by, d)
		}
	}
}

// What the history folds is said, and the lease that runs is drawn all the same.
func TestFolded(t *testing.T) {
	at := func(c float64) *float64 { return &c }
	in := Input{Workers: []string{"a"}, TTL: 10, Now: 75, Row: &store.Record{Row: store.Row{ID: "j", Owner: "a", Fence: 8, Until: 80}, Exists: true},
		Events: []store.Event{{Verb: "claimed", Owner: "a", Fence: 1, Until: 10, Clock: at(0), Count: 8}}}
	bars := New(in, Clock).Lanes[0].Bars
	if len(bars) != 2 || bars[0].More != 6 || bars[1].Fence != 8 || bars[1].From != 70 || bars[1].To != 80 || bars[1].End != "running" {
		t.Errorf("%+v %+v", *bars[0], *bars[len(bars)-1])
	}
	var many []store.Event
	for i := range 500 {
		many = append(many, store.Event{Verb: "claimed", Owner: fmt.Sprint("w", i%3), Fence: int64(i + 1), Until: float64(i + 1), Clock: at(float64(i)), Count: 1})
	}
	tl := New(Input{TTL: 1, Events: many}, Clock)
	if tl.Note != "380 earlier leases are not shown" || tl.From != 380 {
		t.Errorf("%q from %v", tl.Note, tl.From)
	}
}

// A clock that was reset begins a new drawing.
func TestReset(t *testing.T) {
	at := func(c float64) *float64 { return &c }
	tl := New(Input{Workers: []string{"a"}, TTL: 10, Now: 5, Events: []store.Event{
		{Verb: "claimed", Owner: "a", Fence: 1, Until: 1e9, Clock: at(1e9 - 10), Count: 1},
		{Verb: "reset", Clock: at(5), Count: 1},
		{Verb: "claimed", Owner: "a", Fence: 2, Until: 15, Clock: at(5), Count: 1},
	}}, Clock)
	if len(tl.Lanes[0].Bars) != 1 || tl.From != 5 || tl.To != 15 || tl.Note == "" {
		t.Error(layout(tl))
	}
}

func TestText(t *testing.T) {
	for by, name := range map[Axis]string{Clock: "testdata/clock.txt", Wall: "testdata/wall.txt"} {
		var b bytes.Buffer
		if err := New(told(t), by).Text(&b, 200, false); err != nil {
			t.Fatal(err)
		}
		if *update {
			if err := os.MkdirAll("testdata", 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(name, b.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(string(want), b.String()); d != "" {
			t.Error(d)
		}
		for line := range strings.SplitSeq(b.String(), "\n") {
			if n := utf8.RuneCountInString(line); n > mostColumns {
				t.Errorf("%d columns: %s", n, line)
			}
			if strings.Contains(line, "\x1b") {
				t.Errorf("colour: %q", line)
			}
		}
	}
	var b bytes.Buffer
	if err := New(told(t), Clock).Text(&b, 60, true); err != nil || !strings.Contains(b.String(), "\x1b[31m✘") {
		t.Errorf("%v %q", err, b.String())
	}
}

// What a manifest or another program put into the store is text in a drawing, and keeps it well-formed.
func TestDrawing(t *testing.T) {
	in := told(t)
	const evil = "</text><script>x</script>\x1b[31m]]>\u202e"
	in.ID, in.Workers = evil, append(in.Workers, evil)
	in.Events = append(in.Events, store.Event{Verb: "renew", Reason: evil, Owner: evil, Message: evil, Count: 1, At: time.Unix(1_000_000_009, 0)})
	for _, by := range []Axis{Clock, Wall} {
		var page, file, text bytes.Buffer
		tl := New(in, by)
		if err := tl.SVG(&page); err != nil {
			t.Fatal(err)
		}
		if err := tl.File(&file); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(page.String()+file.String(), "<script") {
			t.Error("markup got through")
		}
		if n := strings.Count(page.String(), "<style"); n != 0 {
			t.Errorf("%d style sheets in a page that allows none", n)
		}
		d := xml.NewDecoder(&file)
		for {
			if _, err := d.Token(); err == io.EOF {
				break
			} else if err != nil {
				t.Fatalf("%v in\n%s", err, file.String())
			}
		}
		if err := tl.Text(&text, 100, false); err != nil || strings.ContainsAny(text.String(), "\x1b\u202e") {
			t.Errorf("%v %q", err, text.String())
		}
	}
}

func FuzzTimeline(f *testing.F) {
	f.Add(uint64(1), 100.0, 30.0)
	f.Add(uint64(99), 1e300, 1e-9)
	f.Fuzz(func(t *testing.T, seed uint64, clock, step float64) {
		verbs := []string{"claimed", "renewed", "completed", "released", "jumped", "reset", "deleted", "claim", "complete"}
		var events []store.Event
		for i := range 12 {
			seed = seed*6364136223846793005 + 1442695040888963407
			c := clock + step*float64(i)
			e := store.Event{Verb: verbs[seed>>33%uint64(len(verbs))], Owner: string(rune('a' + seed>>40%3)), Fence: int64(seed >> 60), Until: c + step, Count: int64(seed>>20%3) + 1}
			if seed>>50%4 > 0 {
				e.Clock = &c
			}
			if e.Verb == "claim" || e.Verb == "complete" {
				e.Reason = store.Held
			}
			events = append(events, e)
		}
		for _, by := range []Axis{Clock, Wall} {
			tl := New(Input{TTL: step, Now: clock, System: seed%2 == 0, Events: events}, by)
			if err := tl.File(io.Discard); err != nil {
				t.Fatal(err)
			}
			if err := tl.Text(io.Discard, 80, true); err != nil {
				t.Fatal(err)
			}
		}
	})
}
