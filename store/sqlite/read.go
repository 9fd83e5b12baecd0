package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"

	"leasehold.dev/leasehold/store"
)

// View implements [store.Engine].
func (db *DB) View(ctx context.Context, ids []string, read func([]*store.Record) error) (store.Stamp, error) {
	if err := distinct(ids); err != nil {
		return store.Stamp{}, err
	}
	var stamp store.Stamp
	records := make([]*store.Record, len(ids))
	fill := func(i int, e *entry) { records[i] = e.now }
	err := db.snapshot(ctx, func(q query) error {
		m, former, err := q.meta()
		if err != nil {
			return err
		}
		stamp = m
		for i, id := range ids {
			var e *entry
			if err := q.each(sqlLoadOne, func(row []driver.Value) error { e = scan(row); return nil }, id); err != nil {
				return err
			}
			if e.err != nil {
				return e.err
			}
			fill(i, e)
			records[i].Stamp, records[i].Former = m, former
		}
		return nil
	})
	if err != nil {
		return store.Stamp{}, err
	}
	return stamp, read(records)
}

// Stamp returns the store's identity and revision.
func (db *DB) Stamp(ctx context.Context) (stamp store.Stamp, err error) {
	err = db.snapshot(ctx, func(q query) error {
		stamp, _, err = q.meta()
		return err
	})
	return stamp, err
}

// Records calls f with every record, in the order of the ids, of one state of the store. A row
// outside the contract's domain is left out, and Records returns a *store.RowError for it in the
// end, joined with those of others. An error of f ends it and is returned as it is.
func (db *DB) Records(ctx context.Context, f func(*store.Record) error) error {
	var bad []error
	err := db.snapshot(ctx, func(q query) error {
		m, former, err := q.meta()
		if err != nil {
			return err
		}
		return q.each(sqlLoadAll, func(row []driver.Value) error {
			e := scan(row)
			if e.err != nil {
				bad = append(bad, e.err)
				return nil
			}
			e.now.Stamp, e.now.Former = m, former
			return f(e.now)
		})
	})
	if err != nil {
		return err
	}
	return errors.Join(bad...)
}

// List is Records with the rows alone.
func (db *DB) List(ctx context.Context, f func(store.Row) error) error {
	return db.Records(ctx, func(r *store.Record) error { return f(r.Row) })
}

// query reads within a snapshot.
type query struct {
	each func(query string, f func(row []driver.Value) error, args ...driver.Value) error
	seen func(store.Stamp) error // judges the state that is read; may be nil
}

func (q query) meta() (stamp store.Stamp, former []store.Stamp, err error) {
	err = q.each(sqlMeta, func(row []driver.Value) error {
		stamp.Identity, _ = row[0].(string)
		stamp.Revision, _ = row[1].(int64)
		return nil
	})
	if err == nil && q.seen != nil {
		err = q.seen(stamp)
	}
	if err != nil {
		return stamp, nil, err
	}
	err = q.each("SELECT identity, revision FROM leasehold_former ORDER BY rowid", func(row []driver.Value) error {
		var s store.Stamp
		s.Identity, _ = row[0].(string)
		s.Revision, _ = row[1].(int64)
		former = append(former, s)
		return nil
	})
	return stamp, former, err
}

// snapshot runs f on one state of the store. Errors of callbacks come back as they are.
func (db *DB) snapshot(ctx context.Context, f func(query) error) error {
	if db.memory {
		return db.submit(ctx, &request{solo: func(s *session) error {
			return f(query{func(text string, f func([]driver.Value) error, args ...driver.Value) error {
				st, err := prepare(s.conn, text)
				if err != nil {
					return err
				}
				defer st.stmt.Close()
				return st.each(f, args...)
			}, nil})
		}})
	}
	db.mu.Lock()
	closed, lost := db.closed, db.lost
	db.mu.Unlock()
	switch {
	case closed:
		return store.ErrClosed
	case lost:
		return store.ErrLost
	}
	before := db.newest()
	tx, err := db.reader.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err == nil {
		err = f(query{func(text string, f func([]driver.Value) error, args ...driver.Value) error {
			return scanAll(ctx, tx, text, f, args)
		}, func(now store.Stamp) error { return db.witness(now, before) }})
		tx.Rollback()
	}
	if errors.Is(err, store.ErrLost) || db.files.lost() {
		db.mu.Lock()
		db.lost = true
		db.mu.Unlock()
		return store.ErrLost
	}
	return db.fault(err)
}

// query reads rows outside any snapshot.
func (db *DB) query(ctx context.Context, text string, f func([]driver.Value) error, args ...driver.Value) error {
	return db.snapshot(ctx, func(q query) error { return q.each(text, f, args...) })
}

func scanAll(ctx context.Context, tx *sql.Tx, text string, f func([]driver.Value) error, args []driver.Value) error {
	params := make([]any, len(args))
	for i, a := range args {
		params[i] = a
	}
	rows, err := tx.QueryContext(ctx, text, params...)
	if err != nil {
		return err
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		return err
	}
	row, dest := make([]driver.Value, len(columns)), make([]any, len(columns))
	for i := range row {
		dest[i] = (*any)(&row[i])
	}
	for rows.Next() {
		if err := rows.Scan(dest...); err != nil {
			return err
		}
		if err := f(row); err != nil {
			return err
		}
	}
	return rows.Err()
}
