//go:build linux

package manifests

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A saver saves a file in some style. It reports what the user's part has to be from then on.
type saver struct {
	name string
	save func(path string) error
	// user is what the user wants to see in the file in the end; empty: the file is gone.
	user    string
	inPlace bool
}

const saved = "user: after\n"

func overwrite(path string, flags int, chunks ...string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|flags, 0o644)
	if err != nil {
		return err
	}
	for _, c := range chunks {
		if _, err := f.WriteString(c); err != nil {
			return err
		}
	}
	return f.Close()
}

func renameOver(path, data string) error {
	tmp := path + ".new"
	return errors.Join(os.WriteFile(tmp, []byte(data), 0o644), os.Rename(tmp, path))
}

var savers = []saver{
	{"truncate", func(p string) error { return overwrite(p, os.O_TRUNC|os.O_CREATE, saved) }, saved, true},
	{"chunks", func(p string) error { return overwrite(p, os.O_TRUNC|os.O_CREATE, saved[:4], saved[4:7], saved[7:]) }, saved, true},
	{"append", func(p string) error { return overwrite(p, os.O_APPEND, "more: 1\n") }, "user: first\nmore: 1\n", true},
	// The same length, the same size: only the bytes differ.
	{"in place", func(p string) error { return overwrite(p, 0, "user: fourt") }, "user: fourt\n", true},
	{"rename", func(p string) error { return renameOver(p, saved) }, saved, false},
	{"rename twice", func(p string) error { return errors.Join(renameOver(p, "user: x\n"), renameOver(p, saved)) }, saved, false},
	{"rename, then append", func(p string) error {
		return errors.Join(renameOver(p, "user: x\n"), overwrite(p, os.O_APPEND, "more: 1\n"))
	}, "user: x\nmore: 1\n", false},
	{"move aside", func(p string) error { return errors.Join(os.Rename(p, p+"~"), os.WriteFile(p, []byte(saved), 0o644)) }, saved, false},
	{"remove and make", func(p string) error { return errors.Join(os.Remove(p), os.WriteFile(p, []byte(saved), 0o644)) }, saved, false},
	{"remove", os.Remove, "", false},
	{"move away", func(p string) error { return os.Rename(p, p+"~") }, "", false},
	{"replace by a link", func(p string) error {
		if err := os.WriteFile(p+".target", []byte(saved), 0o644); err != nil {
			return err
		}
		return errors.Join(os.Symlink(filepath.Base(p)+".target", p+".new"), os.Rename(p+".new", p))
	}, saved, false},
}

// waitsForLease tells whether somebody waits for a lease to end. It may be another test's, which
// costs a little precision and no correctness.
func waitsForLease() bool {
	locks, err := os.ReadFile("/proc/locks")
	return err == nil && strings.Contains(string(locks), "BREAKING")
}

// macanderson/stella#5502: a tool reads a file, the user saves, the tool writes its copy.
// A save between any two steps of a replacement stays, in every style, and nothing else does.
func TestSaveBetweenSteps(t *testing.T) {
	steps := []string{"temp", "write", "attributes", "sync", "name", "check", "exchange", "look", "back", "rename", "syncdir", "unlink"}
	for _, mode := range []string{"", "temp directory", "no lease", "no exchange", "neither"} {
		for _, step := range steps {
			for _, sv := range savers {
				t.Run(fmt.Sprintf("%s/%s/%s", mode, step, sv.name), func(t *testing.T) {
					t.Parallel()
					testSaveAtStep(t, mode, step, sv)
				})
			}
		}
	}
}

func testSaveAtStep(t *testing.T, mode, step string, sv saver) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a.yaml")
	write(t, path, "user: first\n")
	temp := ""
	if mode == "temp directory" {
		temp = t.TempDir()
	}
	tree := openTree(t, dir, temp)
	tree.noLease = mode == "no lease" || mode == "neither"
	tree.graveTime = 2 * graveLook
	if tree.noLease {
		// What has just changed would not be read for a while.
		tree.Now = func() time.Time { return time.Now().Add(blindRest) }
	}
	noExchange := mode == "no exchange" || mode == "neither"
	if noExchange && step == "back" {
		return // it does not go back
	}
	if noExchange && (step == "exchange" || step == "look") && (strings.HasPrefix(sv.name, "rename") || strings.HasPrefix(sv.name, "re") || strings.HasPrefix(sv.name, "move")) {
		return // lost where names cannot be swapped, as documented
	}
	done := make(chan error, 1)
	fired := false
	tree.Before = func(at, _ string) error {
		if step == "back" && at == "exchange" && !fired {
			return renameOver(path, "user: x\n") // this makes it go back
		}
		if at == step && !fired {
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
		}
		if noExchange && (at == "exchange" || at == "back") {
			return errors.ErrUnsupported
		}
		return nil
	}
	n := 0
	eventually(t, "the first pass", func() bool {
		n++
		ok, err := pass(tree, "a.yaml", n)
		if err != nil {
			t.Fatal(err)
		}
		if sv.user == "" {
			_, err := os.Lstat(path)
			ok = ok || err != nil
		}
		return ok
	})
	eventually(t, "the graves", func() bool {
		tree.graves.mu.Lock()
		defer tree.graves.mu.Unlock()
		return len(tree.graves.list) == 0
	})
	tree.graves.mu.Lock()
	hit := fired
	tree.Before = nil
	tree.graves.mu.Unlock()
	if !hit {
		return // this step is not taken in this mode
	}
	if err := <-done; err != nil {
		t.Fatalf("the user's save failed: %v", err)
	}
	if sv.user != "" {
		eventually(t, "a last pass", func() bool {
			n++
			ok, err := pass(tree, "a.yaml", n)
			if err != nil {
				t.Fatal(err)
			}
			return ok
		})
		want := sv.user
		if step == "back" && sv.name == "append" {
			want = "user: first\nmore: 1\n" // "user: x" is kept beside it
		}
		got := content(t, path)
		if string(userPart([]byte(got))) != want && !(step == "back" && sv.name == "in place") {
			t.Errorf("the file holds %q, the user saved %q", got, want)
		}
	}
	if err := tree.Close(); err != nil {
		t.Error(err)
	}
	left := leftovers(t, dir)
	if step == "back" && sv.inPlace {
		if len(left) != 1 || content(t, left[0]) != "user: x\n" {
			t.Errorf("the save that was overtaken was not kept: %q", left)
		}
	} else if len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
	if temp != "" {
		if left := leftovers(t, temp); len(left) > 0 {
			t.Errorf("left behind: %q", left)
		}
	}
}
