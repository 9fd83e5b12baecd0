package gitindex

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"
)

// Git takes index.lock several times in one pull and counts on it that nothing changes in between:
// it is at work until its directory has been quiet for a while. Neither a lock that was left behind
// nor a program that is busy there for ever stops status for good.
const (
	quiet     = 250 * time.Millisecond
	quietLong = 2 * time.Second // within a rebase and the like
	busyMost  = 10 * time.Second
	staleLock = 5 * time.Minute
)

const lockName = "index.lock"

// operations are what stands in the Git directory while something is under way that takes several
// steps.
var operations = []string{"MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD", "BISECT_LOG", "rebase-merge", "rebase-apply", "sequencer"}

// activity is what is seen of Git in its directory.
type activity struct {
	gitDir string
	log    *slog.Logger

	mu     sync.Mutex
	since  time.Time // when it began to be busy
	last   time.Time // when it was last seen
	known  traces    // what was there at the last look, or was left by us
	warned bool
}

// traces change with nearly all that Git does: it replaces files in its directory.
type traces struct {
	dir   time.Time
	index stat
}

func (a *activity) traces() (t traces) {
	if info, err := os.Stat(a.gitDir); err == nil {
		t.dir = info.ModTime()
	}
	t.index, _, _, _ = statFile(filepath.Join(a.gitDir, "index"))
	return t
}

// watch announces what happens in the Git directory, until it is closed.
func (a *activity) watch() (<-chan fsnotify.Event, <-chan error, func() error) {
	w, err := fsnotify.NewWatcher()
	if err == nil {
		if err = w.Add(a.gitDir); err == nil {
			return w.Events, w.Errors, w.Close
		}
		w.Close()
	}
	a.log.Warn("what Git does is not announced, and looked for every second: " + err.Error())
	return nil, nil, func() error { return nil }
}

// event notes that something of this name in the Git directory has changed.
func (a *activity) event(name string, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	// What comes and goes by renaming leaves traces, unless it is our own.
	if name != "leasehold" && name != "index" && !strings.HasSuffix(name, ".lock") {
		a.seen(now)
	}
}

func (a *activity) seen(now time.Time) {
	if now.Sub(a.last) > quiet {
		a.since = now
	}
	a.last = now
}

// look compares with what was there before. Events may be late, and some file systems have none.
func (a *activity) look(now time.Time) {
	if t := a.traces(); t != a.known {
		if a.known != (traces{}) {
			a.seen(now)
		}
		a.known = t
	}
}

// own takes what has changed since the last look for our own doing. It is called under index.lock.
func (a *activity) own(index stat) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.known.index = index
}

// unlock removes index.lock, which is ours.
func (a *activity) unlock() {
	a.mu.Lock()
	defer a.mu.Unlock()
	os.Remove(filepath.Join(a.gitDir, lockName))
	if info, err := os.Stat(a.gitDir); err == nil {
		a.known.dir = info.ModTime()
	}
}

// operation reports whether something is under way that takes several steps.
func (a *activity) operation() bool {
	for _, name := range operations {
		if _, err := os.Lstat(filepath.Join(a.gitDir, name)); err == nil {
			return true
		}
	}
	return false
}

// until returns when Git may be done; zero if it is not at work.
func (a *activity) until(now time.Time) time.Time {
	info, err := os.Lstat(filepath.Join(a.gitDir, lockName))
	a.mu.Lock()
	defer a.mu.Unlock()
	a.look(now)
	if err == nil {
		if t := info.ModTime().Add(staleLock); now.Before(t) {
			return t
		}
		if !a.warned {
			a.warned = true
			a.log.Warn("index.lock has been there for so long that status is written again; if no git is running, remove it",
				slog.String("file", filepath.Join(a.gitDir, lockName)), slog.Time("since", info.ModTime()))
		}
	} else if errors.Is(err, fs.ErrNotExist) {
		a.warned = false
	}
	if now.Sub(a.last) >= quietLong {
		return time.Time{}
	}
	t, most := a.last.Add(quiet), busyMost
	if a.operation() {
		t, most = a.last.Add(quietLong), staleLock
	}
	if now.After(a.since.Add(most)) || !now.Before(t) {
		return time.Time{}
	}
	return t
}
