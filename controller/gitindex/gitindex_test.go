package gitindex

import (
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

const (
	bare   = "apiVersion: leasehold.dev/v1alpha1\nkind: Job\nmetadata: {name: a}\nspec: {ttl: 1, workers: [{name: a}]}\n"
	status = "status:\n  owner: a\n"
)

// repo is a repository with a filter that takes the lines of status away, so that no program of
// ours is needed.
type repo struct {
	t   *testing.T
	dir string
}

func newRepo(t *testing.T, init ...string) repo {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		if os.Getenv("LEASEHOLD_TEST_ALL") != "" {
			t.Fatal("tests with a real checkout: git is missing")
		}
		t.Skip("tests with a real checkout: for want of git")
	}
	for k, v := range map[string]string{"GIT_CONFIG_GLOBAL": os.DevNull, "GIT_CONFIG_NOSYSTEM": "1",
		"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@b"} {
		t.Setenv(k, v)
	}
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	r := repo{t, dir}
	r.git(append([]string{"init", "-q"}, init...)...)
	r.git("config", "filter.leasehold.clean", "sed '/^status:/,$d'")
	r.write(".git/info/attributes", "*.yaml filter=leasehold\n")
	return r
}

func (r repo) git(args ...string) string {
	r.t.Helper()
	out, err := Git(r.t.Context(), r.dir, args...)
	if err != nil {
		r.t.Fatal(err)
	}
	return out
}

func (r repo) write(name, text string) {
	r.t.Helper()
	path := filepath.Join(r.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		r.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		r.t.Fatal(err)
	}
}

// rested writes a file as if some time ago.
func (r repo) rested(name, text string) {
	r.t.Helper()
	r.write(name, text)
	old := time.Now().Add(-time.Minute)
	if err := os.Chtimes(filepath.Join(r.dir, name), old, old); err != nil {
		r.t.Fatal(err)
	}
}

func (r repo) index() *Index {
	r.t.Helper()
	c, err := Find(r.t.Context(), r.dir)
	if err != nil {
		r.t.Fatal(err)
	}
	return newIndex(r.dir, c, slog.New(slog.DiscardHandler))
}

// calm lets the time pass that Git is given to come to an end.
func calm(x *Index) { x.act.known, x.act.last = traces{}, time.Time{} }

// Every form of the index: only numbers change in it, and Git agrees with what is read and written.
func TestForms(t *testing.T) {
	for _, row := range []struct {
		name   string
		init   []string
		config map[string]string
	}{
		{name: "version 2"},
		{name: "version 4", config: map[string]string{"index.version": "4"}},
		{name: "sha256", init: []string{"--object-format=sha256"}},
		{name: "untracked cache", config: map[string]string{"core.untrackedCache": "true"}},
		{name: "threads", config: map[string]string{"index.threads": "2"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := newRepo(t, row.init...)
			for k, v := range row.config {
				r.git("config", k, v)
			}
			names := []string{"a.yaml", "b.yml", "c.json", "deep/er/than/that.yaml", "deep/er/thin.yaml", "odd name é.yaml", strings.Repeat("long", 50) + ".yaml"}
			for i := range 60 {
				names = append(names, fmt.Sprintf("many/%d.yaml", i))
			}
			for _, n := range append(names, "other.txt", ".hidden.yaml") {
				r.rested(n, bare)
			}
			r.git("add", ".")
			r.git("commit", "-q", "-m", "x")
			r.write("announced.yaml", bare)
			r.git("add", "-N", "announced.yaml") // makes a version 3 of 2
			r.git("update-index", "--assume-unchanged", "b.yml")
			r.git("update-index", "--skip-worktree", "c.json")
			before := r.git("ls-files", "-s")

			x := r.index()
			if err := x.load(); err != nil {
				t.Fatal(err)
			}
			got := map[string]string{}
			for p, e := range x.image.entries {
				got[p] = hex.EncodeToString([]byte(e.blob))
			}
			want := map[string]string{}
			for _, line := range strings.Split(strings.TrimSuffix(r.git("ls-files", "-s", "-z"), "\x00"), "\x00") {
				meta, path, _ := strings.Cut(line, "\t")
				if f := strings.Fields(meta); x.ours([]byte(path)) && path != "b.yml" && path != "c.json" && path != "announced.yaml" {
					want[path] = f[1]
				}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatalf("(-want +got):\n%s", diff)
			}

			// Status in every file: vague, Git sees nothing; filled in, not even without a filter.
			for p := range want {
				if err := x.Enter(p); err != nil {
					t.Fatal(err)
				}
				r.rested(p, bare+status)
			}
			if got := r.git("status", "--porcelain", "-uno"); got != " A announced.yaml\n" {
				t.Errorf("git status:\n%s", got)
			}
			calm(x)
			x.Close()
			if err := x.load(); err != nil {
				t.Fatal(err)
			}
			for p, e := range x.image.entries {
				if s, _, _, _ := statFile(x.file(p)); !x.image.stat(e).same(s) {
					t.Errorf("%s is not filled in", p)
				}
			}
			if got := r.git("diff-files", "--name-only", "--", "many"); got != "" {
				t.Errorf("git diff-files:\n%s", got)
			}
			if after := r.git("ls-files", "-s"); after != before {
				t.Errorf("the index had\n%sand has\n%s", before, after)
			}
			r.git("fsck", "--strict")
			if got := r.git("ls-files", "-v", "b.yml", "c.json"); got != "h b.yml\nS c.json\n" {
				t.Errorf("flags: %s", got)
			}
		})
	}
}

// Half an index is not read, and is told once. Status is written all the same.
func TestSplitIndex(t *testing.T) {
	r := newRepo(t)
	r.write("a.yaml", bare)
	r.git("add", ".")
	r.git("update-index", "--split-index")
	x := r.index()
	var log strings.Builder
	x.log = slog.New(slog.NewTextHandler(&log, nil))
	for range 3 {
		if err := x.Enter("a.yaml"); err != nil {
			t.Error(err)
		}
	}
	if strings.Count(log.String(), "no-split-index") != 1 {
		t.Errorf("the log:\n%s", &log)
	}
}

// What the user has changed is not filled in, nor is anything during a merge.
func TestFillLeavesChanges(t *testing.T) {
	r := newRepo(t)
	for _, n := range []string{"a.yaml", "b.yaml"} {
		r.rested(n, bare)
	}
	r.git("add", ".")
	r.git("commit", "-q", "-m", "x")
	x := r.index()
	for _, n := range []string{"a.yaml", "b.yaml"} {
		if err := x.Enter(n); err != nil {
			t.Fatal(err)
		}
	}
	r.rested("a.yaml", bare+status)
	r.rested("b.yaml", "# edited\n"+bare+status)
	vague := func(name string) bool {
		t.Helper()
		if err := x.load(); err != nil {
			t.Fatal(err)
		}
		return x.image.stat(x.image.entries[name]).vague()
	}
	r.write(".git/MERGE_HEAD", strings.TrimSpace(r.git("rev-parse", "HEAD")))
	x.fill(time.Now().Add(time.Hour))
	if !vague("a.yaml") {
		t.Error("filled in during a merge")
	}
	if err := os.Remove(filepath.Join(r.dir, ".git/MERGE_HEAD")); err != nil {
		t.Fatal(err)
	}
	calm(x)
	x.fill(time.Now().Add(time.Hour))
	if vague("a.yaml") || !vague("b.yaml") {
		t.Error("filled in: a", !vague("a.yaml"), "b", !vague("b.yaml"))
	}
	if got := r.git("status", "--porcelain"); got != " M b.yaml\n" {
		t.Errorf("git status: %q", got)
	}
}

// A file that Git compares because it is as young as the index is compared in a younger index, too.
func TestRacy(t *testing.T) {
	r := newRepo(t)
	r.rested("a.yaml", bare)
	r.write("racy.txt", "one\n")
	r.git("add", ".")
	// Of equal size and time, it differs in its bytes alone.
	path := filepath.Join(r.dir, "racy.txt")
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	r.write("racy.txt", "two\n")
	if err := os.Chtimes(path, info.ModTime(), info.ModTime()); err != nil {
		t.Fatal(err)
	}
	r.git("config", "core.trustctime", "false")
	x := r.index()
	if err := x.Enter("a.yaml"); err != nil {
		t.Fatal(err)
	}
	r.rested("a.yaml", bare+status)
	calm(x)
	x.Close()
	if got := r.git("status", "--porcelain"); !strings.Contains(got, "AM racy.txt") || strings.Contains(got, "M a.yaml") {
		t.Errorf("git status:\n%s", got)
	}
}

// Bytes that are no index are refused, whatever they are.
func TestParseImage(t *testing.T) {
	r := newRepo(t)
	for i := range 5 {
		r.write(fmt.Sprintf("%d.yaml", i), bare)
	}
	r.git("add", ".")
	data, err := os.ReadFile(filepath.Join(r.dir, ".git/index"))
	if err != nil {
		t.Fatal(err)
	}
	all := func([]byte) bool { return true }
	rapid.Check(t, func(rt *rapid.T) {
		bad := append([]byte(nil), data...)
		for range rapid.IntRange(1, 4).Draw(rt, "changes") {
			bad[rapid.IntRange(0, len(bad)-1).Draw(rt, "at")] = rapid.Byte().Draw(rt, "byte")
		}
		bad = bad[:rapid.IntRange(0, len(bad)).Draw(rt, "length")]
		if len(bad) >= 20 {
			m := &image{data: bad, newHash: sha1.New}
			m.seal() // so that more than the checksum is looked at
		}
		m, err := parseImage(bad, false, all)
		if err == nil {
			for _, e := range m.entries {
				m.setStat(e, m.stat(e).blur())
			}
		}
	})
}
