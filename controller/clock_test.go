package controller

import (
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"leasehold.dev/leasehold/manifests"
	"leasehold.dev/leasehold/store/sqlite"
)

// shelf is a source in memory, for time that is not real.
type shelf struct {
	mu    sync.Mutex
	files map[string]string
	found func([]string)
}

func (s *shelf) Watch(ctx context.Context, found func([]string), ready, stored func()) error {
	s.mu.Lock()
	s.found = found
	var keys []string
	for k := range s.files {
		keys = append(keys, k)
	}
	s.mu.Unlock()
	found(keys)
	ready()
	<-ctx.Done()
	return nil
}

func (s *shelf) Name(key string) string { return key }

func (s *shelf) Load(key string) (*Manifest, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	text, ok := s.files[key]
	if !ok {
		return nil, fs.ErrNotExist
	}
	return &Manifest{Key: key, File: manifests.Decode(key, []byte(text)), Settled: true, snapshot: manifests.Snapshot{Data: []byte(text)}}, nil
}

func (s *shelf) WriteStatus(m *Manifest, statuses map[int]*manifests.JobStatus) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.files[m.Key] != string(m.snapshot.Data) {
		return manifests.ErrChanged
	}
	next, err := m.File.EditStatus(m.snapshot.Data, statuses)
	s.files[m.Key] = string(next)
	return err
}

func (s *shelf) edit(key, old, with string) {
	s.mu.Lock()
	s.files[key] = strings.Replace(s.files[key], old, with, 1)
	found := s.found
	s.mu.Unlock()
	found([]string{key})
}

// watchmaker is a controller of one job by a system clock that is not to be trusted.
type watchmaker struct {
	t      *testing.T
	shelf  *shelf
	db     *sqlite.DB
	log    buffer
	mu     sync.Mutex
	ahead  time.Duration // of the system clock
	still  time.Time     // where it stands, if it does
	passes int
	jumped func()
}

func (w *watchmaker) now() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.still.IsZero() {
		return w.still
	}
	return time.Now().Add(w.ahead).Round(0)
}

// set moves the clock; told says that the kernel tells of it.
func (w *watchmaker) set(by time.Duration, told bool) {
	w.mu.Lock()
	w.ahead += by
	jumped := w.jumped
	w.mu.Unlock()
	if told {
		jumped()
	}
	synctest.Wait()
}

func (w *watchmaker) status() *manifests.JobStatus {
	synctest.Wait()
	w.shelf.mu.Lock()
	defer w.shelf.mu.Unlock()
	return manifests.Decode("a.yaml", []byte(w.shelf.files["a.yaml"])).Docs[0].Status
}

func (w *watchmaker) holds(owner string, fence int64) {
	w.t.Helper()
	if s := w.status(); s.Owner != owner || *s.Fence != fence {
		w.t.Errorf("at %s: %s holds fence %d, want %s with %d\n%s", w.now().Format(time.TimeOnly), s.Owner, *s.Fence, owner, fence, &w.log)
	}
}

// wait lets time go by, and returns how many passes that took.
func (w *watchmaker) wait(d time.Duration) int {
	w.mu.Lock()
	before := w.passes
	w.mu.Unlock()
	<-time.After(d)
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.passes - before
}

func withClock(t *testing.T, play func(*watchmaker)) {
	synctest.Test(t, func(t *testing.T) {
		text := strings.Replace(manifest("sys", 0), "  clock: 0\n", "", 1)
		w := &watchmaker{t: t, shelf: &shelf{files: map[string]string{"a.yaml": text, "b.yaml": manifest("other", 7)}}}
		db, err := sqlite.OpenMemory(t.Context(), sqlite.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		w.db = db
		c := New(w.shelf, db, Options{
			Log: slog.New(slog.NewTextHandler(&w.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
			Now: w.now,
			Jumps: func(ctx context.Context, jumped func()) {
				w.mu.Lock()
				w.jumped = jumped
				w.mu.Unlock()
				<-ctx.Done()
			},
			Before: func(step, key string) error {
				w.mu.Lock()
				defer w.mu.Unlock()
				if step == "load" && key == "a.yaml" {
					w.passes++
				}
				return nil
			},
		})
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- c.Run(ctx) }()
		w.holds("worker-a", 1)
		play(w)
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// Leases on the system clock run out when they should, with a pass or two each, and nothing happens
// in between.
func TestClockRuns(t *testing.T) {
	withClock(t, func(w *watchmaker) {
		w.wait(29 * time.Second)
		w.holds("worker-a", 1)
		if n := w.wait(2 * time.Second); n > 2 {
			t.Errorf("%d passes", n)
		}
		w.holds("worker-b", 2)
		if n := w.wait(time.Hour); n > 2*120 {
			t.Errorf("%d passes in an hour of 120 leases", n)
		}
		w.holds("worker-b", 122)
	})
}

// Nobody is alive: a day of leases that go round is a few lines in the log and in the history.
func TestEndlessRounds(t *testing.T) {
	withClock(t, func(w *watchmaker) {
		passes := w.wait(24 * time.Hour)
		w.holds("worker-a", 2881)
		lines := strings.Count(w.log.String(), "\n")
		events, err := w.db.History(w.t.Context(), "sys", 0, 0)
		if err != nil {
			w.t.Fatal(err)
		}
		rounds := int64(0)
		for _, e := range events {
			if e.Verb == "claimed" {
				rounds += e.Count
			}
		}
		if lines > 25 || len(events) > 6 || rounds != 2881 || passes > 2*2881 {
			w.t.Errorf("%d passes, %d lines, %d events of %d claims:\n%s", passes, lines, len(events), rounds, &w.log)
		}
		w.t.Logf("%d leases that nobody used: %d lines in the log, %d in the history, %d passes", rounds, lines, len(events), passes)
	})
}

// An hour ahead, by being set or by a suspended machine: the lease is over at once, and not again
// when the clock comes back.
func TestClockJumpsAhead(t *testing.T) {
	for _, told := range []bool{true, false} {
		t.Run(fmt.Sprint("told ", told), func(t *testing.T) {
			withClock(t, func(w *watchmaker) {
				w.wait(10 * time.Second)
				w.set(time.Hour, told)
				if !told { // it is noticed where something happens anyway
					w.holds("worker-a", 1)
					w.shelf.edit("b.yaml", "clock: 7", "clock: 8")
				}
				w.holds("worker-b", 2)
				w.shelf.edit("a.yaml", "name: worker-a\n", "name: worker-a\n    complete: {fence: 1, result: late}\n")
				if s := w.status(); *s.Done || s.Workers[0].Reason != "StaleFence" {
					t.Errorf("a lease that was over completed the job: %+v", s)
				}
				w.wait(31 * time.Second)
				w.holds("worker-a", 3)

				// Back again: nothing is decided by a clock that has gone back, and nothing is revived.
				w.set(-time.Hour, told)
				if !told {
					w.shelf.edit("b.yaml", "clock: 8", "clock: 9")
				}
				if s := w.status(); conditionOf(s, "ClockRegressed") == "" || *s.Fence != 3 {
					t.Errorf("the clock went back, and status says %+v", s)
				}
				if n := w.wait(59 * time.Minute); n > 5 {
					t.Errorf("%d passes while the clock was behind", n)
				}
				w.holds("worker-a", 3)
				w.wait(2 * time.Minute) // it has caught up: nobody holds a lease for ever
				if s := w.status(); conditionOf(s, "ClockRegressed") != "" || *s.Fence < 4 {
					t.Errorf("the clock has caught up, and status says %+v", s)
				}
			})
		})
	}
}

// An hour back, and set right again: told at once, and nothing is lost.
func TestClockJumpsBack(t *testing.T) {
	withClock(t, func(w *watchmaker) {
		w.wait(10 * time.Second)
		w.set(-time.Hour, true)
		if conditionOf(w.status(), "ClockRegressed") != "True ClockRegressed" {
			t.Errorf("%+v", w.status())
		}
		w.wait(10 * time.Second)
		w.set(time.Hour, true)
		w.holds("worker-a", 1)
		if conditionOf(w.status(), "ClockRegressed") != "" {
			t.Errorf("%+v", w.status())
		}
		w.wait(11 * time.Second)
		w.holds("worker-b", 2)
		// Less than a second back is no regression: the mark counts, and time goes on from there.
		w.set(-900*time.Millisecond, true)
		if conditionOf(w.status(), "ClockRegressed") != "" {
			t.Errorf("%+v", w.status())
		}
		w.wait(32 * time.Second)
		w.holds("worker-a", 3)
	})
}

// A clock that stands still, even a millisecond before a lease ends, keeps nobody busy, and goes on.
func TestClockStandsStill(t *testing.T) {
	withClock(t, func(w *watchmaker) {
		w.mu.Lock()
		w.still = time.UnixMilli(int64(*w.until()*1000) - 1)
		w.mu.Unlock()
		if n := w.wait(10 * time.Minute); n > 1200 { // two a second
			t.Errorf("%d passes in ten minutes", n)
		}
		w.holds("worker-a", 1)
		w.mu.Lock()
		w.still = time.Time{}
		w.mu.Unlock()
		w.wait(2 * time.Second)
		w.holds("worker-b", 2)
	})
}

// until is that of the status. w.mu is held.
func (w *watchmaker) until() *float64 {
	w.shelf.mu.Lock()
	defer w.shelf.mu.Unlock()
	return manifests.Decode("a.yaml", []byte(w.shelf.files["a.yaml"])).Docs[0].Status.Until
}
