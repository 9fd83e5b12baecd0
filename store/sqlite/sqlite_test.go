package sqlite

import (
	"path/filepath"
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
