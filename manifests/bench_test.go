package manifests

import (
	"fmt"
	"io/fs"
	"strings"
	"testing"
)

func benchData(b *testing.B) []byte {
	data, err := fs.ReadFile(Samples, "samples/story.yaml")
	if err != nil {
		b.Fatal(err)
	}
	f := Decode("a.yaml", data)
	if data, err = f.EditStatus(data, map[int]*JobStatus{0: sampleStatus()}); err != nil {
		b.Fatal(err)
	}
	return data
}

func BenchmarkDecode(b *testing.B) {
	data := benchData(b)
	b.ReportAllocs()
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		Decode("a.yaml", data)
	}
}

func BenchmarkEditStatus(b *testing.B) {
	data := benchData(b)
	f := Decode("a.yaml", data)
	s := sampleStatus()
	*s.Fence = 3
	b.ReportAllocs()
	for b.Loop() {
		if _, err := f.EditStatus(data, map[int]*JobStatus{0: s}); err != nil {
			b.Fatal(err)
		}
	}
}

// large is a job of many workers.
func large(workers int) []byte {
	var b strings.Builder
	b.WriteString("apiVersion: leasehold.dev/v1alpha1\nkind: Job\nmetadata:\n  name: a\nspec:\n  clock: 0\n  ttl: 10\n  workers:\n")
	for i := range workers {
		fmt.Fprintf(&b, "  - name: w%d\n    complete: {fence: %d, result: \"x\"}\n", i, i+1)
	}
	return []byte(b.String())
}

func BenchmarkDecodeLarge(b *testing.B) {
	data := large(100_000)
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		if f := Decode("a.yaml", data); len(f.Docs) != 1 || f.Docs[0].Job == nil {
			b.Fatal(f.Docs[0].Errors)
		}
	}
}

func BenchmarkEditStatusList(b *testing.B) {
	var t strings.Builder
	t.WriteString("kind: List\napiVersion: v1\nitems:\n")
	for i := range 1000 {
		t.WriteString("- " + strings.TrimSuffix(strings.ReplaceAll(job("name: a", fmt.Sprintf("name: a%d", i)), "\n", "\n  "), "  "))
	}
	data := []byte(t.String())
	f := Decode("a.yaml", data)
	set := map[int]*JobStatus{}
	for i := range f.Docs {
		set[i] = sampleStatus()
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := f.EditStatus(data, set); err != nil {
			b.Fatal(err)
		}
	}
}
