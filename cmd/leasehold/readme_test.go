package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestReadme plays the tour of the README: what it shows is what a user sees.
func TestReadme(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)<!-- tour -->\n```console\n(.*?)```").FindAllStringSubmatch(string(readme), -1)
	if len(blocks) < 4 {
		t.Fatalf("%d blocks of the tour", len(blocks))
	}
	var script, files strings.Builder
	script.WriteString("exec leasehold run --init jobs &run&\nawait jobs/story.yaml 'owner: worker-a'\ncd jobs\n")
	n := 0
	for _, b := range blocks {
		for _, step := range regexp.MustCompile(`(?m)^\$ `).Split(b[1], -1)[1:] {
			command, output, _ := strings.Cut(step, "\n")
			n++
			fmt.Fprintf(&script, "shows $WORK/want%d %s\n", n, command)
			fmt.Fprintf(&files, "-- want%d --\n%s", n, output)
		}
	}
	script.WriteString("kill -INT run\nwait run\n")
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "tour.txtar"), []byte(script.String()+files.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{Dir: dir, Setup: atOnce, Cmds: map[string]func(*testscript.TestScript, bool, []string){
		"await": await,
		"shows": shows,
	}})
}

// shows demands what a command prints, whatever its exit code: shows FILE program args...
func shows(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: shows FILE program args...")
	}
	_ = ts.Exec(args[1], args[2:]...) // what it prints is compared
	got, want := ts.ReadFile("stdout")+ts.ReadFile("stderr"), ts.ReadFile(args[0])
	if strings.TrimRight(got, "\n") != strings.TrimRight(want, "\n") { // jsonpath ends without one
		ts.Fatalf("%s printed\n%swant\n%s", strings.Join(args[1:], " "), got, want)
	}
}
