package worker

import (
	"context"
	"errors"
	"sync"
	"testing"

	"leasehold.dev/leasehold/store"
)

// memory is an engine that keeps records in a map, and fails where it is told to.
type memory struct {
	store.Ops
	mu       sync.Mutex
	records  map[string]*store.Record
	events   []store.Event
	changed  map[string]bool
	followed bool
	// fail is called before a decision is kept, and may say that it is not, or that it is but the
	// answer is lost.
	fail func(r *store.Record) (lost, err error)
}

func newMemory() *memory {
	m := &memory{records: map[string]*store.Record{}, changed: map[string]bool{}}
	m.Engine = m
	return m
}

func (m *memory) load(ids []string) []*store.Record {
	rs := make([]*store.Record, len(ids))
	for i, id := range ids {
		if r := m.records[id]; r != nil {
			rs[i] = r.Clone()
		} else {
			rs[i] = &store.Record{Row: store.Row{ID: id}}
		}
	}
	return rs
}

func (m *memory) Update(ctx context.Context, ids []string, decide func([]*store.Record) error) (store.Stamp, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return store.Stamp{}, err
	}
	_ = decide(m.load(ids)) // as after a conflict
	rs := m.load(ids)
	if err := decide(rs); err != nil {
		return store.Stamp{}, err
	}
	var lost error
	if m.fail != nil {
		var err error
		if lost, err = m.fail(rs[0]); err != nil {
			return store.Stamp{}, err
		}
	}
	for _, r := range rs {
		m.events = append(m.events, r.Events()...)
		m.records[r.ID] = r.Clone()
		m.changed[r.ID] = true
	}
	return store.Stamp{}, lost
}

func (m *memory) View(ctx context.Context, ids []string, read func([]*store.Record) error) (store.Stamp, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return store.Stamp{}, read(m.load(ids))
}

func (m *memory) Records(ctx context.Context, f func(*store.Record) error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range m.records {
		if err := f(r.Clone()); err != nil {
			return err
		}
	}
	return nil
}

func (m *memory) Changes(ctx context.Context) (ids []string, all bool, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for id := range m.changed {
		ids = append(ids, id)
	}
	clear(m.changed)
	all, m.followed = !m.followed, true
	return ids, all, nil
}

// verbs are the events of a job, with the reasons of refusals.
func (m *memory) verbs(id string) (verbs []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, e := range m.events {
		if e.ID == id {
			text := e.Verb
			if e.Reason != "" {
				text += " " + string(e.Reason)
			}
			if n := len(verbs); n == 0 || verbs[n-1] != text {
				verbs = append(verbs, text)
			}
		}
	}
	return verbs
}

func (m *memory) record(id string) *store.Record {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.load([]string{id})[0]
}

// failing makes every decision fail until it is called off.
func (m *memory) failing(f func(*store.Record) (lost, err error)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fail = f
}

// lease declares a job as a controller would, and leases it to owner.
func (m *memory) lease(t *testing.T, id, owner string, clock store.Reading, ttl float64) int64 {
	t.Helper()
	var v store.Verdict
	_, err := m.Update(t.Context(), []string{id}, func(rs []*store.Record) (err error) {
		r := rs[0]
		r.Enqueue()
		r.TTL = ttl
		now, ok := r.Observe(clock)
		if !ok {
			return errors.New("the clock regressed")
		}
		v, err = r.Claim(owner, now, ttl)
		r.Decided(now)
		return err
	})
	if err != nil || !v.OK() {
		t.Fatalf("lease: %+v, %v", v, err)
	}
	return v.Fence
}
