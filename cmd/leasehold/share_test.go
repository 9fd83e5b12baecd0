//go:build unix

package main

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"leasehold.dev/leasehold/store/sqlite"
)

// program copies the test binary, which is leasehold if it is called so, to where everybody may run it.
func program(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for d := dir; d != filepath.Dir(os.TempDir()) && d != "/" && d != os.TempDir(); d = filepath.Dir(d) {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	data, err := os.ReadFile(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "leasehold")
	if err := os.WriteFile(path, data, 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func modes(t *testing.T, state string) string {
	t.Helper()
	var all []string
	for _, name := range []string{"", "leasehold.db", "leasehold.db-wal", "leasehold.db-shm", "leasehold.db.lock", "leasehold.db.identity"} {
		info, err := os.Stat(filepath.Join(state, name))
		if err != nil {
			all = append(all, "none")
			continue
		}
		text := fmt.Sprintf("%o", info.Mode().Perm())
		if info.Mode()&fs.ModeSetgid != 0 {
			text = "2" + text
		}
		all = append(all, text)
	}
	return strings.Join(all, " ")
}

// The state directory is private to its owner, the database in it too, whatever the umask; with
// --group both are the group's, and stay so when SQLite makes its files again.
func TestStateModes(t *testing.T) {
	bin := program(t)
	base := filepath.Dir(bin)
	dir := filepath.Join(base, "jobs")
	state := filepath.Join(dir, ".leasehold")
	run := func(as *syscall.Credential, args ...string) string {
		t.Helper()
		cmd := exec.Command(bin, args...)
		cmd.Dir = base
		if as != nil {
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: as}
		}
		out, err := cmd.CombinedOutput()
		if err != nil {
			out = fmt.Appendf(out, "%v", err)
		}
		return string(out)
	}
	// open holds the database open, so that its -wal and -shm are there.
	open := func() *sqlite.DB {
		t.Helper()
		db, err := sqlite.Open(t.Context(), filepath.Join(state, "leasehold.db"), sqlite.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := db.Enqueue(t.Context(), fmt.Sprint("e", len(t.Name()))); err != nil {
			t.Fatal(err)
		}
		return db
	}
	old := syscall.Umask(0)
	out := run(nil, "run", "--init", "--once", "jobs")
	syscall.Umask(old)
	db := open()
	if got := modes(t, state); got != "700 600 600 600 600 600" {
		t.Errorf("private: %s\n%s", got, out)
	}
	db.Close()

	if out := run(nil, "run", "--once", "--group", "no-such-group", "jobs"); !strings.Contains(out, "--group: Invalid value") || !strings.Contains(out, "exit status 2") {
		t.Errorf("an unknown group: %s", out)
	}
	gid := os.Getegid()
	if os.Getuid() == 0 {
		gid = 1 // daemon's, everywhere
	}
	db = open()
	out = run(nil, "run", "--once", "--group", fmt.Sprint(gid), "jobs")
	if got := modes(t, state); got != "2770 660 660 660 660 660" {
		t.Errorf("shared while it is open: %s\n%s", got, out)
	}
	db.Close()
	db = open()
	if got := modes(t, state); got != "2770 660 660 660 660 660" {
		t.Errorf("shared, and opened again: %s", got)
	}
	db.Close()
	for _, name := range []string{"", "leasehold.db"} {
		info, err := os.Stat(filepath.Join(state, name))
		if err != nil {
			t.Fatal(err)
		}
		if got, _ := groupOf(info); got != gid {
			t.Errorf("%s belongs to group %d", name, got)
		}
	}

	if os.Getuid() != 0 {
		t.Skip("a store that two users share: for want of the right to become another user")
	}
	member := &syscall.Credential{Uid: 65533, Gid: uint32(gid)}
	stranger := &syscall.Credential{Uid: 65532, Gid: 65532}
	if out := run(member, "store", "claim", "fresh", "--dir", "jobs", "--owner", "w", "--now", "0", "--ttl", "5"); !strings.Contains(out, "NotFound") {
		t.Errorf("a member of the group is refused: %s", out)
	}
	if out := run(stranger, "store", "state", "fresh", "--dir", "jobs"); !strings.Contains(out, "exit status 1") {
		t.Errorf("a stranger is let in: %s", out)
	}
	// What the member's SQLite has made, we can use, and the other way round.
	holder := exec.Command(bin, "store", "exec", "--dir", "jobs")
	holder.Dir, holder.SysProcAttr = base, &syscall.SysProcAttr{Credential: member}
	in, err := holder.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	answers, err := holder.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintln(in, `{"op":"enqueue","id":"theirs"}`)
	if _, err := answers.Read(make([]byte, 100)); err != nil {
		t.Fatal(err)
	}
	if got := modes(t, state); got != "2770 660 660 660 660 660" {
		t.Errorf("made by a member: %s", got)
	}
	db = open()
	if row, found, err := db.State(t.Context(), "theirs"); err != nil || !found {
		t.Errorf("%+v %v", row, err)
	}
	db.Close()
	in.Close()
	if err := holder.Wait(); err != nil {
		t.Error(err)
	}

	// A state directory that somebody else has put there is not used.
	planted := filepath.Join(base, "planted")
	if err := os.MkdirAll(filepath.Join(planted, ".leasehold"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(filepath.Join(planted, ".leasehold"), 65533, 65533); err != nil {
		t.Fatal(err)
	}
	if out := run(nil, "run", "--once", "planted"); !strings.Contains(out, "belongs to another user (uid 65533)") {
		t.Errorf("a planted state directory: %s", out)
	}
	if err := os.Chown(filepath.Join(planted, ".leasehold"), 0, 0); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(planted, ".leasehold"), 0o777); err != nil {
		t.Fatal(err)
	}
	if out := run(nil, "run", "--once", "planted"); !strings.Contains(out, "everybody may write there") {
		t.Errorf("a state directory open to everybody: %s", out)
	}
}
