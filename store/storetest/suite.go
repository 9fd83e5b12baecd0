package storetest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"leasehold.dev/leasehold/store"
)

// Run holds the engine that open returns to the contract. open is called once per part.
func Run(t *testing.T, open func(*testing.T) store.Engine) {
	for _, part := range []struct {
		name string
		test func(*testing.T, store.Engine)
	}{
		{"Rules", rules},
		{"Exhausted", exhausted},
		{"ExactFences", exactFences},
		{"Strings", stringsKept},
		{"Atomic", atomicUpdate},
		{"DecideFails", decideFails},
		{"Records", records},
		{"KeptRecords", keptRecords},
		{"Cancelled", cancelled},
		{"Panics", panics},
		{"OneWinner", oneWinner},
		{"TogetherOrNotAtAll", together},
		{"Concurrent", concurrent},
		{"Random", random},
	} {
		t.Run(part.name, func(t *testing.T) { part.test(t, open(t)) })
	}
}

// rules are the contract's cases one by one: what must be answered, and the state it must leave.
func rules(t *testing.T, e store.Engine) {
	nan, inf := math.NaN(), math.Inf(1)
	held := []Op{{Name: "enqueue"}, {Name: "claim", Owner: "a", Now: 0, TTL: 10}}
	done := append(held[:2:2], Op{Name: "complete", Owner: "a", Fence: 1, Now: 5, Result: "first"})
	free := append(held[:2:2], Op{Name: "release", Owner: "a", Fence: 1})
	retaken := append(held[:2:2], Op{Name: "claim", Owner: "b", Now: 10, TTL: 10})
	// The same worker, under the same name, has claimed the job again before its stale write comes.
	again := append(held[:2:2], Op{Name: "claim", Owner: "a", Now: 10, TTL: 10})
	running := Answer{Owner: "a", Fence: 1, Until: 10}
	refused := func(a Answer, r store.Reason) Answer { a.Reason = r; return a }
	invalid := Answer{Failed: "invalid"}
	for _, c := range []struct {
		name  string
		given []Op
		op    Op
		want  Answer
	}{
		{"enqueue new", nil, Op{Name: "enqueue"}, Answer{Created: true}},
		{"enqueue again", held, Op{Name: "enqueue"}, Answer{}},
		{"enqueue done", done, Op{Name: "enqueue"}, Answer{}},
		{"state of nothing", nil, Op{Name: "state"}, Answer{}},
		{"claim nothing", nil, Op{Name: "claim", Owner: "a", TTL: 1}, Answer{Reason: "NotFound"}},
		{"claim done", done, Op{Name: "claim", Owner: "b", Now: 99, TTL: 1}, refused(running, "Done")},
		{"claim held", held, Op{Name: "claim", Owner: "b", Now: 9.999, TTL: 1}, refused(running, "Held")},
		{"claim held by oneself", held, Op{Name: "claim", Owner: "a", Now: 5, TTL: 1}, refused(running, "Held")},
		{"claim at until", held, Op{Name: "claim", Owner: "b", Now: 10, TTL: 5}, Answer{Owner: "b", Fence: 2, Until: 15}},
		{"claim released", free, Op{Name: "claim", Owner: "b", Now: 1, TTL: 5}, Answer{Owner: "b", Fence: 2, Until: 6}},
		{"claim before zero", []Op{{Name: "enqueue"}}, Op{Name: "claim", Owner: "a", Now: -5, TTL: 1}, Answer{Reason: "Held"}},
		{"renew", held, Op{Name: "renew", Owner: "a", Fence: 1, Now: 9, TTL: 2}, Answer{Owner: "a", Fence: 1, Until: 11}},
		{"renew to an earlier time", held, Op{Name: "renew", Owner: "a", Fence: 1, Now: 1, TTL: 2}, Answer{Owner: "a", Fence: 1, Until: 3}},
		{"renew nothing", nil, Op{Name: "renew", Owner: "a", Fence: 1, TTL: 1}, Answer{Reason: "NotFound"}},
		{"renew done", done, Op{Name: "renew", Owner: "x", Fence: 9, Now: 99, TTL: 1}, refused(running, "Done")},
		{"renew with a stale fence", retaken, Op{Name: "renew", Owner: "a", Fence: 1, Now: 99, TTL: 1}, Answer{Reason: "StaleFence", Owner: "b", Fence: 2, Until: 20}},
		{"renew with a future fence", held, Op{Name: "renew", Owner: "a", Fence: 2, Now: 1, TTL: 1}, refused(running, "StaleFence")},
		{"renew as another", held, Op{Name: "renew", Owner: "b", Fence: 1, Now: 99, TTL: 1}, refused(running, "NotOwner")},
		{"renew at until", held, Op{Name: "renew", Owner: "a", Fence: 1, Now: 10, TTL: 1}, refused(running, "Expired")},
		{"renew released", free, Op{Name: "renew", Owner: "a", Fence: 1, Now: 1, TTL: 1}, Answer{Reason: "NotOwner", Fence: 1}},
		{"complete", held, Op{Name: "complete", Owner: "a", Fence: 1, Now: 9, Result: "r"}, running},
		{"complete nothing", nil, Op{Name: "complete", Owner: "a", Fence: 1}, Answer{Reason: "NotFound"}},
		{"complete again", done, Op{Name: "complete", Owner: "a", Fence: 1, Now: 6, Result: "second"}, refused(running, "Done")},
		{"complete with a stale fence", retaken, Op{Name: "complete", Owner: "a", Fence: 1, Now: 11, Result: "late"}, Answer{Reason: "StaleFence", Owner: "b", Fence: 2, Until: 20}},
		{"complete with a stale fence under the same name", again, Op{Name: "complete", Owner: "a", Fence: 1, Now: 11, Result: "late"}, Answer{Reason: "StaleFence", Owner: "a", Fence: 2, Until: 20}},
		{"complete as another", held, Op{Name: "complete", Owner: "b", Fence: 1, Now: 1}, refused(running, "NotOwner")},
		{"complete at until", held, Op{Name: "complete", Owner: "a", Fence: 1, Now: 10}, refused(running, "Expired")},
		{"release", held, Op{Name: "release", Owner: "a", Fence: 1}, Answer{Fence: 1}},
		{"release nothing", nil, Op{Name: "release", Owner: "a", Fence: 1}, Answer{Reason: "NotFound"}},
		{"release done", done, Op{Name: "release", Owner: "a", Fence: 1}, refused(running, "Done")},
		{"release with a stale fence", retaken, Op{Name: "release", Owner: "a", Fence: 1}, Answer{Reason: "StaleFence", Owner: "b", Fence: 2, Until: 20}},
		{"release as another", held, Op{Name: "release", Owner: "b", Fence: 1}, refused(running, "NotOwner")},
		{"release twice", free, Op{Name: "release", Owner: "a", Fence: 1}, Answer{Reason: "NotOwner", Fence: 1}},

		{"claim without owner", held, Op{Name: "claim", Now: 99, TTL: 1}, invalid},
		{"claim ttl 0", held, Op{Name: "claim", Owner: "b", Now: 99}, invalid},
		{"claim ttl negative", held, Op{Name: "claim", Owner: "b", Now: 99, TTL: -1}, invalid},
		{"claim ttl NaN", held, Op{Name: "claim", Owner: "b", Now: 99, TTL: nan}, invalid},
		{"claim ttl infinite", held, Op{Name: "claim", Owner: "b", Now: 99, TTL: inf}, invalid},
		{"claim now NaN", held, Op{Name: "claim", Owner: "b", Now: nan, TTL: 1}, invalid},
		{"claim now infinite", held, Op{Name: "claim", Owner: "b", Now: -inf, TTL: 1}, invalid},
		{"claim ttl lost beside now", held, Op{Name: "claim", Owner: "b", Now: 1e300, TTL: 1}, invalid},
		{"claim sum infinite", held, Op{Name: "claim", Owner: "b", Now: math.MaxFloat64, TTL: math.MaxFloat64}, invalid},
		{"claim nothing, invalid", nil, Op{Name: "claim", Owner: "b"}, invalid},
		{"renew without owner", held, Op{Name: "renew", Fence: 1, Now: 1, TTL: 1}, invalid},
		{"renew ttl 0", held, Op{Name: "renew", Owner: "a", Fence: 1, Now: 1}, invalid},
		{"renew now NaN", held, Op{Name: "renew", Owner: "a", Fence: 1, Now: nan, TTL: 1}, invalid},
		{"complete without owner", held, Op{Name: "complete", Fence: 1, Now: 1}, invalid},
		{"complete now NaN", held, Op{Name: "complete", Owner: "a", Fence: 1, Now: nan}, invalid},
		{"release without owner", held, Op{Name: "release", Fence: 1}, invalid},
		{"claim, owner not UTF-8", held, Op{Name: "claim", Owner: "\xff", Now: 99, TTL: 1}, invalid},
		{"complete, result not UTF-8", held, Op{Name: "complete", Owner: "a", Fence: 1, Now: 1, Result: "\xff"}, invalid},
	} {
		t.Run(c.name, func(t *testing.T) {
			id := Prefix() + "j"
			job := Job{}
			for _, op := range c.given {
				op.ID = id
				var want Answer
				if job, want = Step(job, op); want.Failed != "" || want.Reason != "" {
					t.Fatalf("%v is not granted by the model", op)
				}
				must(t, e, op, want)
			}
			c.op.ID = id
			job, model := Step(job, c.op)
			if diff := cmp.Diff(c.want, model); diff != "" {
				t.Fatalf("the model is wrong:\n%s", diff)
			}
			must(t, e, c.op, c.want)
			must(t, e, Op{Name: "state", ID: id}, Answer{Job: job})
		})
	}
	for _, name := range []string{"enqueue", "state", "claim", "renew", "complete", "release"} {
		t.Run(name+" without id", func(t *testing.T) {
			must(t, e, Op{Name: name, Owner: "a", TTL: 1}, invalid)
			must(t, e, Op{Name: name, ID: "\xff", Owner: "a", TTL: 1}, invalid)
		})
	}
	t.Run("claim-many without owners", func(t *testing.T) {
		if _, err := (store.Ops{Engine: e}).ClaimMany(t.Context(), "j", nil, 0, 1); !errors.Is(err, store.ErrInvalid) {
			t.Fatalf("got %v", err)
		}
	})
}

func must(t *testing.T, e store.Engine, op Op, want Answer) {
	t.Helper()
	got, err := Do(t.Context(), e, op)
	if err != nil {
		t.Fatalf("%v: %v", op, err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("%v: (-want +got)\n%s", op, diff)
	}
}

// set brings a job to a state that would take too many claims to reach.
func set(t *testing.T, e store.Engine, id string, fence int64) {
	t.Helper()
	_, err := e.Update(t.Context(), []string{id}, func(r []*store.Record) error {
		r[0].Enqueue()
		r[0].Raise(fence, "test")
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func exhausted(t *testing.T, e store.Engine) {
	id := Prefix() + "j"
	set(t, e, id, math.MaxInt64-1)
	last := Answer{Owner: "a", Fence: math.MaxInt64, Until: 10}
	must(t, e, Op{Name: "claim", ID: id, Owner: "a", TTL: 10}, last)
	must(t, e, Op{Name: "claim", ID: id, Owner: "b", Now: 10, TTL: 10}, Answer{Failed: "exhausted"})
	must(t, e, Op{Name: "state", ID: id}, Answer{Job: Job{Exists: true, Owner: "a", Fence: math.MaxInt64, Until: 10}})
	must(t, e, Op{Name: "complete", ID: id, Owner: "a", Fence: math.MaxInt64, Now: 9}, last)
}

func exactFences(t *testing.T, e store.Engine) {
	for _, fence := range []int64{1<<53 - 1, 1 << 53, 1<<53 + 1, 9007199254740993, 1<<62 + 1, math.MaxInt64 - 2} {
		id := Prefix() + "j"
		set(t, e, id, fence)
		must(t, e, Op{Name: "claim", ID: id, Owner: "a", Now: 0.1, TTL: 0.2}, Answer{Owner: "a", Fence: fence + 1, Until: 0.30000000000000004})
		must(t, e, Op{Name: "complete", ID: id, Owner: "a", Fence: fence, Now: 0.2}, Answer{Reason: "StaleFence", Owner: "a", Fence: fence + 1, Until: 0.30000000000000004})
		must(t, e, Op{Name: "release", ID: id, Owner: "a", Fence: fence + 1}, Answer{Fence: fence + 1})
	}
}

// stringsKept: ids, owners and results come back as they were given, and are told apart.
func stringsKept(t *testing.T, e store.Engine) {
	prefix := Prefix()
	texts := []string{"x", "X", " x", "x ", "ü", "u\u0308", "a/b", "%", "'", `"`, "\\", "a\nb", "\u2028", "\uFFFD", "a\x00b", "a\x00c", "😀", "1", "1.0", "01", "null", "x'00'"}
	for _, s := range texts {
		must(t, e, Op{Name: "enqueue", ID: prefix + s}, Answer{Created: true})
		must(t, e, Op{Name: "claim", ID: prefix + s, Owner: s, TTL: 1}, Answer{Owner: s, Fence: 1, Until: 1})
		must(t, e, Op{Name: "complete", ID: prefix + s, Owner: s, Fence: 1, Result: s}, Answer{Owner: s, Fence: 1, Until: 1})
	}
	for _, s := range texts {
		must(t, e, Op{Name: "state", ID: prefix + s}, Answer{Job: Job{Exists: true, Owner: s, Fence: 1, Until: 1, Result: s, HasResult: true, Done: true}})
	}
}

func atomicUpdate(t *testing.T, e store.Engine) {
	p := Prefix()
	ids := []string{p + "b", p + "a", p + "c"}
	before, err := e.Update(t.Context(), ids, func(rs []*store.Record) error {
		for i, r := range rs {
			if r.ID != ids[i] || r.Exists || r.Known {
				return fmt.Errorf("record %d is %+v", i, r)
			}
			r.Enqueue()
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	after, err := e.Update(t.Context(), ids[:1], func(rs []*store.Record) error {
		if rs[0].Stamp.Identity != before.Identity || rs[0].Stamp.Revision < before.Revision {
			return fmt.Errorf("stamp %v after %v", rs[0].Stamp, before)
		}
		_, err := rs[0].Claim("a", 0, 1)
		return err
	})
	if err != nil || after.Revision <= before.Revision {
		t.Fatalf("%v after %v, %v", after, before, err)
	}
	if _, err := e.Update(t.Context(), []string{p + "x", p + "x"}, func([]*store.Record) error { return nil }); !errors.Is(err, store.ErrInvalid) {
		t.Fatalf("the same id twice: %v", err)
	}
}

func decideFails(t *testing.T, e store.Engine) {
	p := Prefix()
	ids := []string{p + "a", p + "b"}
	want := errors.New("no")
	_, err := e.Update(t.Context(), ids, func(rs []*store.Record) error {
		rs[0].Enqueue()
		rs[1].Enqueue()
		rs[0].Claim("w", 0, 1)
		return want
	})
	if err != want {
		t.Fatalf("got %v, want the error of the decision itself", err)
	}
	for _, id := range ids {
		must(t, e, Op{Name: "state", ID: id}, Answer{})
	}
	// A decision that fails after an Update of the same jobs does not disturb that either.
	set(t, e, ids[0], 5)
	e.Update(t.Context(), ids[:1], func(rs []*store.Record) error { rs[0].Claim("w", 0, 1); return want })
	must(t, e, Op{Name: "state", ID: ids[0]}, Answer{Job: Job{Exists: true, Fence: 5}})
}

// records: what stands beside the row is kept, and View drops what it changes.
func records(t *testing.T, e store.Engine) {
	id := Prefix() + "j"
	restore := &store.Restore{Owner: "w", Fence: 3, Result: "r"}
	memory := store.Memory{
		Mark: &store.Mark{Time: 0.1, System: true}, Observed: 1.5, SpecHash: "abc", Restore: restore,
		Reports:    []store.Report{{Worker: "w", Verb: store.VerbRenew, Fence: math.MaxInt64, Time: 0.30000000000000004, Verdict: store.Verdict{Reason: store.Held}}},
		Beats:      map[string]float64{"2/w": 0.1},
		Conditions: []store.Condition{{Type: "Leased", Status: "True", Since: 3}},
	}
	_, err := e.Update(t.Context(), []string{id}, func(rs []*store.Record) error {
		rs[0].Enqueue()
		if _, err := rs[0].Claim("w", 0, 1); err != nil {
			return err
		}
		if _, err := rs[0].Claim("v", 1, 1); err != nil {
			return err
		}
		rs[0].Memory = memory
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	look := func(rs []*store.Record) error {
		r := rs[0]
		if diff := cmp.Diff(memory, r.Memory); diff != "" {
			return fmt.Errorf("memory (-want +got):\n%s", diff)
		}
		if !r.Exists || !r.Known || r.High != 2 || r.Holder != "v" || r.Attempts != 2 || r.Fence != 2 {
			return fmt.Errorf("%+v", r)
		}
		r.Release("v", 2)
		r.SpecHash = "dropped"
		r.Beats["2/w"] = 9
		return nil
	}
	for range 2 {
		if _, err := e.View(t.Context(), []string{id}, look); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := e.Update(t.Context(), []string{id}, func(rs []*store.Record) error { rs[0].Memory = store.Memory{}; return nil }); err != nil {
		t.Fatal(err)
	}
	if _, err := e.View(t.Context(), []string{id}, func(rs []*store.Record) error {
		if !rs[0].Memory.IsZero() || rs[0].Attempts != 2 {
			return fmt.Errorf("%+v", rs[0])
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// keptRecords: what a caller does with a record after its decision concerns nobody else.
func keptRecords(t *testing.T, e store.Engine) {
	id := Prefix() + "j"
	var kept []*store.Record
	for now := range 3 {
		_, err := e.Update(t.Context(), []string{id}, func(rs []*store.Record) error {
			rs[0].Enqueue()
			kept = rs
			if rs[0].Fence != int64(now) || now > 0 && rs[0].Beats["k"] != 1 {
				return fmt.Errorf("round %d: %+v", now, rs[0])
			}
			rs[0].Beats = map[string]float64{"k": 1}
			_, err := rs[0].Claim("w", float64(now), 1)
			rs[0].Beats = map[string]float64{"k": 1}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		kept[0].Fence, kept[0].Owner, kept[0].Beats["k"] = 77, "nobody", 2
	}
	must(t, e, Op{Name: "state", ID: id}, Answer{Job: Job{Exists: true, Owner: "w", Fence: 3, Until: 3}})
}

// cancelled: a call whose context has ended changes nothing, and the next one finds all in order.
func cancelled(t *testing.T, e store.Engine) {
	p := Prefix()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Do(ctx, e, Op{Name: "enqueue", ID: p + "a"}); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v", err)
	}
	must(t, e, Op{Name: "state", ID: p + "a"}, Answer{})

	// Contexts end at every moment of a call. What was answered as done is done; the rest is whole.
	var wg sync.WaitGroup
	for i := range 64 {
		ctx, cancel := context.WithCancel(t.Context())
		id := fmt.Sprintf("%sc%d", p, i)
		wg.Go(func() {
			_, err := Do(ctx, e, Op{Name: "enqueue", ID: id})
			got, err2 := Do(t.Context(), e, Op{Name: "state", ID: id})
			if err2 != nil || err == nil && !got.Job.Exists || err != nil && !errors.Is(err, context.Canceled) {
				t.Errorf("enqueue: %v; state: %+v, %v", err, got, err2)
			}
		})
		wg.Go(cancel)
	}
	wg.Wait()
	must(t, e, Op{Name: "enqueue", ID: p + "a"}, Answer{Created: true})
}

func panics(t *testing.T, e store.Engine) {
	p := Prefix()
	func() {
		defer func() {
			if recover() == nil {
				t.Error("a panic of the decision did not reach its caller")
			}
		}()
		e.Update(t.Context(), []string{p + "a"}, func(rs []*store.Record) error {
			rs[0].Enqueue()
			panic("boo")
		})
	}()
	must(t, e, Op{Name: "enqueue", ID: p + "a"}, Answer{Created: true})
}

// together: jobs that are always claimed together never show different fences.
func together(t *testing.T, e store.Engine) {
	p := Prefix()
	ids := []string{p + "a", p + "b"}
	for _, id := range ids {
		must(t, e, Op{Name: "enqueue", ID: id}, Answer{Created: true})
	}
	var writers, readers sync.WaitGroup
	stop := make(chan struct{})
	for w := range 4 {
		writers.Go(func() {
			for range 25 {
				order := []string{ids[w%2], ids[1-w%2]}
				_, err := e.Update(t.Context(), order, func(rs []*store.Record) error {
					now := rs[0].Until
					for _, r := range rs {
						if v, err := r.Claim(fmt.Sprint(w), now, 1); err != nil || !v.OK() {
							return fmt.Errorf("%+v, %v", v, err)
						}
					}
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	readers.Go(func() {
		for {
			_, err := e.View(t.Context(), ids, func(rs []*store.Record) error {
				if rs[0].Fence != rs[1].Fence || rs[0].Owner != rs[1].Owner {
					return fmt.Errorf("%+v beside %+v", rs[0].Row, rs[1].Row)
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
			select {
			case <-stop:
				return
			default:
			}
		}
	})
	writers.Wait()
	close(stop)
	readers.Wait()
	must(t, e, Op{Name: "state", ID: ids[0]}, mustState(t, e, ids[1]))
	if got := mustState(t, e, ids[0]); got.Job.Fence != 100 {
		t.Fatalf("%+v", got)
	}
}

func mustState(t *testing.T, e store.Engine, id string) Answer {
	t.Helper()
	a, err := Do(t.Context(), e, Op{Name: "state", ID: id})
	if err != nil {
		t.Fatal(err)
	}
	return a
}
