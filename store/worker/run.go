package worker

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"leasehold.dev/leasehold/store"
)

var negInf = math.Inf(-1)

// Store is what Run needs of a storage.
type Store interface {
	store.Engine
	// Records calls f with every record. Errors: *store.RowError for some of them, joined, after the
	// others; those of View.
	Records(ctx context.Context, f func(*store.Record) error) error
	// Changes returns the ids that others have changed since the last call; all is true where that
	// cannot be told. Errors are those of Update.
	Changes(ctx context.Context) (ids []string, all bool, err error)
}

// Spec is what is declared of a job.
type Spec struct {
	TTL   float64
	Clock *float64 // nil: the system clock
	// Keep says that a lease for which there is no room is kept until there is some. Otherwise it is
	// left to run out, and goes to the next worker.
	Keep bool
}

// Job is a lease to work under.
type Job struct {
	ID    string
	Owner string
	Fence int64   // hand it on with everything that is written elsewhere
	Until float64 // of the lease as it began; it is renewed
}

// Func does the work of a job. Its result is stored if err is nil and the lease still holds. It
// should return soon after ctx is done.
type Func func(ctx context.Context, job Job) (result string, err error)

// Options of [Run].
type Options struct {
	Name string // the worker's, as manifests declare it
	// MaxInFlight is how many functions run at once; 0: as many as there are leases.
	MaxInFlight int
	// Drain is how long functions may go on after Run's context is done, before theirs is.
	Drain time.Duration
	// Spec returns what is declared of a job, or false if it is not to be picked up; it is called by
	// many goroutines. Left out, the store knows what the controller decided from.
	Spec func(id string) (Spec, bool)
	// TTL is that of jobs which no controller has decided about, and for which there is no Spec.
	TTL float64
	// Wake signals that the store, or what Spec returns, may have changed. Left out, the store is
	// asked ten times a second.
	Wake <-chan struct{}
	Log  *slog.Logger
	// Backoff is how long a lease is kept after the n-th failure in a row, n counting from 0. Left
	// out, that is a second, doubling up to five minutes.
	Backoff func(n int) time.Duration
}

// ErrStopping is the cause of a function's cancelled context when Run was asked to stop and Drain is
// over.
var ErrStopping = errors.New("the worker is stopping")

// agent is a call of Run.
type agent struct {
	st Store
	o  Options
	do Func
	by string

	stop    <-chan struct{} // no new jobs
	drained context.Context // the functions' time is over
	life    context.Context // of the leases
	room    chan struct{}   // filled by functions that run; nil: there is always some
	ended   chan outcome
	wg      sync.WaitGroup

	// Of the loop alone.
	leased map[string]int64 // jobs leased to us that nobody has picked up: their fences
	dead   map[string]int64 // fences that can no longer be picked up
	failed map[string]int   // failures in a row
	unread map[string]bool  // ids that a fault kept from being looked at
	rescan bool             // all of them

	mu      sync.Mutex
	running map[string]*Lease // nil while it is being picked up
	specs   map[string]Spec   // the last one known, of running jobs
}

// outcome tells the loop that a job no longer runs.
type outcome struct {
	id     string
	failed bool
	dead   int64 // the fence, if it can no longer be picked up
}

// Run works on the jobs that are leased to o.Name until ctx is done. Then it takes no new ones, lets
// running functions finish for o.Drain, cancels them, releases what is not complete, and returns nil.
// An error is a fault that nothing but a restart can mend.
func Run(ctx context.Context, st Store, o Options, do Func) error {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Backoff == nil {
		o.Backoff = backoff
	}
	life, kill := context.WithCancelCause(context.WithoutCancel(ctx))
	defer kill(ErrEnded)
	drained, drain := context.WithCancel(life)
	defer drain()
	a := &agent{
		st: st, o: o, do: do, by: agentName(),
		stop: ctx.Done(), drained: drained, life: life, ended: make(chan outcome),
		leased: map[string]int64{}, dead: map[string]int64{}, failed: map[string]int{}, unread: map[string]bool{},
		running: map[string]*Lease{}, specs: map[string]Spec{},
	}
	if o.MaxInFlight > 0 {
		a.room = make(chan struct{}, o.MaxInFlight)
	}
	return a.run(kill, drain)
}

// backoff is a second, doubling to five minutes.
func backoff(n int) time.Duration {
	return min(time.Second<<min(n, 10), 5*time.Minute)
}

const (
	askRest   = 100 * time.Millisecond // between two looks at the store, where nobody signals
	faultRest = time.Second            // after a fault of the store
	lastRest  = 10 * time.Second       // for the last word to a store that is at fault
)

func (a *agent) run(kill context.CancelCauseFunc, drain func()) (fatal error) {
	var ask <-chan time.Time
	if a.o.Wake == nil {
		ticker := time.NewTicker(askRest)
		defer ticker.Stop()
		ask = ticker.C
	}
	again := time.NewTimer(0) // the first look
	defer again.Stop()
	stop, wake := a.stop, a.o.Wake
	for stop != nil && fatal == nil || !a.idle() {
		changes := true
		select {
		case <-stop:
			stop = nil
			defer time.AfterFunc(a.o.Drain, drain).Stop()
			continue
		case e := <-a.ended:
			a.forget(e)
			changes = false
		case _, ok := <-wake:
			if !ok {
				wake = nil // its context is done, as ours will be
			}
		case <-ask:
		case <-again.C:
		}
		if err := a.look(changes); err != nil {
			if hopeless(err) {
				fatal = err
				kill(err)
				continue
			}
			a.o.Log.Warn("looking for jobs: " + err.Error())
			again.Reset(faultRest)
		}
		if stop != nil && fatal == nil {
			a.start()
		}
	}
	a.wg.Wait()
	return fatal
}

func (a *agent) idle() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.running) == 0
}

func (a *agent) forget(e outcome) {
	a.mu.Lock()
	delete(a.running, e.id)
	delete(a.specs, e.id)
	a.mu.Unlock()
	if e.failed {
		a.failed[e.id]++
	} else {
		delete(a.failed, e.id)
	}
	if e.dead > 0 {
		a.dead[e.id] = e.dead
	}
	a.unread[e.id] = true
}

// look takes in what has changed. What a fault kept from being read is read the next time.
func (a *agent) look(changes bool) error {
	if changes {
		ids, all, err := a.st.Changes(a.life)
		if err != nil {
			return err
		}
		for _, id := range ids {
			a.unread[id] = true
		}
		a.rescan = a.rescan || all
	}
	a.poke()
	if a.rescan {
		clear(a.leased)
		err := a.st.Records(a.life, func(r *store.Record) error { a.consider(r); return nil })
		if err != nil && !ofRows(err) {
			return err
		}
		a.rescan = false
		clear(a.unread)
	}
	for id := range a.unread {
		_, err := a.st.View(a.life, []string{id}, func(rs []*store.Record) error { a.consider(rs[0]); return nil })
		if err != nil && !ofRows(err) {
			return err
		}
		delete(a.unread, id)
	}
	return nil
}

// ofRows reports whether err concerns single rows, which the controller tells of.
func ofRows(err error) bool {
	var row *store.RowError
	return errors.As(err, &row) && !hopeless(err)
}

// consider notes whether a job is leased to us and not picked up by anybody.
func (a *agent) consider(r *store.Record) {
	if a.dead[r.ID] != r.Fence {
		delete(a.dead, r.ID)
	}
	if r.Exists && !r.Done && r.Owner == a.o.Name && (r.Pickup == nil || r.Pickup.Fence < r.Fence) && a.dead[r.ID] == 0 {
		a.leased[r.ID] = r.Fence
		return
	}
	delete(a.leased, r.ID)
	if r.Done || !r.Exists {
		delete(a.failed, r.ID)
	}
}

// poke lets those leases look at the store whose job has changed there, or whose clock has moved.
func (a *agent) poke() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for id, l := range a.running {
		if l == nil {
			continue
		}
		moved := false
		if a.o.Spec != nil {
			if is, ok := a.o.Spec(id); ok && !is.same(a.specs[id]) {
				a.specs[id], moved = is, true
			}
		}
		if moved || a.rescan || a.unread[id] {
			l.poke()
		}
	}
}

func (s Spec) same(t Spec) bool {
	return s.TTL == t.TTL && (s.Clock == nil) == (t.Clock == nil) && (s.Clock == nil || *s.Clock == *t.Clock)
}

// start picks up what there is room for.
func (a *agent) start() {
	for _, id := range slices.SortedFunc(maps.Keys(a.leased), cmp.Compare[string]) {
		a.mu.Lock()
		_, runs := a.running[id]
		a.mu.Unlock()
		if runs {
			continue // one function at a time for a job: the next when that has ended
		}
		var spec Spec
		if a.o.Spec != nil {
			var ok bool
			if spec, ok = a.o.Spec(id); !ok {
				continue
			}
		}
		has := a.enter(nil)
		if !has && !spec.Keep {
			continue
		}
		fence := a.leased[id]
		delete(a.leased, id)
		n := a.failed[id]
		a.mu.Lock()
		a.running[id], a.specs[id] = nil, spec
		a.mu.Unlock()
		a.wg.Go(func() { a.one(id, fence, n, has) })
	}
}

// enter takes room for a function, and reports whether it did. It waits for some until l is over or
// the worker is to stop; not at all without l.
func (a *agent) enter(l *Lease) bool {
	if a.room == nil {
		return true
	}
	select {
	case a.room <- struct{}{}:
		return true
	default:
	}
	if l == nil {
		return false
	}
	select {
	case a.room <- struct{}{}:
		return true
	case <-l.ctx.Done():
	case <-a.stop:
	}
	return false
}

func (a *agent) leave() {
	if a.room != nil {
		<-a.room
	}
}
