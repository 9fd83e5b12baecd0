package sqlite

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"leasehold.dev/leasehold/store"
)

//go:embed schema.sql
var schema string

const (
	applicationID = 0x4c534844 // "LSHD"
	schemaVersion = 1
)

var triggerName = regexp.MustCompile(`^CREATE TRIGGER (\w+)`)

// statements are those of schema.sql but for the triggers, which are apart: both in the order given.
var statements, triggers = parseSchema()

type trigger struct{ name, text string }

func parseSchema() (other []string, triggers []trigger) {
	for block := range strings.SplitSeq(schema, "\n\n") {
		var lines []string
		for line := range strings.Lines(block) {
			if !strings.HasPrefix(line, "--") {
				lines = append(lines, line)
			}
		}
		stmt := strings.TrimSuffix(strings.TrimSpace(strings.Join(lines, "")), ";")
		if stmt == "" {
			continue
		}
		if m := triggerName.FindStringSubmatch(stmt); m != nil {
			triggers = append(triggers, trigger{m[1], stmt})
		} else {
			other = append(other, stmt)
		}
	}
	return other, triggers
}

// setUp checks whose database it is and brings it up to date. Nothing is written before that check,
// and nothing at all where nothing is missing.
func (db *DB) setUp(ctx context.Context) error {
	for start := time.Now(); ; {
		err := db.setUpOnce(ctx)
		if !errors.Is(db.fault(err), store.ErrBusy) || time.Since(start) > db.opts.BusyTimeout {
			return err
		}
		// SQLite does not wait for the lock that a change of the journal mode needs.
		select {
		case <-ctx.Done():
			return err
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func (db *DB) setUpOnce(ctx context.Context) error {
	// In one transaction: another process may be at the same work.
	if _, err := db.conn.ExecContext(ctx, "BEGIN"); err != nil {
		return err
	}
	ready, err := db.inspect(ctx)
	db.conn.ExecContext(context.WithoutCancel(ctx), "ROLLBACK")
	if err != nil {
		return err
	}
	if !db.memory {
		var mode string
		if err := db.conn.QueryRowContext(ctx, "PRAGMA journal_mode = WAL").Scan(&mode); err != nil {
			return err
		}
		if mode != "wal" {
			return fmt.Errorf("%s: write-ahead logging is not possible here (journal mode %s); put the store on a local disk", db.path, mode)
		}
	}
	if ready {
		return nil
	}
	if _, err := db.conn.ExecContext(ctx, "BEGIN IMMEDIATE"); err != nil {
		return err
	}
	err = db.migrate(ctx)
	if err == nil {
		_, err = db.conn.ExecContext(context.WithoutCancel(ctx), "COMMIT")
	}
	if err != nil {
		db.conn.ExecContext(context.WithoutCancel(ctx), "ROLLBACK")
	}
	return err
}

// inspect refuses a database that is not ours to use, and reports whether nothing is missing.
func (db *DB) inspect(ctx context.Context) (ready bool, err error) {
	var app, version, tables int64
	var jobs bool
	if err := db.conn.QueryRowContext(ctx, "PRAGMA application_id").Scan(&app); err != nil {
		return false, err
	}
	if err := db.conn.QueryRowContext(ctx, "PRAGMA user_version").Scan(&version); err != nil {
		return false, err
	}
	err = db.conn.QueryRowContext(ctx, `SELECT count(*), COALESCE(max(name = 'jobs'), 0) FROM sqlite_master
		WHERE type = 'table' AND name NOT LIKE 'sqlite\_%' ESCAPE '\'`).Scan(&tables, &jobs)
	if err != nil {
		return false, err
	}
	switch {
	case app != 0 && app != applicationID:
		return false, fmt.Errorf("%s: %w (its application id is %d); choose another file", db.path, ErrForeign, app)
	case app == 0 && version != 0:
		return false, fmt.Errorf("%s: %w (its user_version is %d, so another program keeps its schema); choose another file", db.path, ErrForeign, version)
	case app == 0 && tables > 0 && !jobs:
		return false, fmt.Errorf("%s: %w (it has tables, but no jobs); choose another file", db.path, ErrForeign)
	case app == applicationID && version > schemaVersion:
		return false, fmt.Errorf("%s: %w (schema %d, this one knows %d); upgrade leasehold, or choose another file", db.path, ErrNewer, version, schemaVersion)
	}
	if jobs {
		if err := db.checkShape(ctx); err != nil {
			return false, err
		}
	}
	if app != applicationID || version != schemaVersion || !jobs {
		return false, nil
	}
	wrong, err := db.wrongTriggers(ctx)
	return len(wrong) == 0, err
}

// checkShape refuses a table jobs that is not the one of the contract.
func (db *DB) checkShape(ctx context.Context) error {
	rows, err := db.conn.QueryContext(ctx, `SELECT name, upper(type), "notnull", COALESCE(dflt_value, ''), pk FROM pragma_table_info('jobs')`)
	if err != nil {
		return err
	}
	defer rows.Close()
	var got []string
	for rows.Next() {
		var name, typ, def string
		var notNull, pk int
		if err := rows.Scan(&name, &typ, &notNull, &def, &pk); err != nil {
			return err
		}
		got = append(got, fmt.Sprintf("%s %s %d %s %d", name, typ, notNull, strings.TrimSuffix(def, ".0"), pk))
	}
	const want = "id TEXT 0  1,owner TEXT 0  0,until REAL 1 0 0,fence INTEGER 1 0 0,result TEXT 0  0,done INTEGER 1 0 0"
	if rows.Err() == nil && strings.Join(got, ",") != want {
		return fmt.Errorf("%s: %w (its table jobs has other columns than the contract's); choose another file", db.path, ErrForeign)
	}
	return rows.Err()
}

// wrongTriggers returns the names of the triggers that are missing or not as they should be.
func (db *DB) wrongTriggers(ctx context.Context) ([]string, error) {
	rows, err := db.conn.QueryContext(ctx, `SELECT name, sql FROM sqlite_master WHERE type = 'trigger'`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	have := map[string]string{}
	for rows.Next() {
		var name, text string
		if err := rows.Scan(&name, &text); err != nil {
			return nil, err
		}
		have[name] = text
	}
	var wrong []string
	for _, t := range triggers {
		if have[t.name] != t.text {
			wrong = append(wrong, t.name)
		}
	}
	return wrong, rows.Err()
}

// migrate runs inside BEGIN IMMEDIATE. It looks again: another process may have come first.
func (db *DB) migrate(ctx context.Context) error {
	ready, err := db.inspect(ctx)
	if err != nil || ready {
		return err
	}
	for _, stmt := range statements {
		if _, err := db.conn.ExecContext(ctx, stmt); err != nil {
			return fmt.Errorf("%.40s: %w", stmt, err)
		}
	}
	_, err = db.conn.ExecContext(ctx, `INSERT OR IGNORE INTO leasehold_meta(one, identity, revision) VALUES(1, ?, 0)`, randomWord())
	if err != nil {
		return err
	}
	wrong, err := db.wrongTriggers(ctx)
	if err != nil {
		return err
	}
	for _, t := range triggers {
		if _, err := db.conn.ExecContext(ctx, "DROP TRIGGER IF EXISTS "+t.name); err != nil {
			return err
		}
	}
	if len(wrong) > 0 {
		if err := db.takeIn(ctx); err != nil {
			return err
		}
	}
	for _, t := range triggers {
		if _, err := db.conn.ExecContext(ctx, t.text); err != nil {
			return fmt.Errorf("trigger %s: %w", t.name, err)
		}
	}
	_, err = db.conn.ExecContext(ctx, fmt.Sprintf("PRAGMA application_id = %d", applicationID))
	if err == nil {
		_, err = db.conn.ExecContext(ctx, fmt.Sprintf("PRAGMA user_version = %d", schemaVersion))
	}
	return err
}

// takeIn brings up to date what is kept beside the rows after a time without triggers: each claim
// raised the fence by one, and a fence that went back goes on where it was.
func (db *DB) takeIn(ctx context.Context) error {
	const valid = `id IS NOT NULL AND typeof(fence) = 'integer' AND fence >= 0`
	var errs []error
	for _, stmt := range []string{
		`UPDATE jobs SET owner = NULL, until = 0, fence = (SELECT high FROM leasehold_memory m WHERE m.id = jobs.id)
		WHERE done IS 0 AND ` + valid + ` AND fence < (SELECT high FROM leasehold_memory m WHERE m.id = jobs.id)`,
		`INSERT INTO leasehold_memory(id, high, holder, attempts)
		SELECT id, fence, COALESCE(owner, ''), fence FROM jobs WHERE ` + valid + ` AND fence > 0
		ON CONFLICT(id) DO UPDATE SET high = excluded.high, holder = excluded.holder, attempts = attempts + excluded.high - high
		WHERE excluded.high > high`,
	} {
		_, err := db.conn.ExecContext(ctx, stmt)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
