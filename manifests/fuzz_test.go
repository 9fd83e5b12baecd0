package manifests

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func seeds(f *testing.F) {
	for _, row := range broken {
		if len(row.text) < 4096 {
			f.Add([]byte(row.text))
		}
	}
	for _, row := range layouts {
		f.Add([]byte(row.text))
	}
	files, _ := filepath.Glob("testdata/cases/*")
	for _, file := range files {
		if data, err := os.ReadFile(file); err == nil {
			f.Add(data)
		}
	}
	names, _ := fs.Glob(Samples, "samples/*")
	for _, name := range names {
		data, _ := fs.ReadFile(Samples, name)
		f.Add(data)
	}
}

func FuzzDecode(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		file := Decode("a.yaml", data)
		lines := strings.Count(string(data), "\n") + 1
		check := func(e *Error) {
			if e.Line < 0 || e.Line > lines || strings.ContainsAny(e.Error(), "\n\r") {
				t.Errorf("%d: %q", e.Line, e)
			}
		}
		for _, e := range file.Errors {
			check(e)
		}
		for _, d := range file.Docs {
			if (d.Job == nil) != (len(d.Errors) > 0) || d.Job != nil && d.ID == "" {
				t.Errorf("accepted %v, id %q, %d errors", d.Job != nil, d.ID, len(d.Errors))
			}
			for _, e := range d.Errors {
				check(e)
			}
		}
	})
}

func FuzzEditStatus(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, data []byte) { checkEdits(t, data) })
}

// checkEdits holds whatever the file: an edit is refused, or it keeps all documents, says what it
// shall say, is the same when it is made again, and when it is taken back the rest is as if the
// status had been taken out at once.
func checkEdits(t interface {
	Helper()
	Fatalf(string, ...any)
}, data []byte) {
	t.Helper()
	f := Decode("a.yaml", data)
	set, none := map[int]*JobStatus{}, map[int]*JobStatus{}
	for i := range f.Docs {
		set[i], none[i] = sampleStatus(), nil
	}
	out, err := f.EditStatus(data, set)
	if err != nil {
		var e *EditError
		if !errors.As(err, &e) {
			t.Fatalf("%v", err)
		}
		return
	}
	g := Decode("a.yaml", out)
	if len(g.Docs) != len(f.Docs) || len(g.Errors) != len(f.Errors) || g.Skipped != f.Skipped {
		t.Fatalf("%d documents, %d errors, %d skipped; before %d, %d, %d\n%q\n%q", len(g.Docs), len(g.Errors), g.Skipped, len(f.Docs), len(f.Errors), f.Skipped, data, out)
	}
	for i, d := range g.Docs {
		old := f.Docs[i]
		if d.ID != old.ID || (d.Job == nil) != (old.Job == nil) || d.Job != nil && d.Job.Spec.Hash() != old.Job.Spec.Hash() {
			t.Fatalf("%q became %q\n%q\n%q", old.ID, d.ID, data, out)
		}
		if d.Status == nil || d.Status.Owner != "worker-b" || len(d.Status.Workers) != 1 {
			t.Fatalf("status %v\n%q", d.Status, out)
		}
	}
	if again, err := g.EditStatus(out, set); err != nil || string(again) != string(out) {
		t.Fatalf("the second edit: %v\n%q\n%q", err, out, again)
	}
	removed, err := g.EditStatus(out, none)
	if err != nil {
		return // merged from elsewhere
	}
	direct, err := f.EditStatus(data, none)
	if err != nil || string(direct) != string(removed) {
		t.Fatalf("taken back: %v\n%q\n%q", err, direct, removed)
	}
}

// TestEditsOfAnyLayout puts files together from what is found in real ones.
func TestEditsOfAnyLayout(t *testing.T) {
	comment := rapid.SampledFrom([]string{"", "", "", "# flat\n", "  # deep\n", "\n", "   \n", "# status: {}\n"})
	tail := rapid.SampledFrom([]string{"", "", " # why", "   ", "\t# tab"})
	status := rapid.SampledFrom([]string{
		"", "", "", "status: {}", "status:", "status: null", "status: ~", "status:\n  owner: a\n  fence: 3",
		"status: {owner: a,\n  fence: 1}", "status:\n- a", "\"status\": 'x'", "status: |\n  x\n   y", "status: {until: .inf}",
		"status:\n  owner: a\n  # inside\n  conditions:\n  - {type: Leased}\n  # behind",
	})
	value := rapid.SampledFrom([]string{"x", "'it''s: # no'", "\"a\\\"b # c\"", "|\n      x\n\n      # y", "|+\n      x\n\n", ">-\n      x\n      y", "x\n      y z", "\"x\n\n      y\"", "\"\u2028status: z\"", "'---'", "é ü", "\"\""})
	rapid.Check(t, func(rt *rapid.T) {
		var b strings.Builder
		if rapid.Bool().Draw(rt, "mark") {
			b.WriteString("\ufeff")
		}
		for i := range rapid.IntRange(1, 3).Draw(rt, "documents") {
			if i > 0 || rapid.Bool().Draw(rt, "marker") {
				b.WriteString("---" + tail.Draw(rt, "tail") + "\n")
			}
			parts := []string{
				"apiVersion: leasehold.dev/v1alpha1" + tail.Draw(rt, "tail") + "\n",
				"kind: Job" + tail.Draw(rt, "tail") + "\n",
				"metadata:" + tail.Draw(rt, "tail") + "\n  name: a" + string(rune('0'+i)) + tail.Draw(rt, "tail") + "\n",
				"spec:\n  ttl: 10" + tail.Draw(rt, "tail") + "\n" + comment.Draw(rt, "comment") + "  workers:\n  - name: w\n  data:\n    k: " + value.Draw(rt, "value") + "\n",
			}
			if s := status.Draw(rt, "status"); s != "" {
				end := ""
				if !strings.Contains(s, "|") {
					end = tail.Draw(rt, "tail")
				}
				parts = append(parts, s+end+"\n")
			}
			parts = rapid.Permutation(parts).Draw(rt, "order")
			var doc strings.Builder
			for _, p := range parts {
				doc.WriteString(comment.Draw(rt, "comment"))
				doc.WriteString(p)
			}
			doc.WriteString(comment.Draw(rt, "comment"))
			text := doc.String()
			if rapid.IntRange(0, 5).Draw(rt, "list") == 0 {
				text = "kind: List\napiVersion: v1\nitems:\n-\n  " + strings.ReplaceAll(strings.TrimSuffix(text, "\n"), "\n", "\n  ") + "\n"
			}
			b.WriteString(text)
		}
		text := b.String()
		if rapid.Bool().Draw(rt, "cut") {
			text = strings.TrimSuffix(text, "\n")
		}
		if rapid.Bool().Draw(rt, "crlf") {
			text = strings.ReplaceAll(text, "\n", "\r\n")
		}
		f := Decode("a.yaml", []byte(text))
		for _, d := range f.Docs {
			if d.Job == nil {
				rt.Fatalf("%v\n%s", d.Errors, text)
			}
		}
		if len(f.Errors) > 0 {
			rt.Fatalf("%v\n%s", f.Errors, text)
		}
		checkEdits(rt, []byte(text))
	})
}

// TestAnyText writes any text into a status, and reads it back from every layout.
func TestAnyText(t *testing.T) {
	texts := rapid.OneOf(rapid.String(), rapid.StringMatching(`[-+.0-9eExXoObB_:/nNyY~]{0,8}`), rapid.SampledFrom([]string{
		"null", "~", "yes", "off", "0x1F", "1e3", "1_000", "2001-01-01", ".inf", "-", "- a", "a: b", "a #b", "*a", "&a", "!a", "%a", "@a", "`a`",
		"{}", "[]", "|", ">", "---", "...", "<<", "=", "\x00\x1b[31m", "\u2028\u2029\u0085\ufeff", "\U0001f600", "\ufffe\uffff", " a", "a ", "a\r\nb\tc", "\xff\xfe", "{{ .x }}", "<<<<<<<",
	}))
	layouts := []string{
		job(), job() + "status: {}", strings.ReplaceAll(job(), "\n", "\r\n"),
		"{apiVersion: leasehold.dev/v1alpha1, kind: Job, metadata: {name: a}, spec: {ttl: 1, workers: [{name: a}]}}",
		`{"apiVersion":"leasehold.dev/v1alpha1","kind":"Job","metadata":{"name":"a"},"spec":{"ttl":1,"workers":[{"name":"a"}]}}`, pretty,
	}
	rapid.Check(t, func(rt *rapid.T) {
		data := []byte(rapid.SampledFrom(layouts).Draw(rt, "layout"))
		s := sampleStatus()
		s.Owner, s.Store = "w"+texts.Draw(rt, "owner"), "s"+texts.Draw(rt, "store")
		s.Result = ptr(texts.Draw(rt, "result"))
		s.Until = ptr(rapid.Float64().Draw(rt, "until"))
		s.Fence = ptr(rapid.Int64().Draw(rt, "fence"))
		s.Conditions[0].Message, s.Workers[0].Message = texts.Draw(rt, "condition"), texts.Draw(rt, "worker")
		out, err := Decode("a", data).EditStatus(data, map[int]*JobStatus{0: s})
		if err != nil {
			rt.Fatalf("%v", err)
		}
		for _, text := range []*string{&s.Owner, &s.Store, s.Result, &s.Conditions[0].Message, &s.Workers[0].Message} {
			*text = string([]rune(*text)) // what is not UTF-8 is replaced
		}
		got := Decode("a", out).Docs[0].Status
		if got == nil || *got.Result != *s.Result || got.Owner != s.Owner || got.Store != s.Store || *got.Until != *s.Until || *got.Fence != *s.Fence ||
			got.Conditions[0].Message != s.Conditions[0].Message || got.Workers[0].Message != s.Workers[0].Message {
			rt.Fatalf("%+v\n%s", got, out)
		}
	})
}
