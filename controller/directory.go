package controller

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"io/fs"
	"log/slog"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"leasehold.dev/leasehold/controller/gitindex"
	"leasehold.dev/leasehold/manifests"
)

// Directory is a Source: a directory of manifests, where a key is a path.
type Directory struct {
	tree *manifests.Tree
	opt  DirectoryOptions
	seed maphash.Seed

	again   chan struct{}  // asks for a scan
	unclean chan struct{}  // asks for a sweep: a replacement ended in the middle
	prepare func(*watcher) // where set, meddles with the watcher: tests

	mu   sync.Mutex
	seen map[string]sight
}

// sight is the state in which a file was last read or written here.
type sight struct {
	sig     manifests.Sig
	hash    uint64
	settled bool // an equal sig means equal bytes
}

// DirectoryOptions say what stands beside the manifests.
type DirectoryOptions struct {
	StateDir string          // for temporary files
	Database string          // is watched for what others commit
	ReadOnly bool            // change nothing, not even what a crash has left
	Git      *gitindex.Index // of the checkout that the directory is, if it is one
	Log      *slog.Logger
}

// OpenDirectory opens a directory of manifests, and clears away what a crash has left there.
func OpenDirectory(dir string, opt DirectoryOptions) (*Directory, error) {
	tree, err := manifests.OpenTree(dir, opt.StateDir)
	if err != nil {
		return nil, err
	}
	if opt.Log == nil {
		opt.Log = slog.New(slog.DiscardHandler)
	}
	d := &Directory{tree: tree, opt: opt, seed: maphash.MakeSeed(), again: make(chan struct{}, 1), unclean: make(chan struct{}, 1), seen: map[string]sight{}}
	tree.Restored = func(path string, err error) {
		if err != nil {
			opt.Log.Error("a save that came in while status was written could not be put back: "+err.Error(), slog.String("file", path))
			return
		}
		opt.Log.Info("a save that came in while status was written is back in its place", slog.String("file", path))
	}
	if opt.Git != nil {
		tree.Before = func(step, path string) error {
			if step == "exchange" {
				return opt.Git.Check(path) // Git may have come since Enter
			}
			return nil
		}
	}
	if !opt.ReadOnly {
		d.sweep()
	}
	return d, nil
}

// sweep clears away what a crash, or a fault in the middle of a replacement, has left.
func (d *Directory) sweep() {
	if err := d.tree.Sweep(); err != nil && ofTheMachine(err) == 0 {
		d.opt.Log.Warn("clearing away what a crash has left: " + err.Error())
	}
}

// Tree is the directory itself.
func (d *Directory) Tree() *manifests.Tree { return d.tree }

// Close closes the directory, after the last look at files that were just replaced.
func (d *Directory) Close() error {
	err := d.tree.Close()
	d.opt.Git.Close()
	return err
}

// Watch implements Source.
func (d *Directory) Watch(ctx context.Context, found func([]string), ready, stored func()) error {
	w := newWatcher(d.tree)
	if d.opt.Database != "" {
		w.Also(d.opt.Database)
	}
	if d.prepare != nil {
		d.prepare(w)
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	wg.Go(func() { w.Run(ctx) })
	commits := make(chan struct{}, 1)
	wg.Go(func() { echoed(ctx, commits, stored) })

	keys, err := d.scan()
	if err != nil {
		return err
	}
	found(keys)
	ready()
	wg.Go(func() { d.opt.Git.Run(ctx, found) })
	retry := time.NewTimer(watchPoll)
	retry.Stop()
	told := false // that a scan failed
	clean := time.NewTimer(watchPoll)
	clean.Stop()
	for {
		var c change
		var ok bool
		select {
		case c, ok = <-w.Changes():
			if !ok {
				return nil
			}
		case <-d.again:
			c.Rescan = true
		case <-d.unclean:
			clean.Reset(watchPoll)
			continue
		case <-clean.C:
			d.sweep()
			continue
		case <-retry.C:
			c.Rescan = true
		}
		if c.Err != nil {
			d.opt.Log.Warn(c.Err.Error())
		}
		if c.Also {
			select {
			case commits <- struct{}{}:
			default: // one is waiting already
			}
		}
		keys := c.Paths
		if c.Rescan {
			more, err := d.scan()
			failed := err != nil && !errors.Is(err, fs.ErrNotExist)
			if failed {
				retry.Reset(watchPoll)
				if !told {
					d.opt.Log.Warn("scanning the directory: " + err.Error() + "; trying again")
				}
			}
			told = failed
			keys = append(more, c.Paths...)
		}
		keys = slices.DeleteFunc(keys, func(k string) bool { return d.unchanged(ctx, k, found) })
		if len(keys) > 0 {
			found(keys)
		}
	}
}

// echoed calls f for a signal, and again after each of the echoes, with the first of which signals
// begin anew.
func echoed(ctx context.Context, signals <-chan struct{}, f func()) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	<-timer.C
	for {
		select {
		case <-ctx.Done():
			return
		case <-signals:
		}
		f()
		for i := 0; i < len(echoes); i++ {
			again := signals
			if i == 0 {
				again = nil // a rest between two looks
			}
			timer.Reset(echoes[i])
			select {
			case <-ctx.Done():
				return
			case <-again:
				i = -1
			case <-timer.C:
			}
			f()
		}
	}
}

// scan returns the manifests that are there, and those that were.
func (d *Directory) scan() ([]string, error) {
	entries, err := scan(d.tree)
	keys := make([]string, 0, len(entries))
	for _, e := range entries {
		keys = append(keys, e.Path)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for k := range d.seen {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return slices.Compact(keys), err
}

// unchanged reports whether a file is as it was last read or written here. Where its timestamps
// cannot tell yet, it is read again in a moment, and found is called if it did change.
func (d *Directory) unchanged(ctx context.Context, key string, found func([]string)) bool {
	d.mu.Lock()
	was, known := d.seen[key]
	d.mu.Unlock()
	if !known {
		return false
	}
	if sig, err := d.tree.Stat(key); err != nil || sig != was.sig || d.tree.Linked(key) {
		return false
	}
	if was.settled {
		return true
	}
	time.AfterFunc(manifests.Unsettled, func() {
		if ctx.Err() == nil && !d.same(key) {
			found([]string{key})
		}
	})
	return true
}

// same reports whether a file still has the bytes that were last read or written here.
func (d *Directory) same(key string) bool {
	snap, err := d.tree.Read(key, limit)
	if err != nil {
		return false
	}
	hash := maphash.Bytes(d.seed, snap.Data)
	d.mu.Lock()
	defer d.mu.Unlock()
	was := d.seen[key]
	if was.sig != snap.Sig || was.hash != hash || !snap.Settled {
		return false
	}
	d.seen[key] = sight{snap.Sig, hash, true}
	return true
}

// limit lets Decode say what is too large.
const limit = manifests.MaxFileSize + 1

// Load implements Source.
func (d *Directory) Load(key string) (*Manifest, error) {
	snap, err := d.tree.Read(key, limit)
	if err == nil && d.tree.Linked(key) {
		// Its directory was replaced by a link. What is behind that has its own place, if any.
		err = fmt.Errorf("%s: %w", key, fs.ErrNotExist)
	}
	if err != nil {
		if !errors.Is(err, manifests.ErrBusy) {
			d.mu.Lock()
			delete(d.seen, key)
			d.mu.Unlock()
		}
		if errors.Is(err, manifests.ErrNotRegular) && !manifests.IsManifest(key) {
			return nil, d.unlisted(key)
		}
		return nil, err
	}
	d.saw(key, snap)
	m := &Manifest{
		Key: key, File: manifests.Decode(key, snap.Data),
		Settled: snap.Settled, snapshot: snap,
	}
	return m, nil
}

// unlisted says why a directory cannot be listed, of which a scan has made a key for that reason. When
// it can, it is scanned.
func (d *Directory) unlisted(dir string) error {
	if _, err := d.tree.ReadDir(dir); err != nil {
		return err
	}
	select {
	case d.again <- struct{}{}:
	default:
	}
	return fs.ErrNotExist
}

// Name implements Source.
func (d *Directory) Name(key string) string { return path.Join(filepath.ToSlash(d.tree.Dir()), key) }

func (d *Directory) saw(key string, snap manifests.Snapshot) {
	s := sight{snap.Sig, maphash.Bytes(d.seed, snap.Data), snap.Settled}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.seen[key] = s
}

// WriteStatus implements Source. A document that cannot take a status holds up none of the others.
func (d *Directory) WriteStatus(m *Manifest, statuses map[int]*manifests.JobStatus) error {
	if d.opt.Git != nil && manifests.Conflicted(m.snapshot.Data) {
		return nil // left alone until the user has resolved it
	}
	var refused []error
	next, err := m.File.EditStatus(m.snapshot.Data, statuses)
	for one := (*manifests.EditError)(nil); errors.As(err, &one); {
		refused = append(refused, err)
		statuses = maps.Clone(statuses)
		delete(statuses, one.Doc)
		next, err = m.File.EditStatus(m.snapshot.Data, statuses)
	}
	if err != nil {
		return err
	}
	if string(next) != string(m.snapshot.Data) {
		if err := d.opt.Git.Enter(m.Key); err != nil {
			return err
		}
		snap, err := d.tree.Replace(m.Key, m.snapshot, next)
		if err != nil {
			if ofTheMachine(err) != 0 {
				select {
				case d.unclean <- struct{}{}:
				default:
				}
			}
			return err
		}
		d.saw(m.Key, snap)
	}
	return errors.Join(refused...)
}

// Entry is a manifest in a directory, or what stands in the place of one.
type Entry = scanEntry

// Scan lists the manifests of a directory in path order, without reading them. The error is the one
// of the directory itself; any other is in its entry.
func Scan(t *manifests.Tree) ([]Entry, error) { return scan(t) }
