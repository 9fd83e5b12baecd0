package main

import (
	"errors"
	"flag"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

var update = flag.Bool("update", false, "write what the scripts printed into their golden files")

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"leasehold": main,
	})
}

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		UpdateScripts:       *update,
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup:               atOnce,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"code":  code,
			"await": await,
		},
	})
}

// atOnce lets programs under the race detector end at once; otherwise each waits for a second.
func atOnce(env *testscript.Env) error {
	env.Setenv("GORACE", os.Getenv("GORACE"))
	return nil
}

// code runs a program and demands its exit code: code 3 leasehold store claim ...
func code(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: code N program args...")
	}
	err := ts.Exec(args[1], args[2:]...)
	got := "0"
	if err != nil {
		got = exitCode(err)
	}
	if got != args[0] {
		ts.Fatalf("exit code %s, want %s", got, args[0])
	}
}

func exitCode(err error) string {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return strconv.Itoa(exit.ExitCode())
	}
	return err.Error()
}

// await waits until a file matches a regular expression: await jobs/a.yaml 'owner: worker-a'.
func await(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 2 {
		ts.Fatalf("usage: [!] await FILE REGEXP")
	}
	want, err := regexp.Compile("(?m)" + args[1])
	ts.Check(err)
	deadline := time.After(30 * time.Second)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		data, _ := os.ReadFile(ts.MkAbs(args[0]))
		if want.Match(data) != neg {
			return
		}
		select {
		case <-deadline:
			ts.Fatalf("waited in vain for %q in %s:\n%s", args[1], args[0], data)
		case <-tick.C:
		}
	}
}
