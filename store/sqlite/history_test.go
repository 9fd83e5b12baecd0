package sqlite

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"leasehold.dev/leasehold/store"
)

// told is the history in short lines, without times.
func told(t *testing.T, db *DB, id string) string {
	t.Helper()
	events, err := db.History(t.Context(), id, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, e := range events {
		clock := "-"
		if e.Clock != nil {
			clock = fmt.Sprint(*e.Clock)
		}
		fmt.Fprintf(&b, "%s %s%s owner=%s fence=%d until=%v clock=%s by=%s x%d %s\n", e.ID, e.Verb, e.Reason, e.Owner, e.Fence, e.Until, clock, e.By, e.Count, e.Message)
		if e.At.IsZero() || e.At.Year() < 2020 {
			t.Errorf("at %v", e.At)
		}
	}
	return b.String()
}

func TestHistory(t *testing.T) {
	ctx := t.Context()
	path := filepath.Join(t.TempDir(), "jobs.db")
	db := open(t, path)
	db.Enqueue(ctx, "j")
	db.Enqueue(ctx, "j")
	db.Claim(ctx, "j", "a", 0, 10)
	for now := range 5 {
		db.Renew(ctx, "j", "a", 1, float64(now), 10)
	}
	for range 3 {
		db.Claim(ctx, "j", "b", 5, 10)
	}
	db.Claim(ctx, "j", "b", 20, 10)
	foreign := plain(t, path)
	do(t, foreign, "UPDATE jobs SET until=40 WHERE id='j' AND owner='b' AND fence=2; UPDATE jobs SET until=50 WHERE id='j'")
	do(t, foreign, "UPDATE jobs SET owner=NULL, until=0 WHERE id='j'")
	do(t, foreign, "UPDATE jobs SET owner='p', until=70, fence=fence+1 WHERE id='j' AND done=0 AND until<=60")
	do(t, foreign, "REPLACE INTO jobs(id) VALUES('j')")
	do(t, foreign, "DELETE FROM jobs")
	do(t, foreign, "INSERT INTO jobs(id) VALUES('j')")
	do(t, foreign, "UPDATE jobs SET owner='p', until=70, fence=fence+1 WHERE id='j'; UPDATE jobs SET done=1, result='r' WHERE id='j'")
	db.Complete(ctx, "j", "b", 2, 21, "late")
	db.Enqueue(ctx, "other") // carries the refusal
	want := `j enqueued owner= fence=0 until=0 clock=- by=go x1 
j claimed owner=a fence=1 until=10 clock=0 by=go x1 
j renewed owner=a fence=1 until=10 clock=0 by=go x5 
j claimHeld owner=b fence=0 until=0 clock=5 by=go x3 fence 1 is current, and a's
j claimed owner=b fence=2 until=30 clock=20 by=go x1 
j renewed owner=b fence=2 until=40 clock=- by=sql x2 
j released owner=b fence=2 until=0 clock=- by=sql x1 
j claimed owner=p fence=3 until=70 clock=- by=sql x1 
j enqueued owner= fence=0 until=0 clock=- by=sql x1 
j jumped owner= fence=3 until=0 clock=- by=sql x1 
j deleted owner= fence=3 until=0 clock=- by=sql x1 
j enqueued owner= fence=0 until=0 clock=- by=sql x1 
j jumped owner= fence=3 until=0 clock=- by=sql x1 
j claimed owner=p fence=4 until=70 clock=- by=sql x1 
j completed owner=p fence=4 until=70 clock=- by=sql x1 
j completeDone owner=b fence=2 until=0 clock=21 by=go x1 p has completed it with fence 4
`
	if diff := cmp.Diff(want, told(t, db, "j")); diff != "" {
		t.Error(diff)
	}
	all, err := db.History(ctx, "", 0, 0)
	if err != nil || len(all) != 17 {
		t.Error(len(all), err)
	}
	some, err := db.History(ctx, "", all[3].Seq, 2)
	if err != nil || len(some) != 2 || some[0].Seq != all[4].Seq {
		t.Error(some, err)
	}
	if _, err := foreign.Exec("UPDATE leasehold_history SET owner='nobody'"); err == nil {
		t.Error("the history was changed")
	}
}

// Claims that go round the same workers for ever are one row a worker.
func TestHistoryFoldsRounds(t *testing.T) {
	ctx := t.Context()
	db := open(t, filepath.Join(t.TempDir(), "jobs.db"))
	db.Enqueue(ctx, "j")
	for now := range 30 {
		db.Claim(ctx, "j", string('a'+rune(now%3)), float64(now), 1)
	}
	db.Release(ctx, "j", "c", 30)
	db.Claim(ctx, "j", "a", 40, 1)
	want := `j enqueued owner= fence=0 until=0 clock=- by=go x1 
j claimed owner=a fence=1 until=1 clock=0 by=go x10 
j claimed owner=b fence=2 until=2 clock=1 by=go x10 
j claimed owner=c fence=3 until=3 clock=2 by=go x10 
j released owner=c fence=30 until=0 clock=- by=go x1 
j claimed owner=a fence=31 until=41 clock=40 by=go x1 
`
	if diff := cmp.Diff(want, told(t, db, "")); diff != "" {
		t.Error(diff)
	}
}

func TestHistoryDropsTheOldest(t *testing.T) {
	ctx := t.Context()
	db, err := Open(ctx, filepath.Join(t.TempDir(), "jobs.db"), Options{HistoryLimit: 10, Actor: "me"})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for i := range 100 {
		db.Enqueue(ctx, fmt.Sprint(i))
	}
	events, err := db.History(ctx, "", 0, 0)
	if err != nil || len(events) < 10 || len(events) > 20 || events[len(events)-1].ID != "99" || events[0].By != "me" {
		t.Error(len(events), err)
	}
}

// A refusal costs no commit, and is told later.
func TestRefusalsShareALaterCommit(t *testing.T) {
	ctx := t.Context()
	db := open(t, filepath.Join(t.TempDir(), "jobs.db"))
	before, _ := db.Stamp(ctx)
	v, err := db.Claim(ctx, "none", "a", 0, 1)
	if err != nil || v.Reason != store.NotFound {
		t.Fatal(v, err)
	}
	if now, _ := db.Stamp(ctx); now != before {
		t.Errorf("revision %v after %v", now, before)
	}
	for told(t, db, "none") == "" { // after a second at most, without any other call
	}
	if now, _ := db.Stamp(ctx); now.Revision != before.Revision+1 {
		t.Errorf("revision %v after %v", now, before)
	}
	for range 3 * pendingLimit {
		db.Claim(ctx, "none", "a", 0, 1)
	}
	db.Enqueue(ctx, "j")
	if events, err := db.History(ctx, "none", 0, 0); err != nil || len(events) != 1 || events[0].Count != 3*pendingLimit+1 {
		t.Error(events, err)
	}
}

func TestChanges(t *testing.T) {
	ctx := t.Context()
	path := filepath.Join(t.TempDir(), "jobs.db")
	db, other := open(t, path), open(t, path)
	foreign := plain(t, path)
	check := func(wantAll bool, want ...string) {
		t.Helper()
		ids, all, err := db.Changes(ctx)
		slices.Sort(ids)
		if err != nil || all != wantAll || !slices.Equal(ids, want) {
			t.Errorf("%v, %v, %v; want %v, %v", ids, all, err, want, wantAll)
		}
	}
	do(t, foreign, "INSERT INTO jobs(id) VALUES('before')")
	check(true)
	check(false)
	db.Enqueue(ctx, "own")
	check(false)
	other.Enqueue(ctx, "j")
	other.Claim(ctx, "j", "a", 0, 10)
	other.Claim(ctx, "j", "b", 0, 10)
	do(t, foreign, "INSERT INTO jobs(id) VALUES('k'); UPDATE jobs SET owner='p', fence=fence+1, until=3 WHERE id='k'; DELETE FROM jobs WHERE id='before'")
	check(false, "before", "j", "k")
	check(false)
	db.Enqueue(ctx, "own2")
	do(t, foreign, "UPDATE jobs SET owner=NULL, until=0 WHERE id='k'")
	check(false, "k")
	do(t, foreign, "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<25000) INSERT INTO jobs(id) SELECT 'many'||i FROM n")
	check(true)
	check(false)
	var rows int
	foreign.QueryRow("SELECT count(*) FROM leasehold_changes").Scan(&rows)
	if rows > 11000 {
		t.Errorf("%d rows in the feed", rows)
	}
	do(t, foreign, "UPDATE jobs SET until=1 WHERE id='k'")
	check(false, "k")
}

// Two that follow see each other's decisions, and neither its own.
func TestChangesOfTwoReaders(t *testing.T) {
	ctx := t.Context()
	path := filepath.Join(t.TempDir(), "jobs.db")
	a, b := open(t, path), open(t, path)
	for _, db := range []*DB{a, b} {
		if _, all, err := db.Changes(ctx); !all || err != nil {
			t.Fatal(all, err)
		}
	}
	a.Changes(ctx)
	a.Enqueue(ctx, "by-a")
	b.Enqueue(ctx, "by-b")
	if ids, all, err := a.Changes(ctx); !slices.Equal(ids, []string{"by-b"}) || all || err != nil {
		t.Error(ids, all, err)
	}
	if ids, all, err := b.Changes(ctx); !slices.Equal(ids, []string{"by-a"}) || all || err != nil {
		t.Error(ids, all, err)
	}
}

func TestRotate(t *testing.T) {
	ctx := t.Context()
	path := filepath.Join(t.TempDir(), "jobs.db")
	db := open(t, path)
	for _, id := range []string{"held", "done", "new", "gone"} {
		db.Enqueue(ctx, id)
	}
	for _, id := range []string{"held", "done", "gone"} {
		db.Claim(ctx, id, "a", 0, 10)
	}
	db.Complete(ctx, "done", "a", 1, 1, "r")
	foreign := plain(t, path)
	do(t, foreign, "DELETE FROM jobs WHERE id='gone'")
	do(t, foreign, "INSERT INTO jobs(id, owner, fence) VALUES('last', 'a', ?)", int64(math.MaxInt64-5))
	was, _ := db.Stamp(ctx)
	now, err := db.Rotate(ctx)
	if err != nil || now.Identity == was.Identity || now.Revision != was.Revision+1 {
		t.Fatal(was, now, err)
	}
	for id, want := range map[string]string{"held": " 0 1001  0", "new": " 0 1000  0", "done": "a 10 1 r 1", "last": " 0 9223372036854775807  0"} {
		if got := row(t, foreign, id); got != want {
			t.Errorf("%s: %s", id, got)
		}
	}
	if v, err := db.Renew(ctx, "held", "a", 1, 1, 10); err != nil || v.Reason != store.StaleFence {
		t.Error(v, err)
	}
	checkFence(t, db, "gone", 1001)
	again, err := db.Update(ctx, []string{"held"}, func(rs []*store.Record) error {
		if r := rs[0]; r.Stamp.Identity != now.Identity || !slices.Equal(r.Former, []store.Stamp{was}) || r.Attempts != 1 || r.Holder != "a" {
			return fmt.Errorf("%+v", r)
		}
		return nil
	})
	if err != nil || again.Identity != now.Identity {
		t.Error(again, err)
	}
	if !strings.Contains(told(t, db, "held"), "jumped owner= fence=1001") {
		t.Error(told(t, db, "held"))
	}
}

func TestDirectory(t *testing.T) {
	db := open(t, filepath.Join(t.TempDir(), "jobs.db"))
	if dir, err := db.Directory(t.Context()); dir != "" || err != nil {
		t.Error(dir, err)
	}
	if err := db.BindDirectory(t.Context(), "/a/b"); err != nil {
		t.Error(err)
	}
	if dir, err := db.Directory(t.Context()); dir != "/a/b" || err != nil {
		t.Error(dir, err)
	}
}
