// Package store is the contract of Leasehold's storage: fenced leases on jobs.
//
// A lease is held by one owner until a clock reading, and carries a fencing token, the fence. What
// the package promises, of every engine that passes the suite in storetest:
//
//   - At any clock reading at most one (owner, fence) can renew or complete a job.
//   - A fence, once handed out, is never handed out again for that id.
//   - The first accepted result stays.
//   - No verdict is returned before the transaction that decided it is durable.
//
// What it does not promise: the clock is a number that the caller hands in and must not go
// backwards between callers (decisions made for a manifest keep a mark, see [Record.Observe]; the
// raw operations do not), and effects outside the store are fenced only where the outside system
// checks the fence too.
//
// The rules stand once, as methods of [Record] that touch nothing else. An [Engine] loads records,
// lets a function decide on them, and commits what changed.
//
// The idea of a token that the storage checks is from Kleppmann, "How to do distributed locking"
// (2016); Gray and Cheriton, "Leases" (SOSP 1989), is the origin of the lease.
package store

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"unicode/utf8"
)

// Reason says in one word why an operation was refused. The empty Reason means it was granted.
type Reason string

// The reasons, in the order in which they are judged.
const (
	NotFound   Reason = "NotFound"   // the store has no such job
	Done       Reason = "Done"       // the job has its result
	Held       Reason = "Held"       // claim only: a lease is running
	StaleFence Reason = "StaleFence" // the fence is not the current one
	NotOwner   Reason = "NotOwner"   // the fence is current, but another owner's
	Expired    Reason = "Expired"    // the lease has run out
)

// Verdict is the ordinary answer to claim, renew, complete and release: granted, or refused for a
// Reason. Owner, Fence and Until are what is current after the operation, in either case; a granted
// claim's Fence is the new one.
type Verdict struct {
	Reason Reason  `json:"reason,omitempty"`
	Owner  string  `json:"owner,omitempty"`
	Fence  int64   `json:"fence"`
	Until  float64 `json:"until"`
}

// OK reports whether the operation was granted.
func (v Verdict) OK() bool { return v.Reason == "" }

// Errors that engines and rules return. They are faults or misuse, never refusals.
var (
	// ErrInvalid is in every error about an argument that no store could accept.
	ErrInvalid = errors.New("invalid argument")
	// ErrFenceExhausted says that the job's fence is the largest 64-bit integer.
	ErrFenceExhausted = errors.New("the fence is at its largest value and cannot rise")
	// ErrLost says that the database at the path is no longer the one that is open: the engine
	// decides nothing more until the process is restarted.
	ErrLost = errors.New("the database file was deleted or replaced while in use; restart to go on")
	// ErrBusy says that another process held the database's lock for too long.
	ErrBusy = errors.New("the database is locked by another process")
	// ErrClosed says that the engine has been closed.
	ErrClosed = errors.New("the store is closed")
)

// RowError is the fault of a single row that is outside the contract's domain, such as one with an
// infinite until that another program wrote. It concerns its id alone.
type RowError struct {
	ID  string
	Err error
}

func (e *RowError) Error() string { return fmt.Sprintf("job %q: %v", e.ID, e.Err) }
func (e *RowError) Unwrap() error { return e.Err }

// Stamp names a store and one of its states. Identity is a short random word; Revision grows with
// every commit of ours.
type Stamp struct {
	Identity string
	Revision int64
}

func (s Stamp) String() string { return fmt.Sprintf("%s/%d", s.Identity, s.Revision) }

// Engine is the one primitive that a storage implements.
type Engine interface {
	// Update loads the records of ids (one each, in order; ids are distinct), calls decide once with
	// all of them, and commits atomically and durably what decide changed, together with the noted
	// events. It returns the stamp of the commit, or of the state read where nothing changed.
	// decide may be called again after a conflict, with fresh records, and must touch nothing else.
	// An error of decide is returned as it is, and nothing is changed then. Other errors: *RowError,
	// ErrLost, ErrBusy, ErrClosed, or what the storage reported; then nothing was committed, except
	// where the storage cannot know (the error says so). Once a commit has begun, a cancelled ctx no
	// longer ends the call.
	//
	// A decision that changes nothing but notes refusals need not be durable, and is answered even
	// where its events cannot be written.
	Update(ctx context.Context, ids []string, decide func([]*Record) error) (Stamp, error)

	// View is Update without the commit: what read changes is dropped.
	View(ctx context.Context, ids []string, read func([]*Record) error) (Stamp, error)
}

// Ops are the seven operations of the contract over an engine, with plain clock readings: they
// neither read nor raise a job's clock mark.
type Ops struct{ Engine Engine }

func (o Ops) one(ctx context.Context, id string, op func(*Record) error) error {
	if err := checkName("id", id); err != nil {
		return err
	}
	_, err := o.Engine.Update(ctx, []string{id}, func(r []*Record) error { return op(r[0]) })
	return err
}

// Enqueue inserts the job if it is new and reports whether it was.
func (o Ops) Enqueue(ctx context.Context, id string) (created bool, err error) {
	err = o.one(ctx, id, func(r *Record) error { created = r.Enqueue(); return nil })
	return created, err
}

// State returns the job's row; found is false if there is none.
func (o Ops) State(ctx context.Context, id string) (row Row, found bool, err error) {
	if err := checkName("id", id); err != nil {
		return Row{}, false, err
	}
	_, err = o.Engine.View(ctx, []string{id}, func(r []*Record) error {
		row, found = r[0].Row, r[0].Exists
		return nil
	})
	return row, found, err
}

// Claim leases the job to owner until now+ttl under a new fence.
func (o Ops) Claim(ctx context.Context, id, owner string, now, ttl float64) (v Verdict, err error) {
	err = o.one(ctx, id, func(r *Record) error { v, err = r.Claim(owner, now, ttl); return err })
	return v, err
}

// Renew makes the holder's lease last until now+ttl.
func (o Ops) Renew(ctx context.Context, id, owner string, fence int64, now, ttl float64) (v Verdict, err error) {
	err = o.one(ctx, id, func(r *Record) error { v, err = r.Renew(owner, fence, now, ttl); return err })
	return v, err
}

// Complete stores the holder's result and ends the job.
func (o Ops) Complete(ctx context.Context, id, owner string, fence int64, now float64, result string) (v Verdict, err error) {
	err = o.one(ctx, id, func(r *Record) error { v, err = r.Complete(owner, fence, now, result); return err })
	return v, err
}

// Release gives the holder's lease back, expired or not. The fence stays.
func (o Ops) Release(ctx context.Context, id, owner string, fence int64) (v Verdict, err error) {
	err = o.one(ctx, id, func(r *Record) error { v, err = r.Release(owner, fence); return err })
	return v, err
}

// ClaimMany starts a goroutine per owner, lets them all call Claim at once, and returns an answer
// per owner, in the order given. Of a free job exactly one owner gets the fence.
func (o Ops) ClaimMany(ctx context.Context, id string, owners []string, now, ttl float64) ([]Verdict, error) {
	if len(owners) == 0 {
		return nil, invalid("owners: at least one is needed")
	}
	verdicts, errs := make([]Verdict, len(owners)), make([]error, len(owners))
	start := make(chan struct{})
	var wg sync.WaitGroup
	for i, owner := range owners {
		wg.Go(func() {
			<-start
			verdicts[i], errs[i] = o.Claim(ctx, id, owner, now, ttl)
		})
	}
	close(start)
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return verdicts, err // they tend to be the same
		}
	}
	return verdicts, nil
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrInvalid, fmt.Sprintf(format, args...))
}

func checkName(what, s string) error {
	if s == "" {
		return invalid("%s: must not be empty", what)
	}
	return checkText(what, s)
}

// checkText refuses what JSON and YAML cannot carry unchanged.
func checkText(what, s string) error {
	if !utf8.ValidString(s) {
		return invalid("%s: must be valid UTF-8", what)
	}
	return nil
}

func checkClock(now float64) error {
	if math.IsNaN(now) || math.IsInf(now, 0) {
		return invalid("now: must be a finite number")
	}
	return nil
}

// deadline returns now+ttl, or an error where that is not a later finite number.
func deadline(now, ttl float64) (float64, error) {
	if err := checkClock(now); err != nil {
		return 0, err
	}
	if math.IsNaN(ttl) || math.IsInf(ttl, 0) || ttl <= 0 {
		return 0, invalid("ttl: must be a finite number greater than 0")
	}
	until := now + ttl
	if math.IsInf(until, 0) {
		return 0, invalid("now+ttl: must be a finite number")
	}
	if until <= now {
		return 0, invalid("ttl: %v is lost beside a now of %v; must be large enough to matter", ttl, now)
	}
	return until, nil
}
