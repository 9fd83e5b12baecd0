package worker

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"leasehold.dev/leasehold/store"
)

var errFull = errors.New("the disk is full")

func hold(t *testing.T, m *memory, ttl float64) *Lease {
	t.Helper()
	l, err := Hold(t.Context(), m, Claim{ID: "j", Owner: "a", TTL: ttl})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func lost(t *testing.T, err error) *LostError {
	t.Helper()
	var e *LostError
	if !errors.As(err, &e) {
		t.Fatalf("got %v, want a lost lease", err)
	}
	return e
}

// A lease is renewed at a third of its ttl, for as long as it is held.
func TestRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		l := hold(t, m, 30)
		for range 10 {
			was := m.record("j").Until
			time.Sleep(10*time.Second + time.Millisecond)
			synctest.Wait()
			if is := m.record("j").Until; is < was+9.9 {
				t.Fatalf("until went from %v to %v", was, is)
			}
		}
		if err := l.Complete(t.Context(), "r"); err != nil {
			t.Fatal(err)
		}
		r := m.record("j")
		if !r.Done || *r.Result != "r" || r.Mark == nil || !r.Mark.System {
			t.Errorf("%+v", r)
		}
		if context.Cause(l.Context()) != ErrEnded {
			t.Error(context.Cause(l.Context()))
		}
	})
}

// Where renewals fail, the lease is trusted until the start of the last one that succeeded plus ttl,
// less a margin, and nothing is written after that.
func TestTrustEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		l := hold(t, m, 30)
		time.Sleep(10*time.Second + time.Millisecond)
		synctest.Wait()
		start := time.Now()
		m.failing(func(*store.Record) (error, error) { return nil, errFull })
		<-l.Context().Done()
		if after := time.Since(start); after < 26*time.Second || after > 27*time.Second {
			t.Errorf("trusted for %v after a renewal", after)
		}
		if e := lost(t, context.Cause(l.Context())); !errors.Is(e, errFull) || !e.Verdict.OK() {
			t.Errorf("cause %v", e)
		}
		m.failing(nil)
		before := len(m.events)
		lost(t, l.Complete(t.Context(), "late"))
		if m.record("j").Done || len(m.events) != before {
			t.Error("something was written")
		}
	})
}

// Faults that pass are outlived.
func TestFaultPasses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		l := hold(t, m, 30)
		m.failing(func(*store.Record) (error, error) { return nil, errFull })
		time.Sleep(25 * time.Second)
		m.failing(nil)
		time.Sleep(time.Minute)
		synctest.Wait()
		if err := context.Cause(l.Context()); err != nil {
			t.Fatal(err)
		}
		m.failing(func(*store.Record) (error, error) { return nil, errFull })
		time.AfterFunc(10*time.Second, func() { m.failing(nil) })
		if err := l.Complete(t.Context(), "r"); err != nil {
			t.Error(err)
		}
	})
}

// An answer that is lost between commit and acknowledgement is recognised.
func TestLostAnswer(t *testing.T) {
	once := func() func(r *store.Record) (error, error) {
		lost := errFull
		return func(*store.Record) (error, error) {
			defer func() { lost = nil }()
			return lost, nil
		}
	}
	for what, end := range map[string]func(context.Context, *Lease) error{
		"complete": func(ctx context.Context, l *Lease) error { return l.Complete(ctx, "r") },
		"release":  func(ctx context.Context, l *Lease) error { return l.Release(ctx) },
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newMemory()
				l := hold(t, m, 30)
				m.failing(once())
				if err := end(t.Context(), l); err != nil {
					t.Fatal(err)
				}
				r := m.record("j")
				if what == "complete" && !r.Done || what == "release" && r.Owner != "" {
					t.Errorf("%+v", r)
				}
			})
		})
	}
	t.Run("a renewal hears of it first", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			m := newMemory()
			l := hold(t, m, 30)
			m.failing(func(r *store.Record) (error, error) {
				if r.Done {
					time.AfterFunc(0, l.poke)
					return errFull, nil
				}
				return nil, nil
			})
			if err := l.Complete(t.Context(), "r"); err != nil {
				t.Fatal(err)
			}
		})
	})
	t.Run("pickup", func(t *testing.T) {
		m := newMemory()
		fence := m.lease(t, "j", "a", SystemClock(), 30)
		a := func(by string) (*Lease, error) {
			terms := func(*store.Record) (store.Reading, float64) { return SystemClock(), 30 }
			return pickUp(t.Context(), m, &Lease{engine: m, id: "j", owner: "a", fence: fence, terms: terms}, by)
		}
		m.failing(once())
		if _, err := a("first"); !errors.Is(err, errFull) {
			t.Fatal(err)
		}
		m.failing(nil)
		if _, err := a("second"); !errors.Is(err, errTaken) {
			t.Errorf("another agent: %v", err)
		}
		l, err := a("first")
		if err != nil {
			t.Fatal(err)
		}
		l.Close()
	})
}

// The first refusal ends the lease, and says what is current.
func TestRefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		l := hold(t, m, 30)
		if v, err := m.Release(t.Context(), "j", "a", 1); err != nil || !v.OK() {
			t.Fatal(v, err)
		}
		now := SystemClock().Time
		if v, err := m.Claim(t.Context(), "j", "b", now, 30); err != nil || v.Fence != 2 {
			t.Fatal(v, err)
		}
		mark := *m.record("j").Mark
		<-l.Context().Done()
		e := lost(t, context.Cause(l.Context()))
		if e.Verdict.Reason != store.StaleFence || e.Verdict.Fence != 2 || e.Verdict.Owner != "b" {
			t.Errorf("%+v", e)
		}
		lost(t, l.Complete(t.Context(), "late"))
		if r := m.record("j"); r.Done || *r.Mark != mark {
			t.Errorf("%+v: the mark is not a stale worker's to raise", r)
		}
	})
}

// A poke is enough to hear of a lost lease long before the next renewal.
func TestPoke(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		l := hold(t, m, 3000)
		m.Release(t.Context(), "j", "a", 1)
		start := time.Now()
		l.poke()
		<-l.Context().Done()
		if time.Since(start) != 0 {
			t.Error("it took", time.Since(start))
		}
	})
}

// On a job's own clock leases last until that has moved, and a clock that goes back decides nothing.
func TestOwnClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		clock := 100.0
		read := func() store.Reading { return store.Reading{Time: clock} }
		set := func(l *Lease, to float64) { m.mu.Lock(); clock = to; m.mu.Unlock(); l.poke(); synctest.Wait() }
		l, err := Hold(t.Context(), m, Claim{ID: "j", Owner: "a", TTL: 30, Clock: read})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(1000 * time.Hour)
		for _, c := range []struct{ clock, until float64 }{{105, 130}, {110, 140}, {119.5, 140}, {120, 150}} {
			if set(l, c.clock); m.record("j").Until != c.until {
				t.Errorf("at %v until is %v, want %v", c.clock, m.record("j").Until, c.until)
			}
		}
		set(l, 110)
		done := make(chan error)
		go func() { done <- l.Complete(t.Context(), "r") }()
		time.Sleep(time.Hour)
		select {
		case err := <-done:
			t.Fatalf("completed at a clock that went back: %v", err)
		default:
		}
		set(l, 121)
		if err := <-done; err != nil {
			t.Fatal(err)
		}

		l, err = Hold(t.Context(), m, Claim{ID: "k", Owner: "a", TTL: 30, Clock: read})
		if err != nil {
			t.Fatal(err)
		}
		set(l, 151)
		if e := lost(t, context.Cause(l.Context())); e.Verdict.Reason != store.Expired {
			t.Error(e)
		}
	})
}

// Between spec.clock and the system clock the controller decides: a worker with a view of yesterday
// ends nobody's lease.
func TestClockKind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		m.lease(t, "j", "a", store.Reading{Time: 100}, 30)
		_, err := Hold(t.Context(), m, Claim{ID: "j", Owner: "a", TTL: 30})
		if !errors.Is(err, errKind) {
			t.Fatal(err)
		}
		if r := m.record("j"); r.Mark.System || r.Owner != "a" {
			t.Errorf("%+v", r)
		}
	})
}

func TestHoldRefused(t *testing.T) {
	m := newMemory()
	l := hold(t, m, 30)
	defer l.Close()
	_, err := Hold(t.Context(), m, Claim{ID: "j", Owner: "b", TTL: 30})
	if e := lost(t, err); e.Verdict.Reason != store.Held || e.Verdict.Owner != "a" {
		t.Error(e)
	}
	if _, err := Hold(t.Context(), m, Claim{ID: "k", Owner: "b"}); !errors.Is(err, store.ErrInvalid) {
		t.Error(err)
	}
}
