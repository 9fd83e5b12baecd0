package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestGitSeesSpecOnly(t *testing.T) {
	t.Parallel()
	c := newCheckout(t, map[string]string{"a.yaml": fixedJob("a", 100), "b.yaml": fixedJob("b", 100), "crlf.yaml": strings.ReplaceAll(fixedJob("crlf", 100), "\n", "\r\n")}).start()
	for _, f := range []string{"a.yaml", "b.yaml", "crlf.yaml"} {
		c.until(f+" is leased", func() bool { return c.fence(f) == 1 })
	}
	c.clean()
	c.in(c.dir, "leasehold", "tick", "job/a", "--to", "200", "--dir", "jobs")
	c.in(c.dir, "leasehold", "complete", "job/b", "--worker", "worker-a", "--fence", "1", "--result", "x", "--dir", "jobs")
	c.until("the verdicts are written", func() bool { return c.fence("a.yaml") == 2 && strings.Contains(c.read("b.yaml"), "done: true") })
	var changed []string
	for _, line := range strings.Split(c.git("diff", "-U0"), "\n") {
		if (strings.HasPrefix(line, "+") || strings.HasPrefix(line, "-")) && !strings.HasPrefix(line, "+++") && !strings.HasPrefix(line, "---") {
			changed = append(changed, line)
		}
	}
	if got := strings.Join(changed, "\n"); got != "-  clock: 100\n+  clock: 200\n+    complete: {fence: 1, result: x}" {
		t.Errorf("git diff:\n%s", got)
	}
	if got := c.git("status", "--porcelain"); got != " M jobs/a.yaml\n M jobs/b.yaml\n" {
		t.Errorf("git status:\n%s", got)
	}
	c.insist("commit", "-q", "-a", "-m", "tick")
	c.clean()
	if got := c.git("show", "HEAD:jobs/a.yaml"); got != fixedJob("a", 200) {
		t.Errorf("stored:\n%s", got)
	}
}

// What the user has staged stays staged, and what is not staged stays an edit.
func TestGitStagedStays(t *testing.T) {
	t.Parallel()
	c := newCheckout(t, map[string]string{"a.yaml": liveJob("a", 0.3)}).start()
	c.until("it is leased", func() bool { return c.fence("a.yaml") > 0 })
	c.edit("a.yaml", "# a\n", "# staged\n")
	c.insist("add", "jobs/a.yaml")
	c.edit("a.yaml", "region: eu", "region: us")
	staged := c.git("ls-files", "-s")
	for range 3 {
		before := c.fence("a.yaml")
		c.until("status is written", func() bool { return c.fence("a.yaml") > before })
	}
	if now := c.git("ls-files", "-s"); now != staged {
		t.Errorf("the index had\n%sand has\n%s", staged, now)
	}
	if d := c.git("diff", "-U0"); !strings.Contains(d, "+    region: us") || strings.Contains(d, "staged") || strings.Contains(d, "status") {
		t.Errorf("git diff:\n%s", d)
	}
	if d := c.git("diff", "--cached", "-U0"); !strings.Contains(d, "+# staged") || strings.Contains(d, "region: us") {
		t.Errorf("git diff --cached:\n%s", d)
	}
}

func TestGitStashAndCheckout(t *testing.T) {
	t.Parallel()
	c := newCheckout(t, map[string]string{"a.yaml": liveJob("a", 0.3), "b.yaml": fixedJob("b", 100)}).start()
	var last int64
	leased := func() {
		t.Helper()
		c.until("both are leased on", func() bool { return c.fence("a.yaml") > last && c.fence("b.yaml") >= 1 })
		last = c.fence("a.yaml")
	}
	leased()
	// A branch on which one job says something else and the other is not there.
	c.insist("checkout", "-q", "-b", "other")
	c.insist("rm", "-q", "-f", "jobs/b.yaml")
	c.edit("a.yaml", "region: eu", "region: other")
	c.insist("commit", "-q", "-a", "-m", "other")
	c.insist("checkout", "-q", "main")
	leased()
	for range 3 {
		c.edit("a.yaml", "region: eu", "region: edited")
		c.insist("stash", "-q")
		if !strings.Contains(c.read("a.yaml"), "region: eu") {
			t.Fatalf("after a stash:\n%s", c.read("a.yaml"))
		}
		leased()
		c.insist("checkout", "-q", "other")
		c.until("the lease goes on there", func() bool { return c.fence("a.yaml") > last })
		last = c.fence("a.yaml")
		if got := c.git("diff"); got != "" {
			t.Errorf("on the other branch:\n%s", got)
		}
		c.insist("checkout", "-q", "main")
		leased()
		c.insist("stash", "pop", "-q")
		leased()
		if got := c.read("a.yaml"); !strings.Contains(got, "region: edited") || strings.Contains(got, "<<<<") {
			t.Fatalf("after a stash pop:\n%s", got)
		}
		c.insist("checkout", "-q", "--", "jobs")
		leased()
	}
	if f := c.fence("b.yaml"); f != 1 {
		t.Errorf("the lease of b has become fence %d", f)
	}
	c.stop()
	c.clean()
}

func TestGitConflict(t *testing.T) {
	t.Parallel()
	c := newCheckout(t, map[string]string{"a.yaml": fixedJob("a", 100), "b.yaml": liveJob("b", 0.3)}).start()
	c.until("both are leased", func() bool { return c.fence("a.yaml") == 1 && c.fence("b.yaml") > 0 })
	c.push("a.yaml", "region: eu", "region: theirs")
	c.edit("a.yaml", "region: eu", "region: ours")
	c.insist("commit", "-q", "-a", "-m", "ours")
	if out, err := c.try(c.dir, "git", "pull", "-q", "--no-rebase"); err == nil || !strings.Contains(c.read("a.yaml"), "<<<<<<<") {
		t.Fatalf("%v %s\n%s", err, out, c.read("a.yaml"))
	}
	marked := c.read("a.yaml")
	if strings.Contains(marked, "status:") {
		t.Errorf("status got into the conflict:\n%s", marked)
	}
	before := c.fence("b.yaml")
	c.until("others go on", func() bool { return c.fence("b.yaml") > before+2 })
	if got := c.read("a.yaml"); got != marked {
		t.Errorf("a file with conflict markers was changed:\n%s", got)
	}
	c.insist("checkout", "-q", "--theirs", "jobs/a.yaml")
	c.insist("add", "jobs/a.yaml")
	c.insist("commit", "-q", "-m", "merged")
	c.until("the lease is shown again", func() bool { return c.fence("a.yaml") == 1 })
	if !strings.Contains(c.read("a.yaml"), "region: theirs") {
		t.Errorf("after the merge:\n%s", c.read("a.yaml"))
	}
	c.stop()
	c.clean()
}

// A clone without the filter works as before: status is a change there.
func TestGitWithoutFilter(t *testing.T) {
	t.Parallel()
	c := newCheckout(t, map[string]string{"a.yaml": fixedJob("a", 100)})
	c.in(c.elsewhere, "leasehold", "run", "--once", "jobs")
	if got := c.in(c.elsewhere, "git", "status", "--porcelain"); got != " M jobs/a.yaml\n" {
		t.Errorf("git status: %q", got)
	}
	// One whose program is gone is like it.
	program, ok := filterProgram(strings.TrimSpace(c.git("config", "filter.leasehold.process")))
	if !ok {
		t.Fatal("install has set up no program")
	}
	c.git("config", "filter.leasehold.process", strings.ReplaceAll(c.git("config", "filter.leasehold.process"), program, c.dir+"/gone"))
	out, err := c.try(c.dir, "leasehold", "git", "status", "jobs")
	if err == nil || !strings.Contains(out, "program     missing") {
		t.Errorf("git status: %v\n%s", err, out)
	}
	for _, to := range []string{"us", "ap", "sa", "af", "me"} { // Git must not depend on who is quicker
		c.edit("a.yaml", "    region: ", "    "+to+": x\n    region: ")
		c.git("commit", "-q", "-a", "-m", "edit")
	}
	if out := c.git("status", "--porcelain"); out != "" {
		t.Errorf("git status: %q", out)
	}
}

func TestGitWorktree(t *testing.T) {
	t.Parallel()
	c := newCheckout(t, map[string]string{"a.yaml": liveJob("a", 0.5)})
	tree := filepath.Join(filepath.Dir(c.dir), "tree")
	c.git("worktree", "add", "-q", tree, "-b", "tree")
	c.dir = tree
	c.start()
	c.until("it is leased", func() bool { return c.fence("a.yaml") > 2 })
	if got := c.git("diff") + c.git("diff-files", "--diff-filter=A"); got != "" {
		t.Error(got)
	}
	c.stop()
	c.clean()
}

// While index.lock exists no status is written, and jobs are decided all the same; a lock that
// was left behind does not stop it for good.
func TestGitLock(t *testing.T) {
	t.Parallel()
	c := newCheckout(t, map[string]string{"a.yaml": fixedJob("a", 100)}).start()
	c.until("it is leased", func() bool { return c.fence("a.yaml") == 1 })
	lock := filepath.Join(c.dir, ".git", "index.lock")
	c.write(lock, "")
	out := c.in(c.dir, "leasehold", "tick", "job/a", "--to", "200", "--dir", "jobs")
	if !strings.Contains(out, "worker-b holds fence 2") {
		t.Errorf("tick said %s", out)
	}
	if f := c.fence("a.yaml"); f != 1 {
		t.Errorf("status was written under a lock: fence %d", f)
	}
	if err := os.Remove(lock); err != nil {
		t.Fatal(err)
	}
	c.until("status is written", func() bool { return c.fence("a.yaml") == 2 })

	c.write(lock, "")
	old := time.Now().Add(-time.Hour)
	if err := os.Chtimes(lock, old, old); err != nil {
		t.Fatal(err)
	}
	c.in(c.dir, "leasehold", "tick", "job/a", "--to", "300", "--dir", "jobs")
	c.until("status is written", func() bool { return c.fence("a.yaml") == 3 })
	if log := c.log.String(); !strings.Contains(log, "index.lock has been there for so long") {
		t.Errorf("the log:\n%s", log)
	}
	if err := os.Remove(lock); err != nil {
		t.Fatal(err)
	}
}

// No git: it is said once, and everything else works.
func TestGitMissing(t *testing.T) {
	t.Parallel()
	c := newCheckout(t, map[string]string{"a.yaml": fixedJob("a", 100)})
	dir := t.TempDir()
	program := strings.TrimSpace(c.in(c.dir, "which", "leasehold"))
	if err := os.Symlink(program, filepath.Join(dir, "leasehold")); err != nil {
		t.Fatal(err)
	}
	cmd := c.command(c.dir, filepath.Join(dir, "leasehold"), "run", "--once", "jobs")
	cmd.Env = append(cmd.Env, "PATH="+dir)
	out, err := cmd.CombinedOutput()
	if err != nil || strings.Count(string(out), "git is not installed") != 1 || c.fence("a.yaml") != 1 {
		t.Errorf("%v\n%s", err, out)
	}
}
