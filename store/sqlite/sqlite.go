// Package sqlite keeps jobs in a SQLite file that programs in other languages may use at the same
// time, with plain SQL.
//
// It promises what package store promises, to callers of [DB] and, by triggers in the file, against
// every statement of any other program: a fence never goes back, a result once accepted stays, and
// both outlive a deleted row. An answer follows a commit that is durable (WAL with
// synchronous=FULL) and made to the file that still stands at the path; see [store.ErrLost].
//
// It does not promise anything against a program that drops the triggers or writes to the tables
// named leasehold_, on network file systems, or on disks that lie about having written.
package sqlite

import (
	"context"
	"crypto/rand"
	"database/sql"
	"database/sql/driver"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"leasehold.dev/leasehold/store"
)

// Options are the choices of [Open]. The zero value is usable.
type Options struct {
	Actor        string        // goes to the events that this process writes; "go" if empty
	HistoryLimit int           // events kept, about; 100,000 if 0
	BusyTimeout  time.Duration // how long to wait for another program's lock; 10 s if 0
	MustExist    bool          // do not create a file: return an error that wraps fs.ErrNotExist
	// Committed, if set, is called after each commit that is durable, with what the transaction took
	// and the number of decisions that shared it. It must not call the store.
	Committed func(took time.Duration, decisions int)
}

func (o Options) withDefaults() Options {
	if o.Actor == "" {
		o.Actor = "go"
	}
	if o.HistoryLimit <= 0 {
		o.HistoryLimit = 100_000
	}
	if o.BusyTimeout <= 0 {
		o.BusyTimeout = 10 * time.Second
	}
	return o
}

// DB is an open store. It is safe for use by many goroutines.
type DB struct {
	store.Ops
	path   string
	opts   Options
	memory bool
	files  files

	writer  *sql.DB
	conn    *sql.Conn // of writer
	session *session  // on conn
	reader  *sql.DB   // nil for one in memory

	// Used by whoever leads.
	meta      meta              // as of cache
	cache     map[string]*entry // what the file says; nil if that is not known
	cachedAt  int64             // data_version of cache
	former    []store.Stamp
	formerOf  string        // the identity to which former belongs
	pending   []store.Event // of refusals, for a later commit
	untrimmed int           // events written since the oldest were dropped
	batched   int           // requests in the last batch
	lastEnd   time.Time     // of our last transaction
	lastGap   time.Time     // when the lock was last free for a while
	follows   bool          // Changes has been called
	version   int64         // data_version that Changes saw
	seen      int64         // the last row of the feed that Changes read
	origin    string        // names db in the feed

	mu       sync.Mutex
	known    store.Stamp // the latest state that this process has seen
	queue    []*request
	led      bool // somebody leads
	closed   bool
	lost     bool
	flushing bool // timer runs
	timer    *time.Timer
}

var _ store.Engine = (*DB)(nil)

// Open opens the store at path and creates what is missing of it; the directory must exist. Rows
// that a plain program wrote before are taken in. Errors: [ErrForeign], [ErrNewer], [ErrCorrupt],
// [ErrReadOnly], [store.ErrBusy], or one that wraps [fs.ErrNotExist].
func Open(ctx context.Context, path string, opts Options) (*DB, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	// Links are resolved as SQLite does, so that the -wal is looked for where it is.
	if real, err := filepath.EvalSymlinks(abs); err == nil {
		abs = real
	} else if dir, err := filepath.EvalSymlinks(filepath.Dir(abs)); err == nil {
		abs = filepath.Join(dir, filepath.Base(abs))
	}
	db := &DB{path: abs, opts: opts.withDefaults(), origin: randomWord()}
	before, err := os.Stat(abs)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if opts.MustExist {
			return nil, fmt.Errorf("no store at %s: %w", abs, fs.ErrNotExist)
		}
		if _, err := os.Stat(filepath.Dir(abs)); err != nil {
			return nil, err
		}
	case err != nil:
		return nil, err
	case !before.Mode().IsRegular():
		return nil, fmt.Errorf("%s is not a regular file", abs)
	}
	mode, more := "rwc", ""
	if opts.MustExist {
		mode = "rw"
	}
	if before == nil {
		// SQLite lets everybody read what it makes, unless it has a model.
		if model, err := os.CreateTemp("", "leasehold-mode-*"); err == nil { // of mode 0600
			model.Close()
			defer os.Remove(model.Name())
			more = "&modeof=" + url.QueryEscape(model.Name())
		}
	}
	if err := db.open(ctx, db.dsn(mode, more)); err != nil {
		return nil, err
	}
	db.reader, err = sql.Open("sqlite", db.dsn("rw", "&_pragma=query_only(1)"))
	if err != nil {
		db.shut()
		return nil, err
	}
	db.reader.SetMaxOpenConns(4)
	db.reader.SetMaxIdleConns(4)
	if db.files, err = identify(abs, before); err != nil {
		db.shut()
		return nil, err
	}
	return db, nil
}

// OpenMemory opens an empty store that lives in memory and ends with Close.
func OpenMemory(ctx context.Context, opts Options) (*DB, error) {
	db := &DB{path: "memory", opts: opts.withDefaults(), memory: true, origin: randomWord()}
	if err := db.open(ctx, "file::memory:"); err != nil {
		return nil, err
	}
	return db, nil
}

// dsn names the file with the pragmas that every connection needs.
func (db *DB) dsn(mode, more string) string {
	slashed := filepath.ToSlash(db.path)
	if !strings.HasPrefix(slashed, "/") {
		slashed = "/" + slashed // a drive letter
	}
	u := url.URL{Scheme: "file", Path: slashed}
	return fmt.Sprintf("%s?mode=%s&_pragma=busy_timeout(%d)&_pragma=synchronous(FULL)&_pragma=foreign_keys(0)%s",
		u.String(), mode, db.opts.BusyTimeout.Milliseconds(), more)
}

func (db *DB) open(ctx context.Context, dsn string) (err error) {
	db.Ops.Engine = db
	if db.writer, err = sql.Open("sqlite", dsn); err != nil {
		return err
	}
	db.writer.SetMaxOpenConns(1)
	defer func() {
		if err != nil {
			db.shut()
			err = db.fault(err)
		}
	}()
	if db.conn, err = db.writer.Conn(ctx); err != nil {
		return err
	}
	if err := db.setUp(ctx); err != nil {
		return err
	}
	db.lastGap = time.Now()
	return db.conn.Raw(func(c any) error {
		db.session, err = newSession(c.(driver.Conn))
		return err
	})
}

// randomWord returns 8 hexadecimal digits.
func randomWord() string {
	var b [4]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

// Close writes what waits, ends all later calls with [store.ErrClosed], and closes the file.
func (db *DB) Close() error {
	db.mu.Lock()
	timer := db.timer
	db.mu.Unlock()
	if timer != nil {
		timer.Stop()
	}
	err := db.submit(context.Background(), &request{solo: func(s *session) error {
		err := db.flush(s)
		if db.follows {
			_ = s.run("UPDATE leasehold_meta SET readers = max(readers - 1, 0)")
		}
		db.mu.Lock()
		defer db.mu.Unlock()
		db.closed = true
		for _, r := range db.queue {
			if !r.begun {
				r.begun, r.err = true, store.ErrClosed
				r.wake <- struct{}{}
			}
		}
		db.queue = nil
		return err
	}})
	switch {
	case errors.Is(err, store.ErrClosed):
		return nil
	case errors.Is(err, store.ErrLost):
		db.mu.Lock()
		db.closed = true
		db.mu.Unlock()
		err = nil
	}
	db.shut()
	return err
}

// shut closes the connections.
func (db *DB) shut() {
	if db.reader != nil {
		db.reader.Close()
	}
	if db.conn != nil {
		if db.session != nil {
			db.conn.Raw(func(any) error { db.session.close(); return nil })
		}
		db.conn.Close()
	}
	db.writer.Close()
}

// Path returns the absolute path of the file.
func (db *DB) Path() string { return db.path }
