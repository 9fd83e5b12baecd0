package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"leasehold.dev/leasehold/store"
)

// start runs an agent and returns how to stop it.
func start(t *testing.T, m *memory, o Options, do Func) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, m, o, do) }()
	return func() {
		t.Helper()
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

// ledger counts calls.
type ledger struct {
	mu    sync.Mutex
	calls []string
}

func (l *ledger) add(job Job) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls = append(l.calls, fmt.Sprintf("%s/%d", job.ID, job.Fence))
}

func (l *ledger) list() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.calls)
}

// Two agents of one name, and one that comes later, run each job once.
func TestRunOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		for i := range 20 {
			m.lease(t, fmt.Sprintf("j%d", i), "a", SystemClock(), 30)
		}
		m.lease(t, "other", "b", SystemClock(), 30)
		var l ledger
		do := func(ctx context.Context, job Job) (string, error) {
			l.add(job)
			time.Sleep(100 * time.Second) // longer than a lease
			return "by " + job.Owner, ctx.Err()
		}
		one, two := start(t, m, Options{Name: "a"}, do), start(t, m, Options{Name: "a"}, do)
		time.Sleep(200 * time.Millisecond)
		three := start(t, m, Options{Name: "a"}, do)
		time.Sleep(101 * time.Second)
		synctest.Wait()
		calls := l.list()
		slices.Sort(calls)
		if len(calls) != 20 || len(slices.Compact(calls)) != 20 {
			t.Errorf("calls: %q", calls)
		}
		for i := range 20 {
			if r := m.record(fmt.Sprintf("j%d", i)); !r.Done || *r.Result != "by a" || r.Fence != 1 {
				t.Errorf("%+v", r.Row)
			}
		}
		if m.record("other").Done {
			t.Error("another's job was done")
		}
		one()
		two()
		three()
	})
}

// An agent that is started again does not resume a fence; the next one it runs.
func TestRunRestarted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		m.lease(t, "j", "a", SystemClock(), 30)
		if _, err := m.Update(t.Context(), []string{"j"}, func(rs []*store.Record) error {
			_, err := rs[0].PickUp("a", 1, SystemClock().Time, "an agent that was killed")
			return err
		}); err != nil {
			t.Fatal(err)
		}
		var l ledger
		stop := start(t, m, Options{Name: "a"}, func(ctx context.Context, job Job) (string, error) {
			l.add(job)
			return "", nil
		})
		time.Sleep(30 * time.Second)
		synctest.Wait()
		if calls := l.list(); len(calls) > 0 {
			t.Fatalf("resumed: %q", calls)
		}
		m.lease(t, "j", "a", SystemClock(), 30)
		time.Sleep(time.Second)
		synctest.Wait()
		if r := m.record("j"); !r.Done || r.Fence != 2 {
			t.Errorf("%+v", r.Row)
		}
		stop()
	})
}

// A function that fails keeps the lease through a back-off that doubles; then the job is free. The
// failure is in the history.
func TestRunFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		stop := start(t, m, Options{Name: "a"}, func(ctx context.Context, job Job) (string, error) {
			if job.Fence == 4 {
				return "fine", nil
			}
			return "", errors.New("no paper")
		})
		for n := range 3 {
			m.lease(t, "j", "a", SystemClock(), 2)
			began := time.Now()
			for m.record("j").Owner != "" {
				time.Sleep(10 * time.Millisecond)
			}
			if took := time.Since(began); took < time.Second<<n || took > time.Second<<n+200*time.Millisecond {
				t.Errorf("failure %d kept the lease for %v", n, took)
			}
		}
		m.lease(t, "j", "a", SystemClock(), 2)
		time.Sleep(time.Second)
		synctest.Wait()
		want := []string{"enqueued"}
		for n := range 3 {
			want = append(want, "claimed", "renewed", "started", "failed")
			if n > 0 {
				want = append(want, "renewed") // ttl/3 is less than the back-off
			}
			want = append(want, "released")
		}
		want = append(want, "claimed", "renewed", "started", "completed")
		got := m.verbs("j")
		if got = slices.Compact(got); len(got) < len(want)-2 || got[len(got)-1] != "completed" || !slices.Contains(got, "failed") {
			t.Errorf("history:\n%q, want about\n%q", got, want)
		}
		i := slices.IndexFunc(m.events, func(e store.Event) bool { return e.Verb == "failed" })
		if e := m.events[i]; e.Message != "no paper" || e.Owner != "a" || e.Fence != 1 {
			t.Errorf("%+v", e)
		}
		stop()
	})
}

// A lost lease cancels the function's context with the cause; what it returns is not written, and
// the same name's next lease is worked on after it has ended.
func TestRunLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		m.lease(t, "j", "a", SystemClock(), 30)
		causes := make(chan error, 1)
		stop := start(t, m, Options{Name: "a"}, func(ctx context.Context, job Job) (string, error) {
			if job.Fence == 2 {
				return "by the second", nil
			}
			<-ctx.Done()
			causes <- context.Cause(ctx)
			return "by the first", nil
		})
		time.Sleep(time.Second)
		m.Release(t.Context(), "j", "a", 1)
		m.lease(t, "j", "a", SystemClock(), 30)
		if e := lost(t, <-causes); e.Verdict.OK() {
			t.Error(e)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if r := m.record("j"); !r.Done || *r.Result != "by the second" {
			t.Errorf("%+v", r.Row)
		}
		stop()
	})
}

// It stops in order: no new jobs; running functions may finish, and are released if they do not.
func TestRunStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		m.lease(t, "quick", "a", SystemClock(), 30)
		m.lease(t, "slow", "a", SystemClock(), 30)
		m.lease(t, "broken", "a", SystemClock(), 30)
		stop := start(t, m, Options{Name: "a", Drain: 10 * time.Second, MaxInFlight: 3}, func(ctx context.Context, job Job) (string, error) {
			switch job.ID {
			case "quick":
				time.Sleep(5 * time.Second)
				return "done", ctx.Err()
			case "broken":
				return "", errors.New("broken")
			}
			<-ctx.Done()
			if context.Cause(ctx) != ErrStopping {
				t.Error(context.Cause(ctx))
			}
			return "", ctx.Err()
		})
		time.Sleep(time.Second / 2)
		began := time.Now()
		time.AfterFunc(time.Second, func() { m.lease(t, "new", "a", SystemClock(), 30) })
		stop()
		if took := time.Since(began); took != 10*time.Second {
			t.Errorf("it took %v", took)
		}
		if r := m.record("quick"); !r.Done {
			t.Error("what could finish has not")
		}
		for _, id := range []string{"slow", "broken"} {
			if r := m.record(id); r.Done || r.Owner != "" {
				t.Errorf("%+v", r.Row)
			}
		}
		if r := m.record("new"); r.Owner != "a" || r.Pickup != nil {
			t.Errorf("%+v", r)
		}
	})
}

func TestRunMaxInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		for i := range 6 {
			m.lease(t, fmt.Sprintf("j%d", i), "a", SystemClock(), 100)
		}
		var mu sync.Mutex
		now, most := 0, 0
		count := func(d int) { mu.Lock(); defer mu.Unlock(); now += d; most = max(most, now) }
		stop := start(t, m, Options{Name: "a", MaxInFlight: 2}, func(ctx context.Context, job Job) (string, error) {
			count(1)
			defer count(-1)
			time.Sleep(10 * time.Second)
			if job.ID == "j0" {
				return "", errors.New("its back-off takes no room")
			}
			return "", nil
		})
		time.Sleep(40 * time.Second)
		synctest.Wait()
		if most != 2 {
			t.Errorf("%d at once", most)
		}
		for i := 1; i < 6; i++ {
			if r := m.record(fmt.Sprintf("j%d", i)); !r.Done {
				t.Errorf("%+v", r.Row)
			}
		}
		stop()
	})
}

// A lease for which there is no room runs out, or is kept where Spec says so.
func TestRunNoRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		for _, id := range []string{"a", "keep", "pass"} {
			m.lease(t, id, "a", SystemClock(), 30)
		}
		stop := start(t, m, Options{Name: "a", MaxInFlight: 1, Spec: func(id string) (Spec, bool) {
			return Spec{TTL: 30, Keep: id == "keep"}, true
		}}, func(ctx context.Context, job Job) (string, error) {
			time.Sleep(100 * time.Second)
			return "", ctx.Err()
		})
		time.Sleep(50 * time.Second)
		synctest.Wait()
		now := SystemClock().Time
		for id, want := range map[string]bool{"a": true, "keep": true, "pass": false} {
			if r := m.record(id); r.Leased(now) != want {
				t.Errorf("%s: %+v", id, r.Row)
			}
		}
		time.Sleep(151 * time.Second)
		synctest.Wait()
		if r := m.record("keep"); !r.Done || r.Fence != 1 {
			t.Errorf("%+v", r.Row)
		}
		m.lease(t, "b", "a", SystemClock(), 30)
		m.lease(t, "keep2", "a", SystemClock(), 30)
		time.Sleep(time.Second)
		stop() // neither waits for the other
	})
}

// On a job's own clock: by what Spec says, and without it by what the controller decided from.
func TestRunOwnClock(t *testing.T) {
	for _, with := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			m := newMemory()
			wake := make(chan struct{}, 1)
			var mu sync.Mutex
			clock := 100.0
			m.lease(t, "j", "a", store.Reading{Time: clock}, 30)
			o := Options{Name: "a", Wake: wake}
			if with {
				o.Spec = func(string) (Spec, bool) {
					mu.Lock()
					defer mu.Unlock()
					at := clock
					return Spec{TTL: 30, Clock: &at}, true
				}
			}
			tick := func(to float64) {
				mu.Lock()
				clock = to
				mu.Unlock()
				if !with {
					m.Update(t.Context(), []string{"j"}, func(rs []*store.Record) error {
						rs[0].Observe(store.Reading{Time: to})
						return nil
					})
				}
				wake <- struct{}{}
				synctest.Wait()
			}
			finish := make(chan struct{})
			stop := start(t, m, o, func(ctx context.Context, job Job) (string, error) {
				select {
				case <-finish:
					return "r", nil
				case <-ctx.Done():
					return "", context.Cause(ctx)
				}
			})
			time.Sleep(time.Hour)
			tick(125)
			if r := m.record("j"); r.Until != 155 || r.Mark.System || r.Mark.Time != 125 {
				t.Errorf("%+v %+v", r.Row, r.Mark)
			}
			close(finish)
			synctest.Wait()
			if r := m.record("j"); !r.Done {
				t.Errorf("%+v", r.Row)
			}
			stop()
		})
	}
}

// What is lost with the database ends the agent.
func TestRunStoreLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		m.lease(t, "j", "a", SystemClock(), 3)
		ended := make(chan error, 1)
		go func() {
			ended <- Run(t.Context(), losing{m}, Options{Name: "a"}, func(ctx context.Context, job Job) (string, error) {
				<-ctx.Done()
				return "", ctx.Err()
			})
		}()
		if err := <-ended; !errors.Is(err, store.ErrLost) {
			t.Error(err)
		}
	})
}

// losing is a store that is lost after the first look.
type losing struct{ *memory }

func (m losing) Changes(ctx context.Context) ([]string, bool, error) {
	if m.followed {
		m.failing(func(*store.Record) (error, error) { return nil, store.ErrLost })
		return nil, false, store.ErrLost
	}
	return m.memory.Changes(ctx)
}
