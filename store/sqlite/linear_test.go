//go:build linux

package sqlite

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"golang.org/x/sys/unix"

	"leasehold.dev/leasehold/store"
	"leasehold.dev/leasehold/store/storetest"
)

// The clients of a history run in several processes, and share what the system gives them: the
// monotonic clock, which orders calls, chooses the jobs of the moment so that all meet at the same
// ones, and is the clock of the leases.
const (
	epoch       = 100 * time.Millisecond
	jobsAtOnce  = 4
	clockUnit   = 5 * time.Millisecond
	linearProcs = 8
	linearGos   = 6
)

func monotonic() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err)
	}
	return ts.Nano()
}

// client draws operations. It knows of a job what the last answers said, and is sometimes late.
type client struct {
	n    int
	part string // histories that share a store have jobs of their own
	rng  *rand.Rand
	seen map[string]storetest.Answer
}

func newClient(n int, part string) *client {
	return &client{n, part, rand.New(rand.NewPCG(uint64(n), uint64(monotonic()))), map[string]storetest.Answer{}}
}

func (c *client) draw(at int64) storetest.Op {
	op := storetest.Op{
		Name: []string{"enqueue", "state", "claim", "claim", "claim", "renew", "renew", "release"}[c.rng.IntN(8)],
		ID:   fmt.Sprintf("%s-%d-%d", c.part, at/int64(epoch), c.rng.IntN(jobsAtOnce)),
		Now:  float64(at / int64(clockUnit)),
	}
	if c.rng.IntN(60) == 0 {
		op.Name, op.Result = "complete", strconv.Itoa(c.n)
	}
	known := c.seen[op.ID]
	// Few names, so that the same one comes back with another fence.
	op.Owner = fmt.Sprintf("w%d", c.rng.IntN(3))
	if op.Name != "claim" && known.Owner != "" && c.rng.IntN(4) > 0 {
		op.Owner = known.Owner
	}
	switch op.Name {
	case "claim", "renew":
		op.TTL = float64(1 + c.rng.IntN(4))
	}
	switch op.Name {
	case "renew", "complete", "release":
		op.Fence = known.Fence
		if c.rng.IntN(4) == 0 {
			op.Fence = max(0, known.Fence-1)
		}
	}
	return op
}

func (c *client) learn(op storetest.Op, a storetest.Answer) {
	if op.Name == "state" {
		a.Owner, a.Fence = a.Job.Owner, a.Job.Fence
	}
	if op.Name != "enqueue" && a.Failed == "" {
		c.seen[op.ID] = a
	}
	if len(c.seen) > 100 {
		clear(c.seen)
	}
}

// linearChild is another process: its clients tell what they do, each line in one write, so that a
// kill leaves whole lines.
func linearChild(path string) error {
	first, _ := strconv.Atoi(os.Getenv("LEASEHOLD_CLIENT"))
	count, _ := strconv.Atoi(os.Getenv("LEASEHOLD_COUNT"))
	ctx := context.Background()
	db, err := Open(ctx, path, Options{BusyTimeout: time.Minute})
	if err != nil {
		return err
	}
	var mu sync.Mutex
	tell := func(c storetest.Call) error {
		text, err := json.Marshal(c)
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		_, err = os.Stdout.Write(append(text, '\n'))
		return err
	}
	errs := make([]error, linearGos)
	var wg sync.WaitGroup
	for g := range linearGos {
		c := newClient(first+g, os.Getenv("LEASEHOLD_PART"))
		wg.Go(func() {
			for range count / linearGos {
				at := monotonic()
				op := c.draw(at)
				if errs[g] = tell(storetest.Call{Client: c.n, At: at, Op: &op}); errs[g] != nil {
					return
				}
				a, err := storetest.Do(ctx, db, op)
				at = monotonic()
				if err != nil {
					errs[g] = fmt.Errorf("%v: %w", op, err)
					return
				}
				if errs[g] = tell(storetest.Call{Client: c.n, At: at, Answer: &a}); errs[g] != nil {
					return
				}
				c.learn(op, a)
			}
		})
	}
	wg.Wait()
	return errors.Join(append(errs, db.Close())...)
}

// The same with the statements of the contract, in another language.
const pythonClient = `
import sqlite3, sys, json, time, random
path, part, client, count, epoch, unit, jobs = *sys.argv[1:3], *map(int, sys.argv[3:])
db = sqlite3.connect(path, timeout=60, isolation_level=None)
random.seed(client)
seen = {}
def tell(**line):
    sys.stdout.write(json.dumps(dict(line, Client=client)) + "\n"); sys.stdout.flush()
for i in range(count):
    at = time.monotonic_ns()
    id, now = "%s-%d-%d" % (part, at // epoch, random.randrange(jobs)), at // unit
    owner, fence = seen.get(id, ("w%d" % random.randrange(3), 0))
    if random.randrange(4) == 0: owner = "w%d" % random.randrange(3)
    if random.randrange(4) == 0: fence = max(0, fence - 1)
    name = random.choice(("enqueue", "state", "claim", "claim", "renew", "release"))
    if random.randrange(60) == 0: name = "complete"
    ttl, result = random.randrange(1, 5), "py"
    tell(At=at, Op=dict(Name=name, ID=id, Owner=owner, Fence=fence, Now=now, TTL=ttl, Result=result))
    db.execute("BEGIN IMMEDIATE")
    answer = dict(Bare=True)
    if name == "enqueue":
        answer["Created"] = db.execute("INSERT OR IGNORE INTO jobs(id) VALUES(?)", (id,)).rowcount == 1
    elif name == "claim":
        ok = db.execute("UPDATE jobs SET owner=?, until=?, fence=fence+1 WHERE id=? AND done=0 AND until<=?", (owner, now + ttl, id, now)).rowcount
    elif name == "renew":
        ok = db.execute("UPDATE jobs SET until=? WHERE id=? AND owner=? AND fence=? AND done=0 AND until>?", (now + ttl, id, owner, fence, now)).rowcount
    elif name == "complete":
        ok = db.execute("UPDATE jobs SET result=?, done=1 WHERE id=? AND owner=? AND fence=? AND done=0 AND until>?", (result, id, owner, fence, now)).rowcount
    elif name == "release":
        ok = db.execute("UPDATE jobs SET owner=NULL, until=0 WHERE id=? AND owner=? AND fence=? AND done=0", (id, owner, fence)).rowcount
    row = db.execute("SELECT owner, until, fence, result, done FROM jobs WHERE id=?", (id,)).fetchone()
    db.execute("COMMIT")
    if row: seen[id] = (row[0] or owner, row[2])
    if name == "state":
        if row: answer["Job"] = dict(Exists=True, Owner=row[0] or "", Until=row[1], Fence=row[2], Result=row[3] or "", HasResult=row[3] is not None, Done=row[4] != 0)
    elif name != "enqueue":
        answer["Reason"] = "" if ok else "refused"
        if ok: answer["Fence"] = row[2]
    tell(At=time.monotonic_ns(), Answer=answer)
    if len(seen) > 100: seen.clear()
`

// TestLinearizable records what eight processes, a Python program beside them and the goroutines of
// each did to the same jobs, some killed in the middle, and asks whether some order of it all
// explains every answer.
func TestLinearizable(t *testing.T) {
	if path := os.Getenv("LEASEHOLD_LINEAR"); path != "" {
		if err := linearChild(path); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	py := python(t)
	path := filepath.Join(t.TempDir(), "jobs.db")
	db := open(t, path)
	segment, want := 400, 0 // operations per process
	soak := storetest.Soak()
	if soak > 0 {
		segment, want = 2500, 100_000
	}
	var total, kills, unanswered, pythons, jobs int
	start := time.Now()
	for round := 0; round == 0 || time.Since(start) < soak || total < want; round++ {
		s := linearSegment(t, db, py, path, segment, round)
		total, kills, unanswered, pythons, jobs = total+s.operations, kills+s.kills, unanswered+s.unanswered, pythons+s.python, jobs+s.jobs
		if t.Failed() {
			return
		}
	}
	report, err := Check(t.Context(), path, nil)
	if err != nil || len(report.Problems) > 0 {
		t.Fatalf("the store afterwards: %v, %+v", err, report)
	}
	t.Logf("figures: linearizable: %d operations on %d jobs by %d processes of %d goroutines at a time, %d of them by Python; %d processes killed with -9, %d operations unanswered",
		total, jobs, linearProcs+1, linearGos, pythons, kills, unanswered)
}

type segmentFigures struct{ operations, kills, unanswered, python, jobs int }

func linearSegment(t *testing.T, db *DB, py, path string, count, round int) (f segmentFigures) {
	part := fmt.Sprint(round)
	calls := make(chan storetest.Call, 1024)
	var running sync.WaitGroup
	clients := 0
	next := func(n int) int { clients += n; return clients - n }

	start := func(cmd *exec.Cmd, killAfter int, replace func()) {
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		running.Go(func() {
			lines := bufio.NewScanner(out)
			killed := false
			for n := 1; lines.Scan(); n++ {
				var c storetest.Call
				if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
					t.Errorf("%q: %v", lines.Text(), err)
					continue
				}
				calls <- c
				if n == killAfter {
					killed = true
					cmd.Process.Kill()
				}
			}
			if err := cmd.Wait(); err != nil && !killed {
				t.Errorf("a client process: %v", err)
			}
			if killed && replace != nil {
				replace()
			}
		})
	}
	child := func(first, count int) *exec.Cmd {
		cmd := exec.Command(os.Args[0], "-test.run=^TestLinearizable$")
		cmd.Env = append(os.Environ(), "LEASEHOLD_LINEAR="+path, "LEASEHOLD_PART="+part, fmt.Sprint("LEASEHOLD_CLIENT=", first), fmt.Sprint("LEASEHOLD_COUNT=", count))
		return cmd
	}
	rng := rand.New(rand.NewPCG(uint64(round), 1))
	for i := range linearProcs {
		if i%2 == 0 {
			start(child(next(linearGos), count), 0, nil)
			continue
		}
		second := child(next(linearGos), count/2)
		f.kills++
		start(child(next(linearGos), count), count/2+rng.IntN(count/2), func() { start(second, 0, nil) })
	}
	pyClient := next(1)
	start(exec.Command(py, "-c", pythonClient, path, part, fmt.Sprint(pyClient), fmt.Sprint(count/8), fmt.Sprint(int64(epoch)), fmt.Sprint(int64(clockUnit)), fmt.Sprint(jobsAtOnce)), 0, nil)
	go func() { running.Wait(); close(calls) }()

	var r storetest.Recording
	for c := range calls {
		if err := r.Add(c); err != nil {
			t.Error(err)
		}
		if c.Client == pyClient && c.Answer != nil {
			f.python++
		}
	}
	f.unanswered = r.End()
	// What all of it came to.
	ids := map[string]bool{}
	for _, o := range r.Operations {
		ids[o.Input.(storetest.Op).ID] = true
	}
	last := next(1)
	for id := range ids {
		op := storetest.Op{Name: "state", ID: id}
		at := monotonic()
		a, err := storetest.Do(t.Context(), db, op)
		if err != nil {
			t.Fatal(err)
		}
		r.Operations = append(r.Operations, porcupine.Operation{ClientId: last, Input: op, Output: a, Call: at, Return: monotonic()})
	}
	f.operations, f.jobs = len(r.Operations), len(ids)
	storetest.Check(t, r.Operations)
	return f
}

// plainStore carries operations out with plain statements, rightly or with one of the classic
// mistakes.
type plainStore struct {
	db      *sql.DB
	mistake string
}

func (s plainStore) do(op storetest.Op) (a storetest.Answer, err error) {
	a.Bare = true
	if op.Name == "claim" && s.mistake == "read, then write" {
		var until float64
		var fence, done int64
		err := s.db.QueryRow("SELECT until, fence, done FROM jobs WHERE id = ?", op.ID).Scan(&until, &fence, &done)
		if errors.Is(err, sql.ErrNoRows) || err == nil && (done != 0 || until > op.Now) {
			a.Reason = "refused"
			return a, nil
		}
		if err != nil {
			return a, err
		}
		runtime.Gosched()
		a.Fence = fence + 1
		_, err = s.db.Exec("UPDATE jobs SET owner = ?, until = ?, fence = ? WHERE id = ?", op.Owner, op.Now+op.TTL, a.Fence, op.ID)
		return a, err
	}
	tx, err := s.db.Begin() // immediate, see openPlainStore
	if err != nil {
		return a, err
	}
	defer tx.Rollback()
	fence := "AND fence = ?4"
	if s.mistake == "no fence" {
		fence = "AND ?4 IS NOT NULL"
	}
	var text string
	switch op.Name {
	case "enqueue":
		text = "INSERT OR IGNORE INTO jobs(id) VALUES(?1)"
	case "claim":
		text = "UPDATE jobs SET owner = ?2, until = ?3 + ?5, fence = fence + 1 WHERE id = ?1 AND done = 0 AND until <= ?3"
	case "renew":
		text = "UPDATE jobs SET until = ?3 + ?5 WHERE id = ?1 AND owner = ?2 " + fence + " AND done = 0 AND until > ?3"
	case "complete":
		text = "UPDATE jobs SET result = ?6, done = 1 WHERE id = ?1 AND owner = ?2 " + fence + " AND done = 0 AND until > ?3"
	case "release":
		text = "UPDATE jobs SET owner = NULL, until = 0 WHERE id = ?1 AND owner = ?2 " + fence + " AND done = 0"
	}
	changed := int64(0)
	if text != "" {
		res, err := tx.Exec(text, op.ID, op.Owner, op.Now, op.Fence, op.TTL, op.Result)
		if err != nil {
			return a, err
		}
		changed, _ = res.RowsAffected()
	}
	var row store.Row
	var owner sql.NullString
	err = tx.QueryRow("SELECT owner, until, fence, result, done FROM jobs WHERE id = ?", op.ID).Scan(&owner, &row.Until, &row.Fence, &row.Result, &row.Done)
	row.Owner = owner.String
	switch {
	case errors.Is(err, sql.ErrNoRows):
		err = nil
	case err != nil:
		return a, err
	case op.Name == "state":
		a.Job = storetest.JobOf(row)
	}
	switch {
	case op.Name == "enqueue":
		a.Created = changed == 1
	case op.Name != "state" && changed == 0:
		a.Reason = "refused"
	case op.Name != "state":
		a.Fence, a.Owner = row.Fence, row.Owner
	}
	return a, errors.Join(err, tx.Commit())
}

func openPlainStore(t *testing.T, mistake string) plainStore {
	t.Helper()
	path := filepath.Join(t.TempDir(), "jobs.db")
	db, err := sql.Open("sqlite", "file:"+path+"?_txlock=immediate&_pragma=busy_timeout(60000)&_pragma=journal_mode(WAL)&_pragma=synchronous(OFF)")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	if _, err := db.Exec(statements[0]); err != nil {
		t.Fatal(err)
	}
	return plainStore{db, mistake}
}

// TestCheckerCatches lets stores with a classic mistake run until the checker has caught them, and
// one without until it would have.
func TestCheckerCatches(t *testing.T) {
	for _, mistake := range []string{"", "no fence", "read, then write"} {
		t.Run("mistake="+mistake, func(t *testing.T) {
			s := openPlainStore(t, mistake)
			rounds := 50
			if mistake == "" {
				rounds = 3
			}
			for round := range rounds {
				if h := plainHistory(t, s, fmt.Sprint(round), 60); !storetest.Linearizable(h) {
					if mistake == "" {
						storetest.Check(t, h)
					}
					t.Logf("figures: checker: %q caught in round %d", mistake, round+1)
					return
				}
			}
			if mistake != "" {
				t.Fatalf("not caught in %d rounds", rounds)
			}
		})
	}
}

func plainHistory(t *testing.T, s plainStore, part string, steps int) []porcupine.Operation {
	var mu sync.Mutex
	var history []porcupine.Operation
	var wg sync.WaitGroup
	for n := range 6 {
		c := newClient(n, part)
		wg.Go(func() {
			for range steps {
				at := monotonic()
				op := c.draw(at)
				a, err := s.do(op)
				if err != nil {
					t.Errorf("%v: %v", op, err)
					return
				}
				c.learn(op, a)
				mu.Lock()
				history = append(history, porcupine.Operation{ClientId: n, Input: op, Output: a, Call: at, Return: monotonic()})
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return history
}

// The writer that stalls comes back under a name that holds the job again by then. Only the fence
// tells the two apart.
func TestStaleWriterUnderSameName(t *testing.T) {
	story := []storetest.Op{
		{Name: "enqueue"},
		{Name: "claim", Owner: "a", Now: 0, TTL: 10},
		{Name: "claim", Owner: "b", Now: 10, TTL: 10},
		{Name: "release", Owner: "b", Fence: 2},
		{Name: "claim", Owner: "a", Now: 12, TTL: 10},
		{Name: "renew", Owner: "a", Fence: 1, Now: 13, TTL: 100},
		{Name: "complete", Owner: "a", Fence: 1, Now: 14, Result: "stale"},
		{Name: "release", Owner: "a", Fence: 1},
		{Name: "state"},
		{Name: "complete", Owner: "a", Fence: 3, Now: 15, Result: "current"},
		{Name: "complete", Owner: "a", Fence: 1, Now: 16, Result: "stale"},
		{Name: "state"},
	}
	db := open(t, filepath.Join(t.TempDir(), "jobs.db"))
	plays := map[string]func(storetest.Op) (storetest.Answer, error){
		"ours":     func(op storetest.Op) (storetest.Answer, error) { return storetest.Do(t.Context(), db, op) },
		"plain":    openPlainStore(t, "").do,
		"no fence": openPlainStore(t, "no fence").do,
	}
	for name, do := range plays {
		var history []porcupine.Operation
		for i, op := range story {
			op.ID = "j"
			a, err := do(op)
			if err != nil {
				t.Fatal(err)
			}
			history = append(history, porcupine.Operation{Input: op, Output: a, Call: int64(2 * i), Return: int64(2*i + 1)})
		}
		if got := storetest.Linearizable(history); got != (name != "no fence") {
			t.Errorf("%s: linearizable %v", name, got)
		}
	}
}
