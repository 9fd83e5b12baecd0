package main

import (
	"bytes"
	"os"
	"regexp"
	"strings"
	"testing"
)

// The timelines that the README shows are those of the demo.
func TestReadmeTimeline(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	var out bytes.Buffer
	quiet := streams{In: strings.NewReader(""), Out: &out, Err: &out}
	if code := run(t.Context(), []string{"demo", "--keep"}, quiet); code != exitOK {
		t.Fatalf("exit code %d:\n%s", code, out.String())
	}
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("(?s)<!-- demo -->\n```console\n(.*?)```").FindStringSubmatch(string(readme))
	if block == nil {
		t.Fatal("the README shows no timeline")
	}
	_, shown, _ := strings.Cut(block[1], "\n")
	if !strings.Contains(out.String(), shown) {
		t.Errorf("the README shows\n%s\nand the demo\n%s", shown, out.String())
	}

	dir := regexp.MustCompile(`The directory is (\S+);`).FindStringSubmatch(out.String())[1]
	out.Reset()
	if code := run(t.Context(), []string{"timeline", "job/invoice-42", "-o", "svg", "--dir", dir}, quiet); code != exitOK {
		t.Fatalf("exit code %d:\n%s", code, out.String())
	}
	const path = "../../docs/timeline.svg"
	if *update {
		if err := os.WriteFile(path, out.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(want, out.Bytes()) {
		t.Errorf("%s is not what the demo leads to", path)
	}
}
