package sqlite

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"leasehold.dev/leasehold/store"
	"leasehold.dev/leasehold/store/storetest"
)

func TestConformance(t *testing.T) {
	storetest.Run(t, func(t *testing.T) store.Engine { return open(t, filepath.Join(t.TempDir(), "jobs.db")) })
}

func TestConformanceInMemory(t *testing.T) {
	storetest.Run(t, func(t *testing.T) store.Engine {
		db, err := OpenMemory(t.Context(), Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { db.Close() })
		return db
	})
}

func open(t testing.TB, path string) *DB {
	t.Helper()
	db, err := Open(t.Context(), path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}

// twice calls every decision twice, as an engine does after a conflict.
type twice struct{ *DB }

func (e twice) Update(ctx context.Context, ids []string, decide func([]*store.Record) error) (store.Stamp, error) {
	return e.DB.Update(ctx, ids, func(rs []*store.Record) error {
		copies := make([]*store.Record, len(rs))
		for i, r := range rs {
			copies[i] = r.Clone()
		}
		_ = decide(copies)
		return decide(rs)
	})
}

func TestConformanceDecidedTwice(t *testing.T) {
	storetest.Run(t, func(t *testing.T) store.Engine {
		db, err := OpenMemory(t.Context(), Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { db.Close() })
		return twice{db}
	})
}

// A full disk is a fault of what has to be written, and of nothing else.
func TestDiskFull(t *testing.T) {
	ctx := t.Context()
	db := open(t, filepath.Join(t.TempDir(), "jobs.db"))
	db.Enqueue(ctx, "j")
	db.Claim(ctx, "j", "a", 0, 10)
	limit := func(pages int) {
		if err := db.submit(ctx, &request{solo: func(s *session) error {
			return s.run(fmt.Sprintf("PRAGMA max_page_count = %d", pages))
		}}); err != nil {
			t.Fatal(err)
		}
	}
	limit(1) // as many as there are
	big := strings.Repeat("x", 1<<20)
	if _, err := db.Complete(ctx, "j", "a", 1, 1, big); !errors.Is(err, ErrFull) {
		t.Errorf("complete: %v", err)
	}
	if v, err := db.Claim(ctx, "j", "b", 1, 10); err != nil || v.Reason != store.Held {
		t.Errorf("a refusal: %+v, %v", v, err)
	}
	if v, err := db.Renew(ctx, "j", "a", 1, 1, 10); err != nil || !v.OK() {
		t.Errorf("what needs no room: %+v, %v", v, err)
	}
	limit(1 << 20)
	if v, err := db.Complete(ctx, "j", "a", 1, 1, big); err != nil || !v.OK() {
		t.Errorf("complete: %+v, %v", v, err)
	}
	if row, _, err := db.State(ctx, "j"); err != nil || *row.Result != big {
		t.Error(err)
	}
}
