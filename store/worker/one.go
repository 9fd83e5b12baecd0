package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"leasehold.dev/leasehold/store"
)

// terms returns what counts for a job now: what Spec says, and what it last said of one that is no
// longer to be picked up; without Spec, what the controller decided from.
func (a *agent) terms(id string) terms {
	if a.o.Spec == nil {
		return func(r *store.Record) (store.Reading, float64) {
			ttl := cmp.Or(r.TTL, a.o.TTL)
			if r.Mark != nil && !r.Mark.System {
				return store.Reading{Time: r.Mark.Time}, ttl
			}
			return SystemClock(), ttl
		}
	}
	return func(*store.Record) (store.Reading, float64) {
		s, ok := a.o.Spec(id)
		if !ok {
			a.mu.Lock()
			s = a.specs[id]
			a.mu.Unlock()
		}
		if s.Clock != nil {
			return store.Reading{Time: *s.Clock}, s.TTL
		}
		return SystemClock(), s.TTL
	}
}

// one works under one lease. has says that there is room for its function.
func (a *agent) one(id string, fence int64, failures int, has bool) {
	log := a.o.Log.With(slog.String("job", id), slog.Int64("fence", fence))
	leave := func() {
		if has {
			has = false
			a.leave()
		}
	}
	e := outcome{id: id}
	defer func() {
		leave()
		a.ended <- e
	}()
	l, err := pickUp(a.life, a.st, &Lease{engine: a.st, id: id, owner: a.o.Name, fence: fence, terms: a.terms(id)}, a.by)
	var lost *LostError
	switch {
	case errors.As(err, &lost), errors.Is(err, errTaken):
		e.dead = fence
		log.Debug("not picked up: " + err.Error())
		return
	case err != nil:
		log.Warn("it cannot be picked up yet: " + err.Error())
		leave()
		a.rest(a.life, faultRest)
		return
	}
	defer l.Close()
	a.mu.Lock()
	a.running[id] = l
	a.mu.Unlock()
	l.poke() // what came before that was for nobody
	if !has {
		log.Debug("waits for room")
		if has = a.enter(l); !has {
			if !l.over() {
				a.release(l, log, "released: the worker is stopping")
			}
			return
		}
	}
	log.Info("started")
	ctx, cancel := context.WithCancelCause(l.Context())
	defer cancel(nil)
	defer context.AfterFunc(a.drained, func() { cancel(ErrStopping) })()
	result, err := a.do(ctx, Job{ID: id, Owner: a.o.Name, Fence: fence, Until: l.Until()})
	leave()
	e.failed = a.conclude(l, log, result, err, failures, context.Cause(ctx) == ErrStopping)
}

// conclude writes down what came of a function, and reports whether it failed.
func (a *agent) conclude(l *Lease, log *slog.Logger, result string, err error, failures int, stopped bool) (failed bool) {
	if l.over() {
		log.Warn(context.Cause(l.ctx).Error() + "; nothing is written")
		return false
	}
	if err == nil {
		ctx := a.drained
		if stopped {
			var cancel func()
			ctx, cancel = context.WithTimeout(a.life, lastRest)
			defer cancel()
		}
		var lost *LostError
		switch err = l.Complete(ctx, result); {
		case err == nil:
			log.Info("completed", slog.String("result", brief(result)))
			return false
		case errors.As(err, &lost):
			log.Warn(err.Error() + "; nothing is written")
			return false
		}
		err = fmt.Errorf("its result cannot be stored: %w", err)
	}
	if stopped || a.drained.Err() != nil {
		a.release(l, log, "released: the worker is stopping")
		return false
	}
	rest := a.o.Backoff(failures)
	log.Warn("failed: "+brief(err.Error()), slog.Duration("backoff", rest))
	if err := l.note(a.life, "failed", brief(err.Error())); err != nil && !l.over() {
		log.Warn("the failure could not be noted: " + err.Error())
	}
	a.rest(l.ctx, rest)
	if l.over() {
		log.Warn(context.Cause(l.ctx).Error())
		return true
	}
	a.release(l, log, "released")
	return true
}

// rest waits, unless ctx is done or the worker is to stop.
func (a *agent) rest(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-a.stop:
	case <-timer.C:
	}
}

func (a *agent) release(l *Lease, log *slog.Logger, text string) {
	ctx, cancel := context.WithTimeout(a.life, lastRest)
	defer cancel()
	if err := l.Release(ctx); err != nil {
		log.Warn("not released: " + err.Error())
		return
	}
	log.Info(text)
}

// brief is as much of a text as fits into a line of the history.
func brief(s string) string {
	const most = 1024
	s = strings.ToValidUTF8(strings.TrimSpace(s), "\uFFFD")
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}
