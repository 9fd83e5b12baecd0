package sqlite

import (
	"database/sql"
	"fmt"
	"math"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"leasehold.dev/leasehold/store"
)

// plain opens the file as a program would that knows nothing of us.
func plain(t testing.TB, path string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", (&url.URL{Scheme: "file", Path: path}).String()+"?_pragma=busy_timeout(5000)")
	if err != nil {
		t.Fatal(err)
	}
	db.SetMaxOpenConns(1)
	t.Cleanup(func() { db.Close() })
	return db
}

func do(t testing.TB, db *sql.DB, text string, args ...any) int64 {
	t.Helper()
	res, err := db.Exec(text, args...)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	n, err := res.RowsAffected()
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// row is a job in one line: owner until fence result done.
func row(t testing.TB, db *sql.DB, id string) string {
	t.Helper()
	var owner, result sql.NullString
	var until float64
	var fence, done int64
	err := db.QueryRow("SELECT owner, until, fence, result, done FROM jobs WHERE id = ?", id).Scan(&owner, &until, &fence, &result, &done)
	if err == sql.ErrNoRows {
		return "none"
	}
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(owner.String, " ", until, " ", fence, " ", result.String, " ", done)
}

// Each statement runs, in a plain program, on a job that b holds with fence 2 until 20 after a held
// it with 1, or on one that b completed. What comes of it must keep the invariants.
func TestPlainStatements(t *testing.T) {
	const (
		held = "b 20 2  0"
		free = " 0 2  0"
		done = "b 20 2 kept 1"
	)
	for _, c := range []struct {
		stmt    string
		aborted bool
		held    string // the row afterwards
		done    string // the same, of the done job, if the statement is to be tried on it
	}{
		// The contract's own statements pass.
		{"INSERT OR IGNORE INTO jobs(id) VALUES('j')", false, held, done},
		{"UPDATE jobs SET owner='c', until=30, fence=fence+1 WHERE id='j' AND done=0 AND until<=20", false, "c 30 3  0", done},
		{"UPDATE jobs SET until=40 WHERE id='j' AND owner='b' AND fence=2 AND done=0 AND until>10", false, "b 40 2  0", done},
		{"UPDATE jobs SET result='r', done=1 WHERE id='j' AND owner='b' AND fence=2 AND done=0 AND until>10", false, "b 20 2 r 1", done},
		{"UPDATE jobs SET owner=NULL, until=0 WHERE id='j' AND owner='b' AND fence=2 AND done=0", false, free, done},

		// A row that comes back goes on where it was.
		{"INSERT OR REPLACE INTO jobs(id) VALUES('j')", false, free, done},
		{"REPLACE INTO jobs(id) VALUES('j')", false, free, done},
		{"REPLACE INTO jobs(id, owner, until, fence) VALUES('j', 'a', 99, 1)", false, free, done},
		{"REPLACE INTO jobs(id, owner, until, fence) VALUES('j', 'a', 99, 2)", false, free, done},
		{"REPLACE INTO jobs(id, owner, until, fence) VALUES('j', 'b', 99, 2)", false, "b 99 2  0", done},
		{"REPLACE INTO jobs(id, owner, until, fence) VALUES('j', 'c', 99, 3)", false, "c 99 3  0", done},
		{"REPLACE INTO jobs(id, owner, until, fence, result, done) VALUES('j', 'a', 99, 1, 'stale', 1)", true, held, ""},
		{"REPLACE INTO jobs(id, owner, until, fence, result, done) VALUES('j', 'a', 99, 1, 'stale', 1)", false, "", done},
		{"DELETE FROM jobs WHERE id='j'; INSERT INTO jobs(id) VALUES('j')", false, free, ""},
		{"DELETE FROM jobs; INSERT INTO jobs(id) VALUES('j')", false, free, ""},
		{"DELETE FROM jobs WHERE id='j'; INSERT OR IGNORE INTO jobs(id) VALUES('j')", false, free, ""},
		{"DELETE FROM jobs WHERE id='j'; INSERT OR IGNORE INTO jobs(id, owner, until, fence) VALUES('j', 'a', 9, 1)", false, free, ""},
		{"DELETE FROM jobs WHERE id='j'; INSERT OR REPLACE INTO jobs(id) VALUES('j')", false, free, ""},
		{"DELETE FROM jobs WHERE id='j'; DELETE FROM jobs WHERE id='j'", false, "none", ""},
		{"INSERT INTO jobs(id) VALUES('j') ON CONFLICT(id) DO UPDATE SET owner=NULL, until=0", false, free, done},
		{"INSERT INTO jobs(id, owner, fence) VALUES('j', 'c', 1) ON CONFLICT(id) DO UPDATE SET owner=excluded.owner, fence=excluded.fence", true, held, ""},
		{"INSERT INTO jobs(id, owner, fence) VALUES('j', 'c', 1) ON CONFLICT(id) DO UPDATE SET owner=excluded.owner, fence=jobs.fence+1, until=99", false, "c 99 3  0", done},
		{"INSERT INTO jobs(id) VALUES('j')", true, held, ""},

		// A fence never goes back and never becomes anything else.
		{"UPDATE jobs SET fence=1 WHERE id='j'", true, held, done},
		{"UPDATE jobs SET fence=-1 WHERE id='j'", true, held, done},
		{"UPDATE OR IGNORE jobs SET fence=1 WHERE id='j'", true, held, done},
		{"UPDATE OR REPLACE jobs SET fence=1 WHERE id='j'", true, held, done},
		{"UPDATE OR REPLACE jobs SET fence=NULL WHERE id='j'", true, held, done},
		{"UPDATE jobs SET fence=NULL WHERE id='j'", true, held, done},
		{"UPDATE jobs SET fence=2.5 WHERE id='j'", true, held, done},
		{"UPDATE jobs SET fence='three' WHERE id='j'", true, held, done},
		{"UPDATE jobs SET fence=x'33' WHERE id='j'", true, held, done},
		{"UPDATE jobs SET fence=9223372036854775807+1 WHERE id='j'", true, held, done},
		{"REPLACE INTO jobs(id, fence) VALUES('j', 'three')", true, held, ""},
		{"REPLACE INTO jobs(id, fence) VALUES('j', 2.5)", true, held, ""},
		{"REPLACE INTO jobs(id, fence) VALUES('j', -1)", true, held, ""},
		{"REPLACE INTO jobs(id, fence) VALUES('j', NULL)", false, free, done},
		{"UPDATE jobs SET owner='c' WHERE id='j'", true, held, done},
		{"UPDATE OR IGNORE jobs SET owner='c', until=99 WHERE id='j'", true, held, done},

		// A result stays.
		{"UPDATE jobs SET done=0 WHERE id='j' AND done=1", false, held, ""},
		{"UPDATE jobs SET done=0 WHERE id='j'", true, "", done},
		{"UPDATE OR REPLACE jobs SET done=NULL WHERE id='j'", true, "", done},
		{"UPDATE OR IGNORE jobs SET result='other' WHERE id='j'", true, "", done},
		{"UPDATE jobs SET result='other' WHERE id='j'", true, "", done},
		{"UPDATE jobs SET result=NULL WHERE id='j'", true, "", done},
		{"UPDATE jobs SET fence=fence+1, owner='c' WHERE id='j'", true, "", done},
		{"UPDATE jobs SET until=99 WHERE id='j'", true, "", done},
		{"DELETE FROM jobs WHERE id='j'", true, "", done},
		{"DELETE FROM jobs", true, "", done},
		{"INSERT INTO jobs(id, result) VALUES('j', 'other') ON CONFLICT(id) DO UPDATE SET result=excluded.result", false, "", done},

		// A row cannot take another's place.
		{"UPDATE jobs SET id='k' WHERE id='j'", true, held, done},
		{"UPDATE OR REPLACE jobs SET id='j' WHERE id='other'", true, held, done},
		{"UPDATE OR IGNORE jobs SET id='j' WHERE id='other'", false, held, done},
		{"INSERT OR REPLACE INTO jobs(rowid, id) SELECT rowid, 'new' FROM jobs WHERE id='j'", true, held, done},
		{"UPDATE OR REPLACE jobs SET rowid=(SELECT rowid FROM jobs WHERE id='j') WHERE id='other'", true, held, done},
	} {
		for i := range 4 {
			was, want := held, c.held
			if i%2 == 1 {
				was, want = done, c.done
			}
			// With that setting REPLACE fires the triggers of DELETE.
			recursive := i >= 2
			if want == "" || recursive && !strings.Contains(c.stmt, "REPLACE") {
				continue
			}
			t.Run(fmt.Sprintf("done=%s recursive=%v %s", was[len(was)-1:], recursive, c.stmt), func(t *testing.T) {
				path := filepath.Join(t.TempDir(), "jobs.db")
				db := open(t, path)
				ctx := t.Context()
				for _, id := range []string{"j", "other"} {
					db.Enqueue(ctx, id)
				}
				db.Claim(ctx, "j", "a", 0, 10)
				if v, err := db.Claim(ctx, "j", "b", 10, 10); err != nil || v.Fence != 2 {
					t.Fatal(v, err)
				}
				if was == done {
					db.Complete(ctx, "j", "b", 2, 11, "kept")
				}
				foreign := plain(t, path)
				if got := row(t, foreign, "j"); got != was {
					t.Fatalf("the row is %q", got)
				}
				if recursive {
					do(t, foreign, "PRAGMA recursive_triggers = 1")
				}
				_, err := foreign.Exec(c.stmt)
				if aborted := err != nil; aborted != c.aborted && !(was == done && want == done) {
					t.Errorf("error: %v", err)
				}
				if got := row(t, foreign, "j"); got != want {
					t.Errorf("the row is %q, want %q (error: %v)", got, want, err)
				}
				checkFence(t, db, "j", 2)
			})
		}
	}
}

// checkFence claims the job and demands a fence above.
func checkFence(t *testing.T, db *DB, id string, above int64) {
	t.Helper()
	ctx := t.Context()
	if _, err := db.Enqueue(ctx, id); err != nil {
		t.Fatal(err)
	}
	v, err := db.Claim(ctx, id, "next", 1e6, 10)
	if err != nil || v.OK() && v.Fence <= above || v.Fence < above {
		t.Errorf("a claim gave %+v, %v; want a fence above %d", v, err, above)
	}
}

// A plain program that claims and loses again and again, by every way that a row can vanish, never
// gets a fence twice.
func TestFenceGrowsAcrossRows(t *testing.T) {
	path := filepath.Join(t.TempDir(), "jobs.db")
	db := open(t, path)
	foreign := plain(t, path)
	last := int64(0)
	for i, stmt := range []string{
		"INSERT INTO jobs(id) VALUES('j')",
		"DELETE FROM jobs WHERE id='j'; INSERT INTO jobs(id) VALUES('j')",
		"REPLACE INTO jobs(id) VALUES('j')",
		"INSERT OR REPLACE INTO jobs(id, fence) VALUES('j', 1)",
		"DELETE FROM jobs; INSERT OR IGNORE INTO jobs(id) VALUES('j')",
		"UPDATE jobs SET owner=NULL, until=0 WHERE id='j'",
	} {
		do(t, foreign, stmt)
		do(t, foreign, "UPDATE OR REPLACE jobs SET owner='p', until=1, fence=fence+1 WHERE id='j'")
		var fence int64
		if err := foreign.QueryRow("SELECT fence FROM jobs WHERE id='j'").Scan(&fence); err != nil {
			t.Fatal(err)
		}
		if fence <= last {
			t.Fatalf("after %s: fence %d after %d", stmt, fence, last)
		}
		last = fence
		_, err := db.View(t.Context(), []string{"j"}, func(rs []*store.Record) error {
			if r := rs[0]; r.High != fence || r.Holder != "p" || r.Attempts != int64(i+1) {
				return fmt.Errorf("after %s: %+v", stmt, r)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
}

func TestDeletedRowIsKnown(t *testing.T) {
	path := filepath.Join(t.TempDir(), "jobs.db")
	db := open(t, path)
	foreign := plain(t, path)
	do(t, foreign, "INSERT INTO jobs(id) VALUES('j'); DELETE FROM jobs WHERE id='j'")
	db.View(t.Context(), []string{"j", "k"}, func(rs []*store.Record) error {
		if rs[0].Exists || !rs[0].Known || rs[1].Known {
			t.Errorf("%+v, %+v", rs[0], rs[1])
		}
		return nil
	})
}

func TestRowOutsideTheDomain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "jobs.db")
	foreign := plain(t, path)
	do(t, foreign, statements[0])
	do(t, foreign, "INSERT INTO jobs(id, fence) VALUES('text', 'many'), ('real', 1.5), ('minus', -3), ('good', 4)")
	do(t, foreign, "INSERT INTO jobs(id, until) VALUES('inf', 9e999), ('word', 'soon')")
	do(t, foreign, "INSERT INTO jobs(id, owner) VALUES('blob', x'00')")
	do(t, foreign, "INSERT INTO jobs(id, done) VALUES('odd', 'yes')")
	db := open(t, path)
	ctx := t.Context()
	for _, id := range []string{"text", "real", "minus", "inf", "word", "blob", "odd"} {
		var e *store.RowError
		if _, err := db.Claim(ctx, id, "w", 0, 1); !asRow(err, &e) || e.ID != id {
			t.Errorf("claim %s: %v", id, err)
		}
		if _, _, err := db.State(ctx, id); !asRow(err, &e) || e.ID != id {
			t.Errorf("state %s: %v", id, err)
		}
	}
	if v, err := db.Claim(ctx, "good", "w", 0, 1); err != nil || v.Fence != 5 {
		t.Errorf("%+v, %v", v, err)
	}
	var ids []string
	err := db.List(ctx, func(r store.Row) error { ids = append(ids, r.ID); return nil })
	var e *store.RowError
	if !asRow(err, &e) || fmt.Sprint(ids) != "[good]" {
		t.Errorf("list: %v, %v", ids, err)
	}
	// They can be put right.
	do(t, foreign, "UPDATE jobs SET until=0 WHERE id='inf'; UPDATE jobs SET fence=7 WHERE id='text'")
	checkFence(t, db, "inf", 0)
	checkFence(t, db, "text", 7)
}

func TestLastFence(t *testing.T) {
	path := filepath.Join(t.TempDir(), "jobs.db")
	db := open(t, path)
	foreign := plain(t, path)
	do(t, foreign, "INSERT INTO jobs(id, fence) VALUES('j', ?)", int64(math.MaxInt64-1))
	do(t, foreign, "UPDATE jobs SET owner='p', until=5, fence=fence+1 WHERE id='j' AND done=0 AND until<=0")
	if _, err := foreign.Exec("UPDATE jobs SET owner='q', until=9, fence=fence+1 WHERE id='j' AND done=0 AND until<=5"); err == nil {
		t.Error("the fence went on above the largest one")
	}
	if _, err := db.Claim(t.Context(), "j", "w", 9, 1); err != store.ErrFenceExhausted {
		t.Error(err)
	}
	if got := row(t, foreign, "j"); got != "p 5 9223372036854775807  0" {
		t.Error(got)
	}
}
