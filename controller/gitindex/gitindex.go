// Package gitindex keeps Git from taking for a change what the controller writes into a checkout.
//
// Git's clean filter (leasehold git install) takes status out of what Git compares, but Git runs it
// only where it has not seen a change before: a size other than the one in its index is a change
// to it, and the end of the matter. So before status is written into a tracked file, the size in
// its index entry is set to 0, which is Git's own mark for "compare the bytes", and at most once a
// second the numbers of files that have come to rest are filled in, where the file without its
// status is exactly the blob in the index. The first says nothing about the file and is right
// whatever becomes of it; the second keeps git status quick.
//
// It promises:
//
//   - Nothing of an entry but the numbers of its file is changed, never the blob, the mode or a
//     flag. What the user has changed or staged is left to Git to judge.
//   - The index is replaced as Git does it, under index.lock, which is held for the renaming alone:
//     what has to be read, compared or written is done before.
//   - Nothing is written, neither status nor index, while index.lock exists or Git is otherwise seen
//     at work in its directory; and no numbers are filled in during a merge, rebase, cherry-pick,
//     revert, am or bisect.
//
// It does not promise that a git command never collides: one that reads the index just before a
// status is written may refuse to go on, before it has changed anything, and succeeds when it is
// repeated.
package gitindex

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"leasehold.dev/leasehold/manifests"
)

// ErrHeld says that Git is at work: whoever asked is told when it has finished.
var ErrHeld = errors.New("git is at work in the checkout")

// Index is the index of a checkout. A nil *Index stands for a directory that is none: its methods
// do nothing.
type Index struct {
	dir    string // of the manifests, absolute and without links
	top    string // of the checkout, likewise
	gitDir string // where its index lies
	sha2   bool
	log    *slog.Logger
	kick   chan struct{} // something waits or is pending

	act activity

	mu      sync.Mutex
	sig     stat // of the index that is in image
	image   *image
	pending map[string]time.Time // paths whose entry may be filled in, relative to top: since when
	hot     map[string]time.Time // when Enter was called for a path
	last    time.Time            // when it was called last
	recent  []time.Time          // when entries were made vague
	said    map[string]string

	wmu     sync.Mutex
	waiting map[string]bool // keys of manifests that could not be written
}

func newIndex(dir string, c Checkout, log *slog.Logger) *Index {
	x := &Index{
		dir: dir, top: c.Top, gitDir: c.GitDir, sha2: c.SHA256, log: log, kick: make(chan struct{}, 1),
		act:     activity{gitDir: c.GitDir, log: log},
		pending: map[string]time.Time{}, hot: map[string]time.Time{}, said: map[string]string{}, waiting: map[string]bool{},
	}
	x.prepare()
	return x
}

func (x *Index) indexFile() string { return filepath.Join(x.gitDir, "index") }

// path returns where a manifest that is at key in the directory lies in the checkout.
func (x *Index) path(key string) (string, bool) {
	real, err := filepath.EvalSymlinks(filepath.Join(x.dir, filepath.FromSlash(key)))
	if err != nil {
		return "", false
	}
	rel, err := filepath.Rel(x.top, real)
	if err != nil || rel == ".." || strings.HasPrefix(rel, ".."+string(filepath.Separator)) {
		return "", false
	}
	return filepath.ToSlash(rel), true
}

// Enter prepares the index for a change of the manifest at key. It returns ErrHeld while Git is at
// work; then Run tells when to try again.
func (x *Index) Enter(key string) error {
	if x == nil {
		return nil
	}
	if x.Check(key) != nil {
		return ErrHeld
	}
	path, ok := x.path(key)
	if !ok {
		return nil
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.last = time.Now()
	x.hot[path] = x.last
	x.pending[path] = x.last
	err := x.blur(path)
	switch {
	case errors.Is(err, errLocked) && x.Check(key) != nil:
		return ErrHeld
	case errors.Is(err, errLocked): // a lock that nobody seems to need
	case err != nil:
		x.say("index", "Git may call manifests modified whose status alone has changed: "+err.Error())
		return nil // status matters more
	default:
		x.say("index", "")
	}
	x.wake()
	return nil
}

// Check returns ErrHeld while Git is at work; then Run tells when to try key again.
func (x *Index) Check(key string) error {
	if x == nil || x.act.until(time.Now()).IsZero() {
		return nil
	}
	x.wmu.Lock()
	x.waiting[key] = true
	x.wmu.Unlock()
	x.wake()
	return ErrHeld
}

func (x *Index) wake() {
	select {
	case x.kick <- struct{}{}:
	default:
	}
}

func (x *Index) say(kind, text string) {
	if x.said[kind] == text {
		return
	}
	x.said[kind] = text
	if text != "" {
		x.log.Warn(text)
	}
}

// Status that was written to a file lately will soon be again: once Git has written the index, all
// of these entries are made vague together. Where that happens more often than many times a second,
// it is done for all that there are, since each time costs a copy of the index.
const (
	hotTime = time.Minute
	many    = 8
)

// blur sees to it that Git compares the bytes of a tracked file.
func (x *Index) blur(path string) error {
	var err error
	for range 5 {
		if err = x.load(); err != nil || x.image == nil {
			return err
		}
		e, ok := x.image.entries[path]
		if !ok || x.image.stat(e).vague() {
			return nil
		}
		now := time.Now()
		for len(x.recent) > 0 && now.Sub(x.recent[0]) > time.Second {
			x.recent = x.recent[1:]
		}
		x.recent = append(x.recent, now)
		for p, t := range x.hot {
			if now.Sub(t) > hotTime {
				delete(x.hot, p)
			}
		}
		next := map[string]stat{}
		for p, e := range x.image.entries {
			if _, hot := x.hot[p]; hot || len(x.recent) > many {
				next[p] = x.image.stat(e).blur()
			}
		}
		if err = x.publish(next, false); !errors.Is(err, errMoved) {
			return err
		}
	}
	return err
}

// load brings the image up to date. It is nil where there is no index.
func (x *Index) load() error {
	file := x.indexFile()
	for range 5 {
		sig, _, ok, err := statFile(file)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			x.image = nil
			return nil
		case err != nil:
			return err
		case !ok:
			return errFormat
		case x.image != nil && sig == x.sig:
			return nil
		}
		data, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if again, _, _, err := statFile(file); err != nil || again != sig {
			continue
		}
		x.image = nil
		image, err := parseImage(data, x.sha2, x.ours)
		if err != nil {
			return err
		}
		x.image, x.sig = image, sig
		return nil
	}
	return errMoved
}

// ours tells a manifest by its path in the checkout.
func (x *Index) ours(path []byte) bool {
	return manifests.IsManifest(string(path)) && x.below(string(path))
}

func (x *Index) below(path string) bool {
	rel, err := filepath.Rel(x.dir, filepath.Join(x.top, filepath.FromSlash(path)))
	return err == nil && rel != ".." && !strings.HasPrefix(rel, ".."+string(filepath.Separator))
}

// between is the least time between two fillings of the index.
const between = time.Second

// Run watches the Git directory until ctx is done. It calls released with the keys that Enter or
// Check has refused, once they may be tried again, and fills in the entries of files at rest.
func (x *Index) Run(ctx context.Context, released func(keys []string)) {
	if x == nil {
		return
	}
	events, faults, unwatch := x.act.watch()
	defer unwatch()
	x.stale()
	timer := time.NewTimer(0)
	defer timer.Stop()
	var next time.Time // when to fill in again
	for {
		select {
		case <-ctx.Done():
			return
		case ev, ok := <-events:
			if !ok {
				return
			}
			x.act.event(filepath.Base(ev.Name), time.Now())
		case <-faults: // what was lost may have been an end: it is looked for below
		case <-x.kick:
		case <-timer.C:
		}
		now := time.Now()
		pause := time.Hour
		if until := x.act.until(now); !until.IsZero() {
			if x.waits() || x.hasPending() {
				// The end of a lock is announced. Not everywhere: some file systems tell nothing.
				pause = min(until.Sub(now)+time.Millisecond, between)
			}
		} else {
			if keys := x.release(); len(keys) > 0 {
				released(keys)
			}
			if x.hasPending() {
				if !now.Before(next) {
					x.fill(now)
					next = now.Add(between)
				}
				pause = next.Sub(now)
			}
		}
		timer.Reset(max(pause, time.Millisecond))
	}
}

// Close fills in what it can.
func (x *Index) Close() {
	if x == nil || !x.act.until(time.Now()).IsZero() {
		return
	}
	x.mu.Lock()
	x.last = time.Time{} // no more status
	x.mu.Unlock()
	x.fill(time.Now())
}

func (x *Index) waits() bool {
	x.wmu.Lock()
	defer x.wmu.Unlock()
	return len(x.waiting) > 0
}

func (x *Index) release() []string {
	x.wmu.Lock()
	defer x.wmu.Unlock()
	var keys []string
	for k := range x.waiting {
		keys = append(keys, k)
	}
	clear(x.waiting)
	return keys
}

func (x *Index) hasPending() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.pending) > 0
}
