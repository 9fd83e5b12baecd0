//go:build unix

package controller

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"leasehold.dev/leasehold/manifests"
)

func TestScan(t *testing.T) {
	f := newFiles(t)
	f.mkdir("b/c")
	f.mkdir(".git")
	f.mkdir("..v1")
	f.mkdir("dir.yaml")
	f.mkdir("locked")
	for _, name := range []string{"z.yaml", "a.json", "b.yml", "b/a.yaml", "b/c/a.yaml", "b/x.txt", ".hidden.yaml", ".git/a.yaml", "..v1/a.yaml", "dir.yaml/a.yaml", "locked/a.yaml", "y.YAML"} {
		f.write(name, "1")
	}
	f.link("..v1", "..data")
	f.link("..data/a.yaml", "l.yaml")
	f.link("b", "linked")
	f.link("../../x", "out.yaml")
	f.link("gone", "gone.yaml")
	tree, err := manifests.OpenTree(f.dir, "")
	if err != nil {
		t.Fatal(err)
	}
	defer tree.Close()
	want := []struct {
		path string
		err  error
	}{
		{"a.json", nil}, {"b.yml", nil}, {"b/a.yaml", nil}, {"b/c/a.yaml", nil}, {"dir.yaml", manifests.ErrNotRegular},
		{"gone.yaml", manifests.ErrDangling}, {"l.yaml", nil}, {"locked/a.yaml", nil}, {"out.yaml", manifests.ErrOutside}, {"z.yaml", nil},
	}
	found, err := scan(tree)
	if err != nil || len(found) != len(want) {
		t.Fatalf("%+v, %v", found, err)
	}
	for i, w := range want {
		if e := found[i]; e.Path != w.path || !errors.Is(e.Err, w.err) || (e.Sig == manifests.Sig{}) == (w.err == nil) {
			t.Errorf("got %+v, want %+v", e, w)
		}
	}
	if os.Geteuid() != 0 { // root may read everything
		f.ok(os.Chmod(f.path("locked"), 0))
		defer os.Chmod(f.path("locked"), 0o755)
		found, err := scan(tree)
		if err != nil || found[7].Path != "locked" || !errors.Is(found[7].Err, fs.ErrPermission) {
			t.Errorf("%+v, %v", found, err)
		}
	}
}

func BenchmarkScan(b *testing.B) {
	dir := b.TempDir()
	for i := range 10_000 {
		sub := filepath.Join(dir, fmt.Sprintf("d%02d", i%50))
		if i < 50 {
			if err := os.Mkdir(sub, 0o755); err != nil {
				b.Fatal(err)
			}
		}
		if err := os.WriteFile(filepath.Join(sub, fmt.Sprintf("f%05d.yaml", i)), []byte("a: 1\n"), 0o644); err != nil {
			b.Fatal(err)
		}
	}
	tree, err := manifests.OpenTree(dir, "")
	if err != nil {
		b.Fatal(err)
	}
	defer tree.Close()
	b.Run("scan", func(b *testing.B) {
		for b.Loop() {
			if found, err := scan(tree); err != nil || len(found) != 10_000 {
				b.Fatal(len(found), err)
			}
		}
	})
	b.Run("WalkDir", func(b *testing.B) {
		for b.Loop() {
			n := 0
			err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
				if err != nil || d.IsDir() {
					return err
				}
				n++
				_, err = d.Info()
				return err
			})
			if err != nil || n != 10_000 {
				b.Fatal(n, err)
			}
		}
	})
	b.Run("newWatcher", func(b *testing.B) {
		for b.Loop() {
			w := newWatcher(tree)
			w.fs.Close()
		}
	})
}
