package manifests

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
)

// same tells whether two names are one file.
func (m meta) same(o meta) bool { return m.Dev == o.Dev && m.Ino == o.Ino }

// ident is one state of one file, bytes included.
type ident struct {
	meta
	data []byte
	busy bool // somebody had it open for writing: its bytes say nothing
}

// is tells whether o is this file in this state.
func (i ident) is(o ident) bool {
	if !i.same(o.meta) {
		return false
	}
	if i.busy || i.kind != 0 {
		return true
	}
	return !o.busy && i.Size == o.Size && i.Mtime == o.Mtime && bytes.Equal(i.data, o.data)
}

func (t *Tree) identify(d *dir, name string) (ident, error) {
	m, err := d.stat(name)
	if err != nil {
		return ident{}, err
	}
	id := ident{meta: m}
	if m.kind != 0 {
		return id, nil
	}
	f, err := d.open(name)
	if err != nil {
		return id, nil // not readable: its inode has to do
	}
	defer f.close()
	id.busy = t.lease(f) == leaseBusy
	defer f.unlease()
	id.data, err = f.read(m.Size)
	return id, err
}

// putBack brings the file that was displaced to a temp name into its place again, where put stands,
// which is ours. If what comes out is not put in the state that we know, then it is a newer save,
// and goes back in turn, until what comes out is what we put in. A save by rename that was overtaken
// by one into our file, which did not know it, is kept aside.
func (t *Tree) putBack(path string, at place, d *dir, temp string, put ident) (outcome, error) {
	edited := false
	for {
		item, err := t.identify(d, temp)
		if err != nil {
			return outcome{}, err
		}
		if err = t.before("back", path); err == nil {
			err = d.exchange(temp, at.dir, at.name)
		}
		switch {
		case errors.Is(err, fs.ErrNotExist):
			// Moved aside or removed just now. No bytes may be lost, so the place is filled again.
			err = d.renameNew(temp, at.dir, at.name)
			if errors.Is(err, fs.ErrExist) {
				continue
			}
			return outcome{stands: item, gone: true}, err
		case errors.Is(err, errors.ErrUnsupported):
			return t.putBackByRename(at, d, temp, put, item)
		case err != nil:
			return outcome{}, err
		}
		out, err := t.identify(d, temp)
		if err != nil {
			return outcome{}, err
		}
		if put.is(out) {
			if edited {
				t.report(path, t.keep(at, d, temp))
			}
			return outcome{stands: item, out: out, gone: edited}, nil
		}
		edited = put.same(out.meta)
		put = item
	}
}

func (t *Tree) report(path string, err error) {
	if t.Restored != nil {
		t.Restored(path, err)
	}
}

// outcome is what putting back came to.
type outcome struct {
	stands ident // in the place
	out    ident // under the temp name, to be removed
	gone   bool  // nothing is left under the temp name
}

// putBackByRename is for systems that cannot swap: a save in the instant between look and rename
// is lost there.
func (t *Tree) putBackByRename(at place, d *dir, temp string, put, item ident) (outcome, error) {
	now, err := t.identify(at.dir, at.name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		err = d.renameNew(temp, at.dir, at.name)
		return outcome{stands: item, gone: true}, err
	case err != nil:
		return outcome{}, err
	case !put.is(now):
		return outcome{stands: now, gone: true}, t.keep(at, d, temp)
	}
	err = d.rename(temp, at.dir, at.name)
	return outcome{stands: item, gone: true}, err
}

// keep moves a displaced file with bytes that nobody has read aside, for the user to look at.
func (t *Tree) keep(at place, d *dir, temp string) error {
	name := savedName(at.name)
	if err := d.renameNew(temp, at.dir, name); err != nil {
		return err
	}
	return fmt.Errorf("%w: a save that was overtaken by another is kept in %s", ErrChanged, name)
}

// linkNew renames without ever replacing, by a second name.
func (d *dir) linkNew(name string, to *dir, toName string) error {
	if err := d.link(name, to, toName); err != nil {
		return err
	}
	return d.remove(name)
}

// exchangeByLink is the way where two names cannot be swapped: the old file gets a second name,
// then the new one is renamed over it. A save in place is seen afterwards and brought back, as
// everywhere. A save by rename is lost if it comes between the last look and the rename.
func (s *swap) exchangeByLink() error {
	aside := swapName(s.stem(), s.was.Data, s.put.data)
	if err := s.at.dir.link(s.at.name, s.dir, aside); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return fmt.Errorf("%w: the file system neither swaps names nor links: %w", ErrNotWritable, err)
	}
	err := s.t.before("rename", s.path)
	if err == nil {
		var now, linked meta
		now, err = s.at.dir.stat(s.at.name)
		if err == nil {
			linked, err = s.dir.stat(aside)
		}
		if err != nil || !now.same(s.at.meta) || !linked.same(s.at.meta) || now.Mtime != s.at.meta.Mtime || now.Size != s.at.meta.Size {
			err = ErrChanged
		}
	}
	if err == nil {
		err = s.dir.rename(s.temp, s.at.dir, s.at.name)
	}
	if err != nil {
		s.dir.remove(aside)
		return err
	}
	s.temp, s.swapped = aside, true
	if err := s.t.before("look", s.path); err != nil {
		return err
	}
	return s.judge()
}
