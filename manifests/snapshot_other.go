//go:build !(linux || darwin || freebsd)

package manifests

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"sync/atomic"
	"syscall"
)

// meta is what stat tells about a name.
type meta struct {
	Sig
	kind     fs.FileMode
	perm     uint32
	uid, gid uint32
	links    uint64
}

func metaOf(fi fs.FileInfo) meta {
	m := meta{
		Sig:  Sig{Size: fi.Size(), Mtime: fi.ModTime().UnixNano()},
		kind: fi.Mode().Type(), perm: uint32(fi.Mode().Perm()), links: 1,
	}
	addIdentity(fi, &m)
	return m
}

// dir is an open directory.
type dir struct {
	r    *os.Root
	held atomic.Int32 // how many others close it too
}

func rootIdentity(r *os.Root) (Sig, error) { return (&dir{r: r}).identity() }

func (t *Tree) openDir(path string) (*dir, error) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if t.gone {
		return nil, syscall.ENOENT
	}
	r, err := t.root.OpenRoot(path)
	if err != nil {
		return nil, err
	}
	return &dir{r: r}, nil
}

// openTempDir: a rename from one root to another is not to be had, so temps lie beside the file.
func openTempDir(path string) *dir { return nil }

// hold makes one more close necessary.
func (d *dir) hold() *dir {
	d.held.Add(1)
	return d
}

func (d *dir) close() {
	if d.held.Add(-1) < 0 {
		d.r.Close()
	}
}

func (d *dir) identity() (Sig, error) {
	fi, err := d.r.Stat(".")
	if err != nil {
		return Sig{}, err
	}
	m := metaOf(fi)
	return Sig{Dev: m.Dev, Ino: m.Ino, Ctime: m.Ctime}, nil
}

func (d *dir) stat(name string) (meta, error) {
	fi, err := d.r.Lstat(name)
	if err != nil {
		return meta{}, err
	}
	return metaOf(fi), nil
}

func (d *dir) readlink(name string) (string, error) { return d.r.Readlink(name) }

func (d *dir) open(name string) (*file, error) {
	f, err := d.r.Open(name)
	if err != nil {
		return nil, err
	}
	return &file{f: f}, nil
}

func (d *dir) create(name string, perm uint32) (*file, error) {
	f, err := d.r.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, fs.FileMode(perm))
	if err != nil {
		return nil, err
	}
	return &file{f: f}, nil
}

func (d *dir) exchange(name string, to *dir, toName string) error { return errors.ErrUnsupported }

func (d *dir) rename(name string, to *dir, toName string) error { return d.r.Rename(name, toName) }

func (d *dir) renameNew(name string, to *dir, toName string) error {
	return d.linkNew(name, to, toName)
}

func (d *dir) link(name string, to *dir, toName string) error { return d.r.Link(name, toName) }
func (d *dir) remove(name string) error                       { return d.r.Remove(name) }
func (d *dir) sync() error                                    { return nil }

func (d *dir) mayWrite(name string) error {
	f, err := d.r.OpenFile(name, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	return f.Close()
}

func (d *dir) entries() ([]fs.DirEntry, error) { return fs.ReadDir(d.r.FS(), ".") }

// file is an open file.
type file struct {
	f      *os.File
	leased bool
}

func (f *file) close() error { return f.f.Close() }

func (f *file) stat() (meta, error) {
	fi, err := f.f.Stat()
	if err != nil {
		return meta{}, err
	}
	return metaOf(fi), nil
}

func (f *file) read(size int64) ([]byte, error) {
	buf := make([]byte, size+1)
	n, err := f.f.ReadAt(buf, 0)
	if err != nil && err != io.EOF {
		return nil, err
	}
	return buf[:n:n], nil
}

func (f *file) write(data []byte) error {
	_, err := f.f.Write(data)
	return err
}

func (f *file) sync() error     { return f.f.Sync() }
func (f *file) mark() bool      { return true }
func (f *file) abandoned() bool { return true }

func (f *file) copyAttributes(from *file, m meta) error { return nil }

func isEscape(err error) bool {
	var errno syscall.Errno
	return !errors.As(err, &errno) && !errors.Is(err, fs.ErrClosed) && !errors.Is(err, fs.ErrNotExist)
}

func isDenied(err error) bool { return errors.Is(err, fs.ErrPermission) }
