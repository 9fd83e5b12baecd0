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
	"strings"

	"leasehold.dev/leasehold/manifests"
	"leasehold.dev/leasehold/store/sqlite"
)

// makeStateDir makes a private state directory. It is on disk when that returns: a power cut must not
// take it away again with everything that was decided in it.
func makeStateDir(dir string) error {
	var missing []string
	for d := dir; !isDir(d) && d != filepath.Dir(d); d = filepath.Dir(d) {
		missing = append(missing, d)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	for _, d := range missing {
		if err := syncDir(filepath.Dir(d)); err != nil {
			return err
		}
	}
	return nil
}

// syncDir brings the names in a directory to disk.
func syncDir(dir string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
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
	if err != nil {
		return err
	}
	// A directory that was moved, with its store or away from it, goes on where it was.
	elsewhere := other != "" && other != dir
	home := filepath.Dir(db.Path()) == filepath.Join(dir, stateName)
	if elsewhere && !home && isDir(other) {
		return fmt.Errorf("the store %s belongs to the directory %s, not to %s; use another one with --store", db.Path(), other, dir)
	}
	if err := succeed(ctx, db, dir, elsewhere); err != nil || other == dir {
		return err
	}
	return db.BindDirectory(ctx, dir)
}

// identityMark is what is added to the database's name for the file that names its store.
const identityMark = ".identity"

// succeed lets the store know of those that stood in its place before: the one that is named beside
// the database, and, if the store was another directory's until now, those that statuses name. What
// their statuses show is then later than the store, and no fence or completion of theirs is lost. Any
// other status of a strange store on a job that this one knows is a falsified one.
func succeed(ctx context.Context, db *sqlite.DB, dir string, elsewhere bool) error {
	mark := db.Path() + identityMark
	before := map[string]bool{}
	text, err := os.ReadFile(mark)
	if err == nil {
		before[strings.TrimSpace(string(text))] = true
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if elsewhere {
		if err := named(dir, before); err != nil {
			return err
		}
	}
	stamp, err := db.Stamp(ctx)
	if err != nil {
		return err
	}
	known := before[stamp.Identity]
	delete(before, stamp.Identity)
	delete(before, "")
	if known && len(before) == 0 {
		return nil
	}
	for identity := range before {
		if err := db.Succeed(ctx, identity); err != nil {
			return err
		}
	}
	info, err := os.Stat(db.Path())
	if err != nil {
		return err
	}
	// Only now: a crash before it finds the old mark again. Who shares the database shares it.
	return replaceFile(mark, []byte(stamp.Identity+"\n"), info.Mode().Perm())
}

// named adds the identities of the stores that the statuses in dir name.
func named(dir string, identities map[string]bool) error {
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
			if d.Status != nil {
				identity, _, _ := strings.Cut(d.Status.Store, "/")
				identities[identity] = true
			}
		}
		return nil
	})
}

// replaceFile puts data in the place of a file, on disk before it returns.
func replaceFile(path string, data []byte, mode fs.FileMode) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".leasehold-*")
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		os.Remove(f.Name())
		return err
	}
	return syncDir(filepath.Dir(path))
}
