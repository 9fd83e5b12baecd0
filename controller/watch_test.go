//go:build unix

package controller

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"leasehold.dev/leasehold/manifests"
)

// mirror follows a watcher as a controller does: what a path holds is looked up when the path is
// reported, and at no other time. If nothing is missed it ends up as what a scan finds.
type mirror struct {
	t    *testing.T
	dir  string
	tree *manifests.Tree
	w    *watcher

	mu      sync.Mutex
	state   map[string]string
	changes []change
}

func newMirror(t *testing.T, dir string, prepare ...func(*watcher)) *mirror {
	t.Helper()
	tree, err := manifests.OpenTree(dir, "")
	if err != nil {
		t.Fatal(err)
	}
	w := newWatcher(tree)
	for _, p := range prepare {
		p(w)
	}
	m := &mirror{t: t, dir: dir, tree: tree, w: w, state: map[string]string{}}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { w.Run(ctx) })
	m.rescan()
	wg.Go(func() {
		for c := range w.Changes() {
			m.take(c)
		}
	})
	t.Cleanup(func() {
		cancel()
		wg.Wait()
		tree.Close()
	})
	return m
}

func (m *mirror) take(c change) {
	if c.Rescan {
		m.rescan()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, path := range c.Paths {
		sig, err := m.tree.Stat(path)
		if errors.Is(err, os.ErrNotExist) && !errors.Is(err, manifests.ErrDangling) {
			delete(m.state, path)
			continue
		}
		m.state[path] = fmt.Sprint(sig, err)
	}
	m.changes = append(m.changes, c)
}

func (m *mirror) found() map[string]string {
	found, err := scan(m.tree)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		m.t.Error(err)
	}
	state := map[string]string{}
	for _, e := range found {
		state[e.Path] = fmt.Sprint(e.Sig, e.Err)
		if e.Err != nil {
			state[e.Path] = fmt.Sprint(manifests.Sig{}, e.Err)
		}
	}
	return state
}

func (m *mirror) rescan() {
	state := m.found()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.state = state
}

// agrees waits until the mirror is what a scan finds, with these paths in it.
func (m *mirror) agrees(paths ...string) {
	m.t.Helper()
	var have, want map[string]string
	eventually(m.t, func() bool {
		want = m.found()
		m.mu.Lock()
		defer m.mu.Unlock()
		have = maps.Clone(m.state)
		return maps.Equal(have, want) && slices.Equal(slices.Sorted(maps.Keys(want)), paths)
	}, func() { m.t.Fatalf("known: %v\nthere: %v\nwanted: %v", have, want, paths) })
}

// since returns the changes since the last call, up to one that names the path.
func (m *mirror) since(path string) (got []change) {
	m.t.Helper()
	eventually(m.t, func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		for i, c := range m.changes {
			if slices.Contains(c.Paths, path) {
				got, m.changes = m.changes[:i+1], m.changes[i+1:]
				return true
			}
		}
		return false
	}, func() { m.t.Fatalf("%s was never reported: %+v", path, m.changes) })
	return got
}

func eventually(t *testing.T, cond func() bool, failed func()) {
	t.Helper()
	deadline := time.Now().Add(15 * time.Second)
	for tick := time.NewTicker(time.Millisecond); !cond(); <-tick.C {
		if time.Now().After(deadline) {
			failed()
		}
	}
}

type files struct {
	t   *testing.T
	dir string
}

func (f files) path(name string) string { return filepath.Join(f.dir, name) }
func (f files) ok(err error) {
	f.t.Helper()
	if err != nil {
		f.t.Fatal(err)
	}
}
func (f files) write(name, data string) {
	f.t.Helper()
	f.ok(os.WriteFile(f.path(name), []byte(data), 0o644))
}
func (f files) mkdir(name string)      { f.t.Helper(); f.ok(os.MkdirAll(f.path(name), 0o755)) }
func (f files) mv(a, b string)         { f.t.Helper(); f.ok(os.Rename(f.path(a), f.path(b))) }
func (f files) rm(name string)         { f.t.Helper(); f.ok(os.RemoveAll(f.path(name))) }
func (f files) link(target, at string) { f.t.Helper(); f.ok(os.Symlink(target, f.path(at))) }
func (f files) relink(target, at string) {
	f.t.Helper()
	f.link(target, at+".tmp")
	f.mv(at+".tmp", at)
}

func newFiles(t *testing.T) files {
	f := files{t, filepath.Join(t.TempDir(), "jobs")}
	f.mkdir(".")
	return f
}

func TestWatch(t *testing.T) {
	for name, play := range map[string]func(files, *mirror){
		"save": func(f files, m *mirror) {
			for i := range 20 {
				f.write("a.yaml", strings.Repeat("x", i))
				m.agrees("a.yaml")
			}
			f.write("b.yml.new", "b")
			f.mv("b.yml.new", "b.yml")
			m.agrees("a.yaml", "b.yml")
			f.mv("a.yaml", "a.yaml~")
			m.agrees("b.yml")
			f.write("a.yaml", "again")
			f.write("c.json", "{}")
			m.agrees("a.yaml", "b.yml", "c.json")
			f.rm("b.yml")
			f.ok(os.Chmod(f.path("a.yaml"), 0o600))
			m.agrees("a.yaml", "c.json")
		},
		"directories made and filled at once": func(f files, m *mirror) {
			f.mkdir("x/y/z")
			f.write("x/y/z/a.yaml", "1")
			f.write("x/a.yaml", "1")
			m.agrees("x/a.yaml", "x/y/z/a.yaml")
			f.write("x/y/b.yaml", "1")
			f.write("x/y/z/a.yaml", "22")
			m.agrees("x/a.yaml", "x/y/b.yaml", "x/y/z/a.yaml")
		},
		"directory removed and made again": func(f files, m *mirror) {
			for i := range 10 {
				f.mkdir("x/y")
				f.write("x/y/a.yaml", strings.Repeat("x", i))
				if i%2 == 0 {
					m.agrees("x/y/a.yaml")
				}
				f.rm("x")
			}
			f.mkdir("x/y")
			f.write("x/y/a.yaml", "last")
			m.agrees("x/y/a.yaml")
			f.write("x/y/a.yaml", "at last")
			m.agrees("x/y/a.yaml")
		},
		"directory moved": func(f files, m *mirror) {
			f.mkdir("x/y")
			f.write("x/y/a.yaml", "1")
			m.agrees("x/y/a.yaml")
			f.mv("x", "z")
			m.agrees("z/y/a.yaml")
			f.write("z/y/a.yaml", "22")
			m.agrees("z/y/a.yaml")
			f.mv("z", "x")
			f.mv("x", "u")
			f.write("u/y/b.yaml", "333")
			m.agrees("u/y/a.yaml", "u/y/b.yaml")
			f.mkdir("n")
			f.mv("u", "n/u")
			f.write("n/u/y/c.yaml", "4444")
			m.agrees("n/u/y/a.yaml", "n/u/y/b.yaml", "n/u/y/c.yaml")
			f.write("n/u/y/c.yaml", "55555")
			m.agrees("n/u/y/a.yaml", "n/u/y/b.yaml", "n/u/y/c.yaml")
			f.mv("n/u", "../elsewhere")
			m.agrees()
		},
		"mounted ConfigMap": func(f files, m *mirror) {
			f.mkdir("..v1")
			f.write("..v1/a.yaml", "1")
			f.write("..v1/b.yaml", "1")
			f.link("..v1", "..data")
			f.link("..data/a.yaml", "a.yaml")
			f.link("..data/b.yaml", "b.yaml")
			m.agrees("a.yaml", "b.yaml")
			for i := 2; i < 6; i++ {
				f.mkdir(fmt.Sprint("..v", i))
				f.write(fmt.Sprintf("..v%d/a.yaml", i), strings.Repeat("a", i))
				f.write(fmt.Sprintf("..v%d/b.yaml", i), strings.Repeat("b", i))
				f.relink(fmt.Sprint("..v", i), "..data")
				m.agrees("a.yaml", "b.yaml")
				f.rm(fmt.Sprint("..v", i-1))
			}
			f.write("..v5/a.yaml", "in the target itself")
			m.agrees("a.yaml", "b.yaml")
			f.rm("..data") // dangling
			m.agrees("a.yaml", "b.yaml")
			f.link("..v5", "..data")
			m.agrees("a.yaml", "b.yaml")
		},
		"links": func(f files, m *mirror) {
			f.mkdir("real")
			f.mkdir(".hidden/deep")
			f.write("real/a.yaml", "1")
			f.link("real", "current")
			f.link("current/a.yaml", "l.yaml")
			f.link(".hidden/deep/h.txt", "h.yaml")
			m.agrees("h.yaml", "l.yaml", "real/a.yaml")
			f.write("real/a.yaml", "22")
			m.agrees("h.yaml", "l.yaml", "real/a.yaml")
			f.write(".hidden/deep/h.txt", "no longer dangling")
			m.agrees("h.yaml", "l.yaml", "real/a.yaml")
			f.mkdir("other")
			f.write("other/a.yaml", "333")
			f.relink("other", "current")
			m.agrees("h.yaml", "l.yaml", "other/a.yaml", "real/a.yaml")
			f.relink("real/a.yaml", "l.yaml")
			f.write("real/a.yaml", "4444")
			m.agrees("h.yaml", "l.yaml", "other/a.yaml", "real/a.yaml")
			f.rm("l.yaml")
			f.write("l.yaml", "a file now")
			m.agrees("h.yaml", "l.yaml", "other/a.yaml", "real/a.yaml")
			f.rm(".hidden")
			f.mkdir(".hidden/deep")
			f.write(".hidden/deep/h.txt", "again")
			m.agrees("h.yaml", "l.yaml", "other/a.yaml", "real/a.yaml")
		},
		"root removed and made again": func(f files, m *mirror) {
			f.write("a.yaml", "1")
			m.agrees("a.yaml")
			f.rm(".")
			m.agrees()
			f.mkdir("sub")
			f.write("sub/b.yaml", "1")
			m.agrees("sub/b.yaml")
			f.write("sub/b.yaml", "22")
			m.agrees("sub/b.yaml")
			f.mv(".", "../away")
			f.mkdir(".")
			f.write("c.yaml", "1")
			m.agrees("c.yaml")
			f.write("c.yaml", "22")
			m.agrees("c.yaml")
		},
		"root's parent removed and made again": func(f files, m *mirror) {
			f.write("a.yaml", "1")
			m.agrees("a.yaml")
			f.mv("..", "../../away")
			m.agrees()
			f.mkdir(".")
			f.write("a.yaml", "22")
			m.agrees("a.yaml")
			f.write("a.yaml", "333")
			m.agrees("a.yaml")
			f.mv("../../away", "../away") // for the cleaning up
		},
		"what cannot be read": func(f files, m *mirror) {
			f.ok(syscall.Mkfifo(f.path("fifo.yaml"), 0o644))
			f.mkdir("dir.yaml")
			f.link("loop.yaml", "loop.yaml")
			m.agrees("dir.yaml", "fifo.yaml", "loop.yaml")
			f.rm("fifo.yaml")
			f.rm("dir.yaml")
			f.rm("loop.yaml")
			m.agrees()
		},
		"a burst": func(f files, m *mirror) {
			var all []string
			for i := range 500 {
				dir := fmt.Sprintf("d%d", i%10)
				f.mkdir(dir)
				name := fmt.Sprintf("%s/f%03d.yaml", dir, i)
				f.write(name, "1")
				all = append(all, name)
			}
			slices.Sort(all)
			m.agrees(all...)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFiles(t)
			play(f, newMirror(t, f.dir))
		})
	}
}

// Nobody announces that a directory further up was moved.
func TestWatchMovedFarAbove(t *testing.T) {
	base := files{t, t.TempDir()}
	base.mkdir("a/b/c/jobs")
	m := newMirror(t, base.path("a/b/c/jobs"))
	base.write("a/b/c/jobs/a.yaml", "1")
	m.agrees("a.yaml")
	base.mv("a", "x")
	base.mkdir("a/b/c/jobs")
	base.write("a/b/c/jobs/b.yaml", "1")
	m.agrees("b.yaml")
	base.write("a/b/c/jobs/b.yaml", "22")
	m.agrees("b.yaml")
}

// A root that is itself a link, as where releases are switched.
func TestWatchLinkedRoot(t *testing.T) {
	f := newFiles(t)
	f.mkdir("r1")
	f.mkdir("r2")
	f.write("r1/a.yaml", "1")
	f.write("r2/b.yaml", "1")
	f.link("r1", "live")
	m := newMirror(t, f.path("live"))
	m.agrees("a.yaml")
	f.write("r1/a.yaml", "22")
	m.agrees("a.yaml")
	f.relink("r2", "live")
	m.agrees("b.yaml")
	f.write("r2/b.yaml", "22")
	m.agrees("b.yaml")
}
