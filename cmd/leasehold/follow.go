package main

import (
	"context"
	"errors"
	"io/fs"
	"time"

	"leasehold.dev/leasehold/controller"
	"leasehold.dev/leasehold/manifests"
)

// followRest is the least time between two looks at the directory.
const followRest = 20 * time.Millisecond

// follow calls f with the jobs as they are, and again whenever they may have changed, until f has
// seen enough or ctx is done.
func (b *browser) follow(ctx context.Context, f func([]*jobView) (enough bool, err error)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	signals := controller.Follow(ctx, b.tree, b.database)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for first := true; ; first = false {
		began := time.Now()
		views, soon, err := b.load(ctx, first)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && (first || !errors.Is(err, fs.ErrNotExist)):
			return err
		case err != nil: // the directory is gone, perhaps for a moment
			b.lookAgain(absence)
		default:
			b.again = 0
			if enough, err := f(views); enough || err != nil {
				return err
			}
		}
		timer.Reset(max(followRest, 2*time.Since(began))) // a large directory does not keep a core busy
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		wait := nextLook(views, soon)
		if b.again > 0 {
			wait = min(wait, b.again)
		}
		timer.Reset(wait)
		select {
		case <-ctx.Done():
			return nil
		case <-signals:
		case <-timer.C:
		}
	}
}

// expiryRest is how long a controller has to react to a lease that has run out.
const expiryRest = 250 * time.Millisecond

// nextLook is how long nothing can change without an event: until a file has settled, or a lease on
// the system clock has run out and no controller has reacted.
func nextLook(views []*jobView, soon bool) time.Duration {
	if soon {
		return manifests.Unsettled
	}
	next, now := 24*time.Hour, systemClock()
	for _, v := range views {
		if v.State == stateLeased && v.System() {
			left := time.Duration(min(v.Row.Until-now, 1e9) * float64(time.Second))
			next = min(next, max(left, 0)+expiryRest)
		}
	}
	return next
}
