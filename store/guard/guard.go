package guard

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// Dialect is the kind of SQL that a database understands.
type Dialect int

// The dialects.
const (
	SQLite Dialect = iota
	PostgreSQL
)

// DefaultTable is the table that keeps the fences unless another is named.
const DefaultTable = "leasehold_guard"

// ErrInvalid is in every error about an argument that no guard could accept.
var ErrInvalid = errors.New("invalid argument")

// StaleError is the refusal of a fence.
type StaleError struct {
	Resource string
	Fence    int64 // that was refused
	Current  int64 // the highest seen
}

func (e *StaleError) Error() string {
	if e.Fence == e.Current {
		return fmt.Sprintf("%s: fence %d has been used", e.Resource, e.Fence)
	}
	return fmt.Sprintf("%s: fence %d is stale: %d has been seen", e.Resource, e.Fence, e.Current)
}

// Guard keeps the highest fence of each resource in a table of the caller's database. The zero value
// is for SQLite.
type Guard struct {
	Dialect Dialect
	Table   string // DefaultTable if empty; may be qualified by a schema
}

// Execer is a *sql.DB, *sql.Conn or *sql.Tx.
type Execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// table is the quoted name.
func (g Guard) table() string {
	name := g.Table
	if name == "" {
		name = DefaultTable
	}
	parts := strings.Split(name, ".")
	for i, p := range parts {
		parts[i] = `"` + strings.ReplaceAll(p, `"`, `""`) + `"`
	}
	return strings.Join(parts, ".")
}

// Init creates the table if it is missing.
func (g Guard) Init(ctx context.Context, db Execer) error {
	check := "fence > 0"
	if g.Dialect == SQLite {
		check += " AND typeof(fence) = 'integer'"
	}
	_, err := db.ExecContext(ctx, `CREATE TABLE IF NOT EXISTS `+g.table()+`(
  resource TEXT PRIMARY KEY,
  fence BIGINT NOT NULL CHECK(`+check+`)
)`)
	return err
}

// Check refuses a fence that is lower than the highest seen for the resource with a [*StaleError], and
// otherwise remembers it with the commit of tx; no other transaction can check the resource until
// then. It is to be the first statement of tx: one of SQLite that has read before may find that it
// cannot write any more. Other errors: ErrInvalid, and those of the database; PostgreSQL's
// serialization failures, above READ COMMITTED, ask for another try as they always do.
func (g Guard) Check(ctx context.Context, tx *sql.Tx, resource string, fence int64) error {
	return g.check(ctx, tx, resource, fence, "<=")
}

// CheckFirst is Check for what must happen once under a fence: it refuses one that has been seen.
func (g Guard) CheckFirst(ctx context.Context, tx *sql.Tx, resource string, fence int64) error {
	return g.check(ctx, tx, resource, fence, "<")
}

func (g Guard) check(ctx context.Context, tx *sql.Tx, resource string, fence int64, than string) error {
	if err := validate(resource, fence); err != nil {
		return err
	}
	table := g.table()
	// The table's own columns are qualified by an alias, so that any table name will do.
	res, err := tx.ExecContext(ctx, g.bind(`INSERT INTO `+table+` AS seen(resource, fence) VALUES(?, ?)
ON CONFLICT(resource) DO UPDATE SET fence = excluded.fence WHERE seen.fence `+than+` excluded.fence`), resource, fence)
	if err != nil {
		return err
	}
	n, err := res.RowsAffected()
	if err != nil || n > 0 {
		return err
	}
	current, err := g.current(ctx, tx, resource)
	if err != nil {
		return err
	}
	return &StaleError{Resource: resource, Fence: fence, Current: current}
}

// Current returns the highest fence seen for the resource, 0 if there was none.
func (g Guard) Current(ctx context.Context, tx *sql.Tx, resource string) (int64, error) {
	return g.current(ctx, tx, resource)
}

func (g Guard) current(ctx context.Context, tx *sql.Tx, resource string) (fence int64, err error) {
	err = tx.QueryRowContext(ctx, g.bind(`SELECT fence FROM `+g.table()+` WHERE resource = ?`), resource).Scan(&fence)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, nil
	}
	return fence, err
}

// bind writes placeholders as the dialect wants them.
func (g Guard) bind(query string) string {
	if g.Dialect != PostgreSQL {
		return query
	}
	var b strings.Builder
	for n, part := range strings.Split(query, "?") {
		if n > 0 {
			fmt.Fprintf(&b, "$%d", n)
		}
		b.WriteString(part)
	}
	return b.String()
}

func validate(resource string, fence int64) error {
	switch {
	case resource == "":
		return fmt.Errorf("%w: resource: must not be empty", ErrInvalid)
	case !utf8.ValidString(resource) || strings.ContainsRune(resource, 0):
		return fmt.Errorf("%w: resource: must be text", ErrInvalid)
	case fence < 1:
		return fmt.Errorf("%w: fence: %d: must be at least 1", ErrInvalid, fence)
	}
	return nil
}
