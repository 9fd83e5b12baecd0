package manifests

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
)

// Replace puts next in the place of the file at path, if that still is exactly old, and returns
// what stands there now. Mode, owner, attributes and links to it survive. Readers see the old or
// the new file and never a part; so does whoever comes after a crash.
//
// The swap hands the displaced file back. If that is not old, or somebody is about to write to it,
// it goes back into its place at once. If a writer that was let in just before the swap writes to
// it later still, it is put back then (see Tree.Restored). So the user's save is always the one
// that stays; at worst next is gone again and Replace has to be called once more.
//
// Errors: ErrChanged (read again; also fs.ErrNotExist if the file is gone), ErrBusy (try again
// shortly), ErrNotWritable with the reason, ErrOutside, or the one of a system call that failed.
func (t *Tree) Replace(path string, old Snapshot, next []byte) (Snapshot, error) {
	at, err := t.locate(path)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return Snapshot{}, fmt.Errorf("%w: %w", ErrChanged, err)
		}
		return Snapshot{}, err
	}
	s := &swap{t: t, path: path, at: at, was: old}
	snap, err := s.run(next)
	s.end()
	if err != nil {
		switch {
		case isDenied(err) && !errors.Is(err, ErrNotWritable):
			err = fmt.Errorf("%w: %w", ErrNotWritable, err)
		case errors.Is(err, fs.ErrNotExist) && !errors.Is(err, ErrChanged):
			err = fmt.Errorf("%w: %w", ErrChanged, err)
		}
		return Snapshot{}, fmt.Errorf("%s: %w", path, err)
	}
	return snap, nil
}

// swap is one replacement on its way.
type swap struct {
	t    *Tree
	path string
	at   place
	was  Snapshot

	old  *file // the file that is to be displaced
	next *file // the one that is to take its place, open for reading
	put  ident // next, as it was when it was whole

	// The temp: a name in a directory. Before the swap it is next, after it what was displaced.
	dir     *dir
	temp    string
	swapped bool
	buried  bool // the temp belongs to a grave now
}

func (s *swap) run(next []byte) (Snapshot, error) {
	if err := s.begin(); err != nil {
		return Snapshot{}, err
	}
	if err := s.prepare(next); err != nil {
		return Snapshot{}, err
	}
	s.t.graves.mu.Lock()
	err := s.exchange()
	s.t.graves.mu.Unlock()
	if err != nil {
		return Snapshot{}, err
	}
	snap := Snapshot{Data: next, Sig: s.put.Sig}
	// If somebody has written into the new file by now, its state is theirs and not what next is.
	if m, err := s.next.stat(); err == nil && m.Size == s.put.Size && m.Mtime == s.put.Mtime {
		snap.Sig = m.Sig
	}
	if err := s.t.before("syncdir", s.path); err != nil {
		return Snapshot{}, err
	}
	if err := s.at.dir.sync(); err != nil {
		return Snapshot{}, err
	}
	if s.at.linked {
		if err := s.stillThere(); err != nil {
			return Snapshot{}, err
		}
	}
	return snap, nil
}

// begin opens the old file and judges whether it may be replaced.
func (s *swap) begin() error {
	m := s.at.meta
	switch {
	case m.Sig != s.was.Sig:
		return ErrChanged
	case m.kind != 0:
		return ErrNotRegular
	case m.links > 1:
		return fmt.Errorf("%w: it has %d hard links, and only one of them would be changed", ErrNotWritable, m.links)
	case m.perm&0o222 == 0:
		return fmt.Errorf("%w: it is read-only (mode %04o)", ErrNotWritable, m.perm)
	}
	if err := s.at.dir.mayWrite(s.at.name); err != nil {
		return err
	}
	f, err := s.at.dir.open(s.at.name)
	if err != nil {
		return err
	}
	s.old = f
	if m, err := f.stat(); err != nil {
		return err
	} else if m.Sig != s.was.Sig {
		return ErrChanged
	}
	return nil
}

// prepare writes the new file under a name that tells Sweep what it is.
func (s *swap) prepare(next []byte) error {
	w, err := s.createTemp(0o600)
	if err != nil {
		return err
	}
	defer w.close()
	w.mark()
	if err := s.fill(w, next, true); err != nil {
		return err
	}
	// A descriptor that could write would make the file look busy to everybody, us included.
	if s.next, err = s.dir.open(s.temp); err != nil {
		return err
	}
	s.next.mark()
	m, err := s.next.stat()
	if err != nil {
		return err
	}
	s.put = ident{meta: m, data: next}
	if err := s.t.before("name", s.path); err != nil {
		return err
	}
	return s.renameTemp(swapName(s.stem(), s.was.Data, next))
}

func (s *swap) fill(w *file, data []byte, attributes bool) error {
	if err := s.t.before("write", s.path); err != nil {
		return err
	}
	if err := w.write(data); err != nil {
		return err
	}
	if attributes {
		if err := s.t.before("attributes", s.path); err != nil {
			return err
		}
		if err := w.copyAttributes(s.old, s.at.meta); err != nil {
			return fmt.Errorf("%w: %w", ErrNotWritable, err)
		}
	}
	if err := s.t.before("sync", s.path); err != nil {
		return err
	}
	return w.sync()
}

// exchange swaps the two files, looks at what was displaced, and undoes it if that is not old.
func (s *swap) exchange() error {
	if err := s.t.before("check", s.path); err != nil {
		return err
	}
	if !s.old.mark() {
		return fmt.Errorf("%w: it is locked", ErrBusy)
	}
	// From here to the end an open for writing of the old file waits for us, and we see it waiting.
	if s.t.lease(s.old) == leaseBusy {
		return fmt.Errorf("%w: it is open for writing", ErrBusy)
	}
	if err := s.unchanged(true); err != nil {
		return err
	}
	err := s.t.before("exchange", s.path)
	if err == nil {
		err = s.dir.exchange(s.temp, s.at.dir, s.at.name)
	}
	if errors.Is(err, errors.ErrUnsupported) {
		return s.exchangeByLink()
	}
	if err != nil {
		return err
	}
	s.swapped = true
	// A fault from here on leaves what a crash would leave: Sweep puts it right.
	if err := s.t.before("look", s.path); err != nil {
		return err
	}
	return s.judge()
}

// judge looks at the displaced file, and either buries it or puts it back.
func (s *swap) judge() error {
	m, err := s.dir.stat(s.temp)
	if err == nil && !m.same(s.at.meta) {
		err = ErrChanged
	}
	if err == nil {
		err = s.unchanged(false)
	}
	if err == nil {
		s.t.graves.succeed(s.at.meta, s.put)
		s.bury(s.old, ident{meta: s.at.meta, data: s.was.Data}, s.put)
		s.old = nil
		return nil
	}
	back, backErr := s.t.putBack(s.path, s.at, s.dir, s.temp, s.put)
	s.old.unlease()
	if backErr != nil {
		return errors.Join(err, backErr)
	}
	s.swapped = false
	if !back.gone {
		// It was in the place for a moment: somebody may have opened it.
		if f, err := s.dir.open(s.temp); err == nil {
			s.bury(f, back.out, back.stands)
		}
	}
	return err
}

// unchanged checks that the old file is as it was read and that nobody waits to write to it.
func (s *swap) unchanged(inPlace bool) error {
	m, err := s.old.stat()
	if err != nil {
		return err
	}
	if m.Size != s.was.Sig.Size || m.Mtime != s.was.Sig.Mtime || inPlace && m.Ctime != s.was.Sig.Ctime {
		return ErrChanged
	}
	if inPlace {
		// Its name may lead to another file by now. That would be seen after the swap too, but
		// then readers would have seen ours for a moment.
		if at, err := s.at.dir.stat(s.at.name); err != nil || at.Sig != m.Sig {
			return ErrChanged
		}
	}
	// Equal timestamps do not prove equal bytes, not even under a lease taken a moment ago.
	if inPlace || !s.old.leased {
		data, err := s.old.read(m.Size)
		if err != nil {
			return err
		}
		if !bytes.Equal(data, s.was.Data) {
			return ErrChanged
		}
	}
	if s.old.leased && s.old.wanted() {
		return fmt.Errorf("%w: somebody is opening it for writing", ErrBusy)
	}
	return nil
}

// stillThere checks that the links still lead to the file that was replaced.
func (s *swap) stillThere() error {
	at, err := s.t.locate(s.path)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrChanged, err)
	}
	defer at.dir.close()
	if !at.meta.same(s.put.meta) {
		return fmt.Errorf("%w: the link leads elsewhere now", ErrChanged)
	}
	return nil
}

// end gives back what is still held.
func (s *swap) end() {
	if s.temp != "" && !s.swapped && !s.buried {
		s.dir.remove(s.temp)
	}
	for _, f := range []*file{s.old, s.next} {
		if f != nil {
			f.close()
		}
	}
	s.at.dir.close()
	if s.dir != nil {
		s.dir.close()
	}
}
