package manifests

import (
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

// lease takes a read lease, which the kernel grants only while nobody has the file open for
// writing. From then on an open for writing waits until the lease is given back, so it is held
// for microseconds only.
func (f *file) lease() leaseState {
	if f.leased {
		return leaseHeld
	}
	_, err := unix.FcntlInt(uintptr(f.fd), unix.F_SETLEASE, unix.F_RDLCK)
	switch {
	case err == nil:
		f.leased = true
		return leaseHeld
	case errors.Is(err, unix.EAGAIN):
		return leaseBusy
	}
	return leaseUnknown // not our file, or a file system without leases
}

func (f *file) unlease() {
	if f.leased {
		unix.FcntlInt(uintptr(f.fd), unix.F_SETLEASE, unix.F_UNLCK)
		f.leased = false
	}
}

// wanted tells whether somebody waits to open the leased file for writing.
func (f *file) wanted() bool {
	kind, err := unix.FcntlInt(uintptr(f.fd), unix.F_GETLEASE, 0)
	return err != nil || kind != unix.F_RDLCK
}

// exchange swaps two names at once; the displaced file is under the other name afterwards.
func (d *dir) exchange(name string, to *dir, toName string) error {
	err := again(func() error {
		return unix.Renameat2(d.n, name, to.n, toName, unix.RENAME_EXCHANGE)
	})
	return unsupported(err)
}

// renameNew renames, but not over something that exists: fs.ErrExist.
func (d *dir) renameNew(name string, to *dir, toName string) error {
	err := unsupported(again(func() error {
		return unix.Renameat2(d.n, name, to.n, toName, unix.RENAME_NOREPLACE)
	}))
	if errors.Is(err, errors.ErrUnsupported) {
		return d.linkNew(name, to, toName)
	}
	return err
}

func unsupported(err error) error {
	if err == unix.EINVAL || err == unix.ENOSYS || err == unix.ENOTTY || err == unix.EOPNOTSUPP {
		return fmt.Errorf("%w: %w", errors.ErrUnsupported, err)
	}
	return err
}

// copyXattrs copies what a user may have set, ACLs among it. Labels that only the system may set
// are left to it.
func copyXattrs(to, from int) error {
	size, err := unix.Flistxattr(from, nil)
	if err != nil || size == 0 {
		return nil // none, or a file system without them
	}
	names := make([]byte, size+256)
	if size, err = unix.Flistxattr(from, names); err != nil {
		return err
	}
	for name := range strings.SplitSeq(string(names[:size]), "\x00") {
		if name == "" {
			continue
		}
		value := make([]byte, 64<<10) // the largest the kernel takes
		n, err := unix.Fgetxattr(from, name, value)
		if err == nil {
			err = unix.Fsetxattr(to, name, value[:n], 0)
		}
		if err != nil && (strings.HasPrefix(name, "user.") || strings.HasPrefix(name, "system.posix_acl")) {
			return fmt.Errorf("attribute %s: %w", name, err)
		}
	}
	return nil
}
