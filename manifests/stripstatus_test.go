package manifests

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// checkStrip holds whatever the file: it is stable, and does not tell with a status from without.
func checkStrip(t interface {
	Helper()
	Fatalf(string, ...any)
}, data []byte) {
	t.Helper()
	bare := StripStatus("a.yaml", data)
	if again := StripStatus("a.yaml", bare); string(again) != string(bare) {
		t.Fatalf("stripped twice:\n%q\n%q\n%q", data, bare, again)
	}
	f := Decode("a.yaml", data)
	if n := len(outline("a.yaml", data).Docs); n != len(f.Docs) {
		t.Fatalf("%d documents, decoded %d:\n%q", n, len(f.Docs), data)
	}
	set := map[int]*JobStatus{}
	for i := range f.Docs {
		set[i] = sampleStatus()
	}
	out, err := f.EditStatus(data, set)
	if err != nil {
		return
	}
	for i, d := range Decode("a.yaml", bare).Docs {
		if _, kept := d.Object["status"]; kept {
			return // merged from elsewhere
		}
		if d.ID != f.Docs[i].ID {
			t.Fatalf("%q became %q:\n%q\n%q", f.Docs[i].ID, d.ID, data, bare)
		}
	}
	if got := StripStatus("a.yaml", out); string(got) != string(bare) {
		t.Fatalf("with a status:\n%q\nstripped:\n%q\nwithout one:\n%q", out, got, bare)
	}
}

func TestStripStatusLayouts(t *testing.T) {
	var b strings.Builder
	for _, row := range layouts {
		checkStrip(t, []byte(row.text))
		got := StripStatus("a.yaml", []byte(row.text))
		if string(got) == row.text {
			fmt.Fprintf(&b, "#### %s: as it is\n", row.name)
			continue
		}
		fmt.Fprintf(&b, "#### %s\n%s", row.name, visible(got))
	}
	golden(t, "strip", []byte(b.String()))
}

// What has no status comes out byte for byte.
func TestStripStatusKeeps(t *testing.T) {
	status := "status:\n  owner: a\n"
	for name, text := range map[string]string{
		"nothing":          "",
		"other group":      "apiVersion: batch/v1\nkind: Job\nmetadata: {name: a}\n" + status,
		"not YAML":         "{{ status }}\n" + status,
		"binary":           "status\x00\xff",
		"conflict":         job() + "<<<<<<< HEAD\n" + status + "=======\n>>>>>>> other\n",
		"conflict further": job() + status + "---\na: 1\n<<<<<<< HEAD\nb: 1\n=======\n>>>>>>> other\n",
		"crlf conflict":    strings.ReplaceAll(job()+status+"---\n<<<<<<<\n=======\n>>>>>>>\n", "\n", "\r\n"),
		"no status":        job(),
		"word in a text":   job("name: w", "name: w\n  data: {a: 'status: x'}"),
		"merged":           job("name: a\n", "name: a\n  annotations: &l {status: b}\n") + "<<: *l\n",
	} {
		if got := StripStatus("a.yaml", []byte(text)); string(got) != text {
			t.Errorf("%s:\n%q\n%q", name, text, got)
		}
	}
}

// One broken document, or one whose status has to stay, does not keep the others'.
func TestStripStatusOthers(t *testing.T) {
	status := "status:\n  owner: a\n"
	for _, other := range []string{"a: [\n", job("name: a\n", "name: c\n  annotations: &l {status: b}\n") + "<<: *l\n"} {
		got := StripStatus("a.yaml", []byte(job()+status+"---\n"+other+"---\n"+job("name: a", "name: b")+status))
		if want := job() + "---\n" + other + "---\n" + job("name: a", "name: b"); string(got) != want {
			t.Errorf("%s", got)
		}
	}
}

func TestStripStatusOfAnyLayout(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var b strings.Builder
		for i := range rapid.IntRange(1, 4).Draw(rt, "documents") {
			if i > 0 {
				b.WriteString("---\n")
			}
			b.WriteString(rapid.SampledFrom([]string{"", "# head\n", "\n\n", "%YAML 1.1\n---\n"}).Draw(rt, "head"))
			doc := rapid.SampledFrom(layouts).Draw(rt, "layout").text
			if strings.Contains(strings.ReplaceAll(doc, "\r\n", ""), "\r") {
				rt.Skip("CR and LF in one file: a line of status that ends in CR joins an empty line behind it")
			}
			b.WriteString(strings.TrimPrefix(doc, "\ufeff"))
			if !strings.HasSuffix(doc, "\n") && !strings.HasSuffix(doc, "\r") && rapid.Bool().Draw(rt, "newline") {
				b.WriteString("\n")
			}
		}
		checkStrip(rt, []byte(b.String()))
	})
}

func FuzzStripStatus(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, data []byte) { checkStrip(t, data) })
}

func BenchmarkStripStatus(b *testing.B) {
	data := []byte(job())
	data, err := Decode("a.yaml", data).EditStatus(data, map[int]*JobStatus{0: sampleStatus()})
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		StripStatus("a.yaml", data)
	}
}
