//go:build unix

package controller

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/fsnotify/fsnotify"

	"leasehold.dev/leasehold/manifests"
)

// Temps, editors' files and the state directory cause no work, and a replacement names its file only.
func TestWatchIgnores(t *testing.T) {
	f := newFiles(t)
	f.write("a.yaml", "1")
	f.mkdir(".leasehold")
	m := newMirror(t, f.dir)
	f.write(".a.yaml.swp", "x")
	f.write("notes.txt", "x")
	f.write(".leasehold/x.yaml", "x")
	f.write(".hidden.yaml", "x")
	var err error
	var s manifests.Snapshot
	eventually(t, func() bool {
		s, err = m.tree.Read("a.yaml", 100)
		return err == nil
	}, func() { t.Fatal(err) })
	if _, err := m.tree.Replace("a.yaml", s, []byte("22")); err != nil {
		t.Fatal(err)
	}
	f.write("z.yaml", "1")
	for _, c := range m.since("z.yaml") {
		if c.Rescan || c.Err != nil || c.Also {
			t.Errorf("%+v", c)
		}
		for _, p := range c.Paths {
			if p != "a.yaml" && p != "z.yaml" {
				t.Errorf("%s was reported", p)
			}
		}
	}
}

func TestWatchAlso(t *testing.T) {
	f := newFiles(t)
	f.mkdir(".leasehold")
	m := newMirror(t, f.dir, func(w *watcher) { w.Also(f.path(".leasehold/leasehold.db")) })
	f.write(".leasehold/leasehold.db-wal", "1")
	eventually(t, func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		return slices.ContainsFunc(m.changes, func(c change) bool { return c.Also && !c.Rescan })
	}, func() { t.Fatalf("%+v", m.changes) })
}

func TestWatchOverflow(t *testing.T) {
	f := newFiles(t)
	tree, err := manifests.OpenTree(f.dir, "")
	if err != nil {
		t.Fatal(err)
	}
	defer tree.Close()
	w := newWatcher(tree)
	defer w.fs.Close()
	faults := make(chan error)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { w.loop(ctx, nil, faults); close(done) }()
	faults <- fsnotify.ErrEventOverflow
	if c := <-w.Changes(); !c.Rescan || c.Err != nil {
		t.Errorf("after an overflow: %+v", c)
	}
	faults <- syscall.EIO
	if c := <-w.Changes(); !c.Rescan || !errors.Is(c.Err, syscall.EIO) {
		t.Errorf("after a fault: %+v", c)
	}
	cancel()
	<-done
}

// Where the system has no watches left, it is said once, and the rest is scanned from time to time.
func TestWatchLimit(t *testing.T) {
	f := newFiles(t)
	f.mkdir("seen")
	f.mkdir("unseen")
	m := newMirror(t, f.dir, func(w *watcher) {
		w.add = func(dir string) error {
			if filepath.Base(dir) == "unseen" {
				return syscall.ENOSPC
			}
			return w.fs.Add(dir)
		}
		w.watchAll()
	})
	f.write("seen/a.yaml", "1")
	f.write("unseen/b.yaml", "1")
	m.agrees("seen/a.yaml", "unseen/b.yaml")
	f.write("unseen/b.yaml", "22")
	m.agrees("seen/a.yaml", "unseen/b.yaml")
	m.mu.Lock()
	defer m.mu.Unlock()
	var errs []error
	for _, c := range m.changes {
		if c.Err != nil {
			errs = append(errs, c.Err)
		}
	}
	if len(errs) != 1 || !strings.Contains(errs[0].Error(), "fs.inotify.max_user_watches") {
		t.Errorf("%q", errs)
	}
}
