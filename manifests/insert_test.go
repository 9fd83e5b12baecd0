package manifests

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestText(t *testing.T) {
	a := strings.Split(commented, "# about status\n")[0]
	for name, eol := range map[string]string{"LF": "\n", "CRLF": "\r\n"} {
		t.Run(name, func(t *testing.T) {
			lines := strings.NewReplacer("\n", eol)
			text := lines.Replace(job() + "--- # two\n" + commented + "---\nkind: Pod\n")
			f := Decode("a.yaml", []byte(text))
			got, own := f.Text([]byte(text), 1)
			if want := lines.Replace(a + "# about status\n# theirs\n"); string(got) != want || !own {
				t.Errorf("own %v: %s", own, cmp.Diff(want, string(got)))
			}
			edited := strings.Replace(string(got), "ttl: 30", "ttl: 31", 1)
			next, err := f.SetText([]byte(text), 1, []byte(edited))
			if err != nil {
				t.Fatal(err)
			}
			g := Decode("a.yaml", next)
			if s := g.Docs[1].Status; s == nil || s.Owner != "w1" || g.Docs[1].Job.Spec.TTL != 31 {
				t.Errorf("%s", next)
			}
			if !strings.HasPrefix(string(next), lines.Replace(job()+"--- # two\n# head\n")) || !strings.HasSuffix(string(next), lines.Replace("---\nkind: Pod\n")) {
				t.Errorf("%s", next)
			}
		})
	}
	// A status at the end keeps its bytes.
	text := job() + "\nstatus:\n    owner:   'w'  # odd\n"
	f := Decode("a.yaml", []byte(text))
	bare, _ := f.Text([]byte(text), 0)
	next, err := f.SetText([]byte(text), 0, append(bare, "# more\n"...))
	if err != nil || !strings.HasSuffix(string(next), "# more\nstatus:\n    owner:   'w'  # odd\n") {
		t.Errorf("%v\n%s", err, next)
	}
	for _, bad := range []string{"", "a: [", job() + "---\n" + job(), "kind: Pod\n"} {
		if next, err := f.SetText([]byte(text), 0, []byte(bad)); err == nil {
			t.Errorf("%q was taken:\n%s", bad, next)
		}
	}
}

// What is rendered is the same object again.
func TestRender(t *testing.T) {
	texts := map[string]string{"commented": commented, "list": list, "pretty": pretty,
		"numbers": `{"apiVersion":"leasehold.dev/v1alpha1","kind":"Job","metadata":{"name":"a","annotations":{"x":"a\nb","y":"yes"}},"spec":{"clock":1700000000.5,"ttl":0.25,"data":{},"workers":[{"name":"w","suspend":false,"complete":{"fence":4611686018427387904,"result":"- x"}}]}}`,
		"invalid": "apiVersion: leasehold.dev/v1alpha1\nkind: Job\nmetadata: {name: a}\nspec: {ttl: -5, workers: [[], {}, [a, [b]]], x: null}\n"}
	for name, text := range texts {
		t.Run(name, func(t *testing.T) {
			for i, d := range Decode("a.yaml", []byte(text)).Docs {
				got := Render(d)
				again := Decode("b.yaml", got)
				if len(again.Docs) != 1 {
					t.Fatalf("%d: %v\n%s", i, again.Errors, got)
				}
				g := again.Docs[0]
				if d.Job != nil && (g.Job == nil || g.Job.Spec.Hash() != d.Job.Spec.Hash() || cmp.Diff(d.Job.ObjectMeta, g.Job.ObjectMeta) != "") {
					t.Errorf("%d:\n%s", i, got)
				}
				if d.Job == nil && cmp.Diff(withoutStatus(d), g.Object) != "" {
					t.Errorf("%d: %s\n%s", i, cmp.Diff(withoutStatus(d), g.Object), got)
				}
			}
		})
	}
}
