package controller

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"slices"
	"strings"
	"time"

	"leasehold.dev/leasehold/controller/gitindex"
	"leasehold.dev/leasehold/manifests"
	"leasehold.dev/leasehold/store"
)

// pass is what a pass over a key leads to.
type pass struct {
	after     time.Duration // when to look again; never: not
	unsettled bool          // the pass was not the last word on what is there
	busy      bool          // somebody is writing the manifest, or has saved it again
	decided   bool          // the store was asked
	timed     bool          // a job waits for a reading of the system clock,
	wake      float64       // this one
	reading   float64       // the one of this pass
}

// never says that a key need not be looked at again.
const never = time.Duration(-1)

// reconcile brings one manifest's jobs to where it wants them, and its status to where they are.
func (c *Controller) reconcile(ctx context.Context, key string) (pass, error) {
	if err := c.before("load", key); err != nil {
		return pass{after: never}, err
	}
	m, err := c.load(key)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return c.gone(key, err), nil
	case errors.Is(err, manifests.ErrBusy):
		return c.meanwhile(ctx, key)
	case errors.Is(err, manifests.ErrNotRegular), errors.Is(err, manifests.ErrOutside), errors.Is(err, manifests.ErrTooLarge):
		// What stands there is no manifest, and stays so until an event tells otherwise. Its jobs
		// are frozen.
		c.noManifest(key, err)
		c.opt.Hooks.unread(err)
		return pass{after: never}, nil
	case err != nil:
		c.opt.Hooks.unread(err)
		return pass{after: never}, err
	}
	if !m.Settled && unfinished(m) {
		return pass{after: settling, unsettled: true}, nil
	}
	indexed := c.index.put(key, idsOf(m), c.opt.Now())
	c.lost(indexed)
	subjects, wait := c.subjects(m)
	c.report(m, subjects)
	wait = sooner(wait, indexed.again)
	p := pass{after: wait, unsettled: wait >= 0}
	if err := c.before("decide", key); err != nil {
		return pass{after: never}, err
	}
	outcomes, err := c.decide(ctx, m, subjects)
	if err != nil {
		return pass{after: never}, err
	}
	if err := c.before("decided", key); err != nil {
		return pass{after: never}, err
	}
	c.opt.Hooks.manifest(key, outcomes, len(m.File.Errors))
	statuses := map[int]*manifests.JobStatus{}
	now := seconds(c.opt.Now())
	p.reading = now
	for i, o := range outcomes {
		again, due := due(m.File.Docs[i], o, now)
		p.note(o)
		p.after = sooner(p.after, again)
		if due {
			statuses[i] = o.status
		}
	}
	c.remember(m, p)
	if !m.Settled && !c.opt.DryRun {
		p.after, p.unsettled = sooner(p.after, settling), true
	}
	if len(statuses) > 0 && !c.opt.DryRun {
		if err := c.before("write", key); err != nil {
			return pass{after: never}, err
		}
		c.write <- struct{}{}
		began := time.Now()
		err = c.source.WriteStatus(m, statuses)
		<-c.write
		c.opt.Hooks.wrote(began, err)
		if err == nil {
			err = c.before("written", key)
		}
	}
	switch {
	case errors.Is(err, manifests.ErrChanged), errors.Is(err, manifests.ErrBusy),
		errors.Is(err, manifests.ErrOutside), errors.Is(err, manifests.ErrNotRegular): // something else has come into its place
		again := c.patience(key)
		again.decided = p.decided
		return again, nil
	case errors.Is(err, gitindex.ErrHeld):
		p.unsettled = true // the source tells when to look again
		return p, nil
	}
	return p, errors.Join(err, c.trouble(ctx, outcomes, err))
}

func (c *Controller) before(step, key string) error {
	if c.opt.Before != nil {
		return c.opt.Before(step, key)
	}
	return nil
}

// lost looks after the keys that a change of the index concerns, and tells of jobs that are declared
// no more.
func (c *Controller) lost(x indexed) {
	c.enqueue(x.affected...)
	for _, id := range x.gone {
		c.diary.forget(id)
		c.opt.Log.Info("it is declared no more, and gets no further lease", slog.String("job", id))
	}
}

// trouble keeps in the store, for those who look there, that a job's status cannot be written, and
// forgets it when it can.
func (c *Controller) trouble(ctx context.Context, outcomes []outcome, why error) error {
	text := ""
	if why != nil {
		text = why.Error()
	}
	var ids []string
	for _, o := range outcomes {
		if o.id != "" && o.trouble != text {
			ids = append(ids, o.id)
		}
	}
	if len(ids) == 0 || c.opt.DryRun {
		return nil
	}
	_, err := c.store.Update(ctx, ids, func(rs []*store.Record) error {
		for _, r := range rs {
			r.Trouble = text
			if text != "" {
				r.Note(store.Event{Verb: "unwritten", Fence: r.Fence, Message: text})
			}
		}
		return nil
	})
	return err
}

// settling is after which time a manifest that was just saved is looked at again.
const settling = manifests.Unsettled

// unfinished reports whether something in the manifest is not accepted, which may be because
// somebody is still writing it.
func unfinished(m *Manifest) bool {
	return len(m.File.Errors) > 0 || slices.ContainsFunc(m.File.Docs, func(d *manifests.Doc) bool { return d.Job == nil })
}

func (c *Controller) load(key string) (*Manifest, error) {
	if m, ok := c.first.LoadAndDelete(key); ok {
		return m.(*Manifest), nil
	}
	return c.source.Load(key)
}

// gone waits until a manifest has been absent long enough, and then lets others take its ids over.
func (c *Controller) gone(key string, why error) pass {
	now := c.opt.Now()
	since, known := c.index.absent(key, now)
	if left := left(since, now); known && left > 0 {
		return pass{after: left, unsettled: true}
	}
	c.refuse(key, 0)
	c.opt.Hooks.manifest(key, nil, 0)
	if known {
		x := c.index.drop(key)
		c.remember(&Manifest{Key: key}, pass{})
		c.enqueue(x.affected...)
		for _, id := range x.gone {
			c.diary.forget(id)
		}
		c.opt.Log.Info("the manifest is gone; its jobs get no further lease", slog.String("file", c.source.Name(key)))
	}
	if errors.Is(why, manifests.ErrDangling) {
		c.noManifest(key, why)
	} else {
		c.diary.state(0, key+" errors", "")
	}
	return pass{after: never}
}

// noManifest tells of something that stands in the place of a manifest.
func (c *Controller) noManifest(key string, why error) {
	name := c.source.Name(key)
	c.diary.state(slog.LevelWarn, key+" errors", name+strings.TrimPrefix(why.Error(), key), slog.String("file", name))
	c.refuse(key, 1)
	c.opt.Hooks.manifest(key, nil, 1)
}

// patience waits for somebody who is writing: a millisecond at first, doubling.
func (c *Controller) patience(key string) pass {
	c.mu.Lock()
	defer c.mu.Unlock()
	return pass{after: min(time.Millisecond<<min(c.passes[key], 10), time.Second), busy: true}
}

func idsOf(m *Manifest) []string {
	ids := make([]string, len(m.File.Docs))
	for i, d := range m.File.Docs {
		ids[i] = d.ID
	}
	return ids
}

// report tells what is wrong in a manifest, beside duplicates, and counts what is not accepted.
func (c *Controller) report(m *Manifest, subjects []subject) {
	var lines []string
	name := c.source.Name(m.Key)
	add := func(e *manifests.Error) {
		shown := *e
		shown.Path = name
		lines = append(lines, shown.Error())
	}
	refused := len(m.File.Errors)
	for _, e := range m.File.Errors {
		add(e)
	}
	for i, d := range m.File.Docs {
		if d.Job == nil || subjects[i].role == roleDuplicate {
			refused++
		}
		for _, e := range d.Errors {
			add(e)
		}
		if subjects[i].role == roleDuplicate {
			add(&manifests.Error{Line: d.Line, Field: "metadata.name", Detail: subjects[i].problem})
		}
	}
	if n := len(lines) - mostLines; n > 0 {
		lines = append(lines[:mostLines], fmt.Sprintf("%s: and %d more", name, n))
	}
	c.diary.state(slog.LevelWarn, m.Key+" errors", strings.Join(lines, "\n"), slog.String("file", name))
	c.refuse(m.Key, refused)
}

func (c *Controller) refuse(key string, documents int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refused[key] = documents
	if documents == 0 {
		delete(c.refused, key)
	}
}
