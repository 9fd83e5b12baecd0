package worker

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"time"

	"leasehold.dev/leasehold/store"
)

// Claim says which lease [Hold] is to hold.
type Claim struct {
	ID    string // of the job; it is enqueued if it is new
	Owner string
	TTL   float64
	Clock func() store.Reading // nil: the system clock
}

// Hold claims a job for its owner and keeps the lease until it is lost, ended, or ctx is done, for
// programs that lease jobs to themselves. A refused claim is a [*LostError], whose Verdict says who
// is in the way.
func Hold(ctx context.Context, engine store.Engine, c Claim) (*Lease, error) {
	clock := c.Clock
	if clock == nil {
		clock = SystemClock
	}
	l := &Lease{
		engine: engine, id: c.ID, owner: c.Owner,
		terms: func(*store.Record) (store.Reading, float64) { return clock(), c.TTL },
	}
	by := agentName()
	start := time.Now()
	var v store.Verdict
	_, err := engine.Update(ctx, []string{c.ID}, func(rs []*store.Record) error {
		r := rs[0]
		l.at, l.ttl = l.terms(r)
		if !r.Done {
			r.Enqueue()
		}
		if r.Mark != nil && r.Mark.System != l.at.System {
			return errKind
		}
		now, ok := r.Observe(l.at)
		if !ok {
			return errClock
		}
		var err error
		if v, err = r.Claim(c.Owner, now, c.TTL); err != nil || !v.OK() {
			return err
		}
		r.Decided(now)
		_, err = r.PickUp(c.Owner, v.Fence, now, by)
		return err
	})
	if err != nil {
		return nil, err
	}
	if !v.OK() {
		return nil, &LostError{ID: c.ID, Owner: c.Owner, Verdict: v}
	}
	l.fence, l.until = v.Fence, v.Until
	return newLease(ctx, l, start), nil
}

// SystemClock reads the system clock as decisions do: Unix seconds in whole milliseconds.
func SystemClock() store.Reading {
	return store.Reading{Time: float64(time.Now().UnixMilli()) / 1000, System: true}
}

// pickUp takes up a lease that owner has. The first renewal is part of the transaction, so that it is
// known from when on the lease can be trusted.
func pickUp(ctx context.Context, engine store.Engine, l *Lease, by string) (*Lease, error) {
	start := time.Now()
	var v store.Verdict
	_, err := engine.Update(ctx, []string{l.id}, func(rs []*store.Record) (err error) {
		r := rs[0]
		v = store.Verdict{Reason: r.Holds(l.owner, l.fence, negInf)}
		if !v.OK() {
			return nil
		}
		if r.Pickup != nil && *r.Pickup != (store.Pickup{Fence: l.fence, By: by}) && r.Pickup.Fence >= l.fence {
			return errTaken
		}
		if l.at, l.ttl, err = observe(r, l.owner, l.fence, l.terms, true); err != nil {
			return err
		}
		now := l.at.Time
		if v.Reason = r.Holds(l.owner, l.fence, now); !v.OK() {
			return nil
		}
		// The renewal last: those that follow fold into its entry in the history.
		if _, err = r.PickUp(l.owner, l.fence, now, by); err != nil {
			return err
		}
		if v, err = r.Renew(l.owner, l.fence, now, l.ttl); err != nil || !v.OK() {
			return err
		}
		r.Decided(now)
		return nil
	})
	if err != nil {
		return nil, err
	}
	if !v.OK() {
		return nil, &LostError{ID: l.id, Owner: l.owner, Fence: l.fence, Verdict: v}
	}
	l.until = v.Until
	return newLease(ctx, l, start), nil
}

// agentName names an agent from its start to its end.
func agentName() string {
	var word [6]byte
	rand.Read(word[:])
	host, err := os.Hostname()
	if err != nil {
		host = "localhost"
	}
	return fmt.Sprintf("%s/%d/%x", host, os.Getpid(), word)
}
