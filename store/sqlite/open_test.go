package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"leasehold.dev/leasehold/store"
)

func asRow(err error, to **store.RowError) bool { return errors.As(err, to) }

func TestReopenKeepsEverything(t *testing.T) {
	ctx := t.Context()
	path := filepath.Join(t.TempDir(), "jobs.db")
	first, err := Open(ctx, path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	first.Enqueue(ctx, "j")
	first.Claim(ctx, "j", "a", 0, 10)
	first.Claim(ctx, "j", "late", 1, 10) // refused; its event waits for Close
	was, _ := first.Stamp(ctx)
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if err := first.Close(); err != nil {
		t.Fatal("again: ", err)
	}
	if _, err := first.Claim(ctx, "j", "b", 0, 10); !errors.Is(err, store.ErrClosed) {
		t.Fatal(err)
	}
	db := open(t, path)
	now, err := db.Stamp(ctx)
	if err != nil || now.Identity != was.Identity || now.Revision < was.Revision || len(now.Identity) != 8 {
		t.Fatal(was, now, err)
	}
	if v, err := db.Claim(ctx, "j", "b", 10, 10); err != nil || v.Fence != 2 {
		t.Fatal(v, err)
	}
	events, err := db.History(ctx, "j", 0, 0)
	if err != nil || len(events) != 4 || events[2].Reason != store.Held || events[2].Owner != "late" {
		t.Fatal(events, err)
	}
}

func TestAdoptsPlainDatabase(t *testing.T) {
	path := filepath.Join(t.TempDir(), "jobs.db")
	foreign := plain(t, path)
	do(t, foreign, "CREATE TABLE jobs (id text primary key, owner text, until real not null default 0.0,\n fence integer not null default 0, result text, done integer not null default 0)")
	do(t, foreign, "CREATE TABLE notes(text)")
	do(t, foreign, "INSERT INTO jobs VALUES('held','p',10,7,NULL,0), ('new',NULL,0,0,NULL,0), ('done','q',5,2,'r',1)")
	db := open(t, path)
	if got := row(t, foreign, "held") + "," + row(t, foreign, "new") + "," + row(t, foreign, "done"); got != "p 10 7  0, 0 0  0,q 5 2 r 1" {
		t.Fatal(got)
	}
	db.View(t.Context(), []string{"held", "new"}, func(rs []*store.Record) error {
		if r := rs[0]; r.High != 7 || r.Holder != "p" || r.Attempts != 7 {
			t.Errorf("%+v", r)
		}
		return nil
	})
	do(t, foreign, "REPLACE INTO jobs(id) VALUES('held')")
	checkFence(t, db, "held", 7)
	checkFence(t, db, "new", 0)
}

// Triggers that are missing or changed are put back, and what happened without them is taken in.
func TestRestoresTriggers(t *testing.T) {
	ctx := t.Context()
	path := filepath.Join(t.TempDir(), "jobs.db")
	db, err := Open(ctx, path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"gone", "lowered", "raised"} {
		db.Enqueue(ctx, id)
		db.Claim(ctx, id, "a", 0, 10)
		db.Claim(ctx, id, "a", 10, 10)
	}
	db.Close()
	foreign := plain(t, path)
	for _, tr := range triggers {
		do(t, foreign, "DROP TRIGGER "+tr.name)
	}
	do(t, foreign, "CREATE TRIGGER leasehold_guard_update AFTER UPDATE ON jobs BEGIN SELECT 1; END")
	do(t, foreign, "DELETE FROM jobs WHERE id='gone'")
	do(t, foreign, "UPDATE jobs SET fence=1, owner='old', until=99 WHERE id='lowered'")
	do(t, foreign, "UPDATE jobs SET fence=5, owner='p' WHERE id='raised'")
	db = open(t, path)
	if got := row(t, foreign, "lowered"); got != " 0 2  0" {
		t.Error(got)
	}
	checkFence(t, db, "gone", 2)
	checkFence(t, db, "lowered", 2)
	checkFence(t, db, "raised", 5)
	if _, err := foreign.Exec("UPDATE jobs SET fence=1 WHERE id='raised'"); err == nil {
		t.Error("the trigger is not back")
	}
}

func TestRefusesWhatIsNotOurs(t *testing.T) {
	for _, c := range []struct {
		name string
		make string
		want error
	}{
		{"another application", "PRAGMA application_id=77; CREATE TABLE jobs(id)", ErrForeign},
		{"unmarked application", "CREATE TABLE bookmarks(id)", ErrForeign},
		{"own schema version", "CREATE TABLE jobs(id); PRAGMA user_version=3", ErrForeign},
		{"other columns", "CREATE TABLE jobs(id INTEGER PRIMARY KEY, owner TEXT)", ErrForeign},
		{"newer", fmt.Sprintf("PRAGMA application_id=%d; PRAGMA user_version=99; CREATE TABLE jobs(id)", applicationID), ErrNewer},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "x.db")
			foreign := plain(t, path)
			do(t, foreign, c.make)
			foreign.Close()
			before, _ := os.ReadFile(path)
			db, err := Open(t.Context(), path, Options{})
			if !errors.Is(err, c.want) {
				t.Errorf("%v, %v", db, err)
			}
			if after, _ := os.ReadFile(path); string(before) != string(after) {
				t.Error("the file was changed")
			}
		})
	}
	path := filepath.Join(t.TempDir(), "junk.db")
	os.WriteFile(path, []byte("this is a text file and no database at all, of more than a hundred bytes, so that nobody takes it for an empty one"), 0o600)
	if _, err := Open(t.Context(), path, Options{}); !errors.Is(err, ErrCorrupt) {
		t.Error(err)
	}
	if _, err := Open(t.Context(), t.TempDir(), Options{}); err == nil {
		t.Error("a directory was opened")
	}
	missing := filepath.Join(t.TempDir(), "no.db")
	if _, err := Open(t.Context(), missing, Options{MustExist: true}); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	if _, err := os.Stat(missing); err == nil {
		t.Error("the file was created")
	}
}

func TestSpecialPaths(t *testing.T) {
	for _, name := range []string{"a b.db", "a?b.db", "a#b.db", "a%20b.db", "100%.db", "ü.db", "a&b=c.db", "?mode=memory", "a;b'\"c.db", ":memory:"} {
		dir := t.TempDir()
		path := filepath.Join(dir, name)
		db := open(t, path)
		if _, err := db.Enqueue(t.Context(), "j"); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := os.Stat(path); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if _, found, err := db.State(t.Context(), "j"); err != nil || !found {
			t.Errorf("%s: %v, %v", name, found, err)
		}
	}
}

// A database that is deleted or replaced while it is open answers nothing more.
func TestLost(t *testing.T) {
	other := filepath.Join(t.TempDir(), "other.db")
	open(t, other)
	for name, lose := range map[string]func(path string) error{
		"deleted": func(path string) error {
			return errors.Join(os.Remove(path), os.Remove(path+"-wal"), os.Remove(path+"-shm"))
		},
		"file deleted":   os.Remove,
		"wal deleted":    func(path string) error { return os.Remove(path + "-wal") },
		"moved away":     func(path string) error { return os.Rename(path, path+".old") },
		"replaced":       func(path string) error { return os.Rename(other, path) },
		"directory gone": func(path string) error { return os.RemoveAll(filepath.Dir(path)) },
	} {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			path := filepath.Join(t.TempDir(), "d", "jobs.db")
			os.Mkdir(filepath.Dir(path), 0o700)
			db := open(t, path)
			db.Enqueue(ctx, "j")
			decided := false
			_, err := db.Update(ctx, []string{"j"}, func(rs []*store.Record) error {
				if err := lose(path); err != nil {
					t.Fatal(err)
				}
				decided = true
				_, err := rs[0].Claim("a", 0, 10)
				return err
			})
			if !errors.Is(err, store.ErrLost) || !decided {
				t.Fatalf("a decision was answered with %v", err)
			}
			if _, err := db.Claim(ctx, "j", "a", 0, 10); !errors.Is(err, store.ErrLost) {
				t.Error(err)
			}
			if _, _, err := db.State(ctx, "j"); !errors.Is(err, store.ErrLost) {
				t.Error(err)
			}
		})
	}
}

// kubestellar/console#8854: a query whose context is cancelled in a transaction. The next user finds
// the connection clean.
func TestCancelledWhileWaiting(t *testing.T) {
	path := filepath.Join(t.TempDir(), "jobs.db")
	db := open(t, path)
	inside, leave := make(chan struct{}), make(chan struct{})
	first := make(chan error)
	go func() {
		_, err := db.Update(context.Background(), []string{"a"}, func(rs []*store.Record) error {
			close(inside)
			<-leave
			rs[0].Enqueue()
			return nil
		})
		first <- err
	}()
	<-inside
	ctx, cancel := context.WithCancel(t.Context())
	second := make(chan error)
	go func() {
		_, err := db.Enqueue(ctx, "b")
		second <- err
	}()
	for queued := 0; queued == 0; {
		db.mu.Lock()
		queued = len(db.queue)
		db.mu.Unlock()
	}
	cancel()
	if err := <-second; !errors.Is(err, context.Canceled) {
		t.Error(err) // while the first is still deciding
	}
	close(leave)
	if err := <-first; err != nil {
		t.Error(err)
	}
	if _, found, err := db.State(t.Context(), "b"); found || err != nil {
		t.Error(found, err)
	}
	// Cancelled once it has begun: the call waits for the outcome.
	ctx, cancel = context.WithCancel(t.Context())
	if _, err := db.Update(ctx, []string{"c"}, func(rs []*store.Record) error { cancel(); rs[0].Enqueue(); return nil }); err != nil {
		t.Error(err)
	}
	if created, err := db.Enqueue(t.Context(), "c"); created || err != nil {
		t.Error(created, err)
	}
}

// Many that open a store at its first moment all succeed, and it has one identity.
func TestOpenedByManyAtOnce(t *testing.T) {
	for range 10 {
		path := filepath.Join(t.TempDir(), "jobs.db")
		const n = 12
		stamps, errs := make([]store.Stamp, n), make([]error, n)
		var wg sync.WaitGroup
		for i := range n {
			wg.Go(func() {
				var db *DB
				if db, errs[i] = Open(context.Background(), path, Options{}); errs[i] != nil {
					return
				}
				if _, errs[i] = db.Enqueue(context.Background(), fmt.Sprint(i)); errs[i] == nil {
					stamps[i], errs[i] = db.Stamp(context.Background())
				}
				if err := db.Close(); err != nil {
					errs[i] = err
				}
			})
		}
		wg.Wait()
		for i := range n {
			if errs[i] != nil || stamps[i].Identity != stamps[0].Identity {
				t.Errorf("%v, %v", stamps[i], errs[i])
			}
		}
	}
}
