package sqlite

import (
	"errors"
	"fmt"

	driver "modernc.org/sqlite"
	lib "modernc.org/sqlite/lib"

	"leasehold.dev/leasehold/store"
)

// Faults that [Open] and the operations return, wrapped with the path and what to do.
var (
	// ErrForeign says that the database belongs to another application.
	ErrForeign = errors.New("the database belongs to another application")
	// ErrNewer says that a newer version of Leasehold made the database.
	ErrNewer = errors.New("the database was made by a newer version of leasehold")
	// ErrCorrupt says that the file is damaged, or no database at all.
	ErrCorrupt = errors.New("the file is damaged or not a database")
	// ErrFull says that the disk, or a quota, is full.
	ErrFull = errors.New("the disk is full")
	// ErrReadOnly says that the file or its directory cannot be written.
	ErrReadOnly = errors.New("the database cannot be written")
	// ErrIO says that reading or writing failed in another way.
	ErrIO = errors.New("the database file could not be read or written")
	// ErrUnknown says that COMMIT itself failed: whether the decision will be found after a
	// restart cannot be known.
	ErrUnknown = errors.New("the commit failed, and whether it took effect is not known")
)

// fault gives an error of the driver its meaning, by its code.
func (db *DB) fault(err error) error {
	var e *driver.Error
	if err == nil || !errors.As(err, &e) {
		return err
	}
	if e.Code() == lib.SQLITE_READONLY_DBMOVED {
		return store.ErrLost
	}
	var kind error
	switch e.Code() & 0xff {
	case lib.SQLITE_BUSY, lib.SQLITE_LOCKED:
		kind = store.ErrBusy
	case lib.SQLITE_FULL:
		kind = ErrFull
	case lib.SQLITE_CORRUPT, lib.SQLITE_NOTADB:
		kind = ErrCorrupt
	case lib.SQLITE_READONLY, lib.SQLITE_PERM, lib.SQLITE_AUTH:
		kind = ErrReadOnly
	case lib.SQLITE_IOERR, lib.SQLITE_CANTOPEN:
		kind = ErrIO
	default:
		return fmt.Errorf("%s: %w", db.path, err)
	}
	if kind == ErrCorrupt {
		return fmt.Errorf("%s: %w (%w); put a backup in its place, without its -wal and -shm files, or move it away: fences then go on above those in the manifests", db.path, kind, err)
	}
	return fmt.Errorf("%s: %w: %w", db.path, kind, err)
}

// refused reports whether a trigger or another constraint refused a statement.
func refused(err error) bool {
	var e *driver.Error
	return errors.As(err, &e) && e.Code()&0xff == lib.SQLITE_CONSTRAINT
}
