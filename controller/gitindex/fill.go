package gitindex

import (
	"encoding/binary"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"leasehold.dev/leasehold/manifests"
)

// errLocked: another process holds the index.
var errLocked = errors.New("index.lock exists")

// errMoved: another process has replaced the index.
var errMoved = errors.New("the index has changed")

// publish gives entries other numbers: those of their files, if filling, or less than there was.
func (x *Index) publish(next map[string]stat, filling bool) error {
	_, written, _, err := statFile(x.indexFile())
	if err != nil {
		return err
	}
	m := x.image
	x.image = nil // until what is in it is on disk
	var keep time.Time
	if filling {
		m.blurRacy(written)
	} else {
		keep = written
	}
	for path, s := range next {
		m.setStat(m.entries[path], s)
	}
	m.seal()
	temp, err := x.writeTemp(m.data, keep)
	if err != nil {
		return err
	}
	if err := x.swap(temp, next, filling); err != nil {
		os.Remove(temp)
		return err
	}
	x.image = m
	for path, e := range m.entries {
		if _, known := x.pending[path]; !known && m.stat(e).vague() {
			x.pending[path] = time.Now()
		}
	}
	return nil
}

// tempDir is not the Git directory itself, which others watch, as we do.
func (x *Index) tempDir() string { return filepath.Join(x.gitDir, "leasehold") }

const tempName = ".index-"

// prepare makes the directory, before the first look at what is beside it, and removes what a crash
// has left there.
func (x *Index) prepare() {
	if err := os.MkdirAll(x.tempDir(), 0o700); err != nil {
		return // writing there says why
	}
	entries, _ := os.ReadDir(x.tempDir())
	for _, e := range entries {
		info, err := e.Info()
		if err == nil && strings.HasPrefix(e.Name(), tempName) && time.Since(info.ModTime()) > time.Hour {
			os.Remove(filepath.Join(x.tempDir(), e.Name()))
		}
	}
}

// writeTemp writes an index beside the real one. With the time of the old one, what was too young to
// be relied on in that is so in the new one.
func (x *Index) writeTemp(data []byte, mtime time.Time) (string, error) {
	f, err := os.CreateTemp(x.tempDir(), tempName)
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
	err = errors.Join(err, f.Close())
	if err == nil && !mtime.IsZero() {
		err = os.Chtimes(f.Name(), mtime, mtime)
	}
	if err != nil {
		os.Remove(f.Name())
		return "", err
	}
	return f.Name(), nil
}

// swap puts temp in the place of the index, if that is still the one that was read, and if the files
// whose numbers are filled in still have these.
func (x *Index) swap(temp string, next map[string]stat, filling bool) error {
	if !x.act.until(time.Now()).IsZero() {
		return errLocked
	}
	f, err := os.OpenFile(filepath.Join(x.gitDir, lockName), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o666)
	if errors.Is(err, fs.ErrExist) {
		return errLocked
	} else if err != nil {
		return err
	}
	defer x.act.unlock()
	defer f.Close()
	if sig, _, _, err := statFile(x.indexFile()); err != nil || sig != x.sig {
		return errMoved
	}
	if filling {
		for path, s := range next {
			if now, _, ok, err := statFile(x.file(path)); err != nil || !ok || !now.same(s) {
				return errMoved
			}
		}
	}
	if err := os.Rename(temp, x.indexFile()); err != nil {
		return err
	}
	sig, _, _, err := statFile(x.indexFile())
	x.sig = sig
	x.act.own(sig)
	return err
}

func (x *Index) file(path string) string { return filepath.Join(x.top, filepath.FromSlash(path)) }

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

// A file is at rest when no status has been written anywhere for a while, or none into this one for
// long: a filling that is undone by the next status leaves a moment in which a git command that has
// just read the index sees a change.
const (
	restAll = 2 * time.Second
	restOne = hotTime
)

// fill writes the numbers of files into their entries where the file has been at rest and differs
// from the blob in nothing but status.
func (x *Index) fill(now time.Time) {
	image, sig, rested := x.atRest(now)
	if image == nil {
		return
	}
	next := map[string]stat{}
	for path, r := range rested { // reading them takes a while, in which status may be written
		if image.untouched(x.file(path), r.entry) {
			next[path] = r.was.of(r.file)
		}
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.image != image || x.sig != sig {
		return // the next time
	}
	if len(next) > 0 && x.publish(next, true) != nil {
		return
	}
	for path := range rested { // those that are left out are the user's: Git judges them
		delete(x.pending, path)
	}
}

// rested is a file at rest.
type rested struct {
	entry     entry
	was, file stat
}

// atRest returns some of the pending files, and the index that was looked at.
func (x *Index) atRest(now time.Time) (*image, stat, map[string]rested) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.pending) == 0 || x.act.operation() {
		return nil, stat{}, nil
	}
	if err := x.load(); err != nil || x.image == nil {
		clear(x.pending) // Enter says why
		return nil, stat{}, nil
	}
	found := map[string]rested{}
	busy := now.Sub(x.last) < restAll
	for path, since := range x.pending {
		if len(found) >= batch {
			break
		}
		if busy && now.Sub(since) < restOne {
			continue
		}
		e, tracked := x.image.entries[path]
		if !tracked {
			delete(x.pending, path)
			continue
		}
		s, mtime, ok, err := statFile(x.file(path))
		was := x.image.stat(e)
		switch {
		case err != nil || !ok || was.same(s):
			delete(x.pending, path)
		case now.Sub(mtime) < manifests.Unsettled || now.Unix() <= mtime.Unix():
			// Another save might have the same timestamp, of which Git compares whole seconds.
		default:
			found[path] = rested{e, was, s}
		}
	}
	return x.image, x.sig, found
}

// untouched reports whether the file is the entry's blob, but for status.
func (m *image) untouched(file string, e entry) bool {
	info, err := os.Stat(file)
	if err != nil || info.Size() > manifests.MaxFileSize {
		return false
	}
	data, err := os.ReadFile(file)
	return err == nil && m.blobName(manifests.StripStatus(file, data)) == e.blob
}

// stale notes entries that do not fit their file, as a crash may have left them.
func (x *Index) stale() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.load() != nil || x.image == nil {
		return
	}
	for path, e := range x.image.entries {
		if s, _, ok, err := statFile(x.file(path)); err == nil && ok && !x.image.stat(e).same(s) {
			x.pending[path] = time.Time{}
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
	return x.publish(next, false)
}
