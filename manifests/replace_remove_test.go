//go:build linux

package manifests

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestRemove(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a.yaml")
	for _, temp := range []string{"", t.TempDir()} {
		write(t, path, "old")
		tree := openTree(t, dir, temp)
		s := readSoon(t, tree, "a.yaml")
		write(t, path, "new")
		if err := tree.Remove("a.yaml", s); !errors.Is(err, ErrChanged) || content(t, path) != "new" {
			t.Errorf("from a stale snapshot: %v", err)
		}
		if err := tree.Remove("a.yaml", readSoon(t, tree, "a.yaml")); err != nil {
			t.Error(err)
		}
		if err := tree.Remove("a.yaml", s); !errors.Is(err, ErrChanged) || !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("a second time: %v", err)
		}
		nothingLeft(t, dir)
		if temp != "" {
			nothingLeft(t, temp)
		}
	}
	write(t, path, "old")
	if err := os.Symlink("a.yaml", filepath.Join(dir, "link.yaml")); err != nil {
		t.Fatal(err)
	}
	tree := openTree(t, dir, "")
	if err := tree.Remove("link.yaml", readSoon(t, tree, "link.yaml")); !errors.Is(err, ErrNotWritable) {
		t.Errorf("a link: %v", err)
	}
	os.Chmod(path, 0o444)
	if err := tree.Remove("a.yaml", readSoon(t, tree, "a.yaml")); !errors.Is(err, ErrNotWritable) {
		t.Errorf("read-only: %v", err)
	}
}

// A save between any two steps of a removal is not lost, in whatever style.
func TestSaveWhileRemoving(t *testing.T) {
	for _, mode := range []string{"", "temp directory", "no lease"} {
		for _, step := range []string{"check", "exchange", "look", "back", "syncdir", "unlink"} {
			for _, sv := range savers {
				t.Run(fmt.Sprintf("%s/%s/%s", mode, step, sv.name), func(t *testing.T) {
					t.Parallel()
					testSaveWhileRemoving(t, mode, step, sv)
				})
			}
		}
	}
}

func testSaveWhileRemoving(t *testing.T, mode, step string, sv saver) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a.yaml")
	write(t, path, "user: first\n")
	temp := ""
	if mode == "temp directory" {
		temp = t.TempDir()
	}
	tree := openTree(t, dir, temp)
	tree.noLease = mode == "no lease"
	tree.graveTime = 2 * graveLook
	if tree.noLease {
		tree.Now = func() time.Time { return time.Now().Add(blindRest) }
	}
	snap := readSoon(t, tree, "a.yaml")
	done := make(chan error, 1)
	fired := false
	tree.Before = func(at, _ string) error {
		if step == "back" && at == "exchange" && !fired {
			return renameOver(path, "user: x\n") // this makes it go back
		}
		if at != step || fired {
			return nil
		}
		fired = true
		finished := make(chan struct{})
		go func() { done <- sv.save(path); close(finished) }()
		eventually(t, "saved or waiting", func() bool {
			select {
			case <-finished:
				return true
			default:
				return waitsForLease()
			}
		})
		return nil
	}
	err := tree.Remove("a.yaml", snap)
	eventually(t, "the graves", func() bool {
		tree.graves.mu.Lock()
		defer tree.graves.mu.Unlock()
		return len(tree.graves.list) == 0
	})
	tree.graves.mu.Lock()
	hit := fired
	tree.graves.mu.Unlock()
	if !hit {
		return // this step is not taken in this mode
	}
	if err != nil && !errors.Is(err, ErrChanged) && !errors.Is(err, ErrBusy) {
		t.Error(err)
	}
	switch saveErr := <-done; {
	case errors.Is(saveErr, fs.ErrNotExist) || sv.user == "":
		return // there was nothing to save into any more, as the user was told
	case saveErr != nil:
		t.Fatalf("the user's save failed: %v", saveErr)
	}
	if got, err := os.ReadFile(path); string(got) != sv.user && !(step == "back" && sv.inPlace) {
		t.Errorf("the file holds %q (%v), the user saved %q", got, err, sv.user)
	}
}
