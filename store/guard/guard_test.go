package guard_test

import (
	"database/sql"
	"net/url"
	"path/filepath"
	"testing"

	_ "modernc.org/sqlite"

	"leasehold.dev/leasehold/store/guard"
	"leasehold.dev/leasehold/store/guard/guardtest"
)

func TestSQLite(t *testing.T) {
	u := url.URL{Scheme: "file", Path: filepath.Join(t.TempDir(), "app.db"), RawQuery: "_txlock=immediate&_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)"}
	db, err := sql.Open("sqlite", u.String())
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	guardtest.Run(t, db, guard.SQLite, "../../README.md")
}
