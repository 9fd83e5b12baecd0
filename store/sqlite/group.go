package sqlite

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"time"

	"leasehold.dev/leasehold/store"
)

// Whoever finds nobody leading leads: it takes what waits, decides it in one transaction, answers,
// and hands the lead to the first that came in the meantime. A lone caller thus waits for nobody
// and changes no goroutine, and a caller waits for the running commit and its own.
const (
	maxRequests = 256
	maxIDs      = 4096
)

// SQLite polls for a lock at least every 100 ms. Under unbroken pressure nobody begins a
// transaction in the first part of each period of wall time, which all processes share, so that
// another program never waits much longer than a period.
const (
	period = 3 * time.Second
	gap    = 120 * time.Millisecond
)

type request struct {
	ids    []string
	decide func([]*store.Record) error
	solo   func(*session) error // instead of ids and decide: what runs alone, outside a transaction

	stamp    store.Stamp
	err      error
	panicked *panicked

	// Below the mutex of DB.
	wake   chan struct{}
	begun  bool
	leader bool
}

// panicked carries a panic of a decision to the caller whose decision it was.
type panicked struct {
	value any
	stack []byte
}

func (p *panicked) Error() string { return fmt.Sprintf("%v\n\n%s", p.value, p.stack) }

// submit runs r and returns its error.
func (db *DB) submit(ctx context.Context, r *request) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	db.mu.Lock()
	switch {
	case db.closed:
		db.mu.Unlock()
		return store.ErrClosed
	case db.lost:
		db.mu.Unlock()
		return store.ErrLost
	}
	db.queue = append(db.queue, r)
	if !db.led {
		db.led, r.leader, r.begun = true, true, true
		db.mu.Unlock()
	} else {
		r.wake = make(chan struct{}, 1)
		db.mu.Unlock()
		select {
		case <-r.wake:
		case <-ctx.Done():
			if db.leave(r) {
				return ctx.Err()
			}
			<-r.wake
		}
	}
	if r.leader {
		db.lead()
	}
	if r.panicked != nil {
		panic(r.panicked)
	}
	return r.err
}

// leave takes r out of the queue, unless it has begun.
func (db *DB) leave(r *request) bool {
	db.mu.Lock()
	defer db.mu.Unlock()
	if r.begun {
		return false
	}
	for i, q := range db.queue {
		if q == r {
			db.queue = append(db.queue[:i:i], db.queue[i+1:]...)
			return true
		}
	}
	return false
}

// lead decides what waits, once, and hands on. The leader's own request is the first.
func (db *DB) lead() {
	db.gather()
	batch := db.take()
	finished := false
	defer func() {
		// Nobody may wait for ever or be told what did not happen, whatever went wrong here.
		if !finished {
			for _, r := range batch {
				r.err = fmt.Errorf("%s: the caller that was to commit this decision ended in the middle", db.path)
			}
		}
		db.mu.Lock()
		if len(db.queue) > 0 {
			next := db.queue[0]
			next.leader, next.begun = true, true
			next.wake <- struct{}{}
		} else {
			db.led = false
		}
		db.mu.Unlock()
		for _, r := range batch[1:] {
			r.wake <- struct{}{}
		}
	}()
	db.run(batch)
	finished = true
}

// gather lets those that the last commit woke come back, so that they need not wait for the next
// commit but one.
func (db *DB) gather() {
	if db.batched <= 1 {
		return
	}
	for before := 0; ; {
		db.mu.Lock()
		n := len(db.queue)
		db.mu.Unlock()
		if n >= db.batched || n == before {
			return
		}
		before = n
		runtime.Gosched()
	}
}

func (db *DB) take() []*request {
	db.mu.Lock()
	defer db.mu.Unlock()
	n, ids := 0, 0
	for n < len(db.queue) && n < maxRequests {
		r := db.queue[n]
		if n > 0 && (r.solo != nil || ids+len(r.ids) > maxIDs) {
			break
		}
		r.begun = true
		ids += len(r.ids)
		n++
		if r.solo != nil {
			break
		}
	}
	batch := append([]*request(nil), db.queue[:n]...)
	rest := copy(db.queue, db.queue[n:])
	clear(db.queue[rest:])
	db.queue = db.queue[:rest]
	db.batched = n
	return batch
}

// run decides a batch and fills in its answers.
func (db *DB) run(batch []*request) {
	db.makeRoom()
	err := db.conn.Raw(func(any) error {
		if batch[0].solo != nil {
			batch[0].err = db.solo(batch[0])
		} else {
			db.decide(batch)
		}
		return nil
	})
	db.lastEnd = time.Now()
	if err != nil {
		for _, r := range batch {
			r.err = db.fault(err)
		}
	}
	if errors.Is(batch[0].err, store.ErrLost) || db.files.lost() {
		db.mu.Lock()
		db.lost = true
		db.mu.Unlock()
		for _, r := range batch {
			r.err, r.panicked = store.ErrLost, nil
		}
	}
}

// solo runs r and turns a panic of it into one of its caller.
func (db *DB) solo(r *request) (err error) {
	defer func() {
		if p := recover(); p != nil {
			r.panicked = &panicked{p, debug.Stack()}
			db.session.rollback.exec()
		}
	}()
	return db.fault(r.solo(db.session))
}

// decide decides a batch in one transaction. Where the database refuses a write of it, the batch is
// halved, until the decision that it refuses stands alone.
func (db *DB) decide(batch []*request) {
	err := db.transact(db.session, batch)
	if err == nil {
		return
	}
	if rowFault(err) && len(batch) > 1 {
		db.decide(batch[:len(batch)/2])
		db.decide(batch[len(batch)/2:])
		return
	}
	for _, r := range batch {
		if r.err == nil {
			r.err = db.fault(err)
		}
	}
}

// makeRoom leaves the lock free for a while where it has not been free for long.
func (db *DB) makeRoom() {
	if db.memory {
		return
	}
	now := time.Now()
	if now.Sub(db.lastEnd) >= gap {
		db.lastGap = now
		return
	}
	held := now.Sub(db.lastGap)
	if held < period/2 {
		return
	}
	phase := time.Duration(now.UnixNano() % int64(period))
	switch {
	case phase < gap:
		time.Sleep(gap - phase)
	case held > period+period/4:
		time.Sleep(gap)
	default:
		return
	}
	db.lastGap = time.Now()
}
