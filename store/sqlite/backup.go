package sqlite

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"

	"leasehold.dev/leasehold/store"
)

// Backup writes one state of the store to a new file, while others work on, and returns which state
// it is. The file is whole and on disk when Backup returns, or not there at all. Put back in the
// place of the store, it is known by its revision for an older copy. The error wraps fs.ErrExist
// where there is something at the path.
func (db *DB) Backup(ctx context.Context, to string) (stamp store.Stamp, err error) {
	to, err = filepath.Abs(to)
	if err != nil {
		return stamp, err
	}
	if _, err := os.Lstat(to); err == nil {
		return stamp, fmt.Errorf("%s: %w; choose another name", to, fs.ErrExist)
	}
	var word [8]byte
	rand.Read(word[:])
	temp := filepath.Join(filepath.Dir(to), "."+filepath.Base(to)+"."+hex.EncodeToString(word[:]))
	// VACUUM INTO fills an empty file as well as a new one: this one is nobody else's to read.
	f, err := os.OpenFile(temp, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return stamp, err
	}
	defer os.Remove(temp)
	defer f.Close()
	if err := db.copyTo(ctx, temp); err != nil {
		return stamp, err
	}
	if stamp, err = copied(ctx, temp); err != nil {
		return stamp, err
	}
	if err := f.Sync(); err != nil {
		return stamp, err
	}
	// A link does not replace what has come to stand there meanwhile.
	if err := os.Link(temp, to); err != nil {
		if errors.Is(err, fs.ErrExist) {
			return stamp, fmt.Errorf("%s: %w; choose another name", to, fs.ErrExist)
		}
		if _, err := os.Lstat(to); err == nil {
			return stamp, fmt.Errorf("%s: %w; choose another name", to, fs.ErrExist)
		}
		if err := os.Rename(temp, to); err != nil { // no hard links here
			return stamp, err
		}
	}
	os.Remove(temp)
	return stamp, syncDir(filepath.Dir(to))
}

func (db *DB) copyTo(ctx context.Context, path string) error {
	db.mu.Lock()
	closed, lost := db.closed, db.lost
	db.mu.Unlock()
	switch {
	case closed:
		return store.ErrClosed
	case lost || !db.memory && db.files.lost():
		return store.ErrLost
	}
	if db.memory {
		return errors.New("a store in memory cannot be backed up")
	}
	source, err := sql.Open("sqlite", db.dsn("rw", ""))
	if err != nil {
		return err
	}
	defer source.Close()
	_, err = source.ExecContext(ctx, "VACUUM INTO ?", path)
	return db.fault(err)
}

// copied returns the state that a copy is of.
func copied(ctx context.Context, path string) (stamp store.Stamp, err error) {
	db := &DB{path: path, opts: Options{}.withDefaults()}
	c, err := sql.Open("sqlite", db.dsn("rw", "&_pragma=query_only(1)"))
	if err != nil {
		return stamp, err
	}
	defer c.Close()
	err = c.QueryRowContext(ctx, "SELECT identity, revision FROM leasehold_meta").Scan(&stamp.Identity, &stamp.Revision)
	return stamp, db.fault(err)
}

func syncDir(path string) error {
	if runtime.GOOS == "windows" {
		return nil // directories cannot be synced there
	}
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
