package controller

import (
	"errors"
	"io/fs"
	"slices"
	"strings"

	"leasehold.dev/leasehold/manifests"
)

// scanEntry is a manifest that a scan found, or something in the place of one. Err says in one
// sentence, path first, why it cannot be read: it is a FIFO, a device or a directory, a link that
// leads nowhere, out of the tree or in a circle, or a directory that must not be listed.
type scanEntry struct {
	Path string
	Sig  manifests.Sig
	Err  error
}

// scan lists the manifests of the tree, in path order, without reading them. Names that start with
// a dot are passed over, and directories behind links, which have their own place if they are in
// the tree. If another directory stands at the tree's name now, that one is opened. The error is
// the one of the tree's own directory; any other is in its entry.
func scan(t *manifests.Tree) ([]scanEntry, error) {
	if err := t.Reopen(); err != nil {
		return nil, err
	}
	return scanBelow(t, ".")
}

// scanBelow does the same for a directory of the tree.
func scanBelow(t *manifests.Tree, dir string) ([]scanEntry, error) {
	var found []scanEntry
	if err := scanDir(t, dir, &found); err != nil {
		return nil, err
	}
	slices.SortFunc(found, func(a, b scanEntry) int { return strings.Compare(a.Path, b.Path) })
	return found, nil
}

func scanDir(t *manifests.Tree, dir string, found *[]scanEntry) error {
	list, err := t.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range list {
		path := manifests.JoinPath(dir, e.Name)
		switch {
		case manifests.IsManifest(e.Name):
			*found = append(*found, scanEntry{Path: path, Sig: e.Sig, Err: e.Err})
		case e.Dir && !strings.HasPrefix(e.Name, "."):
			if err := scanDir(t, path, found); err != nil && !errors.Is(err, fs.ErrNotExist) {
				*found = append(*found, scanEntry{Path: path, Err: err})
			}
		}
	}
	return nil
}
