package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"leasehold.dev/leasehold/store"
)

// Report is what Check found.
type Report struct {
	Jobs, Events int
	Problems     []string
	Faulty       map[string]bool // ids whose rows cannot be read
	grave        []string        // of Problems, those that no program but a damaged file makes
	// Stamp and Former are the store's; they are empty where the file could not be read that far.
	Stamp  store.Stamp
	Former []store.Stamp
}

func (r *Report) add(format string, args ...any) {
	if len(r.Problems) < 1000 {
		r.Problems = append(r.Problems, fmt.Sprintf(format, args...))
	}
}

func (r *Report) bad(format string, args ...any) {
	r.add(format, args...)
	r.grave = append(r.grave, fmt.Sprintf(format, args...))
}

// Check looks for everything in the store at path that is not as it should be, and changes nothing.
// Open, in contrast, puts missing triggers right. each, if not nil, is called with every record that
// can be read, of one state of the store. The error is one of opening the file: that of [Open], for
// a file that is no store of ours.
func Check(ctx context.Context, path string, each func(*store.Record)) (*Report, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(abs); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("no store at %s: %w", abs, fs.ErrNotExist)
		}
		return nil, err
	}
	db := &DB{path: abs, opts: Options{}.withDefaults()}
	if db.writer, err = sql.Open("sqlite", db.dsn("rw", "&_pragma=query_only(1)")); err != nil {
		return nil, err
	}
	defer db.writer.Close()
	if db.conn, err = db.writer.Conn(ctx); err != nil {
		return nil, db.fault(err)
	}
	defer db.conn.Close()
	r := &Report{}
	return r, db.fault(db.check(ctx, r, each))
}

// check is the work of Check, within one transaction.
func (db *DB) check(ctx context.Context, r *Report, each func(*store.Record)) error {
	tx, err := db.conn.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return err
	}
	defer tx.Rollback()
	rows := func(text string, f func(row []driver.Value) error, args ...driver.Value) error {
		return scanAll(ctx, tx, text, f, args)
	}
	damaged := false
	if err := rows("PRAGMA integrity_check(20)", func(row []driver.Value) error {
		if row[0] != "ok" {
			damaged = true
			r.bad("the file is damaged: %v", row[0])
		}
		return nil
	}); err != nil {
		return err
	}
	if damaged {
		return nil // what else it says cannot be relied on
	}
	if _, err := db.inspect(ctx); err != nil {
		return err
	}
	var ours bool
	if err := rows("SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name LIKE 'leasehold\\_%' ESCAPE '\\'", func(row []driver.Value) error {
		n, _ := row[0].(int64)
		ours = n >= 5
		return nil
	}); err != nil {
		return err
	}
	if !ours {
		r.add("leasehold's own tables are missing; leasehold store init makes them")
		return nil
	}
	wrong, err := db.wrongTriggers(ctx)
	if err != nil {
		return err
	}
	for _, name := range wrong {
		r.add("the trigger %s is missing or altered, so that other programs could break the rules; leasehold store init puts it right", name)
	}
	q := query{each: rows}
	if r.Stamp, r.Former, err = q.meta(); err != nil {
		return err
	}
	if err := r.checkMeta(q); err != nil {
		return err
	}
	high, err := r.checkRows(q, each)
	if err != nil {
		return err
	}
	return r.checkHistory(q, high)
}

func (r *Report) checkMeta(q query) error {
	n := 0
	err := q.each("SELECT identity, revision, writer FROM leasehold_meta", func(row []driver.Value) error {
		n++
		if s, ok := row[0].(string); !ok || s == "" {
			r.add("leasehold_meta: the store has no identity")
		}
		if rev, ok := row[1].(int64); !ok || rev < 0 {
			r.add("leasehold_meta: revision %v is no whole number, 0 or more", row[1])
		}
		if row[2] != int64(0) {
			r.add("leasehold_meta: writer is %v outside a transaction, so that triggers take other programs for leasehold", row[2])
		}
		return nil
	})
	if n != 1 && err == nil {
		r.bad("leasehold_meta has %d rows, not 1", n)
	}
	for _, f := range r.Former {
		if f.Revision > r.Stamp.Revision {
			r.add("leasehold_former: %s is later than the store's own %s", f, r.Stamp)
		}
	}
	return err
}

// checkRows returns the highest fence of every job that is known.
func (r *Report) checkRows(q query, each func(*store.Record)) (high map[string]int64, err error) {
	high = map[string]int64{}
	if err := q.each("SELECT id, high, attempts FROM leasehold_memory", func(row []driver.Value) error {
		id, _ := row[0].(string)
		h, ok := row[1].(int64)
		attempts, ok2 := row[2].(int64)
		if !ok || !ok2 || h < 0 || attempts < 0 {
			r.add("job %q: its highest fence %v or its attempts %v is no whole number, 0 or more", id, row[1], row[2])
		} else if attempts > h {
			r.bad("job %q: %d claims, but the highest fence is %d", id, attempts, h)
		}
		high[id] = h
		return nil
	}); err != nil {
		return nil, err
	}
	if err := q.each("SELECT count(*) FROM jobs WHERE id IS NULL", func(row []driver.Value) error {
		if n, _ := row[0].(int64); n > 0 {
			r.add("%d rows have no id", n)
		}
		return nil
	}); err != nil {
		return nil, err
	}
	return high, q.each(sqlLoadAll, func(row []driver.Value) error {
		r.Jobs++
		e := scan(row)
		if e.err != nil {
			r.add("%v", e.err)
			if r.Faulty == nil {
				r.Faulty = map[string]bool{}
			}
			r.Faulty[e.now.ID] = true
			return nil
		}
		j := e.now
		h := high[j.ID]
		switch {
		case j.Fence > h:
			r.bad("job %q: fence %d is above %d, the highest that is remembered", j.ID, j.Fence, h)
		case j.Fence < h:
			r.bad("job %q: fence %d has gone back from %d", j.ID, j.Fence, h)
		}
		switch {
		case j.Done && j.Result == nil:
			r.add("job %q: is done without a result", j.ID)
		case !j.Done && j.Result != nil:
			r.add("job %q: has a result and is not done", j.ID)
		}
		switch {
		case j.Owner != "" && j.Fence == 0:
			r.add("job %q: %s owns it without a fence", j.ID, j.Owner)
		case j.Owner != "" && !j.Done && j.Owner != j.Holder:
			r.add("job %q: %s owns it, but fence %d was handed to %s", j.ID, j.Owner, j.Fence, j.Holder)
		}
		j.Stamp, j.Former = r.Stamp, r.Former
		if each != nil {
			each(j)
		}
		return nil
	})
}

// checkHistory holds the history against the rows: they lie in different places of the file, so a
// file that is put together from two states shows here.
func (r *Report) checkHistory(q query, high map[string]int64) error {
	last, done := map[string]int64{}, map[string]bool{}
	return q.each("SELECT seq, id, verb, fence FROM leasehold_history WHERE reason = '' ORDER BY seq", func(row []driver.Value) error {
		r.Events++
		id, _ := row[1].(string)
		verb, _ := row[2].(string)
		fence, _ := row[3].(int64)
		if fence > high[id] {
			r.bad("job %q: entry %v of the history knows fence %d, the job only %d", id, row[0], fence, high[id])
		}
		switch verb {
		case "claimed":
			if fence <= last[id] {
				r.bad("job %q: entry %v of the history hands out fence %d after %d", id, row[0], fence, last[id])
			}
			fallthrough
		case "renewed", "released":
			if done[id] {
				r.add("job %q: entry %v of the history, %s, comes after its completion", id, row[0], verb)
			}
		case "completed", "restored":
			if done[id] {
				r.add("job %q: entry %v of the history is a second completion", id, row[0])
			}
			done[id] = true
		}
		last[id] = max(last[id], fence)
		return nil
	})
}
