package controller

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"leasehold.dev/leasehold/manifests"
	"leasehold.dev/leasehold/store"
)

// subjects returns, for each document, what is to be decided about it, or its status where it stands
// for no job of its own. wait is when to look again where an owner has been absent for less than a
// second.
func (c *Controller) subjects(m *Manifest) (all []subject, wait time.Duration) {
	wait = never
	wall := seconds(c.opt.Now())
	for i, d := range m.File.Docs {
		s := subject{job: d.Job, shown: d.Status, clock: d.Clock, wall: wall}
		if d.Job == nil {
			s.problem = problem(d)
		}
		switch owner, absent := c.index.owner(d.ID); {
		case d.ID == "":
			s.role = roleNameless
		case owner == place{m.Key, i}:
			s.first = c.index.first(d.ID)
		case absent.IsZero() && c.mayHaveGone(owner.key):
			s.role = roleHeir
			wait = sooner(wait, settling/2)
		case absent.IsZero():
			s.role, s.problem = roleDuplicate, fmt.Sprintf("Duplicate value: %q: in %s it is a second one, the job belongs to %s", d.ID, m.Key, owner.key)
		default:
			s.role = roleHeir
			wait = sooner(wait, left(absent, c.opt.Now())+time.Millisecond)
		}
		all = append(all, s)
	}
	return all, wait
}

// mayHaveGone reports whether a key has not been looked at since something happened to it: a file that
// was renamed is found under the new name before it is missed under the old one.
func (c *Controller) mayHaveGone(key string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.unseen[key]
}

// problem says why a document is not accepted, for its status. It names no line: writing the status
// moves them.
func problem(d *manifests.Doc) string {
	first := *d.Errors[0]
	first.Path, first.Line, first.Col = "", 0, 0
	text := first.Error()
	if n := len(d.Errors) - 1; n > 0 {
		text += fmt.Sprintf(" (and %d more)", n)
	}
	return text
}

// decide lets the store decide about a manifest's jobs, in one transaction where that is possible.
// It returns an outcome per document; one without a status is to be left as it is.
func (c *Controller) decide(ctx context.Context, m *Manifest, subjects []subject) ([]outcome, error) {
	outcomes := make([]outcome, len(subjects))
	var mine []int
	for i, s := range subjects {
		switch s.role {
		case roleNameless:
			outcomes[i].status = s.aside("Invalid", s.problem)
		case roleDuplicate:
			outcomes[i].status = s.aside("DuplicateName", s.problem)
		case roleOwner:
			mine = append(mine, i)
		}
	}
	err := c.transact(ctx, m, subjects, mine, outcomes)
	if len(mine) > 1 && err != nil && !errors.Is(err, store.ErrLost) {
		// One of them is at fault: it holds up none of the others.
		var errs []error
		for _, i := range mine {
			errs = append(errs, c.transact(ctx, m, subjects, []int{i}, outcomes))
		}
		err = errors.Join(errs...)
	}
	return outcomes, err
}

// transact decides about the documents in which, in one transaction.
func (c *Controller) transact(ctx context.Context, m *Manifest, subjects []subject, which []int, outcomes []outcome) error {
	if len(which) == 0 {
		return nil
	}
	ids := make([]string, len(which))
	for k, i := range which {
		ids[k] = m.File.Docs[i].ID
	}
	before, after := make([]store.Record, len(which)), make([]store.Record, len(which))
	update := c.store.Update
	if c.opt.DryRun {
		update = c.store.View
	}
	var identity string
	stamp, err := update(ctx, ids, func(rs []*store.Record) error {
		for k, i := range which {
			identity = rs[k].Stamp.Identity
			if p, _ := c.index.owner(ids[k]); p != (place{m.Key, i}) {
				continue // another document has taken the id over: it decides
			}
			before[k] = *rs[k]
			o, err := decide(rs[k], subjects[i])
			if err != nil {
				return err
			}
			o.id, o.trouble = ids[k], rs[k].Trouble
			outcomes[i], after[k] = o, *rs[k]
		}
		return nil
	})
	if errors.Is(err, errOutdated) {
		if err := c.outdated(ctx, identity); err != nil {
			return err
		}
		return errOutdated // the next pass finds the new identity
	}
	if err != nil {
		for _, i := range which {
			outcomes[i] = outcome{}
		}
		var row *store.RowError
		if !errors.As(err, &row) && !errors.Is(err, store.ErrLost) {
			err = &storeFault{err}
		}
		return err
	}
	for k, i := range which {
		o := outcomes[i]
		if o.status == nil {
			continue
		}
		c.index.decided(ids[k])
		if o.status.Store != "" {
			o.status.Store = stamp.String()
		}
		n := 0
		if j := subjects[i].job; j != nil {
			n = len(j.Spec.Workers)
		}
		c.opt.Hooks.decided(after[k].Events())
		c.diary.decision(ids[k], n, &before[k], &after[k], after[k].Events(), o.status)
	}
	return nil
}

// due reports whether an outcome's status has to be written now, and after which time to look again.
func due(d *manifests.Doc, o outcome, now float64) (time.Duration, bool) {
	again := never
	if o.wake > 0 {
		again = after(o.wake, now)
	}
	if o.status == nil || sameStatus(d.Status, o.status) {
		return again, false
	}
	if o.lazy && d.Status != nil && d.Status.Until != nil && sameButUntil(d.Status, o.status) {
		if late := *d.Status.Until - d.Job.Spec.TTL/2; late > now {
			return sooner(again, after(late, now)), false
		}
	}
	return again, true
}

// after is the time from now until a reading of the system clock, at least a millisecond.
func after(reading, now float64) time.Duration {
	d := (reading - now) * float64(time.Second)
	if d >= float64(math.MaxInt64) {
		return time.Duration(math.MaxInt64)
	}
	return max(time.Duration(math.Ceil(d)), time.Millisecond)
}

func sooner(a, b time.Duration) time.Duration {
	switch {
	case a < 0:
		return b
	case b < 0:
		return a
	}
	return min(a, b)
}

// seconds is the system clock as decisions read it: in whole milliseconds.
func seconds(t time.Time) float64 { return float64(t.UnixMilli()) / 1000 }
