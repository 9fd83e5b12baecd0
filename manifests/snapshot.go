package manifests

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

var (
	// ErrBusy: somebody is still writing the file, or it changed a moment ago and may not be whole.
	// Trying again shortly is right.
	ErrBusy = errors.New("still being written")
	// ErrChanged: the file is no longer the one that was read. Read it again.
	ErrChanged = errors.New("changed meanwhile")
	// ErrNotWritable: the file cannot be replaced as it stands. Somebody has to do something.
	ErrNotWritable = errors.New("not writable")
	// ErrNotRegular: what stands there is no file that could be read: a directory, a FIFO, a device.
	ErrNotRegular = errors.New("not a regular file")
	// ErrOutside: a link on the way leads out of the directory.
	ErrOutside = errors.New("leads outside the directory")
	// ErrDangling: a link leads nowhere. Such an error is fs.ErrNotExist, too.
	ErrDangling = errors.New("leads nowhere")
	// ErrTooLarge: the file has more bytes than the limit.
	ErrTooLarge = errors.New("too large")
)

// How long a file has to rest before it is believed.
const (
	emptyRest = time.Second            // an empty one: most are about to be filled
	blindRest = 250 * time.Millisecond // where nobody can tell whether a writer is at work
	fineTick  = 20 * time.Millisecond  // a second save in this time may leave the same timestamps
	coarse    = 2 * time.Second        // the same for file systems that keep whole seconds
	maxLinks  = 40
)

// Sig identifies one state of a file. Two equal ones mean the same state, unless the first
// was taken from a Snapshot that had not Settled.
type Sig struct {
	Dev, Ino           uint64
	Size, Mtime, Ctime int64 // times in Unix nanoseconds
}

// Snapshot is what a settled read saw.
type Snapshot struct {
	Data []byte
	Sig  Sig
	// Settled is false if the file changed so shortly before it was read that another save of the
	// same length could leave an equal Sig. Look again after Unsettled.
	Settled bool
}

// Unsettled is how long to wait before looking again at a Snapshot that had not Settled.
const Unsettled = 2 * fineTick

// Tree is a directory opened for manifests. Paths are relative to it, with slashes. No access
// leaves the directory, whatever the links in it say. It may be used by several goroutines, but
// one path must not be replaced by two at once.
type Tree struct {
	name string // as given
	temp *dir   // the directory for temps, or nil: beside the file

	mu     sync.RWMutex // guards root
	root   *os.Root
	rootID Sig
	gone   bool // nothing stands at the name, whatever root is open

	graves graves

	// Before, where set, is called with the name of each step that changes something, and with
	// the path, before it is taken. An error is returned in place of the step. Set it before
	// first use; tests fail, stop or meddle there.
	Before func(step, path string) error
	// Now is the clock that tells how long a file has been at rest; time.Now unless set.
	Now func() time.Time
	// Restored, where set, is told when a save that arrived late was put back into its place
	// after Replace had returned, or err says why it could not be. It must not call the Tree.
	Restored func(path string, err error)

	noLease   bool          // tests do without
	graveTime time.Duration // graveTime unless tests are in a hurry
}

// OpenTree opens the directory dir. Temporary files are made in tempDir if that is on the same
// file system and may be written, else (or if it is "") beside the file that is written, under
// the name .NAME.leasehold-tmp-…. The error is the one of opening dir.
func OpenTree(dir, tempDir string) (*Tree, error) {
	t := &Tree{name: dir, graveTime: graveTime}
	if err := t.Reopen(); err != nil {
		return nil, err
	}
	if tempDir != "" {
		t.temp = openTempDir(tempDir)
	}
	return t, nil
}

// Dir returns the directory as it was given to OpenTree.
func (t *Tree) Dir() string { return t.name }

// Reopen opens the directory again if another one stands at its name now: it was removed and
// made again, or a link to it was changed. The error is fs.ErrNotExist if there is none: then no
// path exists until a later Reopen finds one, even if the old directory lives on under another name.
func (t *Tree) Reopen() error {
	root, err := os.OpenRoot(t.name)
	if err != nil {
		t.mu.Lock()
		t.gone = errors.Is(err, fs.ErrNotExist)
		t.mu.Unlock()
		return err
	}
	id, err := rootIdentity(root)
	if err != nil {
		root.Close()
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.gone = false
	if t.root != nil && id == t.rootID {
		return root.Close()
	}
	if t.root != nil {
		t.root.Close()
	}
	t.root, t.rootID = root, id
	return nil
}

// Close looks once more at the files that were displaced by the last replacements, removes
// them, and closes the directory.
func (t *Tree) Close() error {
	err := t.closeGraves()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.temp != nil {
		t.temp.close()
		t.temp = nil
	}
	return errors.Join(err, t.root.Close())
}

// IsManifest reports whether a file of this name (or path) is read as a manifest.
func IsManifest(name string) bool {
	name = name[strings.LastIndexByte(name, '/')+1:]
	if strings.HasPrefix(name, ".") {
		return false
	}
	return strings.HasSuffix(name, ".yaml") || strings.HasSuffix(name, ".yml") || strings.HasSuffix(name, ".json")
}

func (t *Tree) now() time.Time {
	if t.Now != nil {
		return t.Now()
	}
	return time.Now()
}

func (t *Tree) lease(f *file) leaseState {
	if t.noLease {
		return leaseUnknown
	}
	return f.lease()
}

func (t *Tree) before(step, path string) error {
	if t.Before != nil {
		return t.Before(step, path)
	}
	return nil
}

// place is where a path ends after all links: a name in an open directory.
type place struct {
	dir  *dir
	name string
	meta meta
	// path is the place's own path, linked whether it was reached through a link.
	path   string
	linked bool
}

// locate follows path to its place. The caller closes place.dir.
func (t *Tree) locate(path string) (place, error) {
	at := place{path: path}
	for range maxLinks {
		parent, name := splitPath(at.path)
		if name == "" || name == "." || name == ".." {
			return place{}, fmt.Errorf("%s: %w: it is a directory", path, ErrNotRegular)
		}
		d, err := t.openDir(parent)
		if err != nil {
			return place{}, t.explain(path, at, err)
		}
		m, err := d.stat(name)
		if err == nil && m.kind == fs.ModeSymlink {
			var target string
			target, err = d.readlink(name)
			d.close()
			if err == nil {
				at.path, err = t.follow(parent, target)
				at.linked = true
			}
			if err != nil {
				return place{}, t.explain(path, at, err)
			}
			continue
		}
		if err != nil {
			d.close()
			return place{}, t.explain(path, at, err)
		}
		at.dir, at.name, at.meta = d, name, m
		return at, nil
	}
	return place{}, fmt.Errorf("%s: links go round in a circle: %w", path, ErrNotRegular)
}

// follow returns the path of a link's target. It keeps "..": what that means is for os.Root to
// find out, since the directory before it may be a link.
func (t *Tree) follow(parent, target string) (string, error) {
	if filepath.IsAbs(target) {
		base, err := filepath.Abs(t.name)
		if err != nil {
			return "", err
		}
		rel, ok := strings.CutPrefix(target, base+string(filepath.Separator))
		if !ok {
			return "", fmt.Errorf("links to %s, which %w", target, ErrOutside)
		}
		return filepath.ToSlash(rel), nil
	}
	target = filepath.ToSlash(target)
	if parent == "." {
		return target, nil
	}
	return parent + "/" + target, nil
}

// explain puts an error of following path into words.
func (t *Tree) explain(path string, at place, err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		err = pe.Err
	}
	switch {
	case errors.Is(err, ErrOutside):
		return fmt.Errorf("%s: %w", path, err)
	case isEscape(err):
		return fmt.Errorf("%s: %w", path, ErrOutside)
	case at.linked && errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%s: the link to %s %w: %w", path, at.path, ErrDangling, err)
	}
	return fmt.Errorf("%s: %w", path, err)
}

func splitPath(path string) (parent, name string) {
	i := strings.LastIndexByte(path, '/')
	if i < 0 {
		return ".", path
	}
	return path[:i], path[i+1:]
}

// Read returns a file that nobody is writing, of at most limit bytes. Errors: fs.ErrNotExist,
// ErrBusy, ErrNotRegular, ErrOutside, ErrTooLarge, or the one of the system call.
func (t *Tree) Read(path string, limit int64) (Snapshot, error) {
	at, err := t.locate(path)
	if err != nil {
		return Snapshot{}, err
	}
	defer at.dir.close()
	if at.meta.kind != 0 {
		return Snapshot{}, notRegular(path, at.meta)
	}
	f, err := at.dir.open(at.name)
	if err != nil {
		return Snapshot{}, t.explain(path, at, err)
	}
	defer f.close()
	s, err := t.readFile(f, limit)
	if err != nil {
		return Snapshot{}, fmt.Errorf("%s: %w", path, err)
	}
	return s, nil
}

func (t *Tree) readFile(f *file, limit int64) (Snapshot, error) {
	quiet := t.lease(f)
	if quiet == leaseBusy {
		return Snapshot{}, fmt.Errorf("%w: it is open for writing", ErrBusy)
	}
	defer f.unlease()
	m, err := f.stat()
	if err != nil {
		return Snapshot{}, err
	}
	age := t.age(m.Sig)
	switch {
	case m.kind != 0:
		return Snapshot{}, ErrNotRegular
	case m.Size > limit:
		return Snapshot{}, fmt.Errorf("%w: %d bytes, the limit is %d", ErrTooLarge, m.Size, limit)
	case m.Size == 0 && age < emptyRest:
		return Snapshot{}, fmt.Errorf("%w: it has just become empty", ErrBusy)
	case quiet == leaseUnknown && age < blindRest:
		return Snapshot{}, fmt.Errorf("%w: it has just changed", ErrBusy)
	}
	data, err := f.read(m.Size)
	if err != nil {
		return Snapshot{}, err
	}
	// Without a lease nothing else tells that the bytes belong together.
	if after, err := f.stat(); err != nil {
		return Snapshot{}, err
	} else if after.Sig != m.Sig || int64(len(data)) != m.Size {
		return Snapshot{}, fmt.Errorf("%w: it changed while it was read", ErrBusy)
	}
	tick := fineTick
	if m.Mtime%1e9 == 0 && m.Ctime%1e9 == 0 {
		tick = coarse
	}
	return Snapshot{Data: data, Sig: m.Sig, Settled: age > tick}, nil
}

// age tells how long ago a file changed. A time that lies ahead by more than a second comes from
// a clock that is not ours, or was set by hand: such a file counts as old.
func (t *Tree) age(s Sig) time.Duration {
	age := t.now().Sub(time.Unix(0, max(s.Mtime, s.Ctime)))
	if age < -time.Second {
		return 24 * time.Hour
	}
	return age
}

func notRegular(path string, m meta) error {
	what := "a special file"
	switch m.kind {
	case fs.ModeDir:
		what = "a directory"
	case fs.ModeNamedPipe:
		what = "a FIFO"
	case fs.ModeSocket:
		what = "a socket"
	case fs.ModeDevice:
		what = "a device"
	}
	return fmt.Errorf("%s: %w: it is %s", path, ErrNotRegular, what)
}

// IsTemp reports whether a file of this name is one that replacing files leaves for a moment.
func IsTemp(name string) bool {
	return strings.HasPrefix(name, ".") && strings.Contains(name, tempMark)
}
