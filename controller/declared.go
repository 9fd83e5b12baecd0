package controller

import (
	"context"
	"errors"
	"io/fs"
	"sync"
	"time"

	"leasehold.dev/leasehold/manifests"
	"leasehold.dev/leasehold/store"
)

// Declared is what the manifests of a directory declare, kept up to date for those who act for
// manifests and are not the controller. It goes by the same rules: a document belongs to an id as in
// the controller's index, a file that somebody is writing stands as it was, and absence counts after
// a second.
type Declared struct {
	dir   *Directory
	index *index
	wake  chan struct{}

	reads sync.Mutex // one file is read at a time
	mu    sync.Mutex
	files map[string]*manifests.File
}

// NewDeclared returns the declarations of dir; they are there once Run has called ready.
func NewDeclared(dir *Directory) *Declared {
	return &Declared{dir: dir, index: newIndex(), wake: make(chan struct{}, 1), files: map[string]*manifests.File{}}
}

// Wake signals that a declaration, or the database, may have changed. Signals that nobody has taken
// yet are one.
func (d *Declared) Wake() <-chan struct{} { return d.wake }

func (d *Declared) signal() {
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// Doc returns the document that an id belongs to, or false if there is none or it is not accepted.
func (d *Declared) Doc(id string) (*manifests.Doc, bool) {
	at, _ := d.index.owner(id)
	d.mu.Lock()
	defer d.mu.Unlock()
	f := d.files[at.key]
	if f == nil || at.doc < 0 || at.doc >= len(f.Docs) || f.Docs[at.doc].ID != id || f.Docs[at.doc].Job == nil {
		return nil, false
	}
	return f.Docs[at.doc], true
}

// Outdated returns the id of a job whose status names a later revision of the store than at: the
// database is an older copy, which the controller judges when it starts. It is empty if there is none.
func (d *Declared) Outdated(at store.Stamp) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, f := range d.files {
		for _, doc := range f.Docs {
			if doc.Status == nil {
				continue
			}
			if named, ok := parseStamp(doc.Status.Store); ok && named.Identity == at.Identity && named.Revision > at.Revision {
				return doc.ID
			}
		}
	}
	return ""
}

// Run follows the directory until ctx is done, and calls ready when it has been read once. An error
// is a fault that ended it.
func (d *Declared) Run(ctx context.Context, ready func()) error {
	return d.dir.Watch(ctx, func(keys []string) {
		for _, k := range keys {
			d.read(ctx, k)
		}
		d.signal()
	}, ready, d.signal)
}

// read takes in what a file holds now, and comes back where that is not the last word.
func (d *Declared) read(ctx context.Context, key string) {
	d.reads.Lock()
	defer d.reads.Unlock()
	again := func(after time.Duration) {
		time.AfterFunc(after, func() {
			if ctx.Err() == nil {
				d.read(ctx, key)
				d.signal()
			}
		})
	}
	m, err := d.dir.Load(key)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		now := time.Now()
		since, known := d.index.absent(key, now)
		switch wait := left(since, now); {
		case !known:
		case wait > 0:
			again(wait)
		default:
			d.index.drop(key)
			d.keep(key, nil)
		}
		return
	case errors.Is(err, manifests.ErrBusy):
		again(settling)
		return
	case err != nil: // the controller tells of it, and its jobs are frozen
		d.keep(key, nil)
		return
	case !m.Settled:
		again(settling)
		if unfinished(m) {
			return
		}
	}
	d.keep(key, m.File)
	if x := d.index.put(key, idsOf(m), time.Now()); x.again >= 0 {
		again(x.again)
	}
}

func (d *Declared) keep(key string, f *manifests.File) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if f == nil {
		delete(d.files, key)
		return
	}
	d.files[key] = f
}
