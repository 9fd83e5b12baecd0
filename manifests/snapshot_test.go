//go:build linux

package manifests

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestReadBusy(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a.yaml")
	write(t, path, "a: 1\n")
	tree := openTree(t, dir, "")
	w, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tree.Read("a.yaml", testLimit); !errors.Is(err, ErrBusy) {
		t.Errorf("open for writing: %v", err)
	}
	w.Close()
	if s, err := tree.Read("a.yaml", testLimit); err != nil || string(s.Data) != "a: 1\n" {
		t.Errorf("closed: %q, %v", s.Data, err)
	}
}

func TestReadEmpty(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "a.yaml"), "")
	tree := openTree(t, dir, "")
	if _, err := tree.Read("a.yaml", testLimit); !errors.Is(err, ErrBusy) {
		t.Errorf("just emptied: %v", err)
	}
	tree.Now = func() time.Time { return time.Now().Add(time.Second) }
	if s, err := tree.Read("a.yaml", testLimit); err != nil || len(s.Data) != 0 || !s.Settled {
		t.Errorf("after a second: %+v, %v", s, err)
	}
}

// Two saves of equal length within one timestamp tick: the first is not called settled, and the
// second is seen. (Report: QwenLM/qwen-code PR#3774)
func TestReadWithinTick(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a.yaml")
	write(t, path, "a: 1\n")
	tree := openTree(t, dir, "")
	s, err := tree.Read("a.yaml", testLimit)
	if err != nil || s.Settled {
		t.Fatalf("%+v, %v; it has just been written", s, err)
	}
	tree.Now = func() time.Time { return time.Now().Add(Unsettled) }
	if s, err = tree.Read("a.yaml", testLimit); err != nil || !s.Settled {
		t.Fatalf("%+v, %v; it is old enough", s, err)
	}
	// Set back by hand, as if it were of the same tick.
	if err := overwrite(path, 0, "a: 2\n"); err != nil {
		t.Fatal(err)
	}
	s.Sig.Ctime, s.Sig.Mtime = 0, 0
	now, err := tree.Stat("a.yaml")
	if err != nil {
		t.Fatal(err)
	}
	s.Sig.Ctime, s.Sig.Mtime = now.Ctime, now.Mtime
	if _, err := tree.Replace("a.yaml", s, []byte("mine")); !errors.Is(err, ErrChanged) {
		t.Errorf("an equal Sig with other bytes: %v", err)
	}
	if got := content(t, path); got != "a: 2\n" {
		t.Errorf("the file holds %q", got)
	}
}

func TestReadBlind(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "a.yaml"), "a: 1\n")
	tree := openTree(t, dir, "")
	tree.noLease = true
	if _, err := tree.Read("a.yaml", testLimit); !errors.Is(err, ErrBusy) {
		t.Errorf("nobody knows who writes, and it has just changed: %v", err)
	}
	tree.Now = func() time.Time { return time.Now().Add(blindRest) }
	if _, err := tree.Read("a.yaml", testLimit); err != nil {
		t.Error(err)
	}
}

// None of these can be read, none makes anybody wait, and each says why.
func TestReadOthers(t *testing.T) {
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	outside := filepath.Join(t.TempDir(), "secret.yaml")
	write(t, outside, "secret: 1\n")
	write(t, in("big.yaml"), strings.Repeat("x", 101))
	write(t, in("plain.yaml"), "a: 1\n")
	err := errors.Join(
		unix.Mkfifo(in("fifo.yaml"), 0o644),
		os.Mkdir(in("dir.yaml"), 0o755),
		os.Mkdir(in("sub"), 0o755),
		os.Symlink("nowhere.yaml", in("dangling.yaml")),
		os.Symlink("loop2.yaml", in("loop.yaml")),
		os.Symlink("loop.yaml", in("loop2.yaml")),
		os.Symlink(outside, in("out.yaml")),
		os.Symlink("../"+filepath.Base(filepath.Dir(outside))+"/secret.yaml", in("up.yaml")),
		os.Symlink("sub", in("linkdir.yaml")),
		os.Symlink("fifo.yaml", in("linkfifo.yaml")),
		os.Symlink(in("plain.yaml"), in("absolute.yaml")),
		os.Symlink("../plain.yaml", in("sub/back.yaml")),
		os.Symlink("sub/back.yaml", in("chain.yaml")),
		os.Symlink(".", in("dot.yaml")),
	)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", in("sock.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	tree := openTree(t, dir, "")
	for name, want := range map[string]struct {
		err  error
		text string
	}{
		"fifo.yaml":     {ErrNotRegular, "fifo.yaml: not a regular file: it is a FIFO"},
		"dir.yaml":      {ErrNotRegular, "dir.yaml: not a regular file: it is a directory"},
		"sock.yaml":     {ErrNotRegular, "sock.yaml: not a regular file: it is a socket"},
		"linkdir.yaml":  {ErrNotRegular, "linkdir.yaml: not a regular file: it is a directory"},
		"linkfifo.yaml": {ErrNotRegular, "linkfifo.yaml: not a regular file: it is a FIFO"},
		"dot.yaml":      {ErrNotRegular, "dot.yaml: not a regular file: it is a directory"},
		"dangling.yaml": {ErrDangling, "dangling.yaml: the link to nowhere.yaml leads nowhere: no such file or directory"},
		"loop.yaml":     {ErrNotRegular, "loop.yaml: links go round in a circle: not a regular file"},
		"out.yaml":      {ErrOutside, "out.yaml: links to " + outside + ", which leads outside the directory"},
		"up.yaml":       {ErrOutside, "up.yaml: leads outside the directory"},
		"../x.yaml":     {ErrOutside, "../x.yaml: leads outside the directory"},
		"big.yaml":      {ErrTooLarge, "big.yaml: too large: 101 bytes, the limit is 100"},
		"no/such.yaml":  {fs.ErrNotExist, "no/such.yaml: no such file or directory"},
	} {
		if _, err := tree.Read(name, 100); !errors.Is(err, want.err) || err.Error() != want.text {
			t.Errorf("%s:\ngot  %v\nwant %s", name, err, want.text)
		}
	}
	for _, name := range []string{"plain.yaml", "absolute.yaml", "sub/back.yaml", "chain.yaml"} {
		if s, err := tree.Read(name, 100); err != nil || string(s.Data) != "a: 1\n" {
			t.Errorf("%s: %q, %v", name, s.Data, err)
		}
	}
}

func TestReopen(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "jobs")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "a.yaml"), "a: 0\n")
	tree := openTree(t, dir, "")
	if err := os.Rename(dir, dir+".old"); err != nil {
		t.Fatal(err)
	}
	if err := tree.Reopen(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("gone: %v", err)
	}
	if _, err := tree.Stat("a.yaml"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file in a directory that is gone: %v", err)
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "a.yaml"), "a: 1\n")
	if err := tree.Reopen(); err != nil {
		t.Fatal(err)
	}
	if _, err := tree.Read("a.yaml", testLimit); err != nil {
		t.Error(err)
	}
}
