//go:build linux || darwin || freebsd

package manifests

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// meta is what stat tells about a name.
type meta struct {
	Sig
	kind     fs.FileMode // type bits; 0 is a regular file
	perm     uint32      // with setuid, setgid and sticky
	uid, gid uint32
	links    uint64
}

func metaOf(st *unix.Stat_t) meta {
	m := meta{
		Sig: Sig{
			Dev: uint64(st.Dev), Ino: st.Ino, Size: st.Size,
			Mtime: st.Mtim.Nano(), Ctime: st.Ctim.Nano(),
		},
		perm: uint32(st.Mode) & 0o7777, uid: st.Uid, gid: st.Gid, links: uint64(st.Nlink),
	}
	switch uint32(st.Mode) & unix.S_IFMT {
	case unix.S_IFREG:
	case unix.S_IFDIR:
		m.kind = fs.ModeDir
	case unix.S_IFLNK:
		m.kind = fs.ModeSymlink
	case unix.S_IFIFO:
		m.kind = fs.ModeNamedPipe
	case unix.S_IFSOCK:
		m.kind = fs.ModeSocket
	case unix.S_IFCHR, unix.S_IFBLK:
		m.kind = fs.ModeDevice
	default:
		m.kind = fs.ModeIrregular
	}
	return m
}

// dir is an open directory. Names given to it have no slash and are never followed, so that
// nothing leaves it; the way to it was found by os.Root.
type dir struct {
	f    *os.File
	n    int          // its descriptor
	held atomic.Int32 // how many others close it too
}

func rootIdentity(r *os.Root) (Sig, error) {
	f, err := r.OpenFile(".", os.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return Sig{}, err
	}
	d := newDir(f)
	defer d.close()
	id, err := d.identity()
	return id, err
}

func (t *Tree) openDir(path string) (*dir, error) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if t.gone {
		return nil, syscall.ENOENT
	}
	f, err := t.root.OpenFile(path, os.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	return newDir(f), nil
}

func openTempDir(path string) *dir {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil
	}
	return newDir(f)
}

func newDir(f *os.File) *dir { return &dir{f: f, n: int(f.Fd())} }

// hold makes one more close necessary.
func (d *dir) hold() *dir {
	d.held.Add(1)
	return d
}

func (d *dir) close() {
	if d.held.Add(-1) < 0 {
		d.f.Close()
	}
}

// identity is the directory's device and inode.
func (d *dir) identity() (Sig, error) {
	var st unix.Stat_t
	if err := unix.Fstat(d.n, &st); err != nil {
		return Sig{}, err
	}
	return Sig{Dev: uint64(st.Dev), Ino: st.Ino}, nil
}

func (d *dir) stat(name string) (meta, error) {
	var st unix.Stat_t
	err := again(func() error { return unix.Fstatat(d.n, name, &st, unix.AT_SYMLINK_NOFOLLOW) })
	if err != nil {
		return meta{}, err
	}
	return metaOf(&st), nil
}

func (d *dir) readlink(name string) (string, error) {
	buf := make([]byte, 4096)
	n, err := unix.Readlinkat(d.n, name, buf)
	if err != nil {
		return "", err
	}
	return string(buf[:n]), nil
}

// open opens a file for reading. It waits for no FIFO and follows no link.
func (d *dir) open(name string) (*file, error) {
	return d.openat(name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
}

// create makes a new file and opens it for writing.
func (d *dir) create(name string, perm uint32) (*file, error) {
	return d.openat(name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW, perm)
}

func (d *dir) openat(name string, flags int, perm uint32) (*file, error) {
	var fd int
	err := again(func() (err error) {
		fd, err = unix.Openat(d.n, name, flags|unix.O_CLOEXEC, perm)
		return err
	})
	if err != nil {
		return nil, err
	}
	return &file{fd: fd}, nil
}

func (d *dir) rename(name string, to *dir, toName string) error {
	return again(func() error { return unix.Renameat(d.n, name, to.n, toName) })
}

func (d *dir) link(name string, to *dir, toName string) error {
	return again(func() error { return unix.Linkat(d.n, name, to.n, toName, 0) })
}

func (d *dir) remove(name string) error {
	return again(func() error { return unix.Unlinkat(d.n, name, 0) })
}

func (d *dir) sync() error {
	err := again(func() error { return unix.Fsync(d.n) })
	if errors.Is(err, unix.EINVAL) { // a file system that does not sync directories
		return nil
	}
	return err
}

// mayWrite asks the system whether the file may be written by us.
func (d *dir) mayWrite(name string) error {
	return unix.Faccessat(d.n, name, unix.W_OK, unix.AT_EACCESS)
}

func (d *dir) entries() ([]fs.DirEntry, error) {
	if _, err := d.f.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	return d.f.ReadDir(-1)
}

// file is an open file.
type file struct {
	fd     int
	leased bool
}

func (f *file) close() error {
	f.leased = false
	return unix.Close(f.fd)
}

func (f *file) stat() (meta, error) {
	var st unix.Stat_t
	if err := again(func() error { return unix.Fstat(f.fd, &st) }); err != nil {
		return meta{}, err
	}
	return metaOf(&st), nil
}

// read returns the first size bytes, one more if there are more, fewer if there are fewer.
func (f *file) read(size int64) ([]byte, error) {
	buf, n := make([]byte, size+1), 0
	for n < len(buf) {
		var m int
		err := again(func() (err error) {
			m, err = unix.Pread(f.fd, buf[n:], int64(n))
			return err
		})
		if err != nil {
			return nil, err
		}
		// A file's end is the only reason for a short read.
		short := m < len(buf)-n
		if n += m; short {
			break
		}
	}
	return buf[:n:n], nil
}

func (f *file) write(data []byte) error {
	for len(data) > 0 {
		var n int
		err := again(func() (err error) {
			n, err = unix.Write(f.fd, data)
			return err
		})
		if err != nil {
			return err
		}
		data = data[n:]
	}
	return nil
}

func (f *file) sync() error { return again(func() error { return unix.Fsync(f.fd) }) }

// mark tells others, by a shared lock that ends with the process, that the file is in use. It
// is false if somebody else holds an exclusive one.
func (f *file) mark() bool {
	err := again(func() error { return unix.Flock(f.fd, unix.LOCK_SH|unix.LOCK_NB) })
	return !errors.Is(err, unix.EWOULDBLOCK)
}

// abandoned tells whether nobody has marked the file.
func (f *file) abandoned() bool {
	err := again(func() error { return unix.Flock(f.fd, unix.LOCK_EX|unix.LOCK_NB) })
	return !errors.Is(err, unix.EWOULDBLOCK)
}

// copyAttributes gives f the owner, the mode and the extended attributes of from.
func (f *file) copyAttributes(from *file, m meta) error {
	own, err := f.stat()
	if err != nil {
		return err
	}
	if own.uid != m.uid || own.gid != m.gid {
		if err := unix.Fchown(f.fd, int(m.uid), int(m.gid)); err != nil {
			return &ownerError{m.uid, m.gid, err}
		}
	}
	if err := unix.Fchmod(f.fd, m.perm); err != nil {
		return err
	}
	return copyXattrs(f.fd, from.fd)
}

func again(call func() error) error {
	for {
		if err := call(); err != unix.EINTR {
			return err
		}
	}
}

// isEscape: os.Root has no exported error for a path that leaves it, but it is the only one that
// is not the system's.
func isEscape(err error) bool {
	var errno syscall.Errno
	return !errors.As(err, &errno) && !errors.Is(err, fs.ErrClosed)
}

// isDenied: the system does not let us write there, now or later.
func isDenied(err error) bool {
	return errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM) || errors.Is(err, unix.EROFS)
}
