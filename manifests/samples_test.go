package manifests

import (
	"io/fs"
	"testing"
)

func TestSamples(t *testing.T) {
	names, err := fs.Glob(Samples, "samples/*.yaml")
	if err != nil || len(names) < 3 {
		t.Fatal(names, err)
	}
	for _, name := range names {
		data, err := fs.ReadFile(Samples, name)
		if err != nil {
			t.Fatal(err)
		}
		if data[0] != '#' {
			t.Errorf("%s does not begin with a comment", name)
		}
		f := Decode(name, data)
		for _, e := range f.Errors {
			t.Error(e)
		}
		for _, d := range f.Docs {
			for _, e := range d.Errors {
				t.Error(e)
			}
			if d.Job == nil || d.Status != nil {
				t.Errorf("%s: %s is not accepted or has a status", name, d.ID)
			}
		}
		if f.Skipped > 0 || len(f.Docs) == 0 {
			t.Errorf("%s: %d documents, %d skipped", name, len(f.Docs), f.Skipped)
		}
		setAll(t, name, data)
	}
}
