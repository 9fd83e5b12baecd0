package manifests

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

func (d *dir) exchange(name string, to *dir, toName string) error {
	return d.renamex(name, to, toName, unix.RENAME_SWAP)
}

func (d *dir) renameNew(name string, to *dir, toName string) error {
	err := d.renamex(name, to, toName, unix.RENAME_EXCL)
	if errors.Is(err, errors.ErrUnsupported) {
		return d.linkNew(name, to, toName)
	}
	return err
}

func (d *dir) renamex(name string, to *dir, toName string, flags uint32) error {
	err := again(func() error { return unix.RenameatxNp(d.n, name, to.n, toName, flags) })
	if err == unix.ENOTSUP || err == unix.EINVAL || err == unix.ENOSYS {
		return fmt.Errorf("%w: %w", errors.ErrUnsupported, err)
	}
	return err
}
