//go:build unix

package gitindex

import (
	"encoding/binary"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// statFile returns the numbers that Git remembers of a file, the mode left out, and its mtime. ok is
// false if it is not a regular file.
func statFile(path string) (s stat, mtime time.Time, ok bool, err error) {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return stat{}, time.Time{}, false, &fs.PathError{Op: "lstat", Path: path, Err: err}
	}
	for i, v := range []uint64{
		uint64(st.Ctim.Sec), uint64(st.Ctim.Nsec), uint64(st.Mtim.Sec), uint64(st.Mtim.Nsec),
		uint64(st.Dev), uint64(st.Ino), 0, uint64(st.Uid), uint64(st.Gid), uint64(st.Size),
	} {
		binary.BigEndian.PutUint32(s[4*i:], uint32(v))
	}
	return s, time.Unix(int64(st.Mtim.Sec), int64(st.Mtim.Nsec)), st.Mode&unix.S_IFMT == unix.S_IFREG, nil
}

// keepOwner gives f the owner of the file at path, which it is going to replace.
func keepOwner(f *os.File, path string) error {
	var was, is unix.Stat_t
	if err := unix.Stat(path, &was); err != nil {
		return err
	}
	if err := unix.Fstat(int(f.Fd()), &is); err != nil {
		return err
	}
	if was.Uid == is.Uid && was.Gid == is.Gid {
		return nil
	}
	return f.Chown(int(was.Uid), int(was.Gid))
}
