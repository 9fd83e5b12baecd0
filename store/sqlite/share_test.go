package sqlite

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"leasehold.dev/leasehold/store"
)

// claimed counts who won which job, from whatever program.
type winners struct {
	mu sync.Mutex
	of map[string]string // id/fence to owner
}

func (w *winners) add(t *testing.T, id string, fence int64, owner string) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	key := fmt.Sprintf("%s/%d", id, fence)
	if other, ok := w.of[key]; ok {
		t.Errorf("fence %s was given to %s and to %s", key, other, owner)
	}
	if w.of == nil {
		w.of = map[string]string{}
	}
	w.of[key] = owner
}

// A service in Python, with its standard library and the contract's statements, and with others
// that try to bring fences back.
const pythonService = `
import sqlite3, sys, json
path, name, jobs, rounds, hostile = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5] == "hostile"
db = sqlite3.connect(path)  # the usual timeout of 5 s
def out(**k): print(json.dumps(k), flush=True)
sys.stdin.readline() if not hostile else None
try:
    for now in range(rounds):
        for j in range(jobs):
            id = "j%d" % j
            if hostile:
                for stmt in ("INSERT OR REPLACE INTO jobs(id) VALUES(?)", "DELETE FROM jobs WHERE id=?",
                             "INSERT OR IGNORE INTO jobs(id) VALUES(?)", "UPDATE jobs SET fence=fence-1 WHERE id=?",
                             "UPDATE OR REPLACE jobs SET fence=1 WHERE id=?", "UPDATE jobs SET fence=0.5 WHERE id=?"):
                    try:
                        with db: db.execute(stmt, (id,))
                    except sqlite3.IntegrityError: pass
                continue
            with db:
                db.execute("INSERT OR IGNORE INTO jobs(id) VALUES(?)", (id,))
            with db:
                won = db.execute("UPDATE jobs SET owner=?, until=?, fence=fence+1 WHERE id=? AND done=0 AND until<=?",
                                 (name, now + 1, id, now)).rowcount
                if won:
                    fence = db.execute("SELECT fence FROM jobs WHERE id=?", (id,)).fetchone()[0]
            if won:
                out(id=id, fence=fence)
                with db:
                    db.execute("UPDATE jobs SET until=? WHERE id=? AND owner=? AND fence=? AND done=0 AND until>?", (now + 1, id, name, fence, now))
except Exception as e:
    out(error=repr(e))
`

func python(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("python3")
	if err != nil {
		if os.Getenv("LEASEHOLD_TEST_ALL") != "" {
			t.Fatal("python3 is missing")
		}
		t.Skip("python3 is missing")
	}
	return path
}

// follow starts a program that prints what it won, one JSON object a line, and returns a function
// that waits for its end.
func follow(t *testing.T, cmd *exec.Cmd, w *winners, name string) (wait func()) {
	t.Helper()
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			var l struct {
				ID, Error string
				Fence     int64
			}
			if err := json.Unmarshal(lines.Bytes(), &l); err != nil || l.Error != "" {
				t.Errorf("%s: %s", name, lines.Text())
				continue
			}
			w.add(t, l.ID, l.Fence, name)
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}()
	return func() { <-done }
}

// Podiom/Podiom#154: a deferred transaction that reads and then writes fails at once under contention, in
// spite of busy_timeout. Ours are immediate, and nobody sees "database is locked".
func TestPythonBeside(t *testing.T) {
	py := python(t)
	path := filepath.Join(t.TempDir(), "jobs.db")
	db := open(t, path)
	var w winners
	const jobs, rounds = 6, 25
	var waits []func()
	for i := range 2 {
		name := fmt.Sprintf("python%d", i)
		cmd := exec.Command(py, "-c", pythonService, path, name, fmt.Sprint(jobs), fmt.Sprint(rounds), "honest")
		cmd.Stdin = strings.NewReader("go\n")
		waits = append(waits, follow(t, cmd, &w, name))
	}
	waits = append(waits, follow(t, exec.Command(py, "-c", pythonService, path, "hostile", fmt.Sprint(jobs), "4", "hostile"), &w, "hostile"))
	var wg sync.WaitGroup
	for g := range 16 {
		name := fmt.Sprintf("go%d", g)
		wg.Go(func() {
			ctx := context.Background()
			for now := range rounds * 2 {
				id := fmt.Sprintf("j%d", (now+g)%jobs)
				if _, err := db.Enqueue(ctx, id); err != nil {
					t.Error(err)
				}
				v, err := db.Claim(ctx, id, name, float64(now/2), 1)
				if err != nil {
					t.Error(err)
				}
				if v.OK() {
					w.add(t, id, v.Fence, name)
					if _, err := db.Release(ctx, id, name, v.Fence); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
	for _, wait := range waits {
		wait()
	}
	if len(w.of) < jobs {
		t.Errorf("only %d claims were granted", len(w.of))
	}
}

// Under unbroken pressure from here, a program with the usual timeout gets its turn.
func TestRoomForOthers(t *testing.T) {
	py := python(t)
	if testing.Short() {
		t.Skip("takes some seconds")
	}
	path := filepath.Join(t.TempDir(), "jobs.db")
	db := open(t, path)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for g := range 32 {
		wg.Go(func() {
			id := fmt.Sprintf("g%d", g)
			db.Enqueue(ctx, id)
			for now := 0; ctx.Err() == nil; now++ {
				if _, err := db.Claim(ctx, id, "w", float64(now), 1); err != nil && ctx.Err() == nil {
					t.Error(err)
				}
			}
		})
	}
	const script = `
import sqlite3, sys
for i in range(3):
    db = sqlite3.connect(sys.argv[1])
    with db: db.execute("INSERT INTO jobs(id) VALUES(?)", ("p%d" % i,))
    db.close()
`
	out, err := exec.Command(py, "-c", script, path).CombinedOutput()
	cancel()
	wg.Wait()
	if err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// The test binary, run again, is another process that races for the same jobs.
func TestProcessesRace(t *testing.T) {
	if path := os.Getenv("LEASEHOLD_RACE"); path != "" {
		db := open(t, path)
		race(t, db, os.Getenv("LEASEHOLD_NAME"), func(id string, fence int64, _ string) {
			fmt.Printf("{\"id\":%q,\"fence\":%d}\n", id, fence)
		})
		db.Close()
		os.Exit(0)
	}
	path := filepath.Join(t.TempDir(), "jobs.db")
	a, b := open(t, path), open(t, path) // two in this process as well
	ctx := t.Context()
	for i := range 8 {
		if _, err := a.Enqueue(ctx, fmt.Sprintf("j%d", i)); err != nil {
			t.Fatal(err)
		}
	}
	var w winners
	var waits []func()
	for i := range 2 {
		name := fmt.Sprintf("process%d", i)
		cmd := exec.Command(os.Args[0], "-test.run=^TestProcessesRace$")
		cmd.Env = append(os.Environ(), "LEASEHOLD_RACE="+path, "LEASEHOLD_NAME="+name)
		waits = append(waits, follow(t, cmd, &w, name))
	}
	var wg sync.WaitGroup
	for i, db := range []*DB{a, b} {
		wg.Go(func() {
			race(t, db, fmt.Sprintf("handle%d", i), func(id string, fence int64, owner string) { w.add(t, id, fence, owner) })
		})
	}
	wg.Wait()
	for _, wait := range waits {
		wait()
	}
	total := int64(0)
	if err := a.List(ctx, func(r store.Row) error { total += r.Fence; return nil }); err != nil {
		t.Fatal(err)
	}
	if int(total) != len(w.of) {
		t.Errorf("%d fences were handed out, and %d claims granted", total, len(w.of))
	}
}

func race(t *testing.T, db *DB, name string, won func(id string, fence int64, owner string)) {
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for now := range 100 {
				id, owner := fmt.Sprintf("j%d", (now+g)%8), fmt.Sprintf("%s-%d", name, g)
				v, err := db.Claim(context.Background(), id, owner, float64(now/4), 2)
				if err != nil {
					t.Error(err)
				}
				if v.OK() {
					won(id, v.Fence, owner)
				}
			}
		})
	}
	wg.Wait()
}

// Another program holds the lock for longer than we wait: a fault, and nothing is left behind.
func TestBusy(t *testing.T) {
	path := filepath.Join(t.TempDir(), "jobs.db")
	db, err := Open(t.Context(), path, Options{BusyTimeout: 20 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	foreign := plain(t, path)
	exec1 := func(text string) {
		if _, err := foreign.Exec(text); err != nil {
			t.Fatal(err)
		}
	}
	exec1("BEGIN IMMEDIATE")
	if _, err := db.Enqueue(t.Context(), "j"); !errors.Is(err, store.ErrBusy) {
		t.Error(err)
	}
	exec1("COMMIT")
	if created, err := db.Enqueue(t.Context(), "j"); err != nil || !created {
		t.Error(created, err)
	}
}

// What the database refuses fails alone; those who shared the commit have theirs.
func TestRefusedWriteFailsAlone(t *testing.T) {
	ctx := t.Context()
	db := open(t, filepath.Join(t.TempDir(), "jobs.db"))
	const n = 20
	for i := range n {
		id := fmt.Sprint(i)
		db.Enqueue(ctx, id)
		db.Claim(ctx, id, "a", 0, 1)
		db.Claim(ctx, id, "a", 1, 1)
	}
	inside, leave := make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		db.View(ctx, nil, func([]*store.Record) error { return nil })
		db.Update(ctx, []string{"gate"}, func([]*store.Record) error { close(inside); <-leave; return nil })
	})
	<-inside
	errs := make([]error, n)
	for i := range n {
		wg.Go(func() {
			_, errs[i] = db.Update(ctx, []string{fmt.Sprint(i)}, func(rs []*store.Record) error {
				if i == 7 {
					rs[0].Fence = 1 // no rule does this
					return nil
				}
				_, err := rs[0].Claim("b", 2, 1)
				return err
			})
		})
	}
	for queued := 0; queued < n; {
		db.mu.Lock()
		queued = len(db.queue)
		db.mu.Unlock()
	}
	close(leave)
	wg.Wait()
	for i, err := range errs {
		var e *store.RowError
		if i == 7 && (!errors.As(err, &e) || e.ID != "7") || i != 7 && err != nil {
			t.Errorf("%d: %v", i, err)
		}
		want := int64(3)
		if i == 7 {
			want = 2
		}
		if row, _, err := db.State(ctx, fmt.Sprint(i)); err != nil || row.Fence != want {
			t.Errorf("%d: %+v, %v", i, row, err)
		}
	}
}
