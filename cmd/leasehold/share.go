package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
)

// groupID returns the number of a group, given by name or number.
func groupID(name string) (int, error) {
	group, err := user.LookupGroup(name)
	if err != nil {
		group, err = user.LookupGroupId(name)
	}
	if err != nil {
		return 0, usageError("--group: Invalid value: %q: there is no such group", name)
	}
	return strconv.Atoi(group.Gid)
}

// shareDir lets a group into the state directory: what is made in it belongs to the group, too.
func shareDir(dir string, gid int) error {
	if up := filepath.Dir(dir); filepath.Base(up) == "leasehold" { // of several directories of one checkout
		if err := shareOne(up, gid, fs.ModeSetgid|0o770); err != nil {
			return err
		}
	}
	return shareOne(dir, gid, fs.ModeSetgid|0o770)
}

// shareFiles lets a group use the database, whose -wal and -shm take its mode, too, when they are
// made again. None of them is opened here: closing it would drop SQLite's locks.
func shareFiles(database string, gid int) error {
	for _, suffix := range []string{"", "-wal", "-shm", ".lock", identityMark} {
		if err := shareOne(database+suffix, gid, 0o660); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

func shareOne(path string, gid int, mode fs.FileMode) error {
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	if info.Mode()&fs.ModeSymlink != 0 {
		return fmt.Errorf("%s is a link; share what it leads to by hand", path)
	}
	if has, ok := groupOf(info); ok && has == gid && info.Mode()&(fs.ModeSetgid|fs.ModePerm) == mode {
		return nil // somebody else's may be as it should be
	}
	// The mode comes last: to change the group may clear the setgid bit.
	if err := errors.Join(os.Chown(path, -1, gid), os.Chmod(path, mode)); err != nil {
		return fmt.Errorf("sharing the store with group %d: %w", gid, err)
	}
	return nil
}
