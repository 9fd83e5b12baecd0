package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"leasehold.dev/leasehold/controller"
	"leasehold.dev/leasehold/manifests"
	"leasehold.dev/leasehold/store"
	"leasehold.dev/leasehold/store/sqlite"
)

// browser reads the jobs of a directory, again and again where it is followed.
type browser struct {
	g        *globals
	tree     *manifests.Tree
	database string
	db       *sqlite.DB
	borrowed bool // db belongs to somebody else
	files    map[string]*browsed
	unread   map[string]error // files that cannot be read
	told     map[string]bool  // warnings
	again    time.Duration    // when a follower wants to look again without an event; 0: not
}

// browsed is a file as it was last read.
type browsed struct {
	sig     manifests.Sig
	settled bool // an equal sig means equal bytes
	file    *manifests.File
}

func (g *globals) browse() (*browser, error) {
	tree, err := g.tree()
	if err != nil {
		return nil, err
	}
	path, err := storePath(tree.Dir(), g.store)
	if err != nil {
		tree.Close()
		return nil, err
	}
	return &browser{g: g, tree: tree, database: path, files: map[string]*browsed{}, unread: map[string]error{}, told: map[string]bool{}}, nil
}

func (b *browser) Close() {
	if b.db != nil && !b.borrowed {
		b.db.Close()
	}
	b.tree.Close()
}

// warn tells something on standard error, once.
func (b *browser) warn(text string) {
	if !b.told[text] {
		b.told[text] = true
		fmt.Fprintln(b.g.Err, "Warning: "+plain(text))
	}
}

// lookAgain lets a follower look again after d at the latest.
func (b *browser) lookAgain(d time.Duration) {
	if b.again == 0 || d < b.again {
		b.again = d
	}
}

// browsePatience is how long a file that somebody is saving is waited for.
const browsePatience = 2 * time.Second

// load returns a view of every document, in path order. soon reports that something was being
// written and has to be looked at again shortly.
func (b *browser) load(ctx context.Context, patient bool) (views []*jobView, soon bool, err error) {
	deadline := time.Now().Add(browsePatience)
	for {
		var busy error
		soon, busy, err = b.readFiles()
		if err != nil {
			return nil, false, err
		}
		if busy == nil || !patient || time.Now().After(deadline) {
			if busy != nil && patient {
				b.warn(busy.Error())
			}
			break
		}
		select {
		case <-ctx.Done():
			return nil, false, ctx.Err()
		case <-time.After(10 * time.Millisecond):
		}
	}
	views = b.views()
	if err := b.readStore(ctx, views); err != nil {
		return nil, false, err
	}
	system := systemClock()
	for _, v := range views {
		v.judge(system)
	}
	return views, soon, nil
}

// readFiles reads the files that have changed. busy is the error of one that was being written; what
// it held before stays.
func (b *browser) readFiles() (soon bool, busy, err error) {
	entries, err := controller.Scan(b.tree)
	if err != nil {
		return false, nil, err
	}
	read := make([]*browsed, len(entries)) // nil: as it was, or in errs
	errs := make([]error, len(entries))
	there := make(map[string]bool, len(entries))
	var group errgroup.Group
	group.SetLimit(runtime.GOMAXPROCS(0))
	for i, e := range entries {
		there[e.Path] = true
		if errs[i] = e.Err; e.Err != nil {
			continue
		}
		if was := b.files[e.Path]; was != nil && was.settled && was.sig == e.Sig {
			continue
		}
		group.Go(func() error {
			snap, err := b.tree.Read(e.Path, manifests.MaxFileSize+1)
			if err != nil {
				errs[i] = err
				return nil
			}
			read[i] = &browsed{snap.Sig, snap.Settled, manifests.Decode(b.shown(e.Path), snap.Data)}
			return nil
		})
	}
	_ = group.Wait()
	clear(b.unread)
	for i, e := range entries {
		switch err := errs[i]; {
		case errors.Is(err, manifests.ErrBusy):
			soon, busy = true, err
		case errors.Is(err, fs.ErrNotExist):
			delete(there, e.Path)
		case err != nil:
			b.warn(err.Error())
			b.unread[e.Path] = err
			delete(there, e.Path)
		case read[i] != nil:
			b.files[e.Path] = read[i]
			soon = soon || !read[i].settled
			for _, e := range read[i].file.Errors {
				b.warn(e.Error())
			}
		}
	}
	for path := range b.files {
		if !there[path] {
			delete(b.files, path)
		}
	}
	return soon, busy, nil
}

// shown is a manifest's path as the user would name it.
func (b *browser) shown(path string) string {
	return filepath.ToSlash(filepath.Join(b.tree.Dir(), path))
}

func (b *browser) views() []*jobView {
	paths := make([]string, 0, len(b.files))
	for p := range b.files {
		paths = append(paths, p)
	}
	slices.Sort(paths)
	var views []*jobView
	owners := map[string]*jobView{}
	for _, p := range paths {
		for _, d := range b.files[p].file.Docs {
			v := &jobView{Doc: d, Path: b.shown(p), Order: len(views)}
			if d.Job != nil {
				v.Hash = d.Job.Spec.Hash()
			}
			if owner := owners[d.ID]; owner != nil {
				v.Twin = owner.Where()
			} else if d.ID != "" {
				owners[d.ID] = v
			}
			views = append(views, v)
		}
	}
	return views
}

// readStore fills in the rows.
func (b *browser) readStore(ctx context.Context, views []*jobView) error {
	rows, faults, err := b.rows(ctx)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		known := slices.ContainsFunc(views, func(v *jobView) bool { return v.Doc.Status != nil })
		if known || !errors.Is(err, fs.ErrNotExist) {
			b.warn(fmt.Sprintf("the store cannot be read (%v); what follows is the status in the files", err))
		}
	}
	for _, v := range views {
		switch {
		case v.Twin != "" || v.Doc.ID == "":
		case err != nil:
			v.Row = rowOfStatus(v.Doc)
		default:
			v.Row, v.Stored, v.Fault = rows[v.Doc.ID], true, faults[v.Doc.ID]
		}
	}
	return nil
}

// rows reads the whole store.
func (b *browser) rows(ctx context.Context) (rows map[string]*store.Record, faults map[string]error, err error) {
	err = b.withStore(ctx, func(db *sqlite.DB) error {
		rows, faults = map[string]*store.Record{}, map[string]error{}
		return rowFaults(db.Records(ctx, func(r *store.Record) error {
			rows[r.ID] = r.Clone()
			return nil
		}), faults)
	})
	return rows, faults, err
}

// history reads the events of a job, or of all, after a number.
func (b *browser) history(ctx context.Context, id string, after int64) (events []store.Event, err error) {
	err = b.withStore(ctx, func(db *sqlite.DB) error {
		events, err = db.History(ctx, id, after, 0)
		return err
	})
	return events, err
}

// withStore calls f with the store, and once more where another database stands at its path by now.
func (b *browser) withStore(ctx context.Context, f func(*sqlite.DB) error) error {
	for again := false; ; again = true {
		if b.db == nil {
			db, err := sqlite.Open(ctx, b.database, sqlite.Options{Actor: "cli", MustExist: true, BusyTimeout: browsePatience})
			if err != nil {
				return err
			}
			b.db = db
		}
		err := f(b.db)
		if !errors.Is(err, store.ErrLost) || b.borrowed {
			return err
		}
		b.db.Close()
		b.db = nil
		if again {
			return err
		}
	}
}

// rowFaults sorts out the faults of single rows and returns what is left of err.
func rowFaults(err error, faults map[string]error) error {
	if err == nil {
		return nil
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range joined.Unwrap() {
			if err := rowFaults(e, faults); err != nil {
				return err
			}
		}
		return nil
	}
	var row *store.RowError
	if errors.As(err, &row) {
		faults[row.ID] = row.Err
		return nil
	}
	return err
}
