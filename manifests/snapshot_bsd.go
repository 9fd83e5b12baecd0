//go:build freebsd

package manifests

import "errors"

// There is no call that swaps two names.
func (d *dir) exchange(name string, to *dir, toName string) error { return errors.ErrUnsupported }

func (d *dir) renameNew(name string, to *dir, toName string) error {
	return d.linkNew(name, to, toName)
}
