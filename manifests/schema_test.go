package manifests

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	sigsyaml "sigs.k8s.io/yaml"
)

// schemaTable is testdata/schema.yaml, which hack/schema runs through the schemas.
type schemaTable struct {
	Base string      `json:"base"`
	Good []schemaRow `json:"good"`
	Bad  []schemaRow `json:"bad"`
}

type schemaRow struct {
	Name    string            `json:"name"`
	Text    string            `json:"text,omitempty"`
	Replace map[string]string `json:"replace,omitempty"`
	JSON    string            `json:"json,omitempty"`
	CRD     string            `json:"crd,omitempty"`
}

func (r schemaRow) text(t *testing.T, base string) string {
	text := r.Text
	if text == "" {
		text = base
	}
	for old, replacement := range r.Replace {
		if strings.Count(text, old) != 1 {
			t.Fatalf("%s: %q does not stand there once", r.Name, old)
		}
		text = strings.Replace(text, old, replacement, 1)
	}
	return text
}

func readSchemaTable(t *testing.T) schemaTable {
	data, err := os.ReadFile("testdata/schema.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var table schemaTable
	if err := sigsyaml.UnmarshalStrict(data, &table); err != nil {
		t.Fatal(err)
	}
	return table
}

// What the decoder says of the table by which the schemas are judged.
func TestSchemaTable(t *testing.T) {
	table := readSchemaTable(t)
	errs := func(row schemaRow) (all []*Error) {
		f := Decode("a.yaml", []byte(row.text(t, table.Base)))
		all = append(all, f.Errors...)
		for _, d := range f.Docs {
			all = append(all, d.Errors...)
		}
		return all
	}
	for _, row := range table.Good {
		for _, err := range errs(row) {
			t.Errorf("%s: is good, but %v", row.Name, err)
		}
	}
	for _, row := range table.Bad {
		if len(errs(row)) == 0 {
			t.Errorf("%s: is bad, but accepted", row.Name)
		}
	}
}

// The line that tells editors the schema is true in the repository and wherever the samples are
// written, and every document has it, for editors read it document by document.
func TestSamplesNameTheirSchema(t *testing.T) {
	names, err := filepath.Glob("samples/*.yaml")
	if err != nil || len(names) == 0 {
		t.Fatal(names, err)
	}
	line := regexp.MustCompile(`^# yaml-language-server: \$schema=(\S+)\n`)
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, doc := range regexp.MustCompile(`(?m)^---\n`).Split(string(data), -1) {
			m := line.FindStringSubmatch(doc)
			if m == nil {
				t.Errorf("%s: a document does not name its schema in its first line:\n%s", name, doc)
				continue
			}
			schema := filepath.Join(filepath.Dir(name), m[1])
			if text, err := os.ReadFile(schema); err != nil || string(text) != string(JSONSchema) {
				t.Errorf("%s: %s is not the schema: %v", name, m[1], err)
			}
			if _, err := Samples.Open(filepath.ToSlash(schema)); err != nil {
				t.Errorf("%s is not written beside the samples: %v", m[1], err)
			}
		}
	}
}
