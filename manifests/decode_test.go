package manifests

import (
	"fmt"
	"strings"
	"testing"
)

// job is a small accepted document; the rows below are written in place of its lines.
func job(replace ...string) string {
	s := "apiVersion: leasehold.dev/v1alpha1\nkind: Job\nmetadata:\n  name: a\nspec:\n  clock: 0\n  ttl: 10\n  workers:\n  - name: w\n"
	return strings.NewReplacer(replace...).Replace(s)
}

var broken = []struct{ name, text string }{
	{"ttl negative", job("ttl: 10", "ttl: -5")},
	{"ttl zero", job("ttl: 10", "ttl: 0")},
	{"ttl missing", job("  ttl: 10\n", "")},
	{"ttl null", job("ttl: 10", "ttl:")},
	{"ttl quoted", job("ttl: 10", `ttl: "10"`)},
	{"ttl nan", job("ttl: 10", "ttl: .nan")},
	{"ttl infinite", job("ttl: 10", "ttl: .inf")},
	{"ttl too large", job("ttl: 10", "ttl: 1e999")},
	{"ttl too small", job("clock: 0", "clock: 100000000000", "ttl: 10", "ttl: 1e-9")},
	{"ttl text", job("ttl: 10", "ttl: 10s")},
	{"ttl list", job("ttl: 10", "ttl: [10]")},
	{"clock negative", job("clock: 0", "clock: -1")},
	{"clock too large", job("clock: 0", "clock: 253402300800")},
	{"clock nan", job("clock: 0", "clock: .NaN")},
	{"max attempts zero", job("ttl: 10", "ttl: 10\n  maxAttempts: 0")},
	{"max attempts fraction", job("ttl: 10", "ttl: 10\n  maxAttempts: 1.5")},
	{"several at once", job("ttl: 10", "ttl: -5", "clock: 0", "clock: x", "name: w", "nam: w", "name: a", "name: A_b")},
	{"spec missing", "apiVersion: leasehold.dev/v1alpha1\nkind: Job\nmetadata:\n  name: a\n"},
	{"spec null", "apiVersion: leasehold.dev/v1alpha1\nkind: Job\nmetadata:\n  name: a\nspec:\n"},
	{"spec text", "apiVersion: leasehold.dev/v1alpha1\nkind: Job\nmetadata:\n  name: a\nspec: x\n"},
	{"workers missing", job("  workers:\n  - name: w\n", "")},
	{"workers empty", job("workers:\n  - name: w", "workers: []")},
	{"worker null", job("- name: w", "-")},
	{"worker twice", job("- name: w", "- name: w\n  - name: v\n  - name: w")},
	{"worker empty", job("- name: w", `- name: ""`)},
	{"worker name", job("- name: w", "- name: worker_a")},
	{"worker number", job("- name: w", "- name: 7")},
	{"complete without", job("- name: w", "- name: w\n    complete: {}")},
	{"complete result number", job("- name: w", "- name: w\n    complete: {fence: 1, result: 07}")},
	{"fence zero", job("- name: w", "- name: w\n    release: {fence: 0}")},
	{"fence fraction", job("- name: w", "- name: w\n    release: {fence: 1.5}")},
	{"fence too large", job("- name: w", "- name: w\n    release: {fence: 9223372036854775808}")},
	{"fence rounded", job("- name: w", "- name: w\n    release: {fence: 9007199254740993.0}")},
	{"fence huge", job("- name: w", "- name: w\n    release: {fence: 1e400}")},
	{"fence text", job("- name: w", "- name: w\n    release: {fence: '1'}")},
	{"renew without time", job("- name: w", "- name: w\n    renew: {fence: 1}")},
	{"renew infinite", job("- name: w", "- name: w\n    renew: {fence: 1, time: -.inf}")},
	{"contradiction", job("- name: w", "- name: w\n    complete: {fence: 1, result: x}\n    release: {fence: 1}")},
	{"name missing", job("  name: a", "  labels: {a: b}")},
	{"name generated", job("  name: a", "  generateName: a-")},
	{"name empty", job("name: a", `name: ""`)},
	{"name upper case", job("name: a", "name: Invoice")},
	{"name number", job("name: a", "name: 42")},
	{"name template", job("name: a", `name: "{{ .name }}"`)},
	{"metadata missing", job("metadata:\n  name: a\n", "")},
	{"namespace", job("name: a", "name: a\n  namespace: a.b")},
	{"label key", job("name: a", "name: a\n  labels: {'a b': c}")},
	{"label value", job("name: a", "name: a\n  labels: {a: 'b c'}")},
	{"label number", job("name: a", "name: a\n  labels: {a: 1}")},
	{"annotation key", job("name: a", "name: a\n  annotations: {/x: c}")},
	{"data number", job("ttl: 10", "ttl: 10\n  data: {a: 1, b: yes, c: [x], d: ok}")},
	{"suspend text", job("ttl: 10", `ttl: 10`+"\n  suspend: \"true\"")},
	{"unknown field", job("ttl: 10", "ttl: 10\n  tll: 3")},
	{"unknown far off", job("ttl: 10", "ttl: 10\n  whatever: 3")},
	{"case", job("spec:", "spec:\n  Clock: 1")},
	{"case of spec", job("spec:", "Spec:")},
	{"case of apiVersion", job("apiVersion", "apiversion")},
	{"duplicate", job("clock: 0", "clock: 0\n  clock: 1")},
	{"duplicate at root", job("spec:", "kind: Job\nspec:")},
	{"duplicate data", job("ttl: 10", "ttl: 10\n  data:\n    a: b\n    \"a\": c")},
	{"version", job("v1alpha1", "v1")},
	{"no version", job("leasehold.dev/v1alpha1", "leasehold.dev")},
	{"group in capitals", job("leasehold.dev", "Leasehold.dev")},
	{"kind", job("kind: Job", "kind: Jobs")},
	{"kind missing", job("kind: Job\n", "")},
	{"apiVersion missing", job("apiVersion: leasehold.dev/v1alpha1\n", "")},
	{"creation time", job("name: a", "name: a\n  creationTimestamp: yesterday")},
	{"template", job("name: a", "name: {{ .name }}")},
	{"template block", "{{- if .x }}\n" + job()},
	{"conflict", job("  ttl: 10\n", "<<<<<<< HEAD\n  ttl: 10\n=======\n  ttl: 20\n>>>>>>> theirs\n")},
	{"latin-1", job("name: w", "name: w # f\xfcr")},
	{"utf-16", "\xff\xfea\x00p\x00i\x00"},
	{"utf-16 without a mark", "a\x00p\x00i\x00"},
	{"utf-32", "\xff\xfe\x00\x00a\x00\x00\x00"},
	{"bom in the middle", job() + "---\n\ufeff" + job()},
	{"nul", job("name: w", "name: w\x00")},
	{"control", job("name: w", "name: \"w\x1b[31m\"")},
	{"tab", job("  ttl: 10", "\tttl: 10")},
	{"bracket", job("name: w", "name: [w")},
	{"colon", job("name: w", "name: w: x")},
	{"quote", job("name: a", "name: 'a")},
	{"unknown anchor", job("name: w", "name: *x")},
	{"anchor in itself", job("ttl: 10", "ttl: 10\n  data: &x {a: *x}")},
	{"alias bomb", bomb()},
	{"alias bomb of text", job("ttl: 10", "ttl: 10\n  data:\n    a: &a "+strings.Repeat("x", 1<<20)+strings.Repeat("\n    b: *a", 100))},
	{"deep", job("ttl: 10", "ttl: 10\n  data: "+strings.Repeat("[", 20000))},
	{"list key", job("ttl: 10", "ttl: 10\n  data: {[a]: b}")},
	{"null key", job("ttl: 10", "ttl: 10\n  data: {~: b}")},
	{"merge of text", job("ttl: 10", "ttl: 10\n  data: {<<: b}")},
	{"bad tag", job("ttl: 10", "ttl: !!int x")},
	{"separator by U+2028", job("name: w", "name: w\u2028--- \u2028a: b")},
	{"status of any kind", job() + "status: {fence: .nan, ? [x] : y, fence: &z 1, done: *z}\n"},
	{"in a list", "apiVersion: v1\nkind: List\nitems:\n- " + strings.ReplaceAll(job("ttl: 10", "ttl: .inf"), "\n", "\n  ") + "\n- " + strings.ReplaceAll(job(), "\n", "\n  ")},
	{"json", `{"apiVersion": "leasehold.dev/v1alpha1", "kind": "Job", "metadata": {"name": "a"},` + "\n" + `"spec": {"ttl": "5", "workers": [{"name": "w"}], "ttl": 6}}`},
	{"json cut off", `{"apiVersion": "leasehold.dev/v1alpha1", "kind": "Job",` + "\n"},
}

func bomb() string {
	var b strings.Builder
	b.WriteString("a0: &a0 [lol, lol, lol, lol, lol, lol, lol, lol, lol]\n")
	for i := 1; i < 12; i++ {
		fmt.Fprintf(&b, "a%d: &a%d [%s*a%d]\n", i, i, strings.Repeat(fmt.Sprintf("*a%d, ", i-1), 8), i-1)
	}
	return b.String() + job()
}

func TestErrors(t *testing.T) {
	var b strings.Builder
	for _, row := range broken {
		f := Decode("a.yaml", []byte(row.text))
		fmt.Fprintf(&b, "# %s\n", row.name)
		for _, e := range f.Errors {
			fmt.Fprintf(&b, "  %s\n", e)
		}
		for _, d := range f.Docs {
			for _, e := range d.Errors {
				fmt.Fprintf(&b, "%s: %s\n", d.ID, e)
			}
			if (d.Job == nil) != (len(d.Errors) > 0) {
				t.Errorf("%s: a document is accepted exactly if it has no errors", row.name)
			}
		}
		if f.Skipped > 0 {
			fmt.Fprintf(&b, "skipped %d\n", f.Skipped)
		}
	}
	golden(t, "errors", []byte(b.String()))
}
