package controller

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"
	"k8s.io/client-go/util/workqueue"

	"leasehold.dev/leasehold/controller/gitindex"
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

// Options of a controller. The zero value of each is a default.
type Options struct {
	Log    *slog.Logger
	Now    func() time.Time // the system clock
	DryRun bool             // decide, tell, and change nothing
	// Jumps calls jumped whenever the system clock was set, until ctx is done. The default asks the
	// kernel, where it tells.
	Jumps func(ctx context.Context, jumped func())
	// Before, where set, is called with the name of each step of a pass, and with the key, before it
	// is taken. An error ends the pass in place of the step. Tests fail, stop or meddle there.
	Before func(step, key string) error
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
	stop    context.CancelFunc
	open    map[string]int     // keys that have not settled yet: how often a pass was asked for
	idle    *sync.Cond         // open is empty, or nothing will empty it
	settled time.Time          // when the last one left open
	faulty  map[string]bool    // keys whose last pass failed
	refused map[string]int     // keys with documents that are not accepted, and how many
	passes  map[string]int     // keys waiting for a writer to finish: how often in a row
	timed   map[string]reading // keys that wait for a reading of the system clock
	ahead   time.Duration      // of the system clock, against began and wall
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
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedMaxOfRateLimiter(
			workqueue.NewTypedItemExponentialFailureRateLimiter[string](50*time.Millisecond, 30*time.Second),
			&workqueue.TypedBucketRateLimiter[string]{Limiter: rate.NewLimiter(100, 1000)})),
		write: make(chan struct{}, writers),
		open:  map[string]int{}, faulty: map[string]bool{}, refused: map[string]int{}, passes: map[string]int{},
		timed: map[string]reading{}, began: time.Now(), wall: opt.Now().Round(0),
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
			c.enqueue(keys...)
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
	}
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

	p, err := c.reconcile(ctx, key)
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
	if len(c.faulty) == 0 {
		c.diary.over("machine")
	}
}

// pass is what a pass over a key leads to.
type pass struct {
	after     time.Duration // when to look again; never: not
	unsettled bool          // the pass was not the last word on what is there
	busy      bool          // somebody is writing the manifest, or has saved it again
	decided   bool          // the store was asked
	timed     bool          // a job waits for a reading of the system clock
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
		return c.patience(key), nil
	case errors.Is(err, manifests.ErrNotRegular), errors.Is(err, manifests.ErrOutside), errors.Is(err, manifests.ErrTooLarge):
		// What stands there is no manifest, and stays so until an event tells otherwise. Its jobs
		// are frozen.
		c.noManifest(key, err)
		return pass{after: never}, nil
	case err != nil:
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
	statuses := map[int]*manifests.JobStatus{}
	now := seconds(c.opt.Now())
	p.reading = now
	for i, o := range outcomes {
		again, due := due(m.File.Docs[i], o, now)
		p.decided = p.decided || o.id != ""
		p.timed = p.timed || o.wake > 0
		p.after = sooner(p.after, again)
		if due {
			statuses[i] = o.status
		}
	}
	if !m.Settled {
		p.after, p.unsettled = sooner(p.after, settling), true
	}
	if len(statuses) > 0 && !c.opt.DryRun {
		if err := c.before("write", key); err != nil {
			return pass{after: never}, err
		}
		c.write <- struct{}{}
		err = c.source.WriteStatus(m, statuses)
		<-c.write
		if err == nil {
			err = c.before("written", key)
		}
	}
	switch {
	case errors.Is(err, manifests.ErrChanged), errors.Is(err, manifests.ErrBusy):
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
	if known {
		x := c.index.drop(key)
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
