package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"leasehold.dev/leasehold/store"
)

// A claim that is granted, by one caller and by many, each on jobs of its own.
func BenchmarkClaim(b *testing.B) {
	for _, callers := range []int{1, 16, 256} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			ctx := context.Background()
			db := benchDB(b, callers)
			var left atomic.Int64
			left.Store(int64(b.N))
			var wg sync.WaitGroup
			b.ResetTimer()
			for c := range callers {
				wg.Go(func() {
					id := fmt.Sprintf("job-%d", c)
					for now := 0.0; left.Add(-1) >= 0; now += 10 {
						if v, err := db.Claim(ctx, id, "worker", now, 10); err != nil || !v.OK() {
							b.Errorf("claim: %+v, %v", v, err)
							return
						}
					}
				})
			}
			wg.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "claims/s")
		})
	}
}

// 256 claims in one Update.
func BenchmarkBatch(b *testing.B) {
	ctx := context.Background()
	db := benchDB(b, 256)
	ids := make([]string, 256)
	for i := range ids {
		ids[i] = fmt.Sprintf("job-%d", i)
	}
	b.ResetTimer()
	for n := range b.N {
		_, err := db.Update(ctx, ids, func(rs []*store.Record) error {
			for _, r := range rs {
				if v, err := r.Claim("worker", float64(n*10), 10); err != nil || !v.OK() {
					return fmt.Errorf("claim: %+v, %w", v, err)
				}
			}
			return nil
		})
		if err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N*256)/b.Elapsed().Seconds(), "claims/s")
}

// The same claims by a prepared statement alone: no fence memory, history, or rules.
func BenchmarkBare(b *testing.B) {
	for _, n := range []int{1, 256} {
		b.Run(fmt.Sprintf("batch=%d", n), func(b *testing.B) {
			ctx := context.Background()
			db, err := sql.Open("sqlite", "file:"+filepath.Join(b.TempDir(), "bare.db")+
				"?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)")
			if err != nil {
				b.Fatal(err)
			}
			defer db.Close()
			conn, err := db.Conn(ctx)
			if err != nil {
				b.Fatal(err)
			}
			defer conn.Close()
			if _, err := conn.ExecContext(ctx, statements[0]); err != nil {
				b.Fatal(err)
			}
			for i := range n {
				if _, err := conn.ExecContext(ctx, "INSERT INTO jobs(id) VALUES(?)", fmt.Sprintf("job-%d", i)); err != nil {
					b.Fatal(err)
				}
			}
			prepared := func(text string) *sql.Stmt {
				st, err := conn.PrepareContext(ctx, text)
				if err != nil {
					b.Fatal(err)
				}
				return st
			}
			begin, commit := prepared("BEGIN IMMEDIATE"), prepared("COMMIT")
			claim := prepared("UPDATE jobs SET owner=?, until=?, fence=fence+1 WHERE id=? AND done=0 AND until<=?")
			b.ResetTimer()
			for k := range b.N {
				begin.ExecContext(ctx)
				for i := range n {
					res, err := claim.ExecContext(ctx, "worker", float64(k*10+10), fmt.Sprintf("job-%d", i), float64(k*10))
					if err != nil {
						b.Fatal(err)
					}
					if rows, _ := res.RowsAffected(); rows != 1 {
						b.Fatal("not claimed")
					}
				}
				if _, err := commit.ExecContext(ctx); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.N*n)/b.Elapsed().Seconds(), "claims/s")
		})
	}
}

func benchDB(b *testing.B, jobs int) *DB {
	b.Helper()
	ctx := context.Background()
	db, err := Open(ctx, filepath.Join(b.TempDir(), "bench.db"), Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { db.Close() })
	for i := range jobs {
		if _, err := db.Enqueue(ctx, fmt.Sprintf("job-%d", i)); err != nil {
			b.Fatal(err)
		}
	}
	return db
}
