package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"leasehold.dev/leasehold/manifests"
	"leasehold.dev/leasehold/store"
	"leasehold.dev/leasehold/store/sqlite"
)

// makeStateDir makes a private state directory. It is on disk when that returns: a power cut must not
// take it away again with everything that was decided in it.
func makeStateDir(dir string) error {
	var missing []string
	for d := dir; !isDir(d) && d != filepath.Dir(d); d = filepath.Dir(d) {
		missing = append(missing, d)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil || runtime.GOOS == "windows" {
		return err
	}
	for _, d := range missing {
		parent, err := os.Open(filepath.Dir(d))
		if err != nil {
			return err
		}
		if err := errors.Join(parent.Sync(), parent.Close()); err != nil {
			return err
		}
	}
	return nil
}

// nested refuses a directory above or below one that has its own state: two controllers would
// lease the same manifests.
func nested(dir string) error {
	dir, err := findDir(dir)
	if err != nil {
		return err
	}
	for up := filepath.Dir(dir); up != filepath.Dir(up); up = filepath.Dir(up) {
		if isDir(filepath.Join(up, stateName)) {
			return overlap(dir, up, filepath.Join(up, stateName))
		}
	}
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil && path == dir:
			return err
		case err != nil:
			return nil // the scan says what cannot be read
		case !d.IsDir() || path == dir:
			return nil
		case d.Name() == stateName && filepath.Dir(path) != dir:
			return overlap(dir, filepath.Dir(path), path)
		case strings.HasPrefix(d.Name(), "."):
			return fs.SkipDir
		}
		return nil
	})
	if err != nil {
		return err
	}
	return nestedInGit(dir)
}

func overlap(dir, other, state string) error {
	return fmt.Errorf("%s: %s has its own store; reconcile one of the two, or remove %s", dir, other, state)
}

// nestedInGit does the same for directories whose state lies below one Git directory.
func nestedInGit(dir string) error {
	mine, err := gitState(dir)
	if err != nil || mine == "" {
		return err
	}
	root, sub, top := mine, ".", dir
	if filepath.Base(mine) != "leasehold" || filepath.Base(filepath.Dir(mine)) == "leasehold" {
		root = filepath.Dir(mine)
		name, err := url.PathUnescape(filepath.Base(mine))
		if err != nil {
			return err
		}
		sub = filepath.FromSlash(name)
		top = strings.TrimSuffix(dir, string(filepath.Separator)+sub)
	}
	entries, err := os.ReadDir(root)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	for _, e := range entries {
		other, state := ".", filepath.Join(root, e.Name())
		if e.IsDir() {
			if other, err = url.PathUnescape(e.Name()); err != nil {
				continue
			}
		} else if e.Name() != databaseName {
			continue
		}
		other = filepath.FromSlash(other)
		if isDir(filepath.Join(top, other)) && (inside(sub, other) || inside(other, sub)) {
			return overlap(dir, filepath.Join(top, other), state)
		}
	}
	return nil
}

// inside reports whether a is below b; both are relative to one directory.
func inside(a, b string) bool {
	rel, err := filepath.Rel(b, a)
	return err == nil && rel != "." && rel != ".." && !strings.HasPrefix(rel, ".."+string(filepath.Separator))
}

// bind refuses a store that belongs to another directory, and lets a new one belong to this one.
func bind(ctx context.Context, db *sqlite.DB, dir string) error {
	dir, err := findDir(dir)
	if err != nil {
		return err
	}
	other, err := db.Directory(ctx)
	if err != nil || other == dir {
		return err
	}
	// A directory that was moved, with its store or away from it, goes on where it was.
	home := filepath.Dir(db.Path()) == filepath.Join(dir, stateName)
	if other != "" && !home && isDir(other) {
		return fmt.Errorf("the store %s belongs to the directory %s, not to %s; use another one with --store", db.Path(), other, dir)
	}
	if other != "" {
		if err := adopt(ctx, db, dir); err != nil {
			return err
		}
	}
	return db.BindDirectory(ctx, dir)
}

// adopt takes the fences of the manifests' status into a store that was another directory's until
// now, and may be another installation's that was put here: a job that both know goes on above both.
// A controller alone would take such a status for a copied one, which means nothing.
func adopt(ctx context.Context, db *sqlite.DB, dir string) error {
	tree, err := manifests.OpenTree(dir, "")
	if err != nil {
		return err
	}
	defer tree.Close()
	return readAll(tree, func(path string, snap manifests.Snapshot, err error) error {
		if err != nil {
			return nil // the controller tells of it
		}
		for _, d := range manifests.Decode(path, snap.Data).Docs {
			if d.ID == "" || d.Status == nil || d.Status.Fence == nil || *d.Status.Fence > 1<<62 {
				continue
			}
			identity, _, ok := strings.Cut(d.Status.Store, "/")
			if !ok {
				continue
			}
			_, err := db.Update(ctx, []string{d.ID}, func(rs []*store.Record) error {
				r := rs[0]
				known := func(s store.Stamp) bool { return s.Identity == identity }
				if !r.Known || known(r.Stamp) || slices.ContainsFunc(r.Former, known) {
					return nil // the controller knows what to do
				}
				r.Raise(*d.Status.Fence+store.Jump, "the status is of store "+identity+", and this one was another directory's until now")
				return nil
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
}
