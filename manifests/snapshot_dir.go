package manifests

import (
	"errors"
	"fmt"
	"io/fs"
)

// DirEntry is a name in a directory.
type DirEntry struct {
	Name string
	Dir  bool // a directory; links to directories are not
	Link bool
	// Sig is the file's, for a manifest that can be read; Err says why another cannot.
	Sig Sig
	Err error
}

// Stat returns what Read would find, without reading. Errors: fs.ErrNotExist, ErrNotRegular,
// ErrOutside, or the one of the system call.
func (t *Tree) Stat(path string) (Sig, error) {
	at, err := t.locate(path)
	if err != nil {
		return Sig{}, err
	}
	defer at.dir.close()
	if at.meta.kind != 0 {
		return Sig{}, notRegular(path, at.meta)
	}
	return at.meta.Sig, nil
}

// ReadDir lists a directory ("." is the tree's own), in no order: subdirectories, links and
// manifests, the latter with what Stat says about them. The error is the one of reading it.
func (t *Tree) ReadDir(path string) ([]DirEntry, error) {
	d, err := t.openDir(path)
	if err != nil {
		return nil, t.explain(path, place{}, err)
	}
	defer d.close()
	names, err := d.entries()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	list := make([]DirEntry, 0, len(names))
	for _, n := range names {
		e := DirEntry{Name: n.Name(), Dir: n.IsDir(), Link: n.Type() == fs.ModeSymlink}
		if IsManifest(e.Name) {
			full := JoinPath(path, e.Name)
			if e.Link {
				e.Sig, e.Err = t.Stat(full)
			} else if m, err := d.stat(e.Name); errors.Is(err, fs.ErrNotExist) {
				continue // gone since
			} else if err != nil {
				e.Err = fmt.Errorf("%s: %w", full, err)
			} else if m.kind != 0 {
				e.Err = notRegular(full, m)
			} else {
				e.Sig = m.Sig
			}
		} else if !e.Dir && !e.Link {
			continue
		}
		list = append(list, e)
	}
	return list, nil
}

// Linked reports whether a directory on the way to path is a link: then whoever lists the tree finds
// what is there in another place, or not at all.
func (t *Tree) Linked(path string) bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	for i, c := range path {
		if c != '/' {
			continue
		}
		if info, err := t.root.Lstat(path[:i]); err == nil && info.Mode()&fs.ModeSymlink != 0 {
			return true
		}
	}
	return false
}

// JoinPath joins a directory of the tree and a name in it.
func JoinPath(dir, name string) string {
	if dir == "." || dir == "" {
		return name
	}
	return dir + "/" + name
}
