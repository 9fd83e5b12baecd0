package controller

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"
	"k8s.io/client-go/util/workqueue"

	"leasehold.dev/leasehold/manifests"
	"leasehold.dev/leasehold/store"
)

// Store is what the controller needs of a storage.
type Store interface {
	store.Engine
	// Changes returns the ids that others have changed since the last call; all is true where that
	// cannot be told. Errors are those of Update.
	Changes(ctx context.Context) (ids []string, all bool, err error)
	// Rotate gives the store a new identity, ends running leases and raises every fence by
	// store.Jump: after the store turned out to be an older copy.
	Rotate(ctx context.Context) (store.Stamp, error)
}

// Source is where manifests come from and status goes to.
type Source interface {
	// Watch calls found with the keys of manifests that are there, at first all of them, and then
	// with those that may have changed. It calls ready once the first were found, and stored when
	// the store may have been written to. It returns when ctx is done, or with the fault that ended it.
	Watch(ctx context.Context, found func(keys []string), ready, stored func()) error
	// Name is what a user would call the key.
	Name(key string) string
	// Load reads what a key holds. Errors: fs.ErrNotExist; manifests.ErrBusy while somebody is
	// writing it; others, which concern this key alone.
	Load(key string) (*Manifest, error)
	// WriteStatus writes the status of the documents that are in statuses, by index. Errors:
	// manifests.ErrChanged and ErrBusy where a save came in between, gitindex.ErrHeld if found will
	// be called with the key when it may be written, manifests.ErrNotWritable, others.
	WriteStatus(m *Manifest, statuses map[int]*manifests.JobStatus) error
}

// Manifest is what a key of the source holds.
type Manifest struct {
	Key  string
	File *manifests.File
	// Settled is false if the content may have changed within the grain of its timestamp, or is
	// fresh enough to be unfinished: it has to be looked at again.
	Settled bool

	snapshot manifests.Snapshot
}

// Controller reconciles the manifests of a source with a store.
type Controller struct {
	source Source
	store  Store
	opt    Options

	index *index
	diary *diary
	queue workqueue.TypedRateLimitingInterface[string]
	first sync.Map // key → *Manifest: loaded at the start, and not reconciled yet
	write chan struct{}

	mu      sync.Mutex
	fatal   error
	started bool     // prepare is done
	early   []string // keys that changed before
	stop    context.CancelFunc
	open    map[string]int       // keys that have not settled yet: how often a pass was asked for
	unseen  map[string]bool      // keys that may have changed since their last pass
	idle    *sync.Cond           // open is empty, or nothing will empty it
	settled time.Time            // when the last one left open
	faulty  map[string]bool      // keys whose last pass failed
	refused map[string]int       // keys with documents that are not accepted, and how many
	passes  map[string]int       // keys waiting for a writer to finish: how often in a row
	timed   map[string]reading   // keys that wait for a reading of the system clock
	good    map[string]*standing // by key
	ahead   time.Duration        // of the system clock, against began and wall
	outage  outage
	rotate  sync.Mutex

	began time.Time // by the clock of timers
	wall  time.Time // by the system clock
}

// absence is how long a manifest must be gone before it counts as deleted, so that a save by moving
// aside, or a renamed file, is no deletion.
const absence = time.Second

// workers decide at once. They mostly wait for a commit, which serves all of them.
const (
	workers = 256
	writers = 16 // and write back
)

// New returns a controller of src's manifests on st.
func New(src Source, st Store, opt Options) *Controller {
	if opt.Log == nil {
		opt.Log = slog.New(slog.DiscardHandler)
	}
	if opt.Now == nil {
		opt.Now = time.Now
	}
	if opt.Jumps == nil {
		opt.Jumps = jumps
	}
	c := &Controller{
		source: src, store: st, opt: opt,
		index: newIndex(), diary: newDiary(opt.Log),
		// A fault that many manifests share costs no more than a hundred tries a second.
		queue: workqueue.NewTypedRateLimitingQueueWithConfig(workqueue.NewTypedMaxOfRateLimiter(
			workqueue.NewTypedItemExponentialFailureRateLimiter[string](50*time.Millisecond, 30*time.Second),
			&workqueue.TypedBucketRateLimiter[string]{Limiter: rate.NewLimiter(100, 200)}),
			workqueue.TypedRateLimitingQueueConfig[string]{Name: queueName, MetricsProvider: opt.Hooks.Queue}),
		write: make(chan struct{}, writers),
		open:  map[string]int{}, unseen: map[string]bool{}, faulty: map[string]bool{}, refused: map[string]int{}, passes: map[string]int{},
		timed: map[string]reading{}, good: map[string]*standing{}, began: time.Now(), wall: opt.Now().Round(0),
	}
	c.idle = sync.NewCond(&c.mu)
	return c
}

// Summary says how a single pass ended.
type Summary struct {
	Manifests int
	Refused   int // documents that are not accepted
	Faulty    int // manifests that could not be read or written
}

// Run reconciles until ctx is done, and returns after what was begun has been finished. An error is
// a fault that nothing but a restart can mend.
func (c *Controller) Run(ctx context.Context) error {
	return c.run(ctx, nil)
}

// Once reconciles everything that is there and returns. Manifests that somebody is writing are
// waited for up to patience.
func (c *Controller) Once(ctx context.Context, patience time.Duration) (Summary, error) {
	var s Summary
	err := c.run(ctx, func() { s = c.settle(ctx, patience) })
	return s, err
}

func (c *Controller) run(ctx context.Context, once func()) error {
	ctx, c.stop = context.WithCancel(ctx)
	defer c.stop()
	var g errgroup.Group
	// What has been begun is finished after a cancel: the workers get a context of their own.
	work := context.WithoutCancel(ctx)
	ready := make(chan struct{})
	var begin sync.Once
	var initial []string
	g.Go(func() error {
		started := false
		found := func(keys []string) {
			if !started {
				initial = append(initial, keys...)
				return
			}
			c.changed(keys)
		}
		err := c.source.Watch(ctx, found, func() {
			started = true
			begin.Do(func() { close(ready) })
		}, func() { c.stored(work) })
		if err != nil && ctx.Err() == nil {
			c.fail(err)
		}
		begin.Do(func() { close(ready) })
		return nil
	})
	<-ready
	if err := c.prepare(work, initial); err != nil {
		c.fail(err)
	} else if c.opt.Hooks.Ready != nil {
		c.opt.Hooks.Ready()
	}
	c.prepared()
	g.Go(func() error {
		c.opt.Jumps(ctx, c.jumped)
		return nil
	})
	for range workers {
		g.Go(func() error {
			for c.next(work) {
			}
			return nil
		})
	}
	if once != nil && ctx.Err() == nil {
		once()
	} else {
		<-ctx.Done()
	}
	c.stop()
	c.queue.ShutDown()
	_ = g.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.fatal
}

// fail ends the controller: what is wrong concerns everything it does.
func (c *Controller) fail(err error) {
	c.mu.Lock()
	if c.fatal == nil {
		c.fatal = err
	}
	c.idle.Broadcast()
	c.mu.Unlock()
	c.stop()
}

// changed asks for a pass over keys that have changed since they were loaded at the start, if they
// were.
func (c *Controller) changed(keys []string) {
	c.mu.Lock()
	if !c.started {
		c.early = append(c.early, keys...)
	}
	c.mu.Unlock()
	for _, k := range keys {
		c.first.Delete(k)
	}
	c.enqueue(keys...)
}

// prepared forgets what was loaded of keys that have changed in the meantime.
func (c *Controller) prepared() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.started = true
	for _, k := range c.early {
		c.first.Delete(k)
	}
	c.early = nil
}

// prepare loads every manifest, so that it is known what belongs to whom and whether the store is
// outdated before the first decision, and then queues them.
func (c *Controller) prepare(ctx context.Context, keys []string) error {
	slices.Sort(keys)
	keys = slices.Compact(keys)
	var g errgroup.Group
	g.SetLimit(writers)
	var mu sync.Mutex
	latest := map[string]int64{} // by identity: the largest revision that a status names
	for _, k := range keys {
		g.Go(func() error {
			m, err := c.source.Load(k)
			if err != nil {
				return nil // its own pass says so
			}
			c.index.put(k, idsOf(m), c.opt.Now())
			c.first.Store(k, m)
			for _, d := range m.File.Docs {
				if d.Status == nil {
					continue
				}
				if named, ok := parseStamp(d.Status.Store); ok {
					mu.Lock()
					latest[named.Identity] = max(latest[named.Identity], named.Revision)
					mu.Unlock()
				}
			}
			return nil
		})
	}
	_ = g.Wait()
	// From here on others' changes are told apart; what they did before is seen anyway.
	if !c.opt.DryRun {
		_, _, _ = c.store.Changes(ctx)
	}
	stamp, err := c.store.View(ctx, nil, func([]*store.Record) error { return nil })
	if err != nil {
		return err
	}
	if latest[stamp.Identity] > stamp.Revision {
		if err := c.outdated(ctx, stamp.Identity); err != nil {
			return err
		}
	}
	c.enqueue(keys...)
	return nil
}

// outdated takes a new identity for the store, unless that has happened since identity was seen.
func (c *Controller) outdated(ctx context.Context, identity string) error {
	c.rotate.Lock()
	defer c.rotate.Unlock()
	now, err := c.store.View(ctx, nil, func([]*store.Record) error { return nil })
	if err != nil || now.Identity != identity {
		return err
	}
	if c.opt.DryRun {
		c.opt.Log.Warn("the database is an older copy than the manifests' status: it would take a new identity, and every fence would jump")
		return nil
	}
	next, err := c.store.Rotate(ctx)
	if err == nil {
		c.opt.Log.Warn("the database is an older copy than the manifests' status: it has taken a new identity, running leases end, and every fence jumps",
			slog.String("was", identity), slog.String("is", next.Identity))
	}
	return err
}

// stored queues what others have changed in the store.
func (c *Controller) stored(ctx context.Context) {
	if c.opt.DryRun {
		return
	}
	ids, all, err := c.store.Changes(ctx)
	switch {
	case errors.Is(err, store.ErrLost):
		c.fail(err)
	case err != nil:
		c.diary.episode(slog.LevelWarn, "changes", err.Error(), "reading what others have changed in the store: "+err.Error())
		return
	}
	c.diary.over("changes")
	keys := c.index.keysOf(ids)
	if all {
		keys = c.index.all()
	}
	c.enqueue(keys...)
}

// enqueue asks for a pass over each key.
func (c *Controller) enqueue(keys ...string) {
	c.mu.Lock()
	for _, k := range keys {
		c.open[k]++
		c.unseen[k] = true
	}
	c.mu.Unlock()
	for _, k := range keys {
		c.queue.Add(k)
	}
}

// next takes one key from the queue and reconciles it. It reports false when the queue is closed.
func (c *Controller) next(ctx context.Context) bool {
	key, closed := c.queue.Get()
	if closed {
		return false
	}
	defer c.queue.Done(key)
	if c.queue.ShuttingDown() {
		return true // what has not been begun is for the next run
	}
	c.mu.Lock()
	asked := c.open[key]
	c.mu.Unlock()

	c.notice()

	began := time.Now()
	p, err := c.reconcile(ctx, key)
	c.opt.Hooks.pass(began, err)
	if errors.Is(err, store.ErrLost) {
		c.fail(err)
		return true
	}
	c.finish(key, asked, p, err)
	var sf *storeFault
	if errors.As(err, &sf) {
		c.suffer(key, sf)
		return true
	}
	c.relieve(key, p.decided)
	if err != nil {
		c.fault(key, err)
		if p.timed && !p.unsettled {
			c.queue.AddAfter(key, c.restOf(key, p)) // its leases go on, whether or not they can be shown
		}
		return true
	}
	c.diary.state(0, key, "")
	c.queue.Forget(key)
	if rest := c.restOf(key, p); p.after >= 0 {
		c.queue.AddAfter(key, rest)
	}
	return true
}

// finish notes how a pass over a key ended.
func (c *Controller) finish(key string, asked int, p pass, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.faulty, key)
	if err != nil {
		c.faulty[key] = true
	}
	if p.busy {
		c.passes[key]++
	} else {
		delete(c.passes, key)
	}
	if c.open[key] == asked {
		delete(c.unseen, key)
	}
	if (p.unsettled || p.busy) && err == nil {
		return
	}
	if c.open[key] == asked { // nobody has asked for another one meanwhile
		delete(c.open, key)
		c.settled = time.Now()
	}
	if len(c.open) == 0 {
		c.idle.Broadcast()
	}
}

// settle waits until every key has had its pass, and gives up when none has settled for as long as
// patience.
func (c *Controller) settle(ctx context.Context, patience time.Duration) Summary {
	expired := false
	var timer *time.Timer
	look := func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if left := patience - time.Since(c.settled); left > 0 && ctx.Err() == nil {
			timer.Reset(left)
			return
		}
		expired = true
		c.idle.Broadcast()
	}
	defer context.AfterFunc(ctx, look)()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.settled = time.Now()
	timer = time.AfterFunc(patience, look)
	defer timer.Stop()
	for len(c.open) > 0 && !expired && c.fatal == nil {
		c.idle.Wait()
	}
	s := Summary{Manifests: len(c.index.all()), Faulty: len(c.faulty)}
	for _, n := range c.refused {
		s.Refused += n
	}
	for key := range c.open {
		if !c.faulty[key] {
			s.Faulty++
			c.opt.Log.Warn("the manifest did not settle in time", slog.String("file", c.source.Name(key)))
		}
	}
	return s
}
