package controller

import (
	"context"

	"leasehold.dev/leasehold/manifests"
)

// standing is the last good state of a manifest whose leases run out by the system clock. It goes on
// counting while somebody is writing the file, however long that takes.
type standing struct {
	manifest *Manifest // with as little as a decision needs
	wake     float64   // reading of the system clock at which the first lease is over
}

// remember keeps a manifest as it was decided, if there is something to come for it.
func (c *Controller) remember(m *Manifest, p pass) {
	var s *standing
	if p.timed {
		f := &manifests.File{Path: m.File.Path}
		for _, d := range m.File.Docs {
			f.Docs = append(f.Docs, &manifests.Doc{ID: d.ID, Job: d.Job, Errors: d.Errors, Status: d.Status, Clock: d.Clock, Line: d.Line})
		}
		s = &standing{manifest: &Manifest{Key: m.Key, File: f}, wake: p.wake}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if s != nil {
		c.good[m.Key] = s
	} else {
		delete(c.good, m.Key)
	}
}

// meanwhile decides for a manifest that somebody is writing, by its last good state. Its status
// follows when the file is settled.
func (c *Controller) meanwhile(ctx context.Context, key string) (pass, error) {
	p := c.patience(key)
	c.mu.Lock()
	s := c.good[key]
	c.mu.Unlock()
	if s == nil || seconds(c.opt.Now()) < s.wake {
		return p, nil
	}
	subjects, _ := c.subjects(s.manifest)
	outcomes, err := c.decide(ctx, s.manifest, subjects)
	if err != nil {
		return p, err
	}
	next := pass{}
	for _, o := range outcomes {
		next.note(o)
	}
	c.remember(s.manifest, next)
	p.decided = next.decided
	return p, nil
}

// note takes an outcome into account.
func (p *pass) note(o outcome) {
	p.decided = p.decided || o.id != ""
	if o.wake > 0 && (!p.timed || o.wake < p.wake) {
		p.timed, p.wake = true, o.wake
	}
}
