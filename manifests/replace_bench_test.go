package manifests

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func benchTree(b *testing.B) (*Tree, string) {
	dir := b.TempDir()
	path := filepath.Join(dir, "a.yaml")
	write(b, path, "user: 1\nstatus: 0\n")
	tree := openTree(b, dir, "")
	tree.Now = func() time.Time { return time.Now().Add(time.Minute) }
	return tree, path
}

func BenchmarkRead(b *testing.B) {
	tree, path := benchTree(b)
	b.Run("Tree", func(b *testing.B) {
		for b.Loop() {
			if _, err := tree.Read("a.yaml", testLimit); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("os.ReadFile", func(b *testing.B) {
		for b.Loop() {
			if _, err := os.ReadFile(path); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkReplace(b *testing.B) {
	tree, _ := benchTree(b)
	s, err := tree.Read("a.yaml", testLimit)
	if err != nil {
		b.Fatal(err)
	}
	n := 0
	for b.Loop() {
		n++
		if s, err = tree.Replace("a.yaml", s, fmt.Appendf(nil, "user: 1\nstatus: %d\n", n)); err != nil {
			b.Fatal(err)
		}
	}
}
