package controller

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"leasehold.dev/leasehold/store"
	"leasehold.dev/leasehold/store/sqlite"
)

// What can befall the database while the manifests stay. In each case no fence comes back that a
// status has shown.

func (r *rig) takeAway() {
	r.t.Helper()
	for _, suffix := range []string{"", "-wal", "-shm"} {
		if err := os.Remove(r.database() + suffix); err != nil && !errors.Is(err, os.ErrNotExist) {
			r.t.Fatal(err)
		}
	}
}

func (r *rig) put(suffix string, data []byte) {
	r.t.Helper()
	if err := os.WriteFile(r.database()+suffix, data, 0o600); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) bytes(suffix string) []byte {
	r.t.Helper()
	data, err := os.ReadFile(r.database() + suffix)
	if err != nil {
		r.t.Fatal(err)
	}
	return data
}

// cannotOpen expects an error of a kind that tells what to do.
func (r *rig) cannotOpen(kind error, advice string) {
	r.t.Helper()
	before := r.read("j.yaml")
	err := sqlite.Verify(r.t.Context(), r.database())
	if err == nil {
		var db *sqlite.DB
		if db, err = sqlite.Open(r.t.Context(), r.database(), sqlite.Options{}); err == nil {
			db.Close()
		}
	}
	if !errors.Is(err, kind) || !strings.Contains(err.Error(), advice) || !strings.Contains(err.Error(), r.database()) {
		r.t.Errorf("got %v\nwant one that says %q and %q", err, kind, advice)
	}
	if r.read("j.yaml") != before {
		r.t.Error("the manifest has changed")
	}
}

// lease lets the clock of j move on and waits for the fence.
func (r *rig) lease(clock float64, want string) {
	r.t.Helper()
	r.edit("j.yaml", "  clock: "+number(r.clock("j.yaml")), "  clock: "+number(clock))
	r.shows("j.yaml", want)
}

func (r *rig) clock(name string) float64 {
	var clock float64
	for line := range strings.Lines(r.read(name)) {
		if _, err := fmt.Sscanf(line, "  clock: %g\n", &clock); err == nil {
			return clock
		}
	}
	r.t.Fatalf("%s has no clock", name)
	return 0
}

func startedRig(t *testing.T) *rig {
	r := newRig(t, map[string]string{"j.yaml": manifest("j", 100)})
	r.start()
	r.shows("j.yaml", "worker-a 1 130")
	return r
}

func TestDatabaseDeletedWhileStopped(t *testing.T) {
	r := startedRig(t)
	r.lease(130, "worker-b 2 160")
	r.halt()
	r.takeAway()
	r.once()
	if got := summary(r.status("j.yaml")); got != "worker-a 1003 160" {
		t.Errorf("after the loss: %s", got)
	}
}

func TestDatabaseDeletedAtWork(t *testing.T) {
	r := startedRig(t)
	r.takeAway()
	r.edit("j.yaml", "clock: 100", "clock: 130")
	err := <-r.ended
	r.ended <- err
	if !errors.Is(err, store.ErrLost) || !strings.Contains(err.Error(), "restart") {
		t.Errorf("the controller ended with %v", err)
	}
	if got := summary(r.status("j.yaml")); got != "worker-a 1 130" {
		t.Errorf("it wrote %s", got)
	}
	r.halt()
	r.once()
	if got := summary(r.status("j.yaml")); got != "worker-a 1002 160" {
		t.Errorf("after the loss: %s", got)
	}
}

func TestDatabaseReplacedWhileRunning(t *testing.T) {
	r := startedRig(t)
	copied := filepath.Join(t.TempDir(), "copy.db")
	if _, err := r.db.Backup(t.Context(), copied); err != nil {
		t.Fatal(err)
	}
	r.lease(130, "worker-b 2 160")
	if err := os.Rename(copied, r.database()); err != nil {
		t.Fatal(err)
	}
	r.edit("j.yaml", "clock: 130", "clock: 160")
	err := <-r.ended
	r.ended <- err
	if !errors.Is(err, store.ErrLost) {
		t.Errorf("the controller ended with %v", err)
	}
	if got := summary(r.status("j.yaml")); got != "worker-b 2 160" {
		t.Errorf("it wrote %s", got)
	}
	r.halt()
	for _, suffix := range []string{"-wal", "-shm"} { // as the help of store backup says
		os.Remove(r.database() + suffix)
	}
	r.once()
	if s := r.status("j.yaml"); *s.Fence <= 2+store.Jump || s.Owner == "" {
		t.Errorf("after the older copy: %s", summary(s))
	}
}

// An older copy is told by its revision, whatever made it.
func TestDatabaseOlderCopy(t *testing.T) {
	for _, by := range []string{"store backup", "cp"} {
		t.Run(by, func(t *testing.T) {
			r := startedRig(t)
			copied := filepath.Join(t.TempDir(), "copy.db")
			if by == "cp" {
				r.halt()
				data := r.bytes("")
				if err := os.WriteFile(copied, data, 0o600); err != nil {
					t.Fatal(err)
				}
				r.start()
			} else if _, err := r.db.Backup(t.Context(), copied); err != nil {
				t.Fatal(err)
			}
			r.lease(130, "worker-b 2 160")
			r.lease(160, "worker-a 3 190")
			was := r.status("j.yaml").Store
			r.halt()
			r.takeAway()
			data, err := os.ReadFile(copied)
			if err != nil {
				t.Fatal(err)
			}
			r.put("", data)
			r.once()
			s := r.status("j.yaml")
			if *s.Fence <= 3+store.Jump || strings.SplitN(s.Store, "/", 2)[0] == strings.SplitN(was, "/", 2)[0] {
				t.Errorf("after the older copy: %s, store %s, before %s", summary(s), s.Store, was)
			}
			if !strings.Contains(r.log.String(), "older copy") {
				t.Error("the log does not say so")
			}
			fence := *s.Fence
			r.once()
			if got := *r.status("j.yaml").Fence; got != fence {
				t.Errorf("and again: %d, not %d", got, fence)
			}
		})
	}
}

// A job that was complete is not run again after the store went back to before that.
func TestDatabaseOlderThanCompletion(t *testing.T) {
	r := startedRig(t)
	copied := filepath.Join(t.TempDir(), "copy.db")
	if _, err := r.db.Backup(t.Context(), copied); err != nil {
		t.Fatal(err)
	}
	r.edit("j.yaml", "  - name: worker-a\n", "  - name: worker-a\n    complete: {fence: 1, result: mine}\n")
	r.shows("j.yaml", "worker-a 1 130 done mine")
	r.halt()
	r.takeAway()
	data, err := os.ReadFile(copied)
	if err != nil {
		t.Fatal(err)
	}
	r.put("", data)
	r.once()
	s := r.status("j.yaml")
	if conditionOf(s, "RestoreNeeded") != "True RestoreNeeded" || conditionOf(s, "Leased") != "False RestoreNeeded" || *s.Result != "mine" {
		t.Errorf("after the older copy: %s\n%s", summary(s), r.read("j.yaml"))
	}
}

// Another installation's database that has never heard of the job. One that has is adopted by the
// command, see cmd/leasehold.
func TestDatabaseOfAnotherInstallation(t *testing.T) {
	r := startedRig(t)
	r.lease(130, "worker-b 2 160")
	r.halt()
	other := newRig(t, map[string]string{"k.yaml": manifest("k", 100)})
	other.once()
	r.takeAway()
	r.put("", other.bytes(""))
	r.once()
	if got := summary(r.status("j.yaml")); got != "worker-a 1003 160" {
		t.Errorf("with the other database: %s", got)
	}
}

func TestDatabaseEmptied(t *testing.T) {
	r := startedRig(t)
	r.lease(130, "worker-b 2 160")
	r.halt()
	r.put("", nil)
	r.once()
	if got := summary(r.status("j.yaml")); got != "worker-a 1003 160" {
		t.Errorf("after the loss: %s", got)
	}
}

func TestDatabaseDamaged(t *testing.T) {
	r := startedRig(t)
	r.halt()
	good := r.bytes("")
	t.Run("junk", func(t *testing.T) {
		r.put("", []byte(strings.Repeat("no database at all ", 1000)))
		r.cannotOpen(sqlite.ErrCorrupt, "put a backup in its place")
	})
	t.Run("truncated", func(t *testing.T) {
		for _, pages := range []int{1, 3} {
			r.put("", good[:4096*pages])
			r.cannotOpen(sqlite.ErrCorrupt, "put a backup in its place")
		}
		r.put("", good[:4096+1000])
		r.cannotOpen(sqlite.ErrCorrupt, "put a backup in its place")
	})
	t.Run("newer", func(t *testing.T) {
		newer := append([]byte(nil), good...)
		newer[63] = 99 // user_version
		r.put("", newer)
		r.cannotOpen(sqlite.ErrNewer, "upgrade leasehold")
	})
	t.Run("another application's", func(t *testing.T) {
		foreign := append([]byte(nil), good...)
		copy(foreign[68:], "GPKG")
		r.put("", foreign)
		r.cannotOpen(sqlite.ErrForeign, "choose another file")
	})
	r.put("", good)
	r.once()
	if got := summary(r.status("j.yaml")); got != "worker-a 1 130" {
		t.Errorf("with the good one: %s", got)
	}
}

// The database of before beside the -wal of after: SQLite makes one of both.
func TestDatabaseBesideStaleWal(t *testing.T) {
	r := newRig(t, map[string]string{"j.yaml": manifest("j", 100)})
	ctx := context.Background()
	open := func() *sqlite.DB {
		db, err := sqlite.Open(ctx, r.database(), sqlite.Options{})
		if err != nil {
			t.Fatal(err)
		}
		return db
	}
	db := open()
	for i := range 400 { // so that rows lie on many pages
		if _, err := db.Enqueue(ctx, fmt.Sprintf("job-%d-%s", i, strings.Repeat("x", 100))); err != nil {
			t.Fatal(err)
		}
	}
	db.Enqueue(ctx, "j")
	db.Claim(ctx, "j", "worker-a", 0, 1)
	db.Close()
	before := r.bytes("")
	db = open()
	for now := range 5 {
		db.Claim(ctx, "j", fmt.Sprint("w", now), float64(now+1), 1)
	}
	db.Close()
	db = open()
	db.Claim(ctx, fmt.Sprintf("job-%d-%s", 250, strings.Repeat("x", 100)), "worker-a", 0, 1)
	wal := r.bytes("-wal")
	db.Close()

	r.takeAway()
	r.put("", before)
	r.put("-wal", wal)
	r.cannotOpen(sqlite.ErrMixed, "remove "+r.database()+"-wal")
	if err := os.Remove(r.database() + "-wal"); err != nil {
		t.Fatal(err)
	}
	if err := sqlite.Verify(ctx, r.database()); err != nil {
		t.Errorf("without the -wal: %v", err)
	}
}

// What a crash leaves is whole, and is not taken for a mixture.
func TestDatabaseAfterCrash(t *testing.T) {
	r := startedRig(t)
	r.lease(130, "worker-b 2 160")
	main, wal := r.bytes(""), r.bytes("-wal")
	r.halt()
	r.takeAway()
	r.put("", main)
	r.put("-wal", wal)
	if err := sqlite.Verify(t.Context(), r.database()); err != nil {
		t.Error(err)
	}
	r.once()
	if got := summary(r.status("j.yaml")); got != "worker-b 2 160" {
		t.Errorf("after the crash: %s", got)
	}
}

// The database is lost, and later a copy from before the loss is put back: what the store in between
// has shown, which the copy cannot know, counts once the copy has been told of that store.
func TestCopyFromBeforeALoss(t *testing.T) {
	r := newRig(t, map[string]string{"a.yaml": manifest("j", 100), "b.yaml": manifest("k", 100)})
	r.once()
	copied, err := os.ReadFile(r.database())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(r.database()); err != nil {
		t.Fatal(err)
	}
	r.once()
	r.shows("a.yaml", "worker-a 1002 130")
	r.edit("b.yaml", "name: worker-a\n", "name: worker-a\n    complete: {fence: 1002, result: paid}\n")
	r.once()
	r.shows("b.yaml", "worker-a 1002 130 done paid")
	between, _ := parseStamp(r.status("a.yaml").Store)
	if err := os.WriteFile(r.database(), copied, 0o600); err != nil {
		t.Fatal(err)
	}
	r.open()
	if err := r.db.Succeed(t.Context(), between.Identity); err != nil {
		t.Fatal(err)
	}
	r.source.Close()
	r.db.Close()
	r.once()
	if s := r.status("a.yaml"); *s.Fence <= 1002+store.Jump {
		t.Errorf("a fence came back: %s", summary(s))
	}
	if s := r.status("b.yaml"); conditionOf(s, "RestoreNeeded") == "" || *s.Result != "paid" {
		t.Errorf("a completion was forgotten: %s", summary(s))
	}
}

// A completion that a strange status shows counts even where its fence cannot be believed, and what
// was not believed is said in every pass.
func TestStrangeFences(t *testing.T) {
	r := newRig(t, map[string]string{
		"a.yaml": manifest("none", 100, "status: {done: true, result: r, store: 0ther000/3}\n"),
		"b.yaml": manifest("large", 100, "status: {fence: 9223372036854775806, store: 0ther000/3}\n"),
	})
	for range 2 {
		r.once()
		r.shows("a.yaml", " 0 done r")
		if conditionOf(r.status("a.yaml"), "RestoreNeeded") == "" {
			t.Error("a completed job is leased again")
		}
		r.shows("b.yaml", "worker-a 1 130")
		if m := r.status("b.yaml").Conditions[0].Message; !strings.Contains(m, "2^62") {
			t.Errorf("Accepted says %q", m)
		}
	}
}
