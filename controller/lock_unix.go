//go:build unix

package controller

import (
	"os"

	"golang.org/x/sys/unix"
)

const errWouldBlock = unix.EWOULDBLOCK

// flock takes an exclusive lock that ends with the open file.
func flock(f *os.File) error {
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err != unix.EINTR {
			return err
		}
	}
}
