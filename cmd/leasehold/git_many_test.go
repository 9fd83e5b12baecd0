package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// 10,000 manifests with a status go through one filter process.
func TestGitManyFiles(t *testing.T) {
	if testing.Short() {
		t.Skip("10,000 files take a while")
	}
	const n = 10_000
	c := newCheckout(t, map[string]string{"a.yaml": fixedJob("a", 100)})
	c.in(c.dir, "leasehold", "run", "--once", "jobs")
	_, status, ok := strings.Cut(c.read("a.yaml"), "\nstatus:\n")
	if !ok {
		t.Fatalf("no status:\n%s", c.read("a.yaml"))
	}
	for i := range n {
		name := fmt.Sprintf("j%d", i)
		c.write(filepath.Join(c.dir, "jobs", fmt.Sprint("d", i%100), name+".yaml"), fixedJob(name, 100)+"status:\n"+status)
	}
	// The filter, counted.
	starts := filepath.Join(t.TempDir(), "starts")
	wrapper := starts + ".sh"
	c.write(wrapper, "#!/bin/sh\necho >> '"+starts+"'\nexec leasehold git filter-process\n")
	if err := os.Chmod(wrapper, 0o755); err != nil {
		t.Fatal(err)
	}
	c.git("config", "filter.leasehold.process", wrapper)
	timed := func(args ...string) {
		t.Helper()
		os.Remove(starts)
		begin := time.Now()
		out := c.git(args...)
		took := time.Since(begin)
		count, _ := os.ReadFile(starts)
		t.Logf("git %s: %.2fs, %d filter processes", strings.Join(args, " "), took.Seconds(), len(count))
		if len(count) > 1 {
			t.Errorf("git %s started %d filter processes", strings.Join(args, " "), len(count))
		}
		if args[0] == "status" && out != "" {
			t.Errorf("git status:\n%.500s", out)
		}
	}
	timed("add", ".")
	timed("commit", "-q", "-m", "many")
	timed("status", "--porcelain")
	if got := c.git("cat-file", "blob", "HEAD:jobs/d7/j7.yaml"); got != fixedJob("j7", 100) {
		t.Errorf("stored:\n%s", got)
	}
	// The worst case: Git has to compare the bytes of all.
	c.git("rm", "-r", "-q", "--cached", "jobs")
	timed("reset", "-q")
	timed("status", "--porcelain")
	timed("status", "--porcelain")
}
