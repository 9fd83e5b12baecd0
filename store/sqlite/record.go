package sqlite

import (
	"database/sql/driver"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"unicode/utf8"

	"leasehold.dev/leasehold/store"
)

const (
	sqlColumns = `SELECT k.value, j.id, j.owner, j.until, j.fence, j.result, j.done,
	m.id, m.high, m.holder, m.attempts, m.memory FROM `
	sqlBeside = ` k LEFT JOIN jobs j ON j.id = k.value LEFT JOIN leasehold_memory m ON m.id = k.value`

	sqlLoadOne  = sqlColumns + `(SELECT ?1 AS value)` + sqlBeside
	sqlLoadMany = sqlColumns + `json_each(?1)` + sqlBeside
	sqlLoadAll  = `SELECT j.id, j.id, j.owner, j.until, j.fence, j.result, j.done,
	m.id, m.high, m.holder, m.attempts, m.memory
	FROM jobs j LEFT JOIN leasehold_memory m ON m.id = j.id WHERE j.id IS NOT NULL ORDER BY j.id`

	sqlMeta = `SELECT identity, revision, readers FROM leasehold_meta`

	// What was loaded is repeated as a guard.
	sqlInsert = `INSERT INTO jobs(id, owner, until, fence, result, done) VALUES(?1, ?2, ?3, ?4, ?5, ?6)`
	sqlLease  = `UPDATE jobs SET owner = ?1, until = ?2, fence = ?3 WHERE id = ?4 AND fence = ?5 AND owner IS ?6 AND done = 0`
	sqlFull   = `UPDATE jobs SET owner = ?1, until = ?2, fence = ?3, result = ?7, done = ?8
	WHERE id = ?4 AND fence = ?5 AND owner IS ?6 AND done = 0`
	sqlSide = `INSERT INTO leasehold_memory(id, high, holder, attempts, memory) VALUES(?1, ?2, ?3, ?4, ?5)
	ON CONFLICT(id) DO UPDATE SET high = max(high, excluded.high), holder = excluded.holder,
	attempts = excluded.attempts, memory = excluded.memory`
)

// entry is a job within a transaction: what was loaded, and what the decisions so far made of it.
type entry struct {
	err    error // the row is outside the contract's domain
	loaded *store.Record
	now    *store.Record // loaded, until a decision has been accepted
	owner  driver.Value  // as it stands in the row
	memory string        // its JSON as loaded
	tail   *tail         // the end of its history, if it has been read
}

// scan reads a row of sqlColumns. It fails only for rows that no statement of the contract writes.
func scan(row []driver.Value) *entry {
	e := &entry{owner: row[2]}
	r := &store.Record{}
	e.loaded, e.now = r, r
	var err error
	fail := func(format string, args ...any) {
		if err == nil {
			err = fmt.Errorf(format, args...)
		}
	}
	var ok bool
	if r.ID, ok = row[0].(string); !ok {
		r.ID = fmt.Sprintf("%v", row[0])
		fail("id is no text")
	}
	if row[1] != nil {
		r.Exists, r.Known = true, true
		switch v := row[2].(type) {
		case nil:
		case string:
			r.Owner = v
		default:
			fail("owner is no text")
		}
		switch v := row[3].(type) {
		case float64:
			r.Until = v
		case int64:
			r.Until = float64(v)
		default:
			fail("until is no number")
		}
		if math.IsInf(r.Until, 0) || math.IsNaN(r.Until) {
			fail("until is not finite")
		}
		fence, ok := row[4].(int64)
		if r.Fence = fence; !ok || fence < 0 {
			fail("fence is no whole number, 0 or more")
		}
		switch v := row[5].(type) {
		case nil:
		case string:
			r.Result = &v
		case []byte:
			s := string(v)
			r.Result = &s
		default:
			fail("result is no text")
		}
		done, ok := row[6].(int64)
		if r.Done = done != 0; !ok {
			fail("done is neither 0 nor 1")
		}
	}
	if row[7] != nil {
		r.Known = true
		r.High, _ = row[8].(int64)
		r.Holder, _ = row[9].(string)
		r.Attempts, _ = row[10].(int64)
		e.memory, _ = row[11].(string)
		if e.memory != "" {
			if e := json.Unmarshal([]byte(e.memory), &r.Memory); e != nil {
				fail("what is kept beside the row: %w", e)
			}
		}
	}
	if err != nil {
		e.err = &store.RowError{ID: r.ID, Err: err}
	}
	return e
}

// load fills entries with the records of ids that are not there yet.
func (s *session) loadInto(entries map[string]*entry, ids []string) error {
	var many []string
	for _, id := range ids {
		if entries[id] != nil {
			continue
		}
		// JSON carries neither of these unchanged.
		if len(ids) == 1 || !utf8.ValidString(id) || strings.ContainsRune(id, 0) {
			err := s.load.each(func(row []driver.Value) error {
				entries[id] = scan(row)
				return nil
			}, id)
			if err != nil {
				return err
			}
			continue
		}
		many = append(many, id)
	}
	if len(many) == 0 {
		return nil
	}
	list, err := json.Marshal(many)
	if err != nil {
		return err
	}
	return s.loadMany.each(func(row []driver.Value) error {
		e := scan(row)
		entries[e.loaded.ID] = e
		return nil
	}, string(list))
}

// write brings the tables to what e.now says. changed is false if they say so already.
func (s *session) write(e *entry, mark func() error) (changed bool, err error) {
	was, r := e.loaded, e.now
	if was == r {
		return false, nil
	}
	memory := ""
	if !r.Memory.IsZero() {
		b, err := json.Marshal(&r.Memory)
		if err != nil {
			return false, &store.RowError{ID: r.ID, Err: err}
		}
		memory = string(b)
	}
	rowChanged := r.Exists && !sameRow(was, r)
	sideChanged := memory != e.memory || r.High != was.High || r.Holder != was.Holder || r.Attempts != was.Attempts
	if !rowChanged && !sideChanged {
		return false, nil
	}
	if err := mark(); err != nil {
		return false, err
	}
	high, holder, attempts := was.High, was.Holder, was.Attempts
	if rowChanged {
		if err := s.writeRow(e); err != nil {
			return false, err
		}
		// The trigger that keeps the highest fence has seen this much.
		if r.Fence > high {
			high = r.Fence
			if r.Owner != "" {
				holder, attempts = r.Owner, attempts+1
			}
		}
	}
	if memory != e.memory || r.High > high || r.Holder != holder || r.Attempts != attempts {
		if _, err := s.side.exec(r.ID, max(r.High, high), r.Holder, r.Attempts, memory); err != nil {
			return true, err
		}
	}
	e.memory = memory
	return true, nil
}

func (s *session) writeRow(e *entry) error {
	was, r := e.loaded, e.now
	var owner, result driver.Value
	if r.Owner != "" {
		owner = r.Owner
	}
	if r.Result != nil {
		result = *r.Result
	}
	done := int64(0)
	if r.Done {
		done = 1
	}
	var n int64
	var err error
	switch {
	case !was.Exists:
		n, err = s.insert.exec(r.ID, owner, r.Until, r.Fence, result, done)
	case !r.Done && samePtr(was.Result, r.Result):
		n, err = s.lease.exec(owner, r.Until, r.Fence, r.ID, was.Fence, e.owner)
	default:
		n, err = s.full.exec(owner, r.Until, r.Fence, r.ID, was.Fence, e.owner, result, done)
	}
	if err == nil && n != 1 {
		err = &store.RowError{ID: r.ID, Err: fmt.Errorf("the row is not the one that was loaded")}
	}
	if refused(err) {
		err = &store.RowError{ID: r.ID, Err: err}
	}
	e.owner = owner
	return err
}

func sameRow(a, b *store.Record) bool {
	return a.Exists == b.Exists && a.Owner == b.Owner && a.Until == b.Until && a.Fence == b.Fence && a.Done == b.Done &&
		samePtr(a.Result, b.Result)
}

func samePtr(a, b *string) bool {
	return a == b || a != nil && b != nil && *a == *b
}
