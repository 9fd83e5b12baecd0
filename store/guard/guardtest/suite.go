// Package guardtest is what package guard has to pass on every database.
package guardtest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"leasehold.dev/leasehold/store/guard"
)

// Run tests guard on a database, in which it makes tables. Transactions of db must begin IMMEDIATE where
// that is SQLite.
func Run(t *testing.T, db *sql.DB, dialect guard.Dialect, readme string) {
	s := suite{db, guard.Guard{Dialect: dialect}}
	for range 2 { // it is there the second time
		if err := s.g.Init(t.Context(), db); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := db.Exec(`CREATE TABLE ledger(id TEXT PRIMARY KEY, fence BIGINT NOT NULL, writer TEXT NOT NULL)`); err != nil {
		t.Fatal(err)
	}
	t.Run("Order", s.order)
	t.Run("First", s.first)
	t.Run("Invalid", s.invalid)
	t.Run("Rollback", s.rollback)
	t.Run("HeldThroughTheTransaction", s.held)
	t.Run("Concurrent", s.concurrent)
	t.Run("AnotherTable", s.anotherTable)
	t.Run("HTTP", s.http)
	t.Run("Recipe", func(t *testing.T) { s.recipe(t, readme) })
}

type suite struct {
	db *sql.DB
	g  guard.Guard
}

// in runs f in a transaction and commits it if f succeeds.
func (s suite) in(ctx context.Context, f func(*sql.Tx) error) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := f(tx); err != nil {
		return err
	}
	return tx.Commit()
}

func (s suite) check(ctx context.Context, resource string, fence int64) error {
	return s.in(ctx, func(tx *sql.Tx) error { return s.g.Check(ctx, tx, resource, fence) })
}

func stale(t *testing.T, err error, fence, current int64) {
	t.Helper()
	var e *guard.StaleError
	if !errors.As(err, &e) || e.Fence != fence || e.Current != current {
		t.Errorf("got %v, want fence %d refused for %d", err, fence, current)
	}
}

func (s suite) current(t *testing.T, resource string) (fence int64) {
	t.Helper()
	err := s.in(t.Context(), func(tx *sql.Tx) (err error) {
		fence, err = s.g.Current(t.Context(), tx, resource)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return fence
}

func (s suite) order(t *testing.T) {
	ctx := t.Context()
	if n := s.current(t, "r"); n != 0 {
		t.Errorf("current %d before the first", n)
	}
	for _, fence := range []int64{1, 1, 2, 2, 7} { // the holder may repeat
		if err := s.check(ctx, "r", fence); err != nil {
			t.Errorf("fence %d: %v", fence, err)
		}
	}
	stale(t, s.check(ctx, "r", 6), 6, 7)
	stale(t, s.check(ctx, "r", 1), 1, 7)
	if err := s.check(ctx, "other's \"r\"", 1); err != nil {
		t.Error(err)
	}
	if err := s.check(ctx, "r", math.MaxInt64); err != nil {
		t.Error(err)
	}
	stale(t, s.check(ctx, "r", math.MaxInt64-1), math.MaxInt64-1, math.MaxInt64)
}

func (s suite) first(t *testing.T) {
	first := func(fence int64) error {
		return s.in(t.Context(), func(tx *sql.Tx) error { return s.g.CheckFirst(t.Context(), tx, "once", fence) })
	}
	if err := first(3); err != nil {
		t.Error(err)
	}
	stale(t, first(3), 3, 3)
	stale(t, first(2), 2, 3)
	if err := first(4); err != nil {
		t.Error(err)
	}
}

func (s suite) invalid(t *testing.T) {
	for _, c := range []struct {
		resource string
		fence    int64
	}{{"", 1}, {"r", 0}, {"r", -1}, {"\xff", 1}, {"a\x00b", 1}} {
		if err := s.check(t.Context(), c.resource, c.fence); !errors.Is(err, guard.ErrInvalid) {
			t.Errorf("%q, %d: %v", c.resource, c.fence, err)
		}
	}
}

// A transaction that is rolled back has not been seen.
func (s suite) rollback(t *testing.T) {
	tx, err := s.db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.g.Check(t.Context(), tx, "undone", 9); err != nil {
		t.Error(err)
	}
	if err := tx.Rollback(); err != nil {
		t.Error(err)
	}
	if err := s.check(t.Context(), "undone", 1); err != nil {
		t.Error(err)
	}
}

// Whoever was let in has committed before a higher fence is let in.
func (s suite) held(t *testing.T) {
	ctx := t.Context()
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	if err := s.g.Check(ctx, tx, "held", 1); err != nil {
		t.Fatal(err)
	}
	brief, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
	defer cancel()
	if err := s.check(brief, "held", 2); err == nil {
		t.Error("fence 2 was let in while fence 1 was writing")
	}
	passed := make(chan error, 1)
	go func() { passed <- s.check(ctx, "held", 2) }()
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	if err := <-passed; err != nil {
		t.Error(err)
	}
	stale(t, s.check(ctx, "held", 1), 1, 2)
}

// Many writers at once: what is written is never older than what was written before.
func (s suite) concurrent(t *testing.T) {
	ctx := t.Context()
	var mu sync.Mutex
	var log []int64 // fences, in the order of their commits
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 25 {
				fence := rand.Int64N(50) + 1
				tx, err := s.db.BeginTx(ctx, nil)
				if err != nil {
					t.Error(err)
					return
				}
				err = s.g.Check(ctx, tx, "crowd", fence)
				var e *guard.StaleError
				switch {
				case errors.As(err, &e):
					if e.Current <= fence {
						t.Error(e)
					}
				case err != nil:
					t.Error(err)
				default:
					mu.Lock() // nobody else is between check and commit
					log = append(log, fence)
					mu.Unlock()
					if err := tx.Commit(); err != nil {
						t.Error(err)
					}
				}
				tx.Rollback()
			}
		})
	}
	wg.Wait()
	for i := 1; i < len(log); i++ {
		if log[i] < log[i-1] {
			t.Fatalf("fence %d was let in after %d", log[i], log[i-1])
		}
	}
}

func (s suite) anotherTable(t *testing.T) {
	s.g.Table = `my "guard"`
	if err := s.check(t.Context(), "r", 1); err == nil {
		t.Error("checked without a table")
	}
	if err := s.g.Init(t.Context(), s.db); err != nil {
		t.Fatal(err)
	}
	if err := s.check(t.Context(), "r", 2); err != nil {
		t.Error(err)
	}
	stale(t, s.check(t.Context(), "r", 1), 1, 2)
}

func (s suite) http(t *testing.T) {
	write := `INSERT INTO ledger(id, fence, writer) VALUES('` // in the guarded transaction
	server := httptest.NewServer(&guard.Handler{
		DB: s.db, Guard: s.g,
		Next: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodGet {
				fmt.Fprint(w, guard.Tx(r.Context()) == nil)
				return
			}
			body, _ := io.ReadAll(r.Body)
			_, err := guard.Tx(r.Context()).Exec(write + r.URL.Path + `', 1, '` + string(body) + `')
				ON CONFLICT(id) DO UPDATE SET writer = excluded.writer`)
			if err != nil {
				t.Error(err)
			}
			if string(body) == "bad" {
				http.Error(w, "no", http.StatusConflict)
				return
			}
			w.Header().Set("X-Test", "yes")
			w.WriteHeader(http.StatusCreated)
			fmt.Fprint(w, "written")
		}),
		Fault: func(_ *http.Request, err error) { t.Error(err) },
	})
	defer server.Close()
	for _, c := range []struct {
		method, body string
		fence        []string
		status       int
		answer       string
	}{
		{"GET", "", nil, 200, "true"},
		{"PUT", "a", nil, 428, "the request needs a Fencing-Token header"},
		{"PUT", "a", []string{"x"}, 400, `Fencing-Token: "x": must be a whole number`},
		{"PUT", "a", []string{"0"}, 400, "must be a whole number, at least 1"},
		{"PUT", "a", []string{"9223372036854775808"}, 400, "must be a whole number"},
		{"PUT", "a", []string{"1", "2"}, 400, "must be given once"},
		{"PUT", "a", []string{"1"}, 201, "written"},
		{"PUT", "bad", []string{"5"}, 409, "no"}, // and the fence is not remembered either
		{"PUT", "b", []string{"2"}, 201, "written"},
		{"PUT", "b", []string{"2"}, 201, "written"},
		{"PUT", "a", []string{"1"}, 412, "/x: fence 1 is stale: 2 has been seen"},
	} {
		req, err := http.NewRequestWithContext(t.Context(), c.method, server.URL+"/x", strings.NewReader(c.body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header[guard.Header] = c.fence
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(res.Body)
		res.Body.Close()
		if res.StatusCode != c.status || !strings.Contains(string(text), c.answer) || c.status == 201 && res.Header.Get("X-Test") == "" {
			t.Errorf("%s %q with %q: %d %s", c.method, c.body, c.fence, res.StatusCode, text)
		}
	}
	var writer string
	if err := s.db.QueryRow(`SELECT writer FROM ledger WHERE id = '/x'`).Scan(&writer); err != nil || writer != "b" {
		t.Errorf("written by %q, %v", writer, err)
	}
}

// recipe plays the plain SQL of the README, twice with other fences.
func (s suite) recipe(t *testing.T, readme string) {
	text, err := os.ReadFile(readme)
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("(?s)```sql\n(INSERT INTO leasehold_guard.*?)```").FindSubmatch(text)
	if block == nil {
		t.Fatalf("no recipe in %s", readme)
	}
	stmt := strings.TrimSuffix(strings.TrimSpace(string(block[1])), ";")
	for _, c := range []struct{ fence, changed int64 }{{2, 1}, {2, 1}, {1, 0}, {3, 1}, {2, 0}} {
		res, err := s.db.Exec(strings.Replace(stmt, "'ledger/42', 2", fmt.Sprintf("'ledger/42', %d", c.fence), 1))
		if err != nil {
			t.Fatal(err)
		}
		if n, err := res.RowsAffected(); err != nil || n != c.changed {
			t.Errorf("fence %d changed %d rows, %v", c.fence, n, err)
		}
	}
}
