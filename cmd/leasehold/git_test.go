package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"leasehold.dev/leasehold/manifests"
)

// checkout is a clone in which a controller runs. The one beside it, elsewhere, has no filter.
type checkout struct {
	t         *testing.T
	dir       string // the clone; its manifests are in jobs
	elsewhere string
	env       []string
	log       *logBuffer
	running   *exec.Cmd
}

type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func needGit(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		if os.Getenv("LEASEHOLD_TEST_ALL") != "" {
			t.Fatal("tests with a real checkout: git is missing")
		}
		t.Skip("tests with a real checkout: for want of git")
	}
}

// newCheckout makes a repository with the files in jobs, and two clones of it.
func newCheckout(t *testing.T, files map[string]string) *checkout {
	t.Helper()
	needGit(t)
	base := t.TempDir()
	c := &checkout{t: t, dir: filepath.Join(base, "live"), elsewhere: filepath.Join(base, "elsewhere"), log: &logBuffer{}}
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "GIT_") {
			c.env = append(c.env, v)
		}
	}
	c.env = append(c.env, "HOME="+base, "GIT_CONFIG_GLOBAL="+os.DevNull, "GIT_CONFIG_NOSYSTEM=1", "GIT_EDITOR=true",
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@b", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@b")
	origin := filepath.Join(base, "origin")
	c.in(base, "git", "init", "-q", "--bare", "-b", "main", origin)
	c.in(base, "git", "clone", "-q", origin, c.dir)
	for name, text := range files {
		c.write(filepath.Join(c.dir, "jobs", name), text)
	}
	c.git("checkout", "-q", "-b", "main")
	c.git("add", ".")
	c.git("commit", "-q", "-m", "jobs")
	c.git("push", "-q", "-u", "origin", "main")
	c.in(base, "git", "clone", "-q", origin, c.elsewhere)
	c.in(c.dir, "leasehold", "git", "install", "jobs")
	return c
}

func (c *checkout) command(dir string, args ...string) *exec.Cmd {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir, cmd.Env = dir, c.env
	return cmd
}

func (c *checkout) try(dir string, args ...string) (string, error) {
	out, err := c.command(dir, args...).CombinedOutput()
	return string(out), err
}

// in runs a program that must succeed.
func (c *checkout) in(dir string, args ...string) string {
	c.t.Helper()
	out, err := c.try(dir, args...)
	if err != nil {
		c.t.Fatalf("%s: %v\n%s\nthe log:\n%s", strings.Join(args, " "), err, out, c.log)
	}
	return out
}

func (c *checkout) git(args ...string) string {
	c.t.Helper()
	return c.in(c.dir, append([]string{"git"}, args...)...)
}

// insist repeats a git command that refuses because it collided, and returns how often it did.
func (c *checkout) insist(args ...string) int {
	c.t.Helper()
	for refused := 0; ; refused++ {
		head := c.git("rev-parse", "HEAD")
		out, err := c.try(c.dir, append([]string{"git"}, args...)...)
		if err == nil {
			return refused
		}
		c.t.Logf("git %s refused: %s", strings.Join(args, " "), out)
		if strings.Contains(out, "CONFLICT") || c.git("rev-parse", "HEAD") != head || refused == 20 {
			c.t.Fatalf("git %s: %v, after it had begun\n%s\nthe log:\n%s", strings.Join(args, " "), err, out, c.log)
		}
		if s := c.git("diff", "--cached", "--name-only"); s != "" {
			c.t.Fatalf("git %s has changed the index and given up:\n%s%s", strings.Join(args, " "), out, s)
		}
	}
}

func (c *checkout) write(path, text string) {
	c.t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		c.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		c.t.Fatal(err)
	}
}

func (c *checkout) read(name string) string {
	data, _ := os.ReadFile(filepath.Join(c.dir, "jobs", name))
	return string(data)
}

// edit replaces a part of a manifest, as an editor does that saves by renaming and looks before.
func (c *checkout) edit(name, old, with string) {
	c.t.Helper()
	path := filepath.Join(c.dir, "jobs", name)
	for {
		text := c.read(name)
		if !strings.Contains(text, old) {
			c.t.Fatalf("%s has no %q:\n%s", name, old, text)
		}
		c.write(path+"~", strings.Replace(text, old, with, 1))
		if c.read(name) == text {
			if err := os.Rename(path+"~", path); err != nil {
				c.t.Fatal(err)
			}
			return
		}
	}
}

// push commits an edit elsewhere.
func (c *checkout) push(name, old, with string) {
	c.t.Helper()
	path := filepath.Join(c.elsewhere, "jobs", name)
	c.in(c.elsewhere, "git", "pull", "-q", "--rebase")
	text, err := os.ReadFile(path)
	if err != nil || !strings.Contains(string(text), old) {
		c.t.Fatalf("%s has no %q: %v\n%s", path, old, err, text)
	}
	c.write(path, strings.Replace(string(text), old, with, 1))
	c.in(c.elsewhere, "git", "commit", "-q", "-a", "-m", "edit "+name)
	c.in(c.elsewhere, "git", "push", "-q")
}

// start runs the controller until stop or the end of the test.
func (c *checkout) start() *checkout {
	c.t.Helper()
	cmd := c.command(c.dir, "leasehold", "run", "-v", "jobs")
	cmd.Stdout, cmd.Stderr = c.log, c.log
	if err := cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	c.running = cmd
	c.t.Cleanup(c.stop)
	return c
}

func (c *checkout) stop() {
	if c.running != nil {
		c.running.Process.Signal(os.Interrupt)
		if err := c.running.Wait(); err != nil {
			c.t.Errorf("the controller ended with %v\n%s", err, c.log)
		}
		c.running = nil
	}
}

func (c *checkout) until(what string, ok func() bool) {
	c.t.Helper()
	deadline := time.After(30 * time.Second)
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-deadline:
			c.t.Fatalf("waited in vain: %s\nthe log:\n%s", what, c.log)
		case <-tick.C:
		}
	}
}

func (c *checkout) fence(name string) int64 {
	f := manifests.Decode(name, []byte(c.read(name)))
	if len(f.Docs) == 0 || f.Docs[0].Status == nil || f.Docs[0].Status.Fence == nil {
		return 0
	}
	return *f.Docs[0].Status.Fence
}

// clean demands an unchanged work tree. With a controller at work it waits until even the plumbing,
// which runs no filter, calls it that.
func (c *checkout) clean() {
	c.t.Helper()
	c.until("the index fits the work tree", func() bool {
		out, err := c.try(c.dir, "git", "diff-files", "--name-only")
		return c.running == nil || err == nil && out == ""
	})
	for _, args := range [][]string{{"status", "--porcelain"}, {"diff"}, {"diff", "--cached"}} {
		if out := c.git(args...); out != "" {
			c.t.Errorf("git %s:\n%s\nthe log:\n%s", strings.Join(args, " "), out, c.log)
		}
	}
}

// fixedJob is a job on a clock of its own, and liveJob is one whose lease moves on each ttl seconds. Both
// end with a line that status stands next to.
func fixedJob(name string, clock int) string {
	return fmt.Sprintf(`# %s
apiVersion: leasehold.dev/v1alpha1
kind: Job
metadata:
  name: %s
spec:
  clock: %d
  ttl: 30
  workers:
  - name: worker-a
  - name: worker-b
  data:
    region: eu
`, name, name, clock)
}

func liveJob(name string, ttl float64) string {
	return strings.Replace(strings.Replace(fixedJob(name, 7), "  clock: 7\n", "", 1), "ttl: 30", fmt.Sprintf("ttl: %g", ttl), 1)
}
