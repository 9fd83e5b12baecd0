package gitindex

import (
	"encoding/binary"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"leasehold.dev/leasehold/manifests"
)

// errLocked: another process holds the index.
var errLocked = errors.New("index.lock exists")

// errMoved: another process has replaced the index.
var errMoved = errors.New("the index has changed")

// publish gives entries other numbers. still, if there is one, is asked under the lock whether they
// are right.
func (x *Index) publish(next map[string]stat, still func() bool) error {
	_, written, _, err := statFile(x.indexFile())
	if err != nil {
		return err
	}
	m := x.image
	x.image = nil // until what is in it is on disk
	m.blurRacy(written)
	for path, s := range next {
		m.setStat(m.entries[path], s)
	}
	m.seal()
	temp, err := x.writeTemp(m.data)
	if err != nil {
		return err
	}
	err = x.swap(temp, still)
	if err != nil {
		os.Remove(temp)
		return err
	}
	x.image = m
	for path, e := range m.entries {
		if m.stat(e).vague() {
			x.pending[path] = true
		}
	}
	return nil
}

// tempName is what our copies of the index begin with.
const tempName = "index.leasehold-"

func (x *Index) writeTemp(data []byte) (string, error) {
	f, err := os.CreateTemp(x.gitDir, tempName)
	if err != nil {
		return "", err
	}
	info, err := os.Stat(x.indexFile())
	if err == nil {
		err = f.Chmod(info.Mode().Perm())
	}
	if err == nil {
		err = keepOwner(f, x.indexFile())
	}
	if err == nil {
		_, err = f.Write(data)
	}
	if err := errors.Join(err, f.Close()); err != nil {
		os.Remove(f.Name())
		return "", err
	}
	return f.Name(), nil
}

// swap puts temp in the place of the index, if that is still the one that was read.
func (x *Index) swap(temp string, still func() bool) error {
	lock := filepath.Join(x.gitDir, lockName)
	f, err := os.OpenFile(lock, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o666)
	if errors.Is(err, fs.ErrExist) {
		return errLocked
	} else if err != nil {
		return err
	}
	defer os.Remove(lock)
	defer f.Close()
	if sig, _, _, err := statFile(x.indexFile()); err != nil || sig != x.sig {
		return errMoved
	}
	if still != nil && !still() {
		return errMoved
	}
	if err := os.Rename(temp, x.indexFile()); err != nil {
		return err
	}
	sig, _, _, err := statFile(x.indexFile())
	if err != nil {
		return err
	}
	x.sig = sig
	x.act.own(sig)
	return nil
}

// blurRacy makes entries vague whose file is as young as the index was, for which Git compares the
// bytes: in a younger index it would not.
func (m *image) blurRacy(written time.Time) {
	for _, off := range m.all {
		if mtime := binary.BigEndian.Uint32(m.data[off+offMtime:]); mtime != 0 && mtime >= uint32(written.Unix()) {
			copy(m.data[off+offSize:], "\x00\x00\x00\x00")
		}
	}
}

// batch bounds what is read for one filling.
const batch = 2000

// fill writes the numbers of files into their entries where the file has been at rest and differs
// from the blob in nothing but status.
func (x *Index) fill(now time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.pending) == 0 || x.act.operation() {
		return
	}
	if err := x.load(); err != nil || x.image == nil {
		clear(x.pending) // Enter says why
		return
	}
	next := map[string]stat{}
	for path := range x.pending {
		if len(next) >= batch {
			break
		}
		e, tracked := x.image.entries[path]
		if !tracked {
			delete(x.pending, path)
			continue
		}
		file := filepath.Join(x.top, filepath.FromSlash(path))
		s, mtime, ok, err := statFile(file)
		was := x.image.stat(e)
		switch {
		case err != nil || !ok || was.same(s):
			delete(x.pending, path)
		case now.Sub(mtime) < manifests.Unsettled || now.Unix() <= mtime.Unix():
			// Another save might have the same timestamp, of which Git compares whole seconds.
		case x.untouched(file, e):
			next[path] = was.of(s)
		default:
			delete(x.pending, path) // the user's: Git judges it
		}
	}
	if len(next) == 0 {
		return
	}
	err := x.publish(next, func() bool {
		for path, s := range next {
			if now, _, ok, err := statFile(filepath.Join(x.top, filepath.FromSlash(path))); err != nil || !ok || !now.same(s) {
				return false
			}
		}
		return true
	})
	if err != nil {
		return // the next one
	}
	for path := range next {
		delete(x.pending, path)
	}
}

// untouched reports whether the file is the entry's blob, but for status.
func (x *Index) untouched(file string, e entry) bool {
	info, err := os.Stat(file)
	if err != nil || info.Size() > manifests.MaxFileSize {
		return false
	}
	data, err := os.ReadFile(file)
	return err == nil && x.image.blobName(manifests.StripStatus(file, data)) == e.blob
}

// stale notes entries that do not fit their file, as a crash may have left them.
func (x *Index) stale() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.load() != nil || x.image == nil {
		return
	}
	for path, e := range x.image.entries {
		if s, _, ok, err := statFile(filepath.Join(x.top, filepath.FromSlash(path))); err == nil && ok && !x.image.stat(e).same(s) {
			x.pending[path] = true
		}
	}
}

// Recheck lets Git compare the bytes of each manifest in dir whose entry does not fit its file, and
// which it would call modified for its size alone.
func Recheck(dir string, c Checkout) error {
	x := newIndex(dir, c, slog.New(slog.DiscardHandler))
	x.stale()
	x.mu.Lock()
	defer x.mu.Unlock()
	if err := x.load(); err != nil || x.image == nil || len(x.pending) == 0 {
		return err
	}
	next := map[string]stat{}
	for path := range x.pending {
		next[path] = x.image.stat(x.image.entries[path]).blur()
	}
	return x.publish(next, nil)
}
