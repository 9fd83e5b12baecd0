//go:build linux

package manifests

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

func TestReplace(t *testing.T) {
	for _, mode := range []string{"", "temp directory", "no exchange", "neither"} {
		t.Run(mode, func(t *testing.T) {
			dir, temp := t.TempDir(), ""
			if mode == "temp directory" {
				temp = t.TempDir()
			}
			path := filepath.Join(dir, "a.yaml")
			write(t, path, "old")
			if err := errors.Join(os.Chmod(path, 0o6751), unix.Setxattr(path, "user.note", []byte("kept"), 0)); err != nil {
				t.Skip("no extended attributes here:", err)
			}
			if os.Geteuid() == 0 {
				if err := os.Chown(path, 1234, 2345); err != nil {
					t.Fatal(err)
				}
				os.Chmod(path, 0o6751)
			}
			tree := openTree(t, dir, temp)
			if mode == "no exchange" || mode == "neither" {
				tree.Before = func(step, _ string) error {
					if step == "exchange" || step == "back" {
						return errors.ErrUnsupported
					}
					return nil
				}
			}
			s := readSoon(t, tree, "a.yaml")
			tree.noLease = mode == "neither"
			before, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			now, err := tree.Replace("a.yaml", s, []byte("new"))
			if err != nil {
				t.Fatal(err)
			}
			after, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			note := make([]byte, 10)
			n, _ := unix.Getxattr(path, "user.note", note)
			was, is := before.Sys().(*syscall.Stat_t), after.Sys().(*syscall.Stat_t)
			if before.Mode() != after.Mode() || was.Uid != is.Uid || was.Gid != is.Gid || string(note[:n]) != "kept" {
				t.Errorf("%v %d:%d %q became %v %d:%d", before.Mode(), was.Uid, was.Gid, note[:n], after.Mode(), is.Uid, is.Gid)
			}
			tree.noLease = false
			if again := readSoon(t, tree, "a.yaml"); again.Sig != now.Sig || string(again.Data) != "new" || now.Settled {
				t.Errorf("Replace returned %+v, Read %+v", now, again)
			}
			if _, err := tree.Replace("a.yaml", s, []byte("newer")); !errors.Is(err, ErrChanged) {
				t.Errorf("from a stale snapshot: %v", err)
			}
			if _, err := tree.Replace("a.yaml", now, []byte("newer")); err != nil {
				t.Error(err)
			}
			if err := tree.Close(); err != nil {
				t.Error(err)
			}
			if left := leftovers(t, dir); len(left) > 0 {
				t.Errorf("left behind: %q", left)
			}
		})
	}
}

// A writer whose open was under way during the swap writes to the displaced file: that save is
// brought back into place, with and without leases.
func TestLateWriter(t *testing.T) {
	for _, mode := range []string{"", "no lease", "saved since", "replaced since"} {
		t.Run(mode, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "a.yaml")
			write(t, path, "old")
			tree := openTree(t, dir, "")
			late := make(chan error, 1)
			tree.Restored = func(_ string, err error) { late <- err }
			s, again := readSoon(t, tree, "a.yaml"), Snapshot{}
			tree.noLease = mode != ""
			if s, err := tree.Replace("a.yaml", s, []byte("new")); err != nil {
				t.Fatal(err)
			} else if mode == "replaced since" {
				tree.graveTime = 10 * graveTime
				again = s
			}
			displaced := leftovers(t, dir)
			if len(displaced) != 1 {
				t.Fatalf("%q", displaced)
			}
			w, err := os.OpenFile(displaced[0], os.O_RDWR, 0) // it has the file; its name no longer matters
			if err != nil {
				t.Fatal(err)
			}
			defer w.Close()
			if mode == "replaced since" {
				if _, err := tree.Replace("a.yaml", again, []byte("newer")); err != nil {
					t.Fatal(err)
				}
			}
			if mode == "saved since" {
				// Too late for the place by then, but no reason to lose it.
				if err := renameOver(path, "since"); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := w.WriteString("late"); err != nil {
				t.Fatal(err)
			}
			err = <-late
			if mode == "saved since" {
				kept := leftovers(t, dir)
				if content(t, path) != "since" || len(kept) != 1 || content(t, kept[0]) != "late" || err == nil {
					t.Errorf("%q, kept %q, %v", content(t, path), kept, err)
				}
				return
			}
			if got := content(t, path); got != "late" || err != nil {
				t.Errorf("the file holds %q, %v", got, err)
			}
			w.Close()
			nothingLeft(t, dir)
		})
	}
}

// While somebody has the file open for writing it is not replaced, also if nothing was written yet.
func TestReplaceBusy(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a.yaml")
	write(t, path, "old")
	tree := openTree(t, dir, "")
	s := readSoon(t, tree, "a.yaml")
	tree.Before = func(step, _ string) error {
		if step == "exchange" {
			t.Error("it was swapped")
		}
		return nil
	}
	w, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tree.Replace("a.yaml", s, []byte("new")); !errors.Is(err, ErrBusy) {
		t.Errorf("open for writing: %v", err)
	}
	w.Close()
	lock, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	if _, err := tree.Replace("a.yaml", s, []byte("new")); !errors.Is(err, ErrBusy) {
		t.Errorf("locked: %v", err)
	}
	if left := leftovers(t, dir); len(left) > 0 || content(t, path) != "old" {
		t.Errorf("%q, left behind: %q", content(t, path), left)
	}
}

// A save into the new file, before Replace has returned, is not taken for the new file.
func TestReplaceThenSaved(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a.yaml")
	write(t, path, "old")
	tree := openTree(t, dir, "")
	tree.Before = func(step, _ string) error {
		if step == "look" {
			return overwrite(path, os.O_APPEND, " and more")
		}
		return nil
	}
	s, err := tree.Replace("a.yaml", readSoon(t, tree, "a.yaml"), []byte("new"))
	if err != nil {
		t.Fatal(err)
	}
	if now := readSoon(t, tree, "a.yaml"); now.Sig == s.Sig || string(now.Data) != "new and more" {
		t.Errorf("Replace returned %+v, the file is %+v", s.Sig, now)
	}
}

func TestReplaceThroughLinks(t *testing.T) {
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	err := errors.Join(os.MkdirAll(in("..v1"), 0o755), os.MkdirAll(in("..v2"), 0o755),
		os.Symlink("..v1", in("..data")), os.Symlink("..data/a.yaml", in("a.yaml")))
	if err != nil {
		t.Fatal(err)
	}
	write(t, in("..v1/a.yaml"), "one")
	write(t, in("..v2/a.yaml"), "two")
	tree := openTree(t, dir, "")
	s := readSoon(t, tree, "a.yaml")
	if s, err = tree.Replace("a.yaml", s, []byte("one, with status")); err != nil {
		t.Fatal(err)
	}
	if target, err := os.Readlink(in("a.yaml")); err != nil || target != "..data/a.yaml" || content(t, in("..v1/a.yaml")) != "one, with status" {
		t.Errorf("the link did not survive: %q, %v", target, err)
	}
	// The link is swapped while the file is replaced.
	tree.Before = func(step, _ string) error {
		if step == "exchange" {
			return errors.Join(os.Symlink("..v2", in("tmp")), os.Rename(in("tmp"), in("..data")))
		}
		return nil
	}
	if _, err := tree.Replace("a.yaml", s, []byte("too late")); !errors.Is(err, ErrChanged) {
		t.Errorf("the link leads elsewhere: %v", err)
	}
	if got := content(t, in("a.yaml")); got != "two" {
		t.Errorf("the file holds %q", got)
	}
}

func TestNotWritable(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a.yaml")
	write(t, path, "old")
	tree := openTree(t, dir, "")
	try := func(want string) {
		t.Helper()
		s := readSoon(t, tree, "a.yaml")
		if _, err := tree.Replace("a.yaml", s, []byte("new")); !errors.Is(err, ErrNotWritable) || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
		if content(t, path) != "old" || len(leftovers(t, dir)) > 0 {
			t.Errorf("%q, %q", content(t, path), leftovers(t, dir))
		}
	}
	if err := os.Link(path, path+".hard"); err != nil {
		t.Fatal(err)
	}
	try("it has 2 hard links")
	os.Remove(path + ".hard")
	os.Chmod(path, 0o444)
	try("it is read-only (mode 0444)")
	os.Chmod(path, 0o644)
	for _, errno := range []syscall.Errno{syscall.EACCES, syscall.EPERM, syscall.EROFS} {
		tree.Before = func(step, _ string) error {
			if step == "exchange" {
				return errno
			}
			return nil
		}
		try(errno.Error())
	}
}

// The same as somebody who is not root.
func TestNotWritableByOthers(t *testing.T) {
	if os.Getenv("LEASEHOLD_TEST_USER") == "" {
		if os.Geteuid() != 0 {
			t.Skip("needs root to make files of somebody else")
		}
		dir, err := os.MkdirTemp("", "leasehold") // t.TempDir lies in one that others may not enter
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)
		exe := filepath.Join(dir, "test")
		data, err := os.ReadFile(os.Args[0])
		if err != nil {
			t.Fatal(err)
		}
		err = errors.Join(os.Chmod(dir, 0o755), os.WriteFile(exe, data, 0o755), os.Mkdir(filepath.Join(dir, "jobs"), 0o777),
			os.Chmod(filepath.Join(dir, "jobs"), 0o777), os.Mkdir(filepath.Join(dir, "jobs/locked"), 0o755))
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, "jobs/roots.yaml"), "old")
		os.Chmod(filepath.Join(dir, "jobs/roots.yaml"), 0o666)
		write(t, filepath.Join(dir, "jobs/deny.yaml"), "old")
		write(t, filepath.Join(dir, "jobs/locked/a.yaml"), "old")
		os.Chmod(filepath.Join(dir, "jobs/locked/a.yaml"), 0o666)
		cmd := exec.Command(exe, "-test.run=^TestNotWritableByOthers$", "-test.v")
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "LEASEHOLD_TEST_USER="+filepath.Join(dir, "jobs"), "TMPDIR="+filepath.Join(dir, "jobs"))
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 4321, Gid: 4321}}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
		return
	}
	dir := os.Getenv("LEASEHOLD_TEST_USER")
	tree := openTree(t, dir, "")
	for name, want := range map[string]string{
		"roots.yaml":    "it belongs to uid 0, gid 0, which cannot be kept",
		"deny.yaml":     "permission denied",
		"locked/a.yaml": "permission denied",
	} {
		s := readSoon(t, tree, name)
		if _, err := tree.Replace(name, s, []byte("new")); !errors.Is(err, ErrNotWritable) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if left := leftovers(t, dir); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
	// What is ours can be written.
	if err := tree.Create("mine.yaml", []byte("old")); err != nil {
		t.Fatal(err)
	}
	if _, err := tree.Replace("mine.yaml", readSoon(t, tree, "mine.yaml"), []byte("new")); err != nil {
		t.Error(err)
	}
}

// A fault at any step is told, leaves the old file or the new one, and Sweep finds nothing that is
// left but what a crash would have left.
func TestFaults(t *testing.T) {
	fault := errors.New("fault")
	for _, step := range []string{"temp", "write", "attributes", "sync", "name", "check", "exchange", "look", "syncdir"} {
		t.Run(step, func(t *testing.T) {
			dir := t.TempDir()
			write(t, filepath.Join(dir, "a.yaml"), "old")
			tree := openTree(t, dir, "")
			tree.Before = func(at, _ string) error {
				if at == step {
					return fault
				}
				return nil
			}
			_, err := tree.Replace("a.yaml", readSoon(t, tree, "a.yaml"), []byte("new"))
			if !errors.Is(err, fault) {
				t.Errorf("%v", err)
			}
			want := "old"
			if step == "look" || step == "syncdir" {
				want = "new"
			} else if left := leftovers(t, dir); len(left) > 0 {
				t.Errorf("left behind: %q", left)
			}
			if err := errors.Join(tree.Close(), openTree(t, dir, "").Sweep()); err != nil {
				t.Error(err)
			}
			if got, left := content(t, filepath.Join(dir, "a.yaml")), leftovers(t, dir); got != want || len(left) > 0 {
				t.Errorf("%q, left behind: %q", got, left)
			}
		})
	}
}

func TestCreate(t *testing.T) {
	dir := t.TempDir()
	tree := openTree(t, dir, t.TempDir())
	if err := tree.Create("a.yaml", []byte("a")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("nowhere", filepath.Join(dir, "link.yaml")); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]error{"a.yaml": fs.ErrExist, "link.yaml": fs.ErrExist, "no/such.yaml": fs.ErrNotExist, "../x.yaml": ErrOutside} {
		if err := tree.Create(path, []byte("b")); !errors.Is(err, want) {
			t.Errorf("%s: %v", path, err)
		}
	}
	if got := content(t, filepath.Join(dir, "a.yaml")); got != "a" || len(leftovers(t, dir)) > 0 {
		t.Errorf("%q, left behind: %q", got, leftovers(t, dir))
	}
}
