//go:build linux

package manifests

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// crashAt replaces the file and dies before the step. With slip, a user saves just before the swap.
func crashAt(dir, temp, step, slip string) int {
	tree, err := OpenTree(dir, temp)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	path := filepath.Join(dir, "sub/a.yaml")
	tree.Before = func(at, _ string) error {
		if at == step {
			os.Exit(9)
		}
		if at == "exchange" && slip != "" {
			return renameOver(path, slip)
		}
		return nil
	}
	s, err := tree.Read("sub/a.yaml", testLimit)
	if err == nil {
		_, err = tree.Replace("sub/a.yaml", s, []byte("new"))
	}
	if err != nil && !errors.Is(err, ErrChanged) {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	tree.Close()
	return 0
}

// A crash at any step leaves the old file or the new one. Sweep removes what was left behind, and
// brings a save back that had been displaced and not been looked at.
func TestCrash(t *testing.T) {
	steps := []string{"temp", "write", "attributes", "sync", "name", "check", "exchange", "look", "back", "syncdir", "unlink", "never"}
	for _, where := range []string{"beside", "temp directory", "temp inside"} {
		for _, step := range steps {
			for _, slip := range []string{"", "saved", "saved, then saved again"} {
				t.Run(where+"/"+step+"/"+slip, func(t *testing.T) {
					t.Parallel()
					testCrash(t, where, step, slip)
				})
			}
		}
	}
}

func testCrash(t *testing.T, where, step, slip string) {
	dir, temp := t.TempDir(), ""
	switch where {
	case "temp directory":
		temp = t.TempDir()
	case "temp inside":
		temp = filepath.Join(dir, ".leasehold")
	}
	path := filepath.Join(dir, "sub/a.yaml")
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.MkdirAll(filepath.Join(dir, ".leasehold"), 0o755)); err != nil {
		t.Fatal(err)
	}
	write(t, path, "old")
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "LEASEHOLD_TEST_CRASH="+step, "LEASEHOLD_TEST_DIR="+dir, "LEASEHOLD_TEST_TEMP="+temp, "LEASEHOLD_TEST_SLIP="+slip)
	out, err := cmd.CombinedOutput()
	var ee *exec.ExitError
	if err != nil && !(errors.As(err, &ee) && ee.ExitCode() == 9) {
		t.Fatalf("%v: %s", err, out)
	}
	swapped := step == "look" || step == "back" || step == "syncdir" || step == "unlink" || step == "never"
	crashed := err != nil
	want := "old"
	if slip == "" && swapped {
		want = "new"
	}
	slipped := slip != "" && (swapped || !crashed)
	if slipped {
		want = slip
	}
	if got := content(t, path); got != want && !(crashed && got == "new") {
		t.Errorf("after the crash the file holds %q", got)
	}
	again := slip == "saved, then saved again"
	if again {
		want = "again"
		write(t, path, want)
	}
	tree := openTree(t, dir, temp)
	err = tree.Sweep()
	if got := content(t, path); got != want {
		t.Errorf("after Sweep the file holds %q, want %q", got, want)
	}
	left := leftovers(t, dir)
	if temp != "" && where != "temp inside" {
		left = append(left, leftovers(t, temp)...)
	}
	if again && (step == "look" || step == "back") {
		// Nobody can tell whether the later save knew the earlier one.
		if err == nil || len(left) != 1 || content(t, left[0]) != slip || !strings.Contains(err.Error(), filepath.Base(left[0])) {
			t.Errorf("an unseen save was not kept: %q, %v", left, err)
		}
		return
	}
	if err != nil {
		t.Error(err)
	}
	if len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
}

// Sweep leaves the temps of a process that is at work alone.
func TestSweepWhileAtWork(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "a.yaml"), "old")
	tree, other := openTree(t, dir, ""), openTree(t, dir, "")
	sweeps := 0
	tree.Before = func(step, _ string) error {
		if step == "unlink" {
			return nil
		}
		sweeps++
		return other.Sweep()
	}
	s := readSoon(t, tree, "a.yaml")
	if _, err := tree.Replace("a.yaml", s, []byte("new")); err != nil {
		t.Fatal(err)
	}
	if got := content(t, filepath.Join(dir, "a.yaml")); got != "new" || sweeps < 8 {
		t.Errorf("%q after %d sweeps", got, sweeps)
	}
}

func TestTempNames(t *testing.T) {
	long := strings.Repeat("n", 250) + ".yaml"
	for _, name := range []string{"a.yaml", "a~b.yaml", "ü.yaml", "x.leasehold-tmp-.yaml", long} {
		for _, temp := range []string{newName(shortName(name)), swapName(shortName(name), []byte("a"), []byte("b")), newName(escapePath("sub dir/" + name[:min(len(name), 100)]))} {
			if len(temp) > 255 {
				t.Errorf("%d bytes: %s", len(temp), temp)
			}
			if l, ok := parseTemp(temp); !ok || "."+l.stem != temp[:len(l.stem)+1] || !IsTemp(temp) || IsManifest(temp) {
				t.Errorf("%s is not understood: %+v", temp, l)
			}
		}
	}
	for _, name := range []string{"a.yaml", ".a.yaml.swp", ".leasehold-tmp-new-00000000", ".a.leasehold-tmp-old-00000000", ".a.leasehold-tmp-", ".a.leasehold-saved-00000000"} {
		if l, ok := parseTemp(name); ok {
			t.Errorf("%s: %+v", name, l)
		}
	}
	dir := t.TempDir()
	write(t, filepath.Join(dir, long), "old")
	tree := openTree(t, dir, "")
	if _, err := tree.Replace(long, readSoon(t, tree, long), []byte("new")); err != nil {
		t.Error(err)
	}
}
