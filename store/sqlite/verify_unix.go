//go:build unix

package sqlite

import (
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// inUse reports whether another process has the database open: it then holds a lock on a byte of the
// -shm that SQLite sets apart for that.
func inUse(path string) bool {
	const deadManSwitch = 128
	f, err := os.OpenFile(path+"-shm", os.O_RDWR, 0)
	if err != nil {
		return false
	}
	defer f.Close()
	lock := unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart, Start: deadManSwitch, Len: 1}
	return unix.FcntlFlock(f.Fd(), unix.F_GETLK, &lock) != nil || lock.Type != unix.F_UNLCK
}
