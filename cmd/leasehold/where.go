package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
)

const (
	stateName    = ".leasehold"
	databaseName = "leasehold.db"
)

// storePath returns the path of the database: storeFlag, or leasehold.db in the state directory of
// dir, which may be empty. It creates nothing.
func storePath(dir, storeFlag string) (string, error) {
	if storeFlag != "" {
		return filepath.Abs(storeFlag)
	}
	dir, err := findDir(dir)
	if err != nil {
		return "", err
	}
	state, err := stateDir(dir)
	if err != nil {
		return "", err
	}
	return filepath.Join(state, databaseName), nil
}

// findDir returns dir, made absolute and free of links; or, if it is empty, the nearest parent of
// the current directory that is a Leasehold directory; or the current directory.
func findDir(dir string) (string, error) {
	given := dir != ""
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	if abs, err = filepath.EvalSymlinks(abs); err != nil {
		return "", err
	}
	info, err := os.Stat(abs)
	switch {
	case err != nil:
		return "", err
	case !info.IsDir():
		return "", fmt.Errorf("%s is not a directory", abs)
	case given:
		return abs, nil
	}
	for parent := abs; ; parent = filepath.Dir(parent) {
		if isDir(filepath.Join(parent, stateName)) {
			return parent, nil
		}
		if state, err := gitState(parent); err == nil && state != "" {
			if _, err := os.Stat(filepath.Join(state, databaseName)); err == nil {
				return parent, nil
			}
		}
		if parent == filepath.Dir(parent) {
			return abs, nil
		}
	}
}

// stateDir returns where the state of dir lies: .leasehold in it where that exists, or below the
// Git directory, which git clean does not touch, or a .leasehold that is still to be made.
func stateDir(dir string) (string, error) {
	own := filepath.Join(dir, stateName)
	if isDir(own) {
		return own, nil
	}
	state, err := gitState(dir)
	if err != nil || state != "" {
		return state, err
	}
	return own, nil
}

// gitState returns the state directory below the Git directory of the checkout that dir is in, or
// nothing outside of one. It is git rev-parse --git-path leasehold at the root of the checkout, and
// an escaped name in that for a directory further down.
func gitState(dir string) (string, error) {
	for root := dir; ; root = filepath.Dir(root) {
		gitDir, err := readGitDir(root)
		if err != nil {
			return "", err
		}
		if gitDir != "" {
			sub, err := filepath.Rel(root, dir)
			if err != nil {
				return "", err
			}
			state := filepath.Join(gitDir, "leasehold")
			if sub != "." {
				state = filepath.Join(state, url.PathEscape(filepath.ToSlash(sub)))
			}
			return state, nil
		}
		if root == filepath.Dir(root) {
			return "", nil
		}
	}
}

// readGitDir returns the Git directory of a checkout with its root at dir, or nothing.
func readGitDir(dir string) (string, error) {
	path := filepath.Join(dir, ".git")
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", nil
	case err != nil:
		return "", err
	case info.IsDir():
		// An empty .git is no repository to Git either.
		if _, err := os.Stat(filepath.Join(path, "HEAD")); err != nil {
			return "", nil
		}
		return path, nil
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	target, ok := bytes.CutPrefix(data, []byte("gitdir: "))
	if !ok {
		return "", fmt.Errorf("%s: expected a line of the form gitdir: PATH", path)
	}
	gitDir := strings.TrimRight(string(target), "\r\n")
	if !filepath.IsAbs(gitDir) {
		gitDir = filepath.Join(dir, gitDir)
	}
	return filepath.Clean(gitDir), nil
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}
