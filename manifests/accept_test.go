package manifests

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestAccepted(t *testing.T) {
	for _, row := range []struct {
		name, text string
		ids        string // of the accepted documents
		skipped    int
	}{
		{"nothing", "", "", 0},
		{"comments", "# a\n---\n# b\n---\n", "", 0},
		{"mark only", "\ufeff", "", 0},
		{"namespace", job("name: a", "name: a\n  namespace: n1"), "n1/a", 0},
		{"default namespace", job("name: a", "name: a\n  namespace: default"), "a", 0},
		{"others", "a: b\n---\napiVersion: batch/v1\nkind: Job\nmetadata: {name: x, bogus: [.nan]}\n---\n[1]\n---\n" + job() + "---\nkind: List\nitems:\n- {apiVersion: v1, kind: Pod}\n", "a", 4},
		{"one bad", job() + "---\n{{ x }}\n---\n" + job("name: a", "name: b"), "a b", 0},
		{"one invalid", job() + "---\n" + job("ttl: 10", "ttl: 0") + "---\n" + job("name: a", "name: b"), "a b", 0},
		{"json lines", `{"apiVersion":"leasehold.dev/v1alpha1","kind":"Job","metadata":{"name":"a"},"spec":{"ttl":1.0,"workers":[{"name":"w"}]}}` + "\n" + `{"kind":"Pod"}`, "a", 1},
		{"nested lists", "kind: List\nitems:\n- kind: JobList\n  apiVersion: leasehold.dev/v1alpha1\n  items:\n  - " + strings.ReplaceAll(job(), "\n", "\n    ") + "\n", "a", 0},
		{"item by alias", "kind: List\nx: &j\n  " + strings.ReplaceAll(job(), "\n", "\n  ") + "\nitems: [*j]\n", "a", 0},
		{"booleans", job("ttl: 10", "ttl: 10\n  suspend: on"), "a", 0},
		{"numbers", job("ttl: 10", "ttl: 1_0", "clock: 0", "clock: 0x10", "- name: w", "- name: w\n    release: {fence: 1.0}"), "a", 0},
		{"null fields", job("ttl: 10", "ttl: 10\n  data:\n  maxAttempts: ~", "name: a", "name: a\n  creationTimestamp: null\n  labels:"), "a", 0},
		{"managed fields", job("name: a", "name: a\n  managedFields: [{manager: kubectl, fieldsV1: {\"f:x\": {}, \"f:x.y\": 1}, time: \"2026-01-01T00:00:00Z\"}]\n  ownerReferences: [{apiVersion: v1, kind: Pod, name: p, uid: u}]"), "a", 0},
		{"merge", job("name: w", "&w {name: w}\n  - {<<: *w, name: v}"), "a", 0},
		{"all reports", job("- name: w", "- name: w\n    renew: {fence: 2, time: -0.0}\n    complete: {fence: 2, result: \"\"}\n    release: {fence: 9223372036854775807}"), "a", 0},
		{"markers in text", job("ttl: 10", "ttl: 10\n  data:\n    a: |\n      ---\n      ...\n"), "a", 0},
		{"any status", job() + "status: [1, {a: 2}, .inf]\n", "a", 0},
		{"status with duplicates", job() + "status: {a: 1, a: 2, Owner: x}\n", "a", 0},
	} {
		f := Decode("a.yaml", []byte(row.text))
		var ids []string
		for _, d := range f.Docs {
			if d.Job != nil {
				ids = append(ids, d.ID)
			}
		}
		if strings.Join(ids, " ") != row.ids || f.Skipped != row.skipped {
			t.Errorf("%s: accepted %q, skipped %d, errors %v", row.name, ids, f.Skipped, f.Errors)
			for _, d := range f.Docs {
				t.Log(d.Errors)
			}
		}
	}
}

func TestExactIntegers(t *testing.T) {
	for _, text := range []string{
		job("- name: w", "- name: w\n    complete: {fence: 9007199254740993, result: \"07\"}"),
		`{"apiVersion":"leasehold.dev/v1alpha1","kind":"Job","metadata":{"name":"a"},"spec":{"ttl":1,"workers":[{"name":"w","complete":{"fence":9007199254740993,"result":"07"}}]}}`,
	} {
		d := Decode("a.yaml", []byte(text)).Docs[0]
		if d.Job == nil {
			t.Fatal(d.Errors)
		}
		if got := *d.Job.Spec.Workers[0].Complete; got != (Complete{Fence: 9007199254740993, Result: "07"}) {
			t.Errorf("%+v", got)
		}
	}
}

func TestLenientStatus(t *testing.T) {
	text := job() + `status:
  owner: [x]
  fence: 7
  until: .nan
  done: "yes"
  attempts: 1.5
  result: x
  nonsense: {a: b}
  conditions: [1, {type: Leased, status: "True"}, {type: 5}]
  workers: {a: b}
`
	d := Decode("a.yaml", []byte(text)).Docs[0]
	if d.Job == nil {
		t.Fatal(d.Errors)
	}
	want := &JobStatus{Fence: ptr[int64](7), Result: ptr("x"), Conditions: []Condition{{Type: "Leased", Status: "True"}}}
	if diff := cmp.Diff(want, d.Status); diff != "" {
		t.Error(diff)
	}
	for _, none := range []string{"", "status:\n", "status: {}\n", "status: null\n", "status: text\n"} {
		if d := Decode("a.yaml", []byte(job()+none)).Docs[0]; d.Status != nil {
			t.Errorf("%q: %v", none, d.Status)
		}
	}
}

func TestClockOfWhatIsNotAccepted(t *testing.T) {
	for text, want := range map[string]*float64{
		job("ttl: 10", "ttl: 0", "clock: 0", "clock: 12.5"): ptr(12.5),
		job("clock: 0", "clock: -1"):                        nil,
		job("clock: 0", "clock: '1'"):                       nil,
		job("clock: 0", "clock: .inf"):                      nil,
		job("  clock: 0\n", ""):                             nil,
	} {
		if diff := cmp.Diff(want, Decode("a.yaml", []byte(text)).Docs[0].Clock); diff != "" {
			t.Errorf("%s%s", text, diff)
		}
	}
}

func TestHash(t *testing.T) {
	hash := func(replace ...string) string {
		d := Decode("a.yaml", []byte(job(replace...))).Docs[0]
		if d.Job == nil {
			t.Fatal(d.Errors)
		}
		return d.Job.Spec.Hash()
	}
	base := hash("ttl: 10", "ttl: 30\n  data: {a: b, c: d}")
	if len(base) != 12 || strings.Trim(base, "0123456789abcdef") != "" {
		t.Errorf("%q is not 12 hex digits", base)
	}
	for _, same := range [][]string{
		{"ttl: 10", "ttl: 30.0 # c\n  data: {c: d, a: b}"},
		{"ttl: 10", "data: {a: b, c: d}\n  suspend: false\n  ttl: 3e1", "name: a", "name: b\n  labels: {x: z}"},
		{"ttl: 10", "ttl: 30\n  data: {a: b, c: d}", "clock: 0", "clock: -0.0"},
	} {
		if hash(same...) != base {
			t.Errorf("%q has another hash", same)
		}
	}
	if hash("ttl: 10", "ttl: 31\n  data: {a: b, c: d}") == base || hash("ttl: 10", "ttl: 30\n  data: {a: b, c: d}", "  clock: 0\n", "") == base {
		t.Error("another spec has the same hash")
	}
}

// Lines of an editor are those that end with a line feed, whatever the parser takes for a break.
func TestLinesAreThoseOfAnEditor(t *testing.T) {
	text := "# \u2028 \u0085\r\n" + job("clock: 0", "clock: 0\n  data: {a: \"x\u2028y\u2029z\"}", "ttl: 10", "ttl: 0")
	d := Decode("a.yaml", []byte(text)).Docs[0]
	if len(d.Errors) != 1 || d.Errors[0].Line != 9 || d.Errors[0].Col != 3 || d.Line != 2 {
		t.Errorf("%v: column %d, document in line %d", d.Errors, d.Errors[0].Col, d.Line)
	}
}

func TestEditOfOtherBytes(t *testing.T) {
	data := []byte(job())
	f := Decode("a.yaml", data)
	if _, err := f.EditStatus([]byte(job("ttl: 10", "ttl: 11")), map[int]*JobStatus{0: sampleStatus()}); err != ErrOtherBytes {
		t.Error(err)
	}
	if _, err := f.EditStatus(data, map[int]*JobStatus{1: sampleStatus()}); err == nil {
		t.Error("a document that is not there was edited")
	}
}

func TestLargeIsNotSlow(t *testing.T) {
	if testing.Short() {
		t.Skip()
	}
	// A list in one line is what a quadratic step would choke on.
	var b strings.Builder
	b.WriteString(`{"kind":"List","items":[`)
	for i := range 5000 {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(`{"apiVersion":"leasehold.dev/v1alpha1","kind":"Job","metadata":{"name":"A"},"spec":{"ttl":0,"workers":[{"name":"w"}]}}`)
	}
	b.WriteString("]}")
	start := time.Now()
	f := Decode("a.json", []byte(b.String()))
	set := map[int]*JobStatus{}
	for i := range f.Docs {
		set[i] = sampleStatus()
	}
	if _, err := f.EditStatus([]byte(b.String()), set); err != nil || len(f.Docs) != 5000 {
		t.Error(len(f.Docs), err)
	}
	if d := time.Since(start); d > 30*time.Second {
		t.Errorf("took %v", d)
	}
}
