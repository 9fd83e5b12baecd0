package sqlite

import (
	"errors"
	"io/fs"
	"os"

	"leasehold.dev/leasehold/store"
)

// files are the database, its -wal and its -shm as they were when they were opened. They are never
// opened again here: closing them would drop the locks that SQLite holds.
type files []file

type file struct {
	path string
	info os.FileInfo
}

// identify remembers the files at path. before is what stood there before it was opened, if
// anything.
func identify(path string, before os.FileInfo) (files, error) {
	var f files
	for _, suffix := range []string{"", "-wal", "-shm"} {
		info, err := os.Stat(path + suffix)
		if errors.Is(err, fs.ErrNotExist) && suffix != "" {
			continue
		}
		if err != nil {
			return nil, err
		}
		f = append(f, file{path + suffix, info})
	}
	if before != nil && !os.SameFile(before, f[0].info) {
		return nil, store.ErrLost
	}
	return f, nil
}

// lost reports whether one of the files is no longer at its path.
func (f files) lost() bool {
	for _, file := range f {
		now, err := os.Stat(file.path)
		if errors.Is(err, fs.ErrPermission) {
			continue // out of reach, but not known to be lost
		}
		if err != nil || !os.SameFile(file.info, now) {
			return true
		}
	}
	return false
}
