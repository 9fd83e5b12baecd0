package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"leasehold.dev/leasehold/store"
)

// Lynricsy/OneSSH#4: a PRAGMA sent by Exec reaches one connection of a pool. Ours are in the DSN.
func TestEveryConnectionHasItsPragmas(t *testing.T) {
	db := open(t, filepath.Join(t.TempDir(), "jobs.db"))
	db.reader.SetMaxOpenConns(8)
	check := func(conn *sql.Conn, which string) {
		t.Helper()
		for pragma, want := range map[string]string{"synchronous": "2", "journal_mode": "wal", "busy_timeout": "10000"} {
			var got string
			if err := conn.QueryRowContext(t.Context(), "PRAGMA "+pragma).Scan(&got); err != nil || got != want {
				t.Errorf("%s: %s is %s, want %s (%v)", which, pragma, got, want, err)
			}
		}
	}
	for range 8 { // all at once, so that each is another one
		conn, err := db.reader.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		check(conn, "reader")
	}
	check(db.conn, "writer")
}

// NousResearch/hermes-agent PR#71724: a process that opens and closes the database files beside
// SQLite drops SQLite's locks. While a decision is under way, whatever we look at, the write lock
// must keep another process out.
func TestLooksDropNoLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "jobs.db")
	if os.Getenv("LEASEHOLD_TRY_LOCK") != "" {
		other, err := sql.Open("sqlite", "file:"+os.Getenv("LEASEHOLD_TRY_LOCK")+"?_pragma=busy_timeout(0)")
		if err != nil {
			t.Fatal(err)
		}
		defer other.Close()
		_, err = other.Exec("BEGIN IMMEDIATE")
		t.Logf("the other process got: %v", err)
		return
	}
	db := open(t, path)
	var out []byte
	_, err := db.Update(t.Context(), []string{"j"}, func(rs []*store.Record) error {
		rs[0].Enqueue()
		if db.files.lost() {
			t.Error("lost")
		}
		if _, _, err := db.State(context.Background(), "j"); err != nil {
			t.Error(err)
		}
		if _, err := db.Stamp(context.Background()); err != nil {
			t.Error(err)
		}
		cmd := exec.Command(os.Args[0], "-test.run", "^TestLooksDropNoLock$", "-test.v")
		cmd.Env = append(os.Environ(), "LEASEHOLD_TRY_LOCK="+path)
		out, _ = cmd.CombinedOutput()
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(out), "database is locked") {
		t.Errorf("the lock was gone:\n%s", out)
	}
}

// A copy that is put back in place, as SQLite's backup does it, leaves the file the same file. Whoever
// has it open sees that it has gone back, and decides nothing more.
func TestGoneBackInPlace(t *testing.T) {
	for _, look := range []string{"update", "view", "changes"} {
		t.Run(look, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "jobs.db")
			db := open(t, path)
			for _, id := range []string{"a", "b", "c"} {
				if _, err := db.Enqueue(t.Context(), id); err != nil {
					t.Fatal(err)
				}
			}
			if _, _, err := db.Changes(t.Context()); err != nil {
				t.Fatal(err)
			}
			other, err := sql.Open("sqlite", "file:"+path)
			if err != nil {
				t.Fatal(err)
			}
			defer other.Close()
			if _, err := other.Exec("UPDATE leasehold_meta SET revision = revision - 2"); err != nil {
				t.Fatal(err)
			}
			switch look {
			case "update":
				_, err = db.Claim(t.Context(), "a", "w", 0, 10)
			case "view":
				_, _, err = db.State(t.Context(), "a")
			case "changes":
				_, _, err = db.Changes(t.Context())
			}
			if !errors.Is(err, store.ErrLost) {
				t.Errorf("got %v", err)
			}
			if _, err := db.Enqueue(t.Context(), "d"); !errors.Is(err, store.ErrLost) {
				t.Errorf("and then %v", err)
			}
		})
	}
}

// A row number of -1 is what a trigger sees where none was given: a job that had it would keep every
// other out.
func TestRowNumberMinusOne(t *testing.T) {
	path := filepath.Join(t.TempDir(), "jobs.db")
	db := open(t, path)
	other, err := sql.Open("sqlite", "file:"+path)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if _, err := other.Exec("INSERT INTO jobs(rowid, id) VALUES(-1, 'neg')"); err == nil {
		t.Error("accepted")
	}
	if created, err := db.Enqueue(t.Context(), "y"); err != nil || !created {
		t.Error(created, err)
	}
}
