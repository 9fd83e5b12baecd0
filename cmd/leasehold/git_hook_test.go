package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A checkout that stays pristine, and a live directory elsewhere: each pull brings over what has
// changed, by hack/git/post-merge.
func TestGitApplyHook(t *testing.T) {
	t.Parallel()
	c := newCheckout(t, map[string]string{"a.yaml": fixedJob("a", 100), "b.yaml": fixedJob("b", 100)})
	hook, err := os.ReadFile("../../hack/git/post-merge")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(c.dir, ".git", "hooks", "post-merge")
	c.write(path, string(hook))
	if err := os.Chmod(path, 0o755); err != nil {
		t.Fatal(err)
	}
	c.in(c.dir, "leasehold", "git", "uninstall", "jobs")
	liveDir := filepath.Join(filepath.Dir(c.dir), "jobs")
	if err := os.Mkdir(liveDir, 0o755); err != nil {
		t.Fatal(err)
	}

	// Without a place to bring them to, the hook says so, and the pull is none the worse.
	c.push("a.yaml", "region: eu", "region: us")
	out, err := c.try(c.dir, "git", "pull", "-q")
	if err != nil || !strings.Contains(out, "git config leasehold.live DIR") {
		t.Errorf("%v: %s", err, out)
	}
	c.git("config", "leasehold.live", liveDir)
	c.git("config", "leasehold.manifests", "jobs")
	c.push("a.yaml", "region: us", "region: ap")
	c.git("pull", "-q")
	read := func(name string) string {
		data, _ := os.ReadFile(filepath.Join(liveDir, name))
		return string(data)
	}
	if !strings.Contains(read("a.yaml"), "region: ap") || read("b.yaml") == "" {
		t.Fatalf("brought over:\n%s\n%s", read("a.yaml"), read("b.yaml"))
	}
	c.in(c.dir, "leasehold", "run", "--once", liveDir)
	c.in(c.elsewhere, "git", "pull", "-q")
	c.in(c.elsewhere, "git", "rm", "-q", "jobs/b.yaml")
	c.in(c.elsewhere, "git", "commit", "-q", "-m", "remove b")
	c.push("a.yaml", "region: ap", "region: sa")
	c.git("pull", "-q")
	if a := read("a.yaml"); !strings.Contains(a, "region: sa") || !strings.Contains(a, "owner: worker-a") || read("b.yaml") != "" {
		t.Errorf("after the next pull:\n%s\n%s", a, read("b.yaml"))
	}
	if out := c.git("status", "--porcelain"); out != "" {
		t.Errorf("the checkout has changed:\n%s", out)
	}
}
