package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"leasehold.dev/leasehold/store/guard"
)

// ledger is a table outside of the store, which the demo's workers write to, and which checks their
// fences itself.
type ledger struct{ db *sql.DB }

func openLedger(ctx context.Context, dir string) (*ledger, error) {
	db, err := openFences(ctx, filepath.Join(dir, "ledger.db"))
	if err != nil {
		return nil, err
	}
	if _, err := db.ExecContext(ctx, `CREATE TABLE ledger(entry TEXT NOT NULL)`); err != nil {
		db.Close()
		return nil, err
	}
	return &ledger{db}, nil
}

// enter writes an entry under a fence and says what became of it.
func (l *ledger) enter(ctx context.Context, fence int64, entry string) (string, error) {
	tx, err := l.db.BeginTx(ctx, nil)
	if err != nil {
		return "", err
	}
	defer tx.Rollback()
	var stale *guard.StaleError
	switch err := (guard.Guard{}).Check(ctx, tx, "ledger", fence); {
	case errors.As(err, &stale):
		return "the ledger refused it: " + stale.Error(), nil
	case err != nil:
		return "", err
	}
	if _, err := tx.ExecContext(ctx, `INSERT INTO ledger(entry) VALUES(?)`, entry); err != nil {
		return "", err
	}
	return "the ledger took it: " + entry, tx.Commit()
}

// entries are what the ledger holds.
func (l *ledger) entries(ctx context.Context) (string, error) {
	rows, err := l.db.QueryContext(ctx, `SELECT entry FROM ledger`)
	if err != nil {
		return "", err
	}
	defer rows.Close()
	var b strings.Builder
	for rows.Next() {
		var entry string
		if err := rows.Scan(&entry); err != nil {
			return "", err
		}
		fmt.Fprintf(&b, "  %s\n", entry)
	}
	return b.String(), rows.Err()
}
