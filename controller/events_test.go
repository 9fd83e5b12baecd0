//go:build unix

package controller

import (
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"

	"leasehold.dev/leasehold/manifests"
)

// converged waits until the status of every manifest in the directory is what its spec leads to, and
// there are as many as wanted.
func (r *rig) converged(want int) {
	r.t.Helper()
	right := func(path string) (bool, string) {
		data, _ := os.ReadFile(path)
		f := manifests.Decode(path, data)
		return len(f.Docs) == 1 && f.Docs[0].Job != nil && f.Docs[0].Status != nil &&
			f.Docs[0].Status.SpecHash == f.Docs[0].Job.Spec.Hash() && f.Docs[0].Status.Owner != "", path + ":\n" + string(data)
	}
	wrong := "" // what was not right the last time
	waitFor(r.t, fmt.Sprintf("%d manifests converge", want), func() (bool, string) {
		if _, err := os.Stat(wrong); err == nil {
			if ok, state := right(wrong); !ok {
				return false, state + r.log.String()
			}
		}
		n, state := 0, ""
		err := filepath.WalkDir(r.dir+"/.", func(path string, d fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case d.IsDir() && d.Name() != "." && strings.HasPrefix(d.Name(), "."):
				return fs.SkipDir
			case d.IsDir() || !manifests.IsManifest(d.Name()):
				return nil
			}
			n++
			if ok, text := right(path); !ok {
				wrong, state = path, text
				return fs.SkipAll
			}
			return nil
		})
		if err != nil {
			return false, err.Error()
		}
		return state == "" && n == want, fmt.Sprintf("%d there; %s\n%s", n, state, r.log)
	})
}

// apart gives the rig a state directory that does not go with the directory.
func (r *rig) apart() *rig {
	r.state = r.t.TempDir()
	if err := os.RemoveAll(r.path(".leasehold")); err != nil {
		r.t.Fatal(err)
	}
	return r
}

// announced makes the watcher do without looking by itself.
func (r *rig) announced() *rig {
	r.watch = func(w *watcher) { w.poll = time.Hour }
	return r
}

func (r *rig) ok(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

// jobs writes n manifests into a subdirectory.
func (r *rig) jobs(dir string, n int, clock float64) {
	r.t.Helper()
	for i := range n {
		name := fmt.Sprintf("%s-%d", strings.ReplaceAll(dir, "/", "-"), i)
		r.write(fmt.Sprintf("%s/%d.yaml", dir, i), manifest(name, clock))
	}
}

// Whatever happens to the directory while the controller is at work, in the end every manifest's
// status is right, and where an event tells of it no periodic look is needed.
func TestDirectoryUnderWork(t *testing.T) {
	for name, play := range map[string]func(*testing.T, *rig){
		"overflow": func(t *testing.T, r *rig) {
			var inner *watcher
			r.watch = func(w *watcher) { inner, w.poll = w, time.Hour }
			r.jobs("a", 20, 100)
			r.start()
			r.converged(20)
			r.ok(inner.fs.Remove(r.path("a"))) // what happens there now is lost
			r.jobs("a", 40, 140)
			inner.fs.Errors <- fsnotify.ErrEventOverflow
			r.converged(40)
		},
		"removed and made again": func(t *testing.T, r *rig) {
			r.apart().announced().jobs("a", 20, 100)
			r.start()
			r.converged(20)
			for i := range 3 {
				r.ok(os.RemoveAll(r.dir))
				r.jobs("a", 20+i, float64(200+40*i))
				r.converged(20 + i)
			}
			r.ok(os.RemoveAll(r.dir))
			r.until("all are gone", func() bool { return strings.Count(r.log.String(), "the manifest is gone") >= 22 })
		},
		"moved away": func(t *testing.T, r *rig) {
			r.apart().announced().jobs("a", 20, 100)
			r.start()
			r.converged(20)
			away := r.dir + "-away"
			r.ok(os.Rename(r.dir, away))
			r.until("all are gone", func() bool { return strings.Count(r.log.String(), "the manifest is gone") == 20 })
			r.ok(os.WriteFile(away+"/a/0.yaml", []byte(manifest("a-0", 200)), 0o644))
			r.ok(os.Rename(away, r.dir))
			r.converged(20)
			r.shows("a/0.yaml", "worker-b 2 230")
		},
		"replaced by a link": func(t *testing.T, r *rig) {
			r.apart().announced().jobs("a", 10, 100)
			r.start()
			r.converged(10)
			r.ok(os.Rename(r.dir, r.dir+"-1"))
			r.ok(os.MkdirAll(r.dir+"-2/b", 0o755))
			r.ok(os.WriteFile(r.dir+"-2/b/x.yaml", []byte(manifest("x", 5)), 0o644))
			r.ok(os.Symlink(r.dir+"-2", r.dir))
			r.converged(1)
			r.ok(os.Symlink(r.dir+"-1", r.dir+"-next"))
			r.ok(os.Rename(r.dir+"-next", r.dir))
			r.converged(10)
			r.edit("a/0.yaml", "clock: 100", "clock: 130")
			r.shows("a/0.yaml", "worker-b 2 160")
		},
		"mounted ConfigMap": func(t *testing.T, r *rig) {
			r.announced()
			for i := range 6 {
				for k := range 5 {
					r.write(fmt.Sprintf("..v%d/%d.yaml", i, k), manifest(fmt.Sprint("m", k), float64(100+40*i)))
				}
			}
			r.ok(os.Symlink("..v0", r.path("..data")))
			for k := range 5 {
				r.ok(os.Symlink(fmt.Sprintf("..data/%d.yaml", k), r.path(fmt.Sprintf("%d.yaml", k))))
			}
			r.start()
			for i := range 6 {
				if i > 0 {
					r.ok(os.Symlink(fmt.Sprint("..v", i), r.path("..tmp")))
					r.ok(os.Rename(r.path("..tmp"), r.path("..data")))
				}
				for k := range 5 {
					r.until("the swap is seen", func() bool {
						s := r.status(fmt.Sprintf("%d.yaml", k))
						return s.Fence != nil && *s.Fence == int64(i+1)
					})
				}
			}
		},
		"nested directories made and filled at once": func(t *testing.T, r *rig) {
			r.announced().start()
			n := 0
			for i := range 20 {
				dir := fmt.Sprintf("n%d", i)
				for depth := range 10 {
					dir += fmt.Sprintf("/d%d", depth)
					r.jobs(dir, 2, 100)
					n += 2
				}
			}
			r.converged(n)
			r.ok(os.Rename(r.path("n0/d0"), r.path("n0/moved")))
			r.edit("n0/moved/d1/d2/0.yaml", "clock: 100", "clock: 130")
			r.shows("n0/moved/d1/d2/0.yaml", "worker-b 2 160")
		},
		"no watches left": func(t *testing.T, r *rig) {
			r.watch = func(w *watcher) {
				w.poll = 50 * time.Millisecond
				w.add = func(dir string) error {
					if strings.Contains(dir, "unseen") {
						return syscall.ENOSPC
					}
					return w.fs.Add(dir)
				}
				w.watchAll()
			}
			r.jobs("unseen/deep", 10, 100)
			r.start()
			r.converged(10)
			r.jobs("unseen/deep", 15, 200)
			r.jobs("unseen/later", 5, 200)
			r.converged(20)
			if n := strings.Count(r.log.String(), "fs.inotify.max_user_watches"); n < 1 || n > 3 {
				t.Errorf("told %d times:\n%s", n, r.log)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			play(t, newRig(t, nil))
		})
	}
}

// 500 files, with LEASEHOLD_SOAK 10,000, in one git checkout, there and back.
func TestSoakCheckout(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("git"); err != nil {
		if os.Getenv("LEASEHOLD_TEST_ALL") != "" {
			t.Fatal(err)
		}
		t.Skip("a checkout of thousands of manifests: for want of git")
	}
	n := 500
	if soak(t) > 0 {
		n = 10_000
	}
	r := newRig(t, nil).apart().announced()
	git := func(args ...string) {
		t.Helper()
		cmd := exec.Command("git", append([]string{"-C", r.dir, "-c", "user.name=a", "-c", "user.email=a@b", "-c", "gc.auto=0"}, args...)...)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %q: %v\n%s", args, err, out)
		}
	}
	git("init", "-q", "-b", "one")
	for _, branch := range []struct {
		name  string
		clock float64
	}{{"one", 100}, {"two", 140}, {"none", 0}} {
		if branch.name != "one" {
			git("checkout", "-q", "-b", branch.name)
		}
		for i := range 20 {
			if branch.clock > 0 {
				r.jobs(fmt.Sprintf("d%d", i), n/20, branch.clock)
			} else {
				r.ok(os.RemoveAll(r.path(fmt.Sprintf("d%d", i))))
			}
		}
		git("add", "-A")
		git("commit", "-q", "--allow-empty", "-m", branch.name)
	}
	r.start()
	var took []time.Duration
	for _, branch := range []string{"one", "two", "none", "two"} {
		begun := time.Now()
		git("checkout", "-q", "-f", branch)
		if branch == "none" {
			r.converged(0)
		} else {
			r.converged(n)
		}
		took = append(took, time.Since(begun).Round(time.Millisecond))
	}
	i := rand.IntN(20)
	r.shows(fmt.Sprintf("d%d/0.yaml", i), "worker-b 2 170")
	t.Logf("%d manifests by one git checkout, four times: every status right after %v", n, took)
}
