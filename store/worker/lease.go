package worker

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"leasehold.dev/leasehold/store"
)

// LostError says why a lease is over. It is the cause of the cancelled context.
type LostError struct {
	ID      string
	Owner   string
	Fence   int64
	Verdict store.Verdict // the refusal, and what is current; zero if the store was not asked
	Err     error         // why it could not be renewed in time, if it could not
}

func (e *LostError) Error() string {
	v, lost := e.Verdict, "not leased"
	if e.Fence > 0 {
		lost = fmt.Sprintf("lost fence %d", e.Fence)
	}
	switch {
	case v.OK() && e.Err != nil:
		return fmt.Sprintf("%s: %s: not renewed in time: %v", e.ID, lost, e.Err)
	case v.OK():
		return fmt.Sprintf("%s: %s: not renewed in time", e.ID, lost)
	case v.Reason == store.Done:
		return fmt.Sprintf("%s: %s: %s: completed by %s with fence %d", e.ID, lost, v.Reason, v.Owner, v.Fence)
	case v.Owner == "":
		return fmt.Sprintf("%s: %s: %s: the current fence is %d, and nobody's", e.ID, lost, v.Reason, v.Fence)
	default:
		return fmt.Sprintf("%s: %s: %s: the current fence is %d, and %s's", e.ID, lost, v.Reason, v.Fence, v.Owner)
	}
}

func (e *LostError) Unwrap() error { return e.Err }

// ErrEnded is the cause of a lease's context after Complete, Release or Close.
var ErrEnded = errors.New("the lease was given up")

var (
	errTaken   = errors.New("another agent runs it")
	errClock   = errors.New("the job's clock is behind one that has already decided")
	errKind    = errors.New("the job's clock is about to change between spec.clock and the system clock")
	errUntimed = errors.New("the job's ttl is not known yet")
)

// terms are the ttl and the clock reading that count for a job at this moment.
type terms func(r *store.Record) (store.Reading, float64)

// Lease is a lease that is held: it is renewed at a third of its ttl until it is lost or ended.
type Lease struct {
	engine store.Engine
	terms  terms
	id     string
	owner  string
	fence  int64

	ctx    context.Context
	cancel context.CancelCauseFunc
	pokes  chan struct{}
	loop   sync.WaitGroup
	expiry *time.Timer

	mu    sync.Mutex
	start time.Time     // of the last successful renewal
	at    store.Reading // of that renewal
	ttl   float64
	until float64
	fault error // why the last renewal did not succeed
}

// newLease returns a lease that was granted or renewed by a call that began at start.
func newLease(ctx context.Context, l *Lease, start time.Time) *Lease {
	l.ctx, l.cancel = context.WithCancelCause(ctx)
	l.pokes = make(chan struct{}, 1)
	l.start = start
	l.expiry = time.AfterFunc(l.left(), l.expire)
	l.loop.Go(l.keep)
	return l
}

// Context is cancelled when the lease is over; its cause is a [*LostError], or [ErrEnded], or that of
// the context that was handed in.
func (l *Lease) Context() context.Context { return l.ctx }

// Fence is the lease's fencing token.
func (l *Lease) Fence() int64 { return l.fence }

// Until is the clock reading at which the lease ends unless it is renewed.
func (l *Lease) Until() float64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.until
}

// duration is that many seconds.
func duration(seconds float64) time.Duration {
	if seconds >= math.MaxInt64/1e9 {
		return math.MaxInt64
	}
	return time.Duration(seconds * 1e9)
}

// Margin is how long before its end a lease on the system clock is no longer trusted, so that what
// was started can be stopped before another worker begins.
func Margin(ttl float64) time.Duration { return min(duration(ttl/10), 5*time.Second) }

// left is how long the lease can be trusted. On a clock of the job's own no time passes by itself.
func (l *Lease) left() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.at.System {
		return math.MaxInt64
	}
	trust := duration(l.ttl) - Margin(l.ttl)
	now := time.Now()
	// The monotonic clock stands still while a machine sleeps; the system clock may be put back.
	return min(trust-now.Sub(l.start), trust-now.Round(0).Sub(l.start.Round(0)))
}

func (l *Lease) expire() {
	if left := l.left(); left > 0 {
		l.expiry.Reset(left)
		return
	}
	l.mu.Lock()
	fault := l.fault
	l.mu.Unlock()
	l.lose(&LostError{Err: fault})
}

func (l *Lease) lose(e *LostError) {
	e.ID, e.Owner, e.Fence = l.id, l.owner, l.fence
	l.cancel(e)
}

// poke lets the lease look at the store.
func (l *Lease) poke() {
	select {
	case l.pokes <- struct{}{}:
	default:
	}
}

// keep renews until the lease is over.
func (l *Lease) keep() {
	timer := time.NewTimer(l.rest())
	defer timer.Stop()
	for {
		due := true
		select {
		case <-l.ctx.Done():
			return
		case <-timer.C:
		case <-l.pokes:
			due = l.look()
		}
		if due {
			start := time.Now()
			a, err := l.act(l.ctx, true, func(r *store.Record, now, ttl float64) (store.Verdict, error) {
				return r.Renew(l.owner, l.fence, now, ttl)
			})
			l.renewed(start, a, err)
		}
		timer.Reset(l.rest())
	}
}

// rest is the time until the next renewal, or until the next attempt after one that failed.
func (l *Lease) rest() time.Duration {
	left := l.left()
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.fault != nil:
		return retryRest(l.ttl)
	case !l.at.System:
		return math.MaxInt64 // its clock moves by events
	}
	next := duration(l.ttl/3) - time.Since(l.start)
	return max(min(next, left), 0)
}

func retryRest(ttl float64) time.Duration {
	return min(max(duration(ttl/30), 10*time.Millisecond), time.Second)
}

// look reads the store and reports whether the lease should be renewed now.
func (l *Lease) look() (due bool) {
	var v store.Verdict
	_, err := l.engine.View(l.ctx, []string{l.id}, func(rs []*store.Record) error {
		r := rs[0]
		if v.Reason = r.Holds(l.owner, l.fence, math.Inf(-1)); v.Reason != "" {
			v.Owner, v.Fence, v.Until = r.Owner, r.Fence, r.Until
			return nil
		}
		reading, ttl := l.terms(r)
		l.mu.Lock()
		defer l.mu.Unlock()
		l.until = r.Until
		due = l.fault != nil || !reading.System && reading.Time-l.at.Time >= ttl/3
		return nil
	})
	if err == nil && !v.OK() {
		l.lose(&LostError{Verdict: v})
	}
	return due && l.ctx.Err() == nil
}

// renewed takes in how a renewal ended.
func (l *Lease) renewed(start time.Time, a answer, err error) {
	switch v := a.Verdict; {
	case l.ctx.Err() != nil:
	case err != nil && hopeless(err):
		l.lose(&LostError{Err: err})
	case err == nil && !v.OK():
		l.lose(&LostError{Verdict: v})
	case err != nil:
		l.mu.Lock()
		l.fault = err
		l.mu.Unlock()
	default:
		l.mu.Lock()
		l.start, l.at, l.ttl, l.until, l.fault = start, a.at, a.ttl, v.Until, nil
		l.mu.Unlock()
		l.expiry.Reset(max(l.left(), 0))
	}
}

// hopeless reports whether trying again cannot help.
func hopeless(err error) bool {
	return errors.Is(err, store.ErrLost) || errors.Is(err, store.ErrClosed) || errors.Is(err, store.ErrInvalid)
}

// answer is a verdict, and the terms on which it was found.
type answer struct {
	store.Verdict
	at  store.Reading
	ttl float64
}

// act lets op decide in a transaction that reads and raises the job's clock mark. A lease that is no
// longer the current one leaves the mark alone. strict says that a clock that has gone back decides
// nothing.
func (l *Lease) act(ctx context.Context, strict bool, op func(r *store.Record, now, ttl float64) (store.Verdict, error)) (a answer, err error) {
	_, err = l.engine.Update(ctx, []string{l.id}, func(rs []*store.Record) (err error) {
		// Whoever was stopped on the way here looks again now that nobody else can write.
		if l.left() <= 0 {
			l.expire()
		}
		if l.over() {
			return context.Cause(l.ctx)
		}
		r := rs[0]
		if a.at, a.ttl, err = observe(r, l.owner, l.fence, l.terms, strict); err != nil {
			return err
		}
		if a.Verdict, err = op(r, a.at.Time, a.ttl); err == nil && a.OK() {
			r.Decided(a.at.Time)
		}
		return err
	})
	return a, err
}

func (l *Lease) over() bool { return l.ctx.Err() != nil }

// observe reads the job's clock for (owner, fence), and holds it against the mark where theirs is the
// current lease.
func observe(r *store.Record, owner string, fence int64, t terms, strict bool) (at store.Reading, ttl float64, err error) {
	at, ttl = t(r)
	if r.Holds(owner, fence, math.Inf(-1)) != "" {
		return at, max(ttl, 1), nil // it will be refused, whatever the clock
	}
	if r.Mark != nil && r.Mark.System != at.System {
		return at, ttl, errKind // what then ends the lease is the controller's to do
	}
	now, ok := r.Observe(at)
	switch {
	case !ok && strict:
		return at, ttl, errClock
	case ttl <= 0 && strict:
		return at, ttl, errUntimed
	}
	at.Time = now
	return at, ttl, nil
}

// Complete stores the result and ends the lease. Where the store cannot answer it tries again as long
// as the lease lasts and ctx is not done. Done under the lease's own fence is success. Errors: a
// [*LostError]; those that wrap [store.ErrInvalid] or ctx's, after which the lease goes on.
func (l *Lease) Complete(ctx context.Context, result string) error {
	return l.finish(ctx, true, func(r *store.Record, now, _ float64) (store.Verdict, error) {
		return r.Complete(l.owner, l.fence, now, result)
	}, func(v store.Verdict) bool { return v.Reason == store.Done && v.Owner == l.owner && v.Fence == l.fence })
}

// Release gives the job back, so that it need not wait for the end of the lease, and ends the lease.
func (l *Lease) Release(ctx context.Context) error {
	return l.finish(ctx, false, func(r *store.Record, _, _ float64) (store.Verdict, error) {
		return r.Release(l.owner, l.fence)
	}, func(v store.Verdict) bool { return v.Reason == store.NotOwner && v.Owner == "" && v.Fence == l.fence })
}

// Close stops renewing. The lease runs out by itself.
func (l *Lease) Close() {
	l.cancel(ErrEnded)
	l.expiry.Stop()
	l.loop.Wait()
}

// finish carries op out, and knows by ours a refusal that says it has been before.
func (l *Lease) finish(ctx context.Context, strict bool, op func(*store.Record, float64, float64) (store.Verdict, error), ours func(store.Verdict) bool) error {
	for {
		a, err := l.act(ctx, strict, op)
		v := a.Verdict
		var lost *LostError
		switch {
		case err == nil && (v.OK() || ours(v)):
			l.Close()
			return nil
		case err == nil:
			l.lose(&LostError{Verdict: v})
		case errors.Is(err, store.ErrInvalid):
			return err
		case hopeless(err):
			l.lose(&LostError{Err: err})
		}
		if l.over() {
			l.Close()
			// A renewal may have been told first what an answer that was lost had to say.
			if err := context.Cause(l.ctx); !errors.As(err, &lost) || !ours(lost.Verdict) {
				return err
			}
			return nil
		}
		l.mu.Lock()
		rest := retryRest(l.ttl)
		l.mu.Unlock()
		retry := time.NewTimer(rest)
		select {
		case <-ctx.Done():
			retry.Stop()
			return errors.Join(context.Cause(ctx), err)
		case <-l.ctx.Done():
		case <-retry.C:
		}
		retry.Stop()
	}
}

// note adds an event to the history, if the lease is still the current one.
func (l *Lease) note(ctx context.Context, verb, message string) error {
	_, err := l.act(ctx, false, func(r *store.Record, now, _ float64) (store.Verdict, error) {
		if reason := r.Holds(l.owner, l.fence, math.Inf(-1)); reason != "" {
			return store.Verdict{Reason: reason}, nil
		}
		r.Note(store.Event{Verb: verb, Owner: l.owner, Fence: l.fence, Clock: &now, Message: message})
		return store.Verdict{}, nil
	})
	return err
}
