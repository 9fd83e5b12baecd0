package sqlite

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"leasehold.dev/leasehold/store"
)

// Update implements [store.Engine]. Calls that come at the same time share a commit; each has its
// own verdict, and none is answered before that commit.
func (db *DB) Update(ctx context.Context, ids []string, decide func([]*store.Record) error) (store.Stamp, error) {
	if err := distinct(ids); err != nil {
		return store.Stamp{}, err
	}
	r := &request{ids: ids, decide: decide}
	err := db.submit(ctx, r)
	return r.stamp, err
}

func distinct(ids []string) error {
	if len(ids) < 2 {
		return nil
	}
	seen := make(map[string]bool, len(ids))
	for _, id := range ids {
		if seen[id] {
			return fmt.Errorf("%w: id %q is given twice", store.ErrInvalid, id)
		}
		seen[id] = true
	}
	return nil
}

func rowFault(err error) bool {
	var e *store.RowError
	return errors.As(err, &e)
}

// meta is what a transaction reads of the store before it decides.
type meta struct {
	stamp   store.Stamp
	readers int64 // of leasehold_changes
}

func (s *session) readMeta() (m meta, err error) {
	found := false
	err = s.meta.each(func(row []driver.Value) error {
		found = true
		m.stamp.Identity, _ = row[0].(string)
		m.stamp.Revision, _ = row[1].(int64)
		m.readers, _ = row[2].(int64)
		return nil
	})
	if err == nil && !found {
		err = fmt.Errorf("%w: leasehold_meta is empty", ErrCorrupt)
	}
	return m, err
}

func (s *session) readFormer() (former []store.Stamp, err error) {
	err = s.former.each(func(row []driver.Value) error {
		var f store.Stamp
		f.Identity, _ = row[0].(string)
		f.Revision, _ = row[1].(int64)
		former = append(former, f)
		return nil
	})
	return former, err
}

// transact decides batch in one transaction. An error means that nothing of it was committed and
// that those of its requests without an error of their own have no answer.
func (db *DB) transact(s *session, batch []*request) (err error) {
	began := time.Now()
	if _, err := s.begin.exec(); err != nil {
		return err
	}
	open := true
	defer func() {
		if open {
			s.rollback.exec()
		}
	}()

	if err := db.refresh(s); err != nil {
		return err
	}
	kept := false
	defer func() {
		if !kept {
			db.cache = nil
		}
	}()
	m, entries := db.meta, db.cache
	ids := batch[0].ids
	if len(batch) > 1 {
		ids = make([]string, 0, len(batch))
		seen := make(map[string]bool, len(batch))
		for _, r := range batch {
			for _, id := range r.ids {
				if !seen[id] {
					seen[id] = true
					ids = append(ids, id)
				}
			}
		}
	}
	if err := s.loadInto(entries, ids); err != nil {
		return err
	}

	var events []store.Event
	mustCommit := false
	now := time.Now()
	for _, r := range batch {
		noted := db.try(r, entries, m.stamp)
		for i := range noted {
			e := &noted[i]
			e.At, e.Count = now, max(e.Count, 1)
			if e.By == "" {
				e.By = db.opts.Actor
			}
			mustCommit = mustCommit || e.Reason == ""
		}
		events = append(events, noted...)
	}

	marked := false
	mark := func() error {
		if marked {
			return nil
		}
		marked = true
		_, err := s.mark.exec()
		return err
	}
	var changed []string
	for _, id := range ids {
		did, err := s.write(entries[id], mark)
		if err != nil {
			return err
		}
		if did {
			changed = append(changed, id)
		}
	}
	stamp := m.stamp
	if marked || mustCommit {
		if err := mark(); err != nil {
			return err
		}
		stamp.Revision++
		if err := db.record(s, events); err != nil {
			return err
		}
		if m.readers > 1 || m.readers == 1 && !db.follows {
			for _, id := range changed {
				if _, err := s.feed.exec(id, db.origin); err != nil {
					return err
				}
			}
		}
		if err := db.finish(s, &open); err != nil {
			return err
		}
		if db.opts.Committed != nil {
			db.opts.Committed(time.Since(began), len(batch))
		}
	} else {
		db.postpone(events)
	}
	for _, r := range batch {
		r.stamp = stamp
	}
	kept = true
	db.keep(ids, stamp)
	return nil
}

// try lets r decide on copies of its records. If it succeeds they take the place of the entries'
// records, and what they noted is returned; else r has its error and nothing has changed.
func (db *DB) try(r *request, entries map[string]*entry, at store.Stamp) (noted []store.Event) {
	r.err, r.panicked = nil, nil
	records := make([]*store.Record, len(r.ids))
	for i, id := range r.ids {
		e := entries[id]
		if e.err != nil {
			r.err = e.err
			return nil
		}
		records[i] = e.now.Clone()
		records[i].Stamp, records[i].Former = at, db.former
	}
	defer func() {
		if p := recover(); p != nil {
			r.panicked = &panicked{p, debug.Stack()}
			noted = nil
		}
	}()
	if r.err = r.decide(records); r.err != nil {
		return nil
	}
	for i, id := range r.ids {
		entries[id].now = records[i]
		noted = append(noted, records[i].Events()...)
	}
	return noted
}

// record writes events, after those that still wait for a commit, and drops the oldest.
func (db *DB) record(s *session, events []store.Event) error {
	if len(db.pending) > 0 {
		events = append(db.pending[:len(db.pending):len(db.pending)], events...)
	}
	rows, repeats, err := s.fold(events, db.cache)
	if err != nil {
		return err
	}
	if err := s.writeEvents(rows, repeats); err != nil {
		return err
	}
	if db.untrimmed += len(rows); db.untrimmed >= min(1000, db.opts.HistoryLimit) {
		db.untrimmed = 0
		if _, err := s.trim.exec(int64(db.opts.HistoryLimit)); err != nil {
			return err
		}
		for _, e := range db.cache {
			e.tail = nil // its rows may be gone
		}
	}
	return nil
}

// postpone keeps the events of refusals for a later commit, and sees to it that there is one.
func (db *DB) postpone(events []store.Event) {
	if len(events) == 0 {
		return
	}
	for _, e := range events {
		if !again(db.pending, e) && len(db.pending) < pendingLimit {
			db.pending = append(db.pending, e)
		}
	}
	db.mu.Lock()
	defer db.mu.Unlock()
	if !db.flushing && !db.closed {
		db.flushing = true
		db.timer = time.AfterFunc(time.Second, func() {
			db.mu.Lock()
			db.flushing = false
			db.mu.Unlock()
			// A refusal is answered whether or not its entry can be written.
			_ = db.submit(context.Background(), &request{solo: db.flush})
		})
	}
}

// again counts e with the latest event of its job, if that is not far back and the same.
func again(pending []store.Event, e store.Event) bool {
	for i := len(pending) - 1; i >= max(0, len(pending)-64); i-- {
		if p := &pending[i]; p.ID == e.ID {
			same := sameEvent(p, &e)
			if same {
				p.Count += e.Count
			}
			return same
		}
	}
	return false
}

// flush commits the events that wait.
func (db *DB) flush(s *session) error {
	if len(db.pending) == 0 {
		return nil
	}
	return db.write(s, func(meta) ([]store.Event, error) { return nil, nil })
}

// write runs f in a transaction of our own, writes its events and those that wait, and commits.
func (db *DB) write(s *session, f func(meta) ([]store.Event, error)) (err error) {
	if _, err := s.begin.exec(); err != nil {
		return err
	}
	open := true
	db.cache = nil
	defer func() {
		if open {
			s.rollback.exec()
		}
	}()
	m, err := s.readMeta()
	if err != nil {
		return err
	}
	if err := db.witness(m.stamp, db.newest()); err != nil {
		return err
	}
	if _, err := s.mark.exec(); err != nil {
		return err
	}
	events, err := f(m)
	if err != nil {
		return err
	}
	now := time.Now()
	for i := range events {
		events[i].At, events[i].By, events[i].Count = now, db.opts.Actor, 1
	}
	if err := db.record(s, events); err != nil {
		return err
	}
	return db.finish(s, &open)
}

// finish ends our mark and commits.
func (db *DB) finish(s *session, open *bool) error {
	if _, err := s.unmark.exec(); err != nil {
		return err
	}
	*open = false
	if _, err := s.commit.exec(); err != nil {
		s.rollback.exec()
		return fmt.Errorf("%w: %w", ErrUnknown, err)
	}
	db.pending = nil
	return nil
}
