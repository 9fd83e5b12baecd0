package manifests

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const commented = `# head
apiVersion: leasehold.dev/v1alpha1
kind: Job
metadata:
  name: a # the name
spec:
  # how long
  ttl: 30   # seconds
  data: {region: eu, "x": "1"}
  workers:
  # first choice
  - name: w1 # one

    # a report
    complete: {fence: 1, result: "r"}
  # second choice
  - name: w2
  - suspend: true
    name: w3
    # end of w3
# about status
status: {owner: w1} # theirs
`

func mergeSpec(t *testing.T, text string, doc int, spec string) string {
	t.Helper()
	f := Decode("a.yaml", []byte(text))
	var want map[string]any
	d := Decode("", []byte(`{"apiVersion":"leasehold.dev/v1alpha1","kind":"Job","metadata":{"name":"a"},"spec":`+spec+`}`))
	want, _ = d.Docs[0].Object["spec"].(map[string]any)
	next, err := f.MergeSpec([]byte(text), doc, want)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	g := Decode("a.yaml", next)
	if len(g.Docs) != len(f.Docs) || g.Skipped != f.Skipped {
		t.Fatalf("other documents:\n%s", next)
	}
	for i := range g.Docs {
		if i != doc && !sameDoc(f.Docs[i], g.Docs[i]) {
			t.Errorf("document %d changed:\n%s", i, next)
		}
	}
	if !sameValue(g.Docs[doc].Object["spec"], want) {
		got, _ := json.Marshal(g.Docs[doc].Object["spec"])
		t.Errorf("got %s, want %s", got, spec)
	}
	if !reflect.DeepEqual(g.Docs[doc].Status, f.Docs[doc].Status) {
		t.Errorf("the status changed:\n%s", next)
	}
	again, err := g.MergeSpec(next, doc, want)
	if err != nil || string(again) != string(next) {
		t.Errorf("a second time: %v\n%s", err, cmp.Diff(string(next), string(again)))
	}
	return string(next)
}

func TestMergeSpec(t *testing.T) {
	same := `{"ttl":30.0,"data":{"region":"eu","x":"1"},"workers":[{"name":"w1","complete":{"fence":1,"result":"r"}},{"name":"w2"},{"name":"w3","suspend":true}]}`
	for _, c := range []struct{ name, spec, old, new string }{
		{"nothing", same, "", ""},
		{"a leaf", strings.Replace(same, "30.0", "31", 1), "ttl: 30  ", "ttl: 31  "},
		{"in a flow mapping", strings.Replace(same, `"eu"`, `"us"`, 1), "region: eu", "region: us"},
		{"a key less", strings.Replace(same, `,"x":"1"`, "", 1), `, "x": "1"`, ""},
		{"a key more", strings.Replace(same, `"ttl"`, `"maxAttempts":2,"ttl"`, 1), "    # end of w3\n", "    # end of w3\n  maxAttempts: 2\n"},
		{"a worker's report", strings.Replace(same, `"w2"`, `"w2","release":{"fence":2}`, 1), "- name: w2\n", "- name: w2\n    release: {fence: 2}\n"},
		{"a worker less", strings.Replace(same, `{"name":"w2"},`, "", 1), "  # second choice\n  - name: w2\n", ""},
		{"a worker more", strings.Replace(same, `{"name":"w2"},`, `{"name":"w2"},{"complete":{"fence":3,"result":""},"name":"w4"},`, 1),
			"  - name: w2\n", "  - name: w2\n  - name: w4\n    complete: {fence: 3, result: \"\"}\n"},
		{"the last worker less", strings.Replace(same, `,{"name":"w3","suspend":true}`, "", 1), "  - suspend: true\n    name: w3\n    # end of w3\n", ""},
		{"a new order", `{"ttl":30,"data":{"region":"eu","x":"1"},"workers":[{"name":"w2"},{"name":"w1","complete":{"fence":1,"result":"r"}},{"name":"w3","suspend":true}]}`,
			"  - name: w1 # one\n\n    # a report\n    complete: {fence: 1, result: \"r\"}\n  # second choice\n  - name: w2\n",
			"  # second choice\n  - name: w2\n  - name: w1 # one\n\n    # a report\n    complete: {fence: 1, result: \"r\"}\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, eol := range []string{"\n", "\r\n"} {
				lines := strings.NewReplacer("\n", eol)
				got := mergeSpec(t, lines.Replace(commented), 0, c.spec)
				want := lines.Replace(commented)
				if c.old != "" {
					want = strings.Replace(want, lines.Replace(c.old), lines.Replace(c.new), 1)
				}
				if got != want {
					t.Error(cmp.Diff(want, got))
				}
			}
		})
	}
}

// Whatever the file looks like, the spec comes to be what is wanted, and nothing else changes.
func TestMergeSpecLayouts(t *testing.T) {
	specs := []string{
		`{"ttl":30,"workers":[{"name":"w"}]}`,
		`{"ttl":10,"clock":5,"suspend":true,"workers":[{"name":"v"},{"name":"w","complete":{"fence":1,"result":"a\nb"}}]}`,
		`{"ttl":10,"data":{"k":"v","yes":"no"},"maxAttempts":3,"workers":[{"name":"w","suspend":true},{"name":"worker-b"},{"name":"x"}]}`,
	}
	texts := map[string]string{"list": list, "pretty": pretty, "commented": commented, "two": job() + "---\n" + commented + "---\nkind: ConfigMap\napiVersion: v1\n",
		"no spec":    "apiVersion: leasehold.dev/v1alpha1\nkind: Job\nmetadata: {name: a}\n",
		"spec null":  "apiVersion: leasehold.dev/v1alpha1\nkind: Job\nmetadata: {name: a}\nspec:\nstatus: {}\n",
		"aliases":    "apiVersion: leasehold.dev/v1alpha1\nkind: Job\nmetadata: {name: a, annotations: &d {k: v}}\nspec:\n  ttl: &t 10\n  data: *d\n  workers:\n  - &w {name: w}\n",
		"merge":      "apiVersion: leasehold.dev/v1alpha1\nkind: List\nitems:\n- apiVersion: leasehold.dev/v1alpha1\n  kind: Job\n  metadata: {name: a}\n  spec: &s\n    ttl: 1\n    workers: [name: w]\n- apiVersion: leasehold.dev/v1alpha1\n  kind: Job\n  metadata: {name: b}\n  spec:\n    <<: *s\n    clock: 3\n",
		"json twice": strings.ReplaceAll(pretty, "\n", "") + `{"apiVersion":"leasehold.dev/v1alpha1","kind":"Job","metadata":{"name":"b"},"spec":{"ttl":1,"workers":[{"name":"w"},{"name":"z"}]}}`,
		"no newline": strings.TrimSuffix(job(), "\n"),
		"indented":   "apiVersion: leasehold.dev/v1alpha1\nkind: Job\nmetadata: {name: a}\nspec:\n  workers:\n      # why\n      -   name: w\n          suspend: true\n\n      # x\n      -   name: worker-b # c\n  ttl: 10",
		"flow":       "{apiVersion: leasehold.dev/v1alpha1, kind: Job, metadata: {name: a}, spec: {ttl: 10, workers: [{name: w}, name: y]}, status: {owner: q}}\n",
	}
	for _, l := range layouts {
		texts[l.name] = l.text
	}
	for name, text := range texts {
		t.Run(name, func(t *testing.T) {
			n := len(Decode("a.yaml", []byte(text)).Docs)
			for doc := range n {
				for _, spec := range specs {
					if name == "merge" && doc == 0 {
						continue // shared with the other, and refused
					}
					for _, next := range specs {
						mergeSpec(t, mergeSpec(t, text, doc, spec), doc, next)
					}
				}
			}
		})
	}
}

func TestRemoveDocument(t *testing.T) {
	one := func(name string) string {
		return "apiVersion: leasehold.dev/v1alpha1\nkind: Job\nmetadata: {name: " + name + "}\nspec: {ttl: 10, workers: [name: w]}\n"
	}
	other := "apiVersion: v1\nkind: ConfigMap\n"
	// What stands above the first item may be about the list, and stays.
	itemA, itemB := list[strings.Index(list, "- apiVersion: lease"):strings.Index(list, "# the second")], list[strings.Index(list, "# the second"):strings.Index(list, "- apiVersion: v1")]
	for _, c := range []struct {
		name, text string
		doc        int
		want       string
	}{
		{"the only one", "# why\n" + one("a"), 0, ""},
		{"with a marker", "---\n" + one("a"), 0, ""},
		{"with an end", one("a") + "...\n", 0, ""},
		{"the first", one("a") + "---\n" + one("b"), 0, "---\n" + one("b")},
		{"the last", one("a") + "---\n" + one("b"), 1, one("a")},
		{"the middle", one("a") + "---\n# b\n" + one("b") + "\n--- # c\n" + one("c"), 1, one("a") + "--- # c\n" + one("c")},
		{"beside another kind", other + "---\n" + one("a"), 0, other},
		{"beside a comment", "# license\n---\n" + one("a"), 0, "# license\n"},
		{"beside what is broken", "a: [\n---\n" + one("a") + "---\n}\n", 0, "a: [\n---\n}\n"},
		{"BOM", "\ufeff" + one("a") + "---\n" + one("b"), 0, "\ufeff---\n" + one("b")},
		{"ends", one("a") + "...\n" + one("b") + "...\n# x\n", 0, one("b") + "...\n# x\n"},
		{"directive", one("a") + "...\n%YAML 1.1\n---\n" + one("b"), 0, "%YAML 1.1\n---\n" + one("b")},
		{"directive after", one("a") + "---\n" + one("b") + "...\n%YAML 1.1\n---\n" + one("c"), 1, one("a") + "...\n%YAML 1.1\n---\n" + one("c")},
		{"first item", list, 0, strings.Replace(list, itemA, "", 1)},
		{"second item", list, 1, strings.Replace(list, itemB, "", 1)},
		{"the only item", pretty, 0, ""},
		{"JSON list", `{"kind":"List","items":[{"apiVersion":"leasehold.dev/v1alpha1","kind":"Job"},{"kind":"Pod"}]}`, 0, `{"kind":"List","items":[{"kind":"Pod"}]}`},
		{"JSON in a row", `{"kind":"Pod"} {"apiVersion":"leasehold.dev/v1alpha1","kind":"Job"}` + "\n{}", 0, `{"kind":"Pod"} {}`},
		{"the last JSON in a row", `{"kind":"Pod"} {"apiVersion":"leasehold.dev/v1alpha1","kind":"Job"}` + "\n", 0, `{"kind":"Pod"}` + "\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, eol := range []string{"\n", "\r\n"} {
				text := strings.ReplaceAll(c.text, "\n", eol)
				got, err := Decode("a.yaml", []byte(text)).Remove([]byte(text), c.doc)
				if err != nil {
					t.Fatal(err)
				}
				if d := cmp.Diff(strings.ReplaceAll(c.want, "\n", eol), string(got)); d != "" {
					t.Error(d)
				}
			}
		})
	}
	shared := "kind: List\nitems:\n- &a\n" + "  apiVersion: leasehold.dev/v1alpha1\n  kind: Job\n  metadata: {name: a}\n- *a\n"
	if got, err := Decode("a.yaml", []byte(shared)).Remove([]byte(shared), 0); err == nil {
		t.Errorf("an item that holds an anchor was removed:\n%s", got)
	}
	if got, err := Decode("a.yaml", []byte(shared)).Remove([]byte(shared), 1); err != nil || strings.Contains(string(got), "*a") {
		t.Errorf("%v\n%s", err, got)
	}
}

// Whatever a file looks like, a document can be taken out of it, and comes out by itself.
func TestRemoveLayouts(t *testing.T) {
	for _, l := range layouts {
		f := Decode("a.yaml", []byte(l.text))
		for doc := range f.Docs {
			next, err := f.Remove([]byte(l.text), doc)
			if err != nil {
				t.Errorf("%s: %v", l.name, err)
			} else if len(next) > 0 && !f.lacks(Decode("a.yaml", next), doc) {
				t.Errorf("%s:\n%s", l.name, next)
			}
		}
	}
}

func TestSameValue(t *testing.T) {
	for _, c := range []struct {
		a, b any
		want bool
	}{
		{int64(30), 30.0, true}, {1e16, 1e16, true}, {int64(1e16), 1e16, true}, {int64(1<<53 + 1), float64(1 << 53), false},
		{int64(1), int64(2), false}, {nil, nil, true}, {map[string]any{"a": nil}, map[string]any{}, true}, {"1", int64(1), false},
	} {
		if sameValue(c.a, c.b) != c.want || sameValue(c.b, c.a) != c.want {
			t.Errorf("%v %v", c.a, c.b)
		}
	}
}
