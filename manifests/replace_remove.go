package manifests

import (
	"errors"
	"fmt"
	"io/fs"
)

// Remove takes the file at path away, if that still is exactly old.
//
// It is moved aside first, which hands over exactly the file that stood there. If that is not old,
// or somebody is about to write to it, it goes back at once; if a writer that was let in just before
// writes to it later still, it is put back then (see Tree.Restored). So a save never vanishes with
// the file.
//
// Errors: ErrChanged (read again; also fs.ErrNotExist if the file is gone), ErrBusy (try again
// shortly), ErrNotWritable with the reason, ErrOutside, or the one of a system call that failed.
func (t *Tree) Remove(path string, old Snapshot) error {
	at, err := t.locate(path)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%w: %w", ErrChanged, err)
		}
		return err
	}
	if at.linked {
		at.dir.close()
		return fmt.Errorf("%s: %w: it is a link to %s, which would lead nowhere", path, ErrNotWritable, at.path)
	}
	s := &swap{t: t, path: path, at: at, was: old}
	err = s.remove()
	s.end()
	switch {
	case err == nil:
		return nil
	case isDenied(err) && !errors.Is(err, ErrNotWritable):
		err = fmt.Errorf("%w: %w", ErrNotWritable, err)
	case errors.Is(err, fs.ErrNotExist) && !errors.Is(err, ErrChanged):
		err = fmt.Errorf("%w: %w", ErrChanged, err)
	}
	return fmt.Errorf("%s: %w", path, err)
}

func (s *swap) remove() error {
	if err := s.begin(); err != nil {
		return err
	}
	s.pickTempDir()
	s.t.graves.mu.Lock()
	err := s.moveAside()
	s.t.graves.mu.Unlock()
	if err != nil {
		return err
	}
	if err := s.t.before("syncdir", s.path); err != nil {
		return err
	}
	return s.at.dir.sync()
}

func (s *swap) moveAside() error {
	if err := s.t.before("check", s.path); err != nil {
		return err
	}
	if !s.old.mark() {
		return fmt.Errorf("%w: it is locked", ErrBusy)
	}
	if s.t.lease(s.old) == leaseBusy {
		return fmt.Errorf("%w: it is open for writing", ErrBusy)
	}
	if err := s.unchanged(true); err != nil {
		return err
	}
	if err := s.t.before("exchange", s.path); err != nil {
		return err
	}
	temp := swapName(s.stem(), s.was.Data, nil) // Sweep finds bytes that it knows, or a user's
	err := s.at.dir.renameNew(s.at.name, s.dir, temp)
	if isDenied(err) && s.dir != s.at.dir {
		s.dir.close()
		s.dir = s.at.dir.hold()
		temp = swapName(s.stem(), s.was.Data, nil)
		err = s.at.dir.renameNew(s.at.name, s.dir, temp)
	}
	if err != nil {
		return err
	}
	s.temp, s.swapped = temp, true
	if err := s.t.before("look", s.path); err != nil {
		return err
	}
	m, err := s.dir.stat(s.temp)
	if err == nil && !m.same(s.at.meta) {
		err = ErrChanged
	}
	if err == nil {
		err = s.unchanged(false)
	}
	if err != nil {
		back := s.t.before("back", s.path)
		if back == nil {
			back = s.dir.renameNew(s.temp, s.at.dir, s.at.name)
		}
		if errors.Is(back, fs.ErrExist) { // saved anew: that one stays
			back = s.t.keep(s.at, s.dir, s.temp)
		}
		s.old.unlease()
		return errors.Join(err, back)
	}
	// Nothing is to stand in the place now; whatever does is somebody's.
	s.t.graves.succeed(s.at.meta, ident{})
	s.bury(s.old, ident{meta: s.at.meta, data: s.was.Data}, ident{})
	s.old = nil
	return nil
}
