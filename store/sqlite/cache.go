package sqlite

import (
	"database/sql/driver"
	"fmt"

	"leasehold.dev/leasehold/store"
)

// Within a transaction that holds the write lock, an unchanged data_version says that no other
// connection has committed anything since the last one. What was read or written then is still what
// the file says, and is not read again.
const (
	cacheJobs  = 4096
	cacheBytes = 4096 // per job, of result and memory
)

// refresh makes db.meta, db.former and db.cache valid within the transaction that has begun.
func (db *DB) refresh(s *session) error {
	var version int64
	err := s.dataVersion.each(func(row []driver.Value) error {
		version, _ = row[0].(int64)
		return nil
	})
	if err != nil {
		return err
	}
	if db.cache != nil && version == db.cachedAt {
		return nil
	}
	m, err := s.readMeta()
	if err != nil {
		return err
	}
	if m.stamp.Identity != db.formerOf {
		if db.former, err = s.readFormer(); err != nil {
			return err
		}
		db.formerOf = m.stamp.Identity
	}
	if err := db.witness(m.stamp, db.newest()); err != nil {
		return err
	}
	db.meta, db.cachedAt = m, version
	db.cache = map[string]*entry{}
	return nil
}

// newest is the latest state that this process knows to have been committed.
func (db *DB) newest() store.Stamp {
	db.mu.Lock()
	defer db.mu.Unlock()
	return db.known
}

// witness compares the state that the file has with one that it had: it is ErrLost if the file has
// gone back, which is what a copy that is put back in place looks like. Otherwise it is remembered.
func (db *DB) witness(now, before store.Stamp) error {
	if now.Revision < before.Revision {
		return fmt.Errorf("%w: it has gone back from revision %d to %d", store.ErrLost, before.Revision, now.Revision)
	}
	db.mu.Lock()
	defer db.mu.Unlock()
	if now.Revision > db.known.Revision {
		db.known = now
	}
	return nil
}

// keep makes what a transaction on ids has committed, or left as it was, the state of the cache.
func (db *DB) keep(ids []string, stamp store.Stamp) {
	db.meta.stamp = stamp
	_ = db.witness(stamp, store.Stamp{})
	for _, id := range ids {
		e := db.cache[id]
		size := len(e.memory)
		if r := e.now; r.Result != nil {
			size += len(*r.Result)
		}
		if e.err != nil || size > cacheBytes {
			delete(db.cache, id)
			continue
		}
		if e.now != e.loaded {
			e.now = e.now.Clone() // the decision may have kept the other
			e.loaded = e.now
		}
		switch t := e.tail; {
		case t == nil:
		case !t.read:
			e.tail = nil // not all of it is known
		case len(t.rows) > tailRows:
			t.rows = append(t.rows[:0], t.rows[len(t.rows)-tailRows:]...)
		}
	}
	if len(db.cache) > cacheJobs {
		db.cache = nil
	}
}
