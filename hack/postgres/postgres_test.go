// Package postgres tests the guard on a real PostgreSQL, in a module of its own to keep its driver out
// of the product's.
package postgres

import (
	"bytes"
	"database/sql"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"

	"leasehold.dev/leasehold/store/guard"
	"leasehold.dev/leasehold/store/guard/guardtest"
)

func TestPostgreSQL(t *testing.T) {
	db := start(t)
	guardtest.Run(t, db, guard.PostgreSQL, "../../README.md")
}

// find returns a program of PostgreSQL. Debian keeps them out of the path, by version.
func find(t *testing.T, name string) string {
	t.Helper()
	if path, err := exec.LookPath(name); err == nil {
		return path
	}
	paths, _ := filepath.Glob("/usr/lib/postgresql/*/bin/" + name)
	if len(paths) == 0 {
		if os.Getenv("LEASEHOLD_TEST_ALL") != "" {
			t.Fatal("postgresql is missing")
		}
		t.Skip("postgresql is missing")
	}
	slices.Sort(paths)
	return paths[len(paths)-1]
}

// start starts a server that listens on a socket in a directory of its own and nowhere else.
func start(t *testing.T) *sql.DB {
	t.Helper()
	initdb, postgres := find(t, "initdb"), find(t, "postgres")
	// The path of a socket must be short.
	dir, err := os.MkdirTemp("", "lhpg")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	var credential *syscall.Credential
	if os.Getuid() == 0 { // which the server refuses to run as
		u, err := user.Lookup("postgres")
		if err != nil {
			u, err = user.Lookup("nobody")
		}
		if err != nil {
			t.Fatal(err)
		}
		uid, _ := strconv.Atoi(u.Uid)
		gid, _ := strconv.Atoi(u.Gid)
		credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
		if err := os.Chown(dir, uid, gid); err != nil {
			t.Fatal(err)
		}
	}
	data := filepath.Join(dir, "data")
	command := func(name string, args ...string) *exec.Cmd {
		cmd := exec.Command(name, args...)
		cmd.Dir = dir
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: credential}
		return cmd
	}
	if out, err := command(initdb, "-D", data, "-U", "postgres", "-A", "trust", "--no-sync", "--no-locale", "-E", "UTF8").CombinedOutput(); err != nil {
		t.Fatalf("initdb: %v\n%s", err, out)
	}
	server := command(postgres, "-D", data, "-k", dir, "-c", "listen_addresses=", "-c", "fsync=off")
	var log bytes.Buffer
	server.Stdout, server.Stderr = &log, &log
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Wait() }()
	t.Cleanup(func() {
		server.Process.Signal(syscall.SIGINT) // a fast shutdown
		<-ended
		if t.Failed() {
			t.Log(strings.TrimSpace(log.String()))
		}
	})
	db, err := sql.Open("pgx", "host="+dir+" user=postgres dbname=postgres")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	retry := time.NewTicker(20 * time.Millisecond)
	defer retry.Stop()
	deadline := time.After(30 * time.Second)
	for {
		if err = db.Ping(); err == nil {
			return db
		}
		select {
		case <-retry.C:
		case err := <-ended:
			ended <- err
			t.Fatalf("the server has ended: %v\n%s", err, log.String())
		case <-deadline:
			t.Fatalf("the server does not answer: %v", err)
		}
	}
}
