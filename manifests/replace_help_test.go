package manifests

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const testLimit = 1 << 20

// eventually waits for a condition.
func eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for tick := time.NewTicker(time.Millisecond); !cond(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain: %s", what)
		}
	}
}

func openTree(t testing.TB, dir, temp string) *Tree {
	t.Helper()
	tree, err := OpenTree(dir, temp)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tree.Close() })
	return tree
}

func write(t testing.TB, path, data string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(data), 0o644); err != nil {
		t.Fatal(err)
	}
}

func content(t testing.TB, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// readSoon reads as a controller does: what is busy is read again.
func readSoon(t testing.TB, tree *Tree, path string) Snapshot {
	t.Helper()
	var s Snapshot
	eventually(t, "reading "+path, func() bool {
		var err error
		s, err = tree.Read(path, testLimit)
		if err != nil && !errors.Is(err, ErrBusy) && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		return err == nil
	})
	return s
}

// pass is what a controller does with a file: it keeps all lines but those of status, and adds its
// own. It returns false where it has to come back.
func pass(tree *Tree, path string, n int) (bool, error) {
	s, err := tree.Read(path, testLimit)
	if err == nil {
		_, err = tree.Replace(path, s, withStatus(s.Data, n))
	}
	if errors.Is(err, ErrBusy) || errors.Is(err, ErrChanged) || errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

func userPart(data []byte) []byte {
	i := bytes.Index(data, []byte("status:"))
	if i < 0 {
		return data
	}
	j := bytes.IndexByte(data[i:], '\n')
	if j < 0 {
		return data[:i]
	}
	return append(bytes.Clone(data[:i]), data[i+j+1:]...)
}

func withStatus(data []byte, n int) []byte {
	return append(bytes.Clone(userPart(data)), fmt.Sprintf("status: %d\n", n)...)
}

// leftovers are the dot files in a directory and below.
func leftovers(t testing.TB, dir string) (found []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if strings.HasPrefix(d.Name(), ".") && !d.IsDir() {
			found = append(found, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func nothingLeft(t testing.TB, dir string) {
	t.Helper()
	eventually(t, "no leftovers", func() bool { return len(leftovers(t, dir)) == 0 })
}
