package sqlite

import (
	"context"
	"database/sql/driver"
	"fmt"
	"math"

	"leasehold.dev/leasehold/store"
)

// Rotate makes an outdated copy usable again: the store takes a new identity and remembers the
// former one at its revision, running leases end, and every fence of a job that is not done jumps.
func (db *DB) Rotate(ctx context.Context) (stamp store.Stamp, err error) {
	err = db.submit(ctx, &request{solo: func(s *session) error {
		return db.write(s, func(m meta) ([]store.Event, error) {
			if err := s.run(`INSERT OR REPLACE INTO leasehold_former(identity, revision) VALUES(?1, ?2)`,
				m.stamp.Identity, m.stamp.Revision); err != nil {
				return nil, err
			}
			stamp = store.Stamp{Identity: randomWord(), Revision: m.stamp.Revision + 1}
			if err := s.run(`UPDATE leasehold_meta SET identity = ?1`, stamp.Identity); err != nil {
				return nil, err
			}
			// Ids first: a statement that changes jobs while another reads them sees its own changes.
			var ids []string
			var fences []int64
			all, err := prepare(s.conn, `SELECT j.id, max(j.fence, COALESCE(m.high, 0)) FROM jobs j
				LEFT JOIN leasehold_memory m ON m.id = j.id
				WHERE j.id IS NOT NULL AND j.done = 0 AND typeof(j.fence) = 'integer' AND j.fence >= 0 ORDER BY j.id`)
			if err != nil {
				return nil, err
			}
			defer all.stmt.Close()
			if err := all.each(func(row []driver.Value) error {
				id, _ := row[0].(string)
				fence, _ := row[1].(int64)
				ids, fences = append(ids, id), append(fences, fence)
				return nil
			}); err != nil {
				return nil, err
			}
			jump, err := prepare(s.conn, `UPDATE jobs SET owner = NULL, until = 0, fence = ?1 WHERE id = ?2`)
			if err != nil {
				return nil, err
			}
			defer jump.stmt.Close()
			// Jobs whose row is gone may have had fences after the copy, too.
			if err := s.run(`UPDATE leasehold_memory SET high = CASE WHEN high > ?1 THEN 9223372036854775807 ELSE high + ?2 END
				WHERE NOT EXISTS (SELECT 1 FROM jobs WHERE jobs.id = leasehold_memory.id)`,
				int64(math.MaxInt64-store.Jump), int64(store.Jump)); err != nil {
				return nil, err
			}
			events := make([]store.Event, 0, len(ids))
			for i, id := range ids {
				to := int64(math.MaxInt64)
				if fences[i] <= math.MaxInt64-store.Jump {
					to = fences[i] + store.Jump
				}
				if _, err := jump.exec(to, id); err != nil {
					return nil, err
				}
				events = append(events, store.Event{ID: id, Verb: "jumped", Fence: to,
					Message: fmt.Sprintf("the store was an outdated copy of %s", m.stamp.Identity)})
			}
			return events, nil
		})
	}})
	return stamp, err
}

// Succeed notes that the store stands in the place of another one: whatever a status of that one shows
// is later than this store. A store of which it has been told before stays as it is.
func (db *DB) Succeed(ctx context.Context, identity string) error {
	return db.submit(ctx, &request{solo: func(s *session) error {
		return db.write(s, func(m meta) ([]store.Event, error) {
			db.formerOf = ""
			if identity == m.stamp.Identity {
				return nil, nil
			}
			return nil, s.run(`INSERT OR IGNORE INTO leasehold_former(identity, revision) VALUES(?1, -1)`, identity)
		})
	}})
}

// Directory returns the directory to which the store belongs; empty if none has been named.
func (db *DB) Directory(ctx context.Context) (dir string, err error) {
	err = db.query(ctx, "SELECT directory FROM leasehold_meta", func(row []driver.Value) error {
		dir, _ = row[0].(string)
		return nil
	})
	return dir, err
}

// BindDirectory names the directory to which the store belongs.
func (db *DB) BindDirectory(ctx context.Context, dir string) error {
	return db.submit(ctx, &request{solo: func(s *session) error {
		return db.write(s, func(meta) ([]store.Event, error) {
			return nil, s.run("UPDATE leasehold_meta SET directory = ?1", dir)
		})
	}})
}

// Changes returns the ids of the jobs that other connections and processes have changed since the
// last call, or all set if that cannot be told: at the first call, and after too many changes. The
// decisions of db itself are not among them. A call when nothing has changed costs next to nothing.
// One caller at a time.
func (db *DB) Changes(ctx context.Context) (ids []string, all bool, err error) {
	err = db.submit(ctx, &request{solo: func(s *session) error {
		var version int64
		if err := s.dataVersion.each(func(row []driver.Value) error {
			version, _ = row[0].(int64)
			return nil
		}); err != nil {
			return err
		}
		if db.follows && version == db.version {
			return nil
		}
		m, err := s.readMeta()
		if err != nil {
			return err
		}
		if err := db.witness(m.stamp, db.newest()); err != nil {
			return err
		}
		if !db.follows {
			db.cache = nil
			if err := s.run("UPDATE leasehold_meta SET readers = readers + 1"); err != nil {
				return err
			}
		}
		last, next := db.seen, db.seen+1
		read, err := prepare(s.conn, "SELECT seq, id, origin FROM leasehold_changes WHERE seq > ?1 ORDER BY seq")
		if err != nil {
			return err
		}
		defer read.stmt.Close()
		seen := map[string]bool{}
		if err := read.each(func(row []driver.Value) error {
			last, _ = row[0].(int64)
			all = all || last != next
			next = last + 1
			if id, ok := row[1].(string); ok && !seen[id] && row[2] != db.origin {
				seen[id] = true
				ids = append(ids, id)
			}
			return nil
		}, db.seen); err != nil {
			return err
		}
		if all = all || !db.follows; all {
			ids = nil
		}
		db.follows, db.version, db.seen = true, version, last
		return nil
	}})
	return ids, all, err
}
