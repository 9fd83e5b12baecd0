package manifests

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestEditEach(t *testing.T) {
	one := func(name string) string {
		return "apiVersion: leasehold.dev/v1alpha1\nkind: Job\nmetadata: {name: " + name + "}\nspec: {ttl: 10, workers: [name: w]} # " + name + "\n"
	}
	items := "- " + strings.ReplaceAll(strings.TrimSpace(one("d")), "\n", "\n  ") + "\n- " + strings.ReplaceAll(strings.TrimSpace(one("e")), "\n", "\n  ") + "\n"
	text := one("a") + "---\nkind: Pod\n---\n" + one("b") + "...\n" + one("c") + "...\n%YAML 1.1\n---\nkind: List\nitems:\n" + items + "---\na: [\n"
	refusal := errors.New("refused")
	for _, c := range []struct {
		docs []int
		want func(string) string
	}{
		{nil, func(s string) string { return s }},
		{[]int{1}, func(s string) string { return strings.Replace(s, "---\n"+one("b"), "", 1) }},
		{[]int{2}, func(s string) string { return strings.Replace(s, one("c"), "", 1) }},
		{[]int{4, 0, 3}, func(s string) string {
			s = strings.Replace(s, one("a"), "", 1)
			return strings.Replace(s, "%YAML 1.1\n---\nkind: List\nitems:\n"+items, "", 1)
		}},
		{[]int{3}, func(s string) string { return strings.Replace(s, items[:len(items)/2], "", 1) }},
	} {
		f := Decode("a.yaml", []byte(text))
		next, failed, err := f.EditEach([]byte(text), c.docs, func(part *File, text []byte, doc int) ([]byte, error) {
			return part.Remove(text, doc)
		})
		if err != nil || len(failed) > 0 {
			t.Errorf("%v: %v %v", c.docs, err, failed)
		}
		if d := cmp.Diff(c.want(text), string(next)); d != "" {
			t.Errorf("%v: %s", c.docs, d)
		}
	}
	f := Decode("a.yaml", []byte(text))
	next, failed, err := f.EditEach([]byte(text), []int{0, 1, 2, 3, 4}, func(part *File, text []byte, doc int) ([]byte, error) {
		if part.Docs[doc].Name == "b" {
			return nil, refusal
		}
		if part.Docs[doc].Name == "e" {
			return part.Set(text, doc, Edit{Path: []any{"spec", "ttl", "x"}, Value: 1})
		}
		return part.Set(text, doc, Edit{Path: []any{"spec", "ttl"}, Value: 11})
	})
	want := text
	for _, name := range []string{"a", "c", "d"} {
		want = strings.Replace(want, "{ttl: 10, workers: [name: w]} # "+name, "{ttl: 11, workers: [name: w]} # "+name, 1)
	}
	if err != nil || len(failed) != 2 || failed[1] != refusal || cmp.Diff(want, string(next)) != "" {
		t.Errorf("%v %v %s", err, failed, cmp.Diff(want, string(next)))
	}
	if line := fmt.Sprintf("a.yaml:%d: ", f.Docs[4].Line); failed[4] == nil || !strings.HasPrefix(failed[4].Error(), line) {
		t.Errorf("got %v, want %s", failed[4], line)
	}
	// All that is ours may go with the file.
	only := one("a") + "---\n" + one("b")
	next, _, err = Decode("", []byte(only)).EditEach([]byte(only), []int{0, 1}, func(part *File, text []byte, doc int) ([]byte, error) {
		return part.Remove(text, doc)
	})
	if err != nil || len(next) > 0 {
		t.Errorf("%v: %q is left", err, next)
	}
}
