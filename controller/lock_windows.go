package controller

import (
	"os"

	"golang.org/x/sys/windows"
)

const errWouldBlock = windows.ERROR_LOCK_VIOLATION

// flock takes an exclusive lock that ends with the open file. A directory cannot be locked here;
// the file beside the database has to do.
func flock(f *os.File) error {
	if i, err := f.Stat(); err != nil || i.IsDir() {
		return err
	}
	return windows.LockFileEx(windows.Handle(f.Fd()), windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0, new(windows.Overlapped))
}
