package sqlite

import (
	"context"
	"database/sql/driver"
	"slices"
	"strings"
	"time"

	"leasehold.dev/leasehold/store"
)

const sqlTail = `SELECT seq, verb, reason, owner, fence, message, actor FROM leasehold_history
	WHERE id = ?1 ORDER BY seq DESC LIMIT 16` // tailRows

func sqlEvent(rows int) string {
	return `INSERT INTO leasehold_history(at, id, verb, reason, owner, fence, until, clock, message, actor, count) VALUES` +
		strings.TrimSuffix(strings.Repeat("(?,?,?,?,?,?,?,?,?,?,?),", rows), ",")
}

// pendingLimit is how many events of refusals wait for a commit at most; more are dropped.
const pendingLimit = 4096

// tailRows is how far back a round of claims is looked for.
const tailRows = 16

// tail is the end of a job's history, oldest first: rows that are there and rows to come.
type tail struct {
	read bool
	rows []*store.Event // Seq is 0 for one to come
}

// fold tells what has to be written for events, in order: new rows, and repeats of old ones. It
// keeps the tails that it has read with the entries, where there are any.
func (s *session) fold(events []store.Event, entries map[string]*entry) (rows []*store.Event, repeats map[int64]int64, err error) {
	var others map[string]*tail
	for i := range events {
		e := &events[i]
		entry := entries[e.ID]
		var t *tail
		if entry != nil {
			t = entry.tail
		} else {
			t = others[e.ID]
		}
		if t == nil {
			t = &tail{}
			if entry != nil {
				entry.tail = t
			} else {
				if others == nil {
					others = map[string]*tail{}
				}
				others[e.ID] = t
			}
		}
		if !t.read && mayRepeat(e, entry) {
			t.read = true
			if err := s.readTail(e.ID, t); err != nil {
				return nil, nil, err
			}
		}
		if same := t.find(e); same == nil {
			t.rows = append(t.rows, e)
			rows = append(rows, e)
		} else if same.Seq == 0 {
			same.Count += e.Count
		} else {
			if repeats == nil {
				repeats = map[int64]int64{}
			}
			repeats[same.Seq] += e.Count
		}
	}
	return rows, repeats, nil
}

// mayRepeat reports whether e can be a repeat of what is in the database, so that it must be read.
func mayRepeat(e *store.Event, entry *entry) bool {
	if e.Reason != "" {
		return true
	}
	switch e.Verb {
	case "enqueued", "completed":
		return false
	case "claimed":
		return entry == nil || entry.loaded.Attempts > 0
	}
	return true
}

// find returns the row that e repeats: the latest one if it is the same, or, of claims that go
// round the same owners with nothing in between, the earlier claim of the same owner.
func (t *tail) find(e *store.Event) *store.Event {
	for i := len(t.rows) - 1; i >= 0; i-- {
		r := t.rows[i]
		if sameEvent(r, e) {
			return r
		}
		if !claimed(r) || !claimed(e) || r.By != e.By || r.Message != e.Message {
			return nil
		}
		if r.Owner == e.Owner {
			return r
		}
	}
	return nil
}

// sameEvent reports whether b repeats a.
func sameEvent(a, b *store.Event) bool {
	return a.Verb == b.Verb && a.Reason == b.Reason && a.Owner == b.Owner && a.Fence == b.Fence && a.By == b.By && a.Message == b.Message
}

func claimed(e *store.Event) bool { return e.Verb == "claimed" && e.Reason == "" }

func (s *session) readTail(id string, t *tail) error {
	var old []*store.Event
	err := s.tail.each(func(row []driver.Value) error {
		e := &store.Event{}
		e.Seq, _ = row[0].(int64)
		e.Verb, _ = row[1].(string)
		reason, _ := row[2].(string)
		e.Reason = store.Reason(reason)
		e.Owner, _ = row[3].(string)
		e.Fence, _ = row[4].(int64)
		e.Message, _ = row[5].(string)
		e.By, _ = row[6].(string)
		old = append(old, e)
		return nil
	}, id)
	for _, e := range t.rows {
		old = append([]*store.Event{e}, old...)
	}
	t.rows = t.rows[:0]
	for i := len(old) - 1; i >= 0; i-- {
		t.rows = append(t.rows, old[i])
	}
	return err
}

// writeEvents writes what fold said.
func (s *session) writeEvents(rows []*store.Event, repeats map[int64]int64) error {
	for seq, n := range repeats {
		if _, err := s.count.exec(n, seq); err != nil {
			return err
		}
	}
	args := make([]driver.Value, 0, eventRows*11)
	for len(rows) > 0 {
		n, st := 1, s.event
		if len(rows) >= eventRows {
			n, st = eventRows, s.events
		}
		args = args[:0]
		for _, e := range rows[:n] {
			var clock driver.Value
			if e.Clock != nil {
				clock = *e.Clock
			}
			args = append(args, e.At.UnixMilli(), e.ID, e.Verb, string(e.Reason), e.Owner, e.Fence, e.Until, clock, e.Message, e.By, e.Count)
		}
		last, err := st.insert(args...)
		if err != nil {
			return err
		}
		for i, e := range rows[:n] {
			e.Seq = last - int64(n-1-i)
		}
		rows = rows[n:]
	}
	return nil
}

const sqlEvents = `SELECT seq, at, id, verb, reason, owner, fence, until, clock, message, actor, count
	FROM leasehold_history WHERE `

// History returns up to limit events after the one numbered after, oldest first, of the job id, or
// of all jobs if id is empty. A limit of 0 means all.
func (db *DB) History(ctx context.Context, id string, after int64, limit int) ([]store.Event, error) {
	if limit <= 0 {
		limit = -1
	}
	if id == "" {
		return db.events(ctx, sqlEvents+`seq > ?1 ORDER BY seq LIMIT ?2`, after, int64(limit))
	}
	return db.events(ctx, sqlEvents+`id = ?3 AND seq > ?1 ORDER BY seq LIMIT ?2`, after, int64(limit), id)
}

// Recent returns the last limit events of the job id, oldest first.
func (db *DB) Recent(ctx context.Context, id string, limit int) ([]store.Event, error) {
	events, err := db.events(ctx, sqlEvents+`id = ?1 ORDER BY seq DESC LIMIT ?2`, id, int64(limit))
	slices.Reverse(events)
	return events, err
}

func (db *DB) events(ctx context.Context, query string, args ...driver.Value) (events []store.Event, err error) {
	err = db.query(ctx, query, func(row []driver.Value) error {
		e := store.Event{}
		e.Seq, _ = row[0].(int64)
		at, _ := row[1].(int64)
		e.At = time.UnixMilli(at).UTC()
		e.ID, _ = row[2].(string)
		e.Verb, _ = row[3].(string)
		reason, _ := row[4].(string)
		e.Reason = store.Reason(reason)
		e.Owner, _ = row[5].(string)
		e.Fence, _ = row[6].(int64)
		e.Until, _ = row[7].(float64)
		if clock, ok := row[8].(float64); ok {
			e.Clock = &clock
		}
		e.Message, _ = row[9].(string)
		e.By, _ = row[10].(string)
		e.Count, _ = row[11].(int64)
		events = append(events, e)
		return nil
	}, args...)
	return events, err
}
