package manifests

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const list = `apiVersion: v1
kind: List
items:
# the first
- apiVersion: leasehold.dev/v1alpha1
  kind: Job
  metadata: {name: a}
  spec:
    clock: 0
    ttl: 10
    workers:
    - name: w
    # - name: v

# the second
- kind: Job
  apiVersion: leasehold.dev/v1alpha1
  metadata: {name: b, namespace: other}
  status: {owner: x} # seen
  spec: {ttl: 10, workers: [name: w]}
- apiVersion: v1
  kind: ConfigMap
metadata: {}
`

const pretty = `{
    "kind": "List",
    "items": [
        {
            "apiVersion": "leasehold.dev/v1alpha1",
            "kind": "Job",
            "metadata": {"name": "a"},
            "spec": {
                "ttl": 10,
                "data": {"emoji": "\ud83d\ude00\/"},
                "workers": [{"name": "w"}]
            }
        }
    ]
}
`

// layouts are files that an edit must come through.
var layouts = []struct{ name, text string }{
	{"plain", job()},
	{"comment on status", job() + "status: {}  # printed by a dry run\n# after\n"},
	{"comment after status", job() + "status:\n  owner: a\n  # inside\n# the user's\n\n\n"},
	{"status in the middle", "status: # s\n  owner: a\n  conditions:\n  - type: x\n\n# spec\n" + job()},
	{"status list at the margin", "status:\n- a\n- b\n" + job()},
	{"status of several lines", "status: {owner: a,\n} # end\n" + job()},
	{"status null", "status: null\n" + job()},
	{"status nothing", "status:\n" + job()},
	{"status nothing and comment", "status: # c\n" + job()},
	{"status text", "status: |\n  x\n\n  y\n" + job()},
	{"status quoted", "status: \"x\n\n y\" # c\n" + job()},
	{"status not convertible", "status: {until: .nan, fence: 7}\n" + job()},
	{"status last without newline", job() + "status: {}"},
	{"comments at the end", job() + "\n  # deep\n# flat\n\n\n"},
	{"end marker", "%YAML 1.1\n---\n" + job() + "...\n# after\n---\na: b\n"},
	{"two documents", "# head\n---\n" + job() + "# tail\n---\n# second\n" + job("name: a", "name: b") + "\n---\n"},
	{"crlf without newline", strings.ReplaceAll(strings.TrimSuffix(job(), "\n"), "\n", "\r\n")},
	{"cr", strings.ReplaceAll(job(), "\n", "\r")},
	{"byte order mark", "\ufeff" + job()},
	{"indented", "---\n  " + strings.ReplaceAll(strings.TrimSuffix(job(), "\n"), "\n", "\n  ") + "\n"},
	{"text at the end", job() + "metadata:\n  name: a\n"},
	{"literal at the end", job("  workers:\n  - name: w\n", "  workers:\n  - name: w\n  data:\n    a: |\n      x\n      y\n\n")},
	{"literal kept at the end", job("  workers:\n  - name: w\n", "  workers:\n  - name: w\n  data:\n    a: |+\n      x\n\n\n")},
	{"literal without newline", job("  workers:\n  - name: w\n", "  workers:\n  - name: w\n  data:\n    a: |\n      x")},
	{"literal with indicator", job("  workers:\n  - name: w\n", "  workers:\n  - name: w\n  data:\n    a: |2-\n        x\n      y")},
	{"folded empty", job("  workers:\n  - name: w\n", "  workers:\n  - name: w\n  data:\n    a: >\n")},
	{"quoted over lines", job("  workers:\n  - name: w\n", "  workers:\n  - name: w\n  data:\n    a: \"x\n\n     y: \\\"z\\\"\"\n")},
	{"plain over lines", job("  workers:\n  - name: w\n", "  workers:\n  - name: w\n  data:\n    a: x\n      y # z\n")},
	{"flow root", "{apiVersion: leasehold.dev/v1alpha1, kind: Job, metadata: {name: a}, spec: {ttl: 1, workers: [{name: a}]}}"},
	{"flow root of lines", "{\n  apiVersion: leasehold.dev/v1alpha1,\n  kind: Job, # k\n  metadata: {name: a},\n  spec: {ttl: 1, workers: [{name: a}]}, # s\n  # end\n}\n"},
	{"flow root with status", "{status: , apiVersion: leasehold.dev/v1alpha1, kind: Job, metadata: {name: a}, spec: {ttl: 1, workers: [{name: a}]}}\n"},
	{"json", `{"apiVersion":"leasehold.dev/v1alpha1","kind":"Job","metadata":{"name":"a"},"spec":{"ttl":1,"workers":[{"name":"a"}]}}`},
	{"json with status", `{"status": null, "apiVersion": "leasehold.dev/v1alpha1", "kind": "Job", "metadata": {"name": "a"}, "spec": {"ttl": 1.0, "workers": [{"name": "a"}]}}` + "\n"},
	{"json pretty", pretty},
	{"json tabs", strings.ReplaceAll(pretty, "    ", "\t")},
	{"json lines", `{"apiVersion":"leasehold.dev/v1alpha1","kind":"Job","metadata":{"name":"a"},"spec":{"ttl":1,"workers":[{"name":"a"}]}}` + "\n" + `{"apiVersion":"leasehold.dev/v1alpha1","kind":"Job","metadata":{"name":"b"},"spec":{"ttl":1,"workers":[{"name":"a"}]}}` + "\n"},
	{"list", list},
	{"list crlf", strings.ReplaceAll(list, "\n", "\r\n")},
	{"anchors", "x-common: &c {ttl: 10, workers: [{name: w}]}\n" + job("spec:\n  clock: 0\n  ttl: 10\n  workers:\n  - name: w\n", "spec:\n  <<: *c\n  clock: 1\n")},
	{"anchored root", "--- &root\n" + job()},
	{"status by alias", job("name: a\n", "name: a\n  labels: &l {a: b}\n") + "status: *l\n"},
	{"status by merge", job("name: a\n", "name: a\n  annotations: &l {status: b}\n") + "<<: *l\n"},
	{"status shared", job("name: a\n", "name: a\n  labels: *l\n") + "\n"},
	{"status anchor elsewhere", "status: {x: &l {a: b}}\n" + job("name: a\n", "name: a\n  labels: *l\n")},
	{"duplicate status", "status: {owner: a}\n" + job() + "status: {owner: b}\n"},
	{"odd spaces", "apiVersion : leasehold.dev/v1alpha1\n'kind' : Job\n\"metadata\"  :\n    name :   a   \nspec :\n    ttl:   10\t\n    workers :\n    -    name: w\n\"status\"  :   {}   # c  \n"},
	{"explicit keys", "? apiVersion\n: leasehold.dev/v1alpha1\n? kind\n: Job\n? metadata\n: name: a\n? spec\n:\n  ttl: 1\n  workers: [{name: w}]\n"},
	{"explicit status", "? apiVersion\n: leasehold.dev/v1alpha1\n? status\n: owner: x\n? kind\n: Job\n? metadata\n: name: a\n? spec\n:\n  ttl: 1\n  workers: [{name: w}]\n"},
	{"spaces at the end", job() + "   \n  "},
	{"next line character", job("name: w", "name: w\n  data: {a: \"x\u0085y\u2028 z\"}")},
	{"not accepted", job("ttl: 10", "tll: 10")},
}

func TestLayouts(t *testing.T) {
	var b strings.Builder
	for _, row := range layouts {
		data := []byte(row.text)
		fmt.Fprintf(&b, "#### %s\n", row.name)
		f := Decode("a.yaml", data)
		for _, e := range f.Errors {
			fmt.Fprintf(&b, "!! %s\n", e)
		}
		status := map[int]*JobStatus{}
		none := map[int]*JobStatus{}
		for i, d := range f.Docs {
			status[i], none[i] = smallStatus(), nil
			for _, e := range d.Errors {
				fmt.Fprintf(&b, "!! %s\n", e)
			}
		}
		out, err := f.EditStatus(data, status)
		if err != nil {
			fmt.Fprintf(&b, "!! %s\n", err)
			continue
		}
		b.WriteString(visible(out))
		g := Decode("a.yaml", out)
		if again, err := g.EditStatus(out, status); err != nil || string(again) != string(out) {
			t.Errorf("%s: the second edit: %v\n%s", row.name, err, again)
		}
		for i, d := range g.Docs {
			if diff := cmp.Diff(smallStatus(), d.Status); diff != "" {
				t.Errorf("%s: %d (-want +got):\n%s", row.name, i, diff)
			}
			if d.ID != f.Docs[i].ID || len(d.Errors) != len(f.Docs[i].Errors) {
				t.Errorf("%s: %d: %q %v, before %q %v", row.name, i, d.ID, d.Errors, f.Docs[i].ID, f.Docs[i].Errors)
			}
		}
		removed, err := g.EditStatus(out, none)
		if err != nil {
			fmt.Fprintf(&b, "-- %s\n", err)
			continue
		}
		direct, err := f.EditStatus(data, none)
		switch {
		case string(removed) == row.text:
			b.WriteString("-- removed: as before\n")
		case err == nil && string(direct) == string(removed):
			b.WriteString("-- removed: as if it had been removed at once\n")
			b.WriteString(visible(removed))
		default:
			b.WriteString("-- removed:\n")
			b.WriteString(visible(removed))
		}
	}
	golden(t, "layouts", []byte(b.String()))
}

func smallStatus() *JobStatus { return &JobStatus{Owner: "w", Fence: ptr[int64](1)} }

// visible shows carriage returns and a missing line break at the end.
func visible(data []byte) string {
	s := strings.ReplaceAll(string(data), "\r", "␍")
	if !strings.Contains(s, "\n") {
		s = strings.ReplaceAll(s, "␍", "␍\n")
	}
	if !strings.HasSuffix(s, "\n") {
		s += "␄\n"
	}
	return s
}

func TestSet(t *testing.T) {
	data, err := os.ReadFile("samples/story.yaml")
	if err != nil {
		t.Fatal(err)
	}
	worker := func(i int, key string) []any { return []any{"spec", "workers", i, key} }
	var b strings.Builder
	for _, row := range []struct {
		name  string
		text  string
		edits []Edit
	}{
		{"tick", string(data), []Edit{{[]any{"spec", "clock"}, 130}}},
		{"complete", string(data), []Edit{{worker(0, "complete"), Complete{Fence: 1, Result: "by a"}}, {worker(1, "complete"), &Complete{Fence: 2, Result: "yes"}}}},
		{"complete again", job("- name: w", "- name: w # x\n    complete: {fence: 1, result: a} # y\n    suspend: true"), []Edit{{worker(0, "complete"), Complete{Fence: 2, Result: "a: b\n"}}}},
		{"complete in block style", job("- name: w", "- name: w\n    complete: # y\n      fence: 1\n      result: |\n        text\n    suspend: true"), []Edit{{worker(0, "complete"), Complete{Fence: 2}}}},
		{"inside complete", job("- name: w", "- name: w\n    complete: {fence: 1, result: a}"), []Edit{{append(worker(0, "complete"), "fence"), 2}}},
		{"flow worker", job("- name: w", "- {name: w}\n  - {name: v, suspend: true}"), []Edit{{worker(0, "release"), Release{Fence: 1}}, {worker(1, "suspend"), nil}}},
		{"renew", job(), []Edit{{worker(0, "renew"), Renew{Fence: 3, Time: 1e21}}}},
		{"no clock", job("  clock: 0\n", ""), []Edit{{[]any{"spec", "clock"}, 12.5}}},
		{"remove clock", job("clock: 0", "clock: 0 # now"), []Edit{{[]any{"spec", "clock"}, nil}}},
		{"labels", job(), []Edit{{[]any{"metadata", "labels", "app.kubernetes.io/name"}, "x"}, {[]any{"metadata", "labels", "b"}, "true"}}},
		{"last label", job("name: a", "name: a\n  labels:\n    a: b"), []Edit{{[]any{"metadata", "labels", "a"}, nil}}},
		{"labels null", job("name: a", "name: a\n  labels: # none"), []Edit{{[]any{"metadata", "labels", "a"}, "b"}}},
		{"aliased clock", job("clock: 0", "clock: &now 0\n  data: {now: \"1\"}\n  maxAttempts: *now"), []Edit{{[]any{"spec", "clock"}, 1}}},
		{"aliased worker", "x: &w {name: w}\n" + job("- name: w", "- *w"), []Edit{{worker(0, "suspend"), true}}},
		{"no such worker", job(), []Edit{{worker(3, "suspend"), true}}},
		{"not a mapping", job(), []Edit{{[]any{"spec", "ttl", "x"}, 1}}},
		{"large number", job(), []Edit{{[]any{"spec", "clock"}, 253402300799.5}}},
		{"the same", job("clock: 0", "clock: 0.0"), []Edit{{[]any{"spec", "clock"}, 0}}},
	} {
		fmt.Fprintf(&b, "#### %s\n", row.name)
		out, err := Decode("a.yaml", []byte(row.text)).Set([]byte(row.text), 0, row.edits...)
		if err != nil {
			fmt.Fprintf(&b, "!! %s\n", err)
			continue
		}
		b.WriteString(visible(out))
		if again, err := Decode("a.yaml", out).Set(out, 0, row.edits...); err != nil || string(again) != string(out) {
			t.Errorf("%s: the second edit: %v\n%s", row.name, err, again)
		}
	}
	golden(t, "set", []byte(b.String()))
}
