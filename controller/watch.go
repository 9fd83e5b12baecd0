package controller

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"

	"leasehold.dev/leasehold/manifests"
)

const (
	watchGather = time.Millisecond       // from the first event of a batch to its delivery
	watchPoll   = 2 * time.Second        // for what is not announced
	watchDoubt  = 10 * time.Second       // how long a scan may take
	watchRoot   = 250 * time.Millisecond // for a directory that is gone
)

// change is what happened since the last one.
type change struct {
	// Paths are manifests that may have changed, appeared or gone, sorted and relative to the tree.
	Paths []string
	// Rescan: more may have happened than is in Paths. Scan, and look at every manifest that is
	// found and at every one that was known before.
	Rescan bool
	// Also: one of the other files has changed, see watcher.Also.
	Also bool
	// Err says that something cannot be watched. It is told once, and from then on a Rescan comes
	// every few seconds.
	Err error
}

func (c change) empty() bool { return len(c.Paths) == 0 && !c.Rescan && !c.Also && c.Err == nil }

// watcher turns what happens in a directory into paths of manifests. Nothing is missed by a caller
// that makes the watcher first, then scans, and then looks at what comes from Changes:
//
//	w := newWatcher(tree)
//	go w.Run(ctx)
//	found, err := scan(tree)
//	for c := range w.Changes() { … }
//
// A path says "look": it comes at least once after the last change of a file, maybe more often,
// also for a controller's own writes, which it knows by their Sig. What the watcher cannot tell is
// when a writer has finished: a file that Read calls busy or not settled has to be looked at again.
// A file that is moved aside and made anew is reported at each step; how long absence has to
// last is for the caller to judge.
//
// Watched are the directory, the one above it (to see it go and come back), its subdirectories
// except those that start with a dot, and every place that a link in the place of a manifest leads
// through as long as it is inside.
type watcher struct {
	root string // absolute
	fs   *fsnotify.Watcher
	add  func(dir string) error // fs.Add; tests make it fail
	poll time.Duration          // watchPoll; tests have less time, or more
	out  chan change
	also map[string]bool

	dirs   map[string]bool     // watched, absolute: whether manifests in it count
	hops   map[string][]string // places that links lead through, absolute: the manifests they lead to
	links  map[string][]string // the reverse
	blind  map[string]error    // directories that should be watched, and why they are not
	told   bool                // that there are some
	is     os.FileInfo         // the root that is watched, nil if it is gone
	lost   bool                // it is gone
	remote string              // the kind of its file system, if that does not announce every change
	heal   bool                // a directory was moved: watches may have gone with it

	paths   map[string]bool // the batch that waits
	batch   change
	scanned time.Time // when a scan was last asked for
	open    time.Time // when it began
}

// newWatcher watches the tree from now on. If the system has no watch to give, the first change
// says so.
func newWatcher(t *manifests.Tree) *watcher {
	root, err := filepath.Abs(t.Dir())
	if err != nil {
		root = t.Dir()
	}
	w := &watcher{root: root, out: make(chan change), also: map[string]bool{}, paths: map[string]bool{}, poll: watchPoll, scanned: time.Now()}
	w.clear()
	if w.fs, err = fsnotify.NewWatcher(); err != nil {
		w.add = func(string) error { return err }
	} else {
		w.add = w.fs.Add
	}
	w.watchAll()
	return w
}

// Also reports events of another file, and of its neighbour NAME-wal, too. It must be called before
// Run.
func (w *watcher) Also(file string) {
	file, err := filepath.Abs(file)
	if err != nil {
		return
	}
	w.also[file], w.also[file+"-wal"] = true, true
	w.watch(filepath.Dir(file), false)
}

// Changes delivers what happened, one batch at a time; what happens while nobody receives is
// gathered. It is closed when Run returns.
func (w *watcher) Changes() <-chan change { return w.out }

// Run watches until ctx is done. It must be called once.
func (w *watcher) Run(ctx context.Context) {
	defer close(w.out)
	var events chan fsnotify.Event
	var faults chan error
	if w.fs != nil {
		defer w.fs.Close()
		events, faults = w.fs.Events, w.fs.Errors
	}
	w.loop(ctx, events, faults)
}

func (w *watcher) loop(ctx context.Context, events <-chan fsnotify.Event, faults <-chan error) {
	gather := time.NewTimer(0)
	defer gather.Stop()
	polling := w.poll
	poll := time.NewTicker(polling)
	defer poll.Stop()
	ripe := false
	for {
		w.settle()
		if need := w.pollEvery(); need != polling {
			polling = need
			poll.Reset(need)
		}
		var out chan<- change
		var c change
		if !w.batch.empty() || len(w.paths) > 0 {
			if w.open.IsZero() {
				w.open = time.Now()
				ripe = false
				gather.Reset(watchGather)
			}
			if ripe {
				out, c = w.out, w.batch
				c.Paths = slices.Sorted(maps.Keys(w.paths))
			}
		}
		select {
		case <-ctx.Done():
			return
		case ev, ok := <-events:
			if !ok {
				events = nil
				continue
			}
			w.event(ev)
		case err, ok := <-faults:
			if !ok {
				faults = nil
				continue
			}
			// Events were lost, or may have been. What they were about is anybody's guess.
			if !errors.Is(err, fsnotify.ErrEventOverflow) {
				w.batch.Err = fmt.Errorf("watching %s: %w", w.root, err)
			}
			w.watchAll()
			w.batch.Rescan = true
		case <-gather.C:
			ripe = true
		case <-poll.C:
			w.retry()
		case out <- c:
			if c.Rescan {
				w.scanned = time.Now()
			}
			w.batch, w.paths, w.open = change{}, map[string]bool{}, time.Time{}
		}
	}
}

// pollEvery is how often to look by hand: that the root is still the one that is watched, since
// nobody announces that a directory far above it was moved; and for what cannot be watched.
func (w *watcher) pollEvery() time.Duration {
	if w.lost {
		return min(watchRoot, w.poll)
	}
	return w.poll
}

// settle puts watches right after directories were moved, and says once if some are missing.
func (w *watcher) settle() {
	if w.heal {
		w.heal = false
		w.mend()
	}
	if len(w.blind) == 0 && w.remote == "" {
		w.told = false
	} else if !w.told {
		w.told = true
		w.batch.Err = w.blindness()
		w.batch.Rescan = true
	}
}

// event notes what an event may mean.
func (w *watcher) event(ev fsnotify.Event) {
	name := filepath.Clean(ev.Name)
	base := filepath.Base(name)
	if manifests.IsTemp(base) {
		return
	}
	if w.also[name] {
		w.batch.Also = true
		return
	}
	moved := ev.Has(fsnotify.Create) || ev.Has(fsnotify.Remove) || ev.Has(fsnotify.Rename)
	if name == w.root || strings.HasPrefix(w.root, name+string(filepath.Separator)) {
		if moved {
			w.watchAll()
			w.batch.Rescan = true
		}
		return
	}
	for _, path := range slices.Clone(w.hops[name]) {
		w.paths[path] = true
		if moved {
			w.track(path)
		}
	}
	if _, ok := w.dirs[name]; ok && (ev.Has(fsnotify.Remove) || ev.Has(fsnotify.Rename)) {
		w.drop(name)
		w.heal = true
		w.batch.Rescan = true
	}
	if !w.dirs[filepath.Dir(name)] {
		return
	}
	switch {
	case manifests.IsManifest(base):
		path := w.rel(name)
		w.paths[path] = true
		if moved {
			w.track(path)
		}
	case ev.Has(fsnotify.Create) && !strings.HasPrefix(base, "."):
		// A directory behind a link has its own place.
		fi, err := os.Lstat(name)
		if err == nil && fi.IsDir() {
			w.walk(name, true)
		} else if err != nil && time.Since(w.scanned) < watchDoubt {
			// It may have been a directory, which a scan saw and nobody will hear of again.
			w.batch.Rescan = true
		}
	}
}
