package controller

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"leasehold.dev/leasehold/manifests"
	"leasehold.dev/leasehold/store"
	"leasehold.dev/leasehold/store/sqlite"
)

func TestStoryByEdits(t *testing.T) {
	r := newRig(t, map[string]string{"a.yaml": manifest("invoice-42", 100)}).start()
	r.shows("a.yaml", "worker-a 1 130")
	before := r.status("a.yaml")
	r.edit("a.yaml", "clock: 100", "clock: 129.5")
	r.until("129.5 was looked at", func() bool { return r.status("a.yaml").SpecHash != before.SpecHash })
	r.shows("a.yaml", "worker-a 1 130")
	r.edit("a.yaml", "clock: 129.5", "clock: 130")
	r.shows("a.yaml", "worker-b 2 160")
	r.edit("a.yaml", "name: worker-a\n", "name: worker-a\n    complete: {fence: 1, result: by a}\n")
	r.until("a's completion is judged", func() bool { return len(r.status("a.yaml").Workers) == 1 })
	if w := r.status("a.yaml").Workers[0]; w.Verdict != "Refused" || w.Reason != "StaleFence" {
		t.Errorf("a's stale completion: %+v", w)
	}
	r.edit("a.yaml", "name: worker-b\n", "name: worker-b\n    complete: {fence: 2, result: by b}\n")
	r.shows("a.yaml", "worker-b 2 160 done by b")

	if err := os.Remove(r.path("a.yaml")); err != nil {
		t.Fatal(err)
	}
	r.until("its absence counts", func() bool { return strings.Contains(r.log.String(), "the manifest is gone") })
	r.write("a.yaml", manifest("invoice-42", 500))
	r.shows("a.yaml", "worker-b 2 160 done by b")
}

// Hostzero-GmbH/keycloak-operator PR#122: every write set a fresh time, which was an event, which was
// a write. What has converged is not written again.
func TestIdle(t *testing.T) {
	files := map[string]string{}
	for i := range 500 {
		files[fmt.Sprintf("%03d.yaml", i)] = manifest(fmt.Sprintf("job-%03d", i), 100)
	}
	r := newRig(t, files).start()
	for i := range 500 {
		r.shows(fmt.Sprintf("%03d.yaml", i), "worker-a 1 130")
	}
	// Converged: a further pass over everything leaves every file and the store as they are.
	if err := r.halt(); err != nil {
		t.Fatal(err)
	}
	before := map[string]os.FileInfo{}
	for name := range files {
		before[name], _ = os.Stat(r.path(name))
	}
	r.start()
	r.write("last.yaml", manifest("last", 100)) // when it is leased, so is everything before
	r.shows("last.yaml", "worker-a 1 130")
	stamp, err := r.db.Stamp(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if was, _ := parseStamp(r.status("last.yaml").Store); was.Revision != stamp.Revision {
		t.Errorf("the store went on from revision %d to %d", was.Revision, stamp.Revision)
	}
	for name, was := range before {
		if is, err := os.Stat(r.path(name)); err != nil || !is.ModTime().Equal(was.ModTime()) || !os.SameFile(is, was) {
			t.Errorf("%s was written again", name)
		}
	}
}

func TestBadBesideGood(t *testing.T) {
	r := newRig(t, map[string]string{
		"bad.yaml":  "apiVersion: leasehold.dev/v1alpha1\nkind: Job\nmetadata:\n  name: bad\nspec:\n  ttl: -5\n  workers:\n  - name: a\n",
		"both.yaml": manifest("good", 0) + "---\n" + strings.Replace(manifest("worse", 0), "ttl: 30", "ttl: soon", 1),
		"text.yaml": "<<<<<<< HEAD\na: 1\n",
		"cm.yaml":   "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: cm\n",
	}).start()
	r.shows("both.yaml", "worker-a 1 30")
	r.condition("bad.yaml", "Accepted", "False Invalid")
	if m := r.status("bad.yaml").Conditions[0].Message; m != "spec.ttl: Invalid value: -5: must be greater than 0" {
		t.Errorf("message %q", m)
	}
	r.until("the broken text is told", func() bool { return strings.Contains(r.log.String(), "text.yaml:1") })
	if got := r.read("cm.yaml"); strings.Contains(got, "status") {
		t.Errorf("somebody else's document was touched:\n%s", got)
	}
	r.edit("bad.yaml", "ttl: -5", "ttl: 5\n  clock: 0")
	r.shows("bad.yaml", "a 1 5")
}

// fluxcd/flux2#2508: two files with one identity must not take turns.
func TestDuplicates(t *testing.T) {
	r := newRig(t, map[string]string{"b.yaml": manifest("twin", 0)}).start()
	r.shows("b.yaml", "worker-a 1 30")
	r.write("c.yaml", manifest("twin", 100))
	r.condition("c.yaml", "Accepted", "False DuplicateName")
	s := r.status("c.yaml")
	if m := s.Conditions[0].Message; !strings.Contains(m, "b.yaml") || !strings.Contains(m, "c.yaml") {
		t.Errorf("the message does not name both: %q", m)
	}
	if s.Fence != nil || s.Store != "" || len(s.Conditions) != 1 {
		t.Errorf("more than conditions: %+v", s)
	}
	// An earlier path takes the id over at once, accepted or not.
	r.write("a.yaml", strings.Replace(manifest("twin", 0), "ttl: 30", "ttl: 0", 1))
	r.condition("a.yaml", "Accepted", "False Invalid")
	r.condition("b.yaml", "Accepted", "False DuplicateName")
	if err := os.Remove(r.path("a.yaml")); err != nil {
		t.Fatal(err)
	}
	r.shows("b.yaml", "worker-a 1 30")
	if err := os.Remove(r.path("b.yaml")); err != nil {
		t.Fatal(err)
	}
	r.shows("c.yaml", "worker-b 2 130")
}

// A renamed file is no deletion, and the new name is not refused as a second one meanwhile.
func TestRename(t *testing.T) {
	r := newRig(t, map[string]string{"a.yaml": manifest("moved", 0)}).start()
	r.shows("a.yaml", "worker-a 1 30")
	if err := os.Rename(r.path("a.yaml"), r.path("z.yaml")); err != nil {
		t.Fatal(err)
	}
	r.edit("z.yaml", "clock: 0", "clock: 40")
	r.shows("z.yaml", "worker-b 2 70")
	if strings.Contains(r.log.String(), "Duplicate") {
		t.Errorf("refused for a moment:\n%s", r.log)
	}
}

// Another program's commit shows in status, by an event.
func TestForeignChange(t *testing.T) {
	r := newRig(t, map[string]string{"a.yaml": manifest("shared", 100)}).start()
	r.shows("a.yaml", "worker-a 1 130")
	other, err := sqlite.Open(t.Context(), r.database(), sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if v, err := other.Complete(t.Context(), "shared", "worker-a", 1, 110, "from elsewhere"); err != nil || !v.OK() {
		t.Fatal(v, err)
	}
	r.shows("a.yaml", "worker-a 1 130 done from elsewhere")
}

func TestStatusIsRestored(t *testing.T) {
	r := newRig(t, map[string]string{"a.yaml": manifest("j", 100)}).start()
	r.shows("a.yaml", "worker-a 1 130")
	whole := r.read("a.yaml")
	spec, _, _ := strings.Cut(whole, "status:")
	for _, falsified := range []string{spec, spec + "status: {fence: 99, done: true, owner: nobody, store: 12345678/9}\n", spec + "status: nonsense\n"} {
		r.write("a.yaml", falsified)
		r.until("the status is restored", func() bool { return r.read("a.yaml") == whole })
	}
}

func TestDatabaseDeletedWhileRunning(t *testing.T) {
	r := newRig(t, map[string]string{"a.yaml": manifest("j", 100)}).start()
	r.shows("a.yaml", "worker-a 1 130")
	for _, suffix := range []string{"", "-wal", "-shm"} {
		if err := os.Remove(r.database() + suffix); err != nil {
			t.Fatal(err)
		}
	}
	r.edit("a.yaml", "clock: 100", "clock: 200")
	if err := <-r.ended; !errors.Is(err, store.ErrLost) {
		t.Fatalf("ended with %v", err)
	}
	r.ended <- nil
	if got := summary(r.status("a.yaml")); got != "worker-a 1 130" {
		t.Errorf("shown without being kept: %s", got)
	}
	r.halt()
	// What was lost goes on far above what the status shows.
	r.start()
	r.shows("a.yaml", "worker-a 1002 230")
}

// farion1231/cc-switch#6136: a database restored from an old copy. The old holder's token stays refused.
func TestOutdatedCopy(t *testing.T) {
	r := newRig(t, map[string]string{"a.yaml": manifest("j", 100), "b.yaml": manifest("k", 100)})
	r.once()
	copied, err := os.ReadFile(r.database())
	if err != nil {
		t.Fatal(err)
	}
	r.edit("a.yaml", "clock: 100", "clock: 130")
	r.edit("b.yaml", "name: worker-a\n", "name: worker-a\n    complete: {fence: 1, result: mine}\n")
	r.once()
	r.shows("a.yaml", "worker-b 2 160")
	r.shows("b.yaml", "worker-a 1 130 done mine")
	identity, _ := parseStamp(r.status("a.yaml").Store)

	if err := os.WriteFile(r.database(), copied, 0o644); err != nil {
		t.Fatal(err)
	}
	r.once()
	now, _ := parseStamp(r.status("a.yaml").Store)
	if now.Identity == identity.Identity {
		t.Error("the copy goes under the same identity")
	}
	if s := r.status("a.yaml"); *s.Fence <= 2+store.Jump {
		t.Errorf("fence %d", *s.Fence)
	}
	if s := r.status("b.yaml"); conditionOf(s, "RestoreNeeded") == "" || !*s.Done || *s.Result != "mine" {
		t.Errorf("a completion was forgotten: %s", r.read("b.yaml"))
	}
}

func TestSystemClock(t *testing.T) {
	text := strings.Replace(manifest("sys", 0), "  clock: 0\n  ttl: 30\n", "  ttl: 0.05\n  maxAttempts: 3\n", 1)
	r := newRig(t, map[string]string{"a.yaml": text}).start()
	r.condition("a.yaml", "Failed", "True MaxAttempts")
	if s := r.status("a.yaml"); *s.Fence != 3 || s.Owner != "worker-a" {
		t.Errorf("%s", r.read("a.yaml"))
	}
}

func TestOneController(t *testing.T) {
	r := newRig(t, nil)
	first, err := Acquire(r.dir, r.database())
	if err != nil {
		t.Fatal(err)
	}
	_, err = Acquire(r.dir, filepath.Join(t.TempDir(), "other.db"))
	if !errors.Is(err, ErrLocked) {
		t.Errorf("a second one in the directory: %v", err)
	}
	_, err = Acquire(t.TempDir(), r.database())
	if !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), fmt.Sprint("process ", os.Getpid())) {
		t.Errorf("a second one on the database: %v", err)
	}
	if locked, err := Locked(r.dir); err != nil || !locked {
		t.Errorf("Locked: %v %v", locked, err)
	}
	first.Close()
	second, err := Acquire(r.dir, r.database())
	if err != nil {
		t.Fatal(err)
	}
	second.Close()
}

func TestDryRun(t *testing.T) {
	r := newRig(t, map[string]string{"a.yaml": manifest("j", 100)})
	r.open()
	defer r.db.Close()
	defer r.source.Close()
	before := r.read("a.yaml")
	if _, err := r.controller(Options{DryRun: true}).Once(t.Context(), 10*time.Second); err != nil {
		t.Fatal(err)
	}
	if r.read("a.yaml") != before || r.record("j").Exists {
		t.Error("a dry run changed something")
	}
	if !strings.Contains(r.log.String(), "worker-a took it, fence 1 until 130") {
		t.Errorf("a dry run told nothing:\n%s", r.log)
	}
}

// A foreign row outside the domain is a fault for its id alone.
func TestRowFault(t *testing.T) {
	r := newRig(t, map[string]string{"a.yaml": manifest("j", 100) + "---\n" + manifest("k", 100)})
	r.once()
	r.open()
	if err := execSQL(r, `UPDATE jobs SET until = 9e999 WHERE id = 'j'`); err != nil {
		t.Fatal(err)
	}
	r.db.Close()
	r.source.Close()
	r.edit("a.yaml", "name: k\nspec:\n  clock: 100", "name: k\nspec:\n  clock: 200")
	s := r.once()
	if s.Faulty != 1 {
		t.Errorf("%+v", s)
	}
	r.open()
	defer r.db.Close()
	defer r.source.Close()
	if got := r.record("k"); got.Fence != 2 {
		t.Errorf("held up by its neighbour: %+v", got.Row)
	}
}

// What was begun is finished when the controller is stopped, and nothing is left behind.
func TestOrderlyStop(t *testing.T) {
	files := map[string]string{}
	for i := range 50 {
		files[fmt.Sprintf("%d.yaml", i)] = manifest(fmt.Sprint("j", i), 100)
	}
	r := newRig(t, files).start()
	r.until("it has begun", func() bool { return strings.Contains(r.log.String(), "took it") })
	if err := r.halt(); err != nil {
		t.Fatal(err)
	}
	for name := range files {
		f := manifests.Decode(name, []byte(r.read(name)))
		if len(f.Errors) > 0 || len(f.Docs) != 1 || f.Docs[0].Job == nil {
			t.Errorf("%s is torn", name)
		}
	}
	left, _ := filepath.Glob(r.path(".leasehold/*"))
	for _, l := range left {
		if !strings.HasPrefix(filepath.Base(l), "leasehold.db") {
			t.Errorf("left behind: %s", l)
		}
	}
	entries, _ := os.ReadDir(r.dir)
	if len(entries) != 51 {
		t.Errorf("%d entries", len(entries))
	}
}

func execSQL(r *rig, statement string) error {
	db, err := openSQL(r.database())
	if err != nil {
		return err
	}
	defer db.Close()
	_, err = db.ExecContext(context.Background(), statement)
	return err
}

// A file that cannot be written is told, in the log, the history and the record, holds up nothing,
// and is written once it can be.
func TestNotWritable(t *testing.T) {
	r := newRig(t, map[string]string{"a.yaml": manifest("stuck", 100), "b.yaml": manifest("free", 100)})
	if err := os.Link(r.path("a.yaml"), filepath.Join(t.TempDir(), "second-name")); err != nil {
		t.Fatal(err)
	}
	r.start()
	r.shows("b.yaml", "worker-a 1 130")
	r.until("it is told", func() bool { return strings.Contains(r.record("stuck").Trouble, "not writable") })
	if got := r.record("stuck"); got.Fence != 1 {
		t.Errorf("not leased: %+v", got.Row)
	}
	events, err := r.db.History(t.Context(), "stuck", 0, 100)
	if err != nil || events[len(events)-1].Verb != "unwritten" {
		t.Errorf("history %+v, %v", events, err)
	}
	r.edit("a.yaml", "ttl: 30", "ttl: 31") // by renaming: the file has one name again
	r.shows("a.yaml", "worker-a 1 130")
	r.until("it is forgotten", func() bool { return r.record("stuck").Trouble == "" })
}

// A document that cannot take a status holds up none of the others in its file.
func TestStatusThatHasNoPlace(t *testing.T) {
	shared := strings.Replace(manifest("shared", 100), "metadata:\n", "status: {owner: &o x}\nmetadata:\n  labels: {l: *o}\n", 1)
	r := newRig(t, map[string]string{"a.yaml": shared + "---\n" + manifest("plain", 100)})
	if s := r.once(); s.Faulty != 1 || !strings.Contains(r.log.String(), "anchor") {
		t.Errorf("%+v\n%s", s, r.log)
	}
	f := manifests.Decode("a.yaml", []byte(r.read("a.yaml")))
	if s := f.Docs[1].Status; s == nil || s.Owner != "worker-a" {
		t.Errorf("held up by its neighbour:\n%s", r.read("a.yaml"))
	}
}

// A job whose document goes while its file stays is declared no more after a second; another file
// that declares it then takes it over, and one that takes it back in time keeps it.
func TestDocumentGoes(t *testing.T) {
	t.Parallel()
	two := manifest("moved", 100) + "---\n" + manifest("stays", 100)
	r := newRig(t, map[string]string{"a.yaml": two, "b.yaml": manifest("moved", 200)}).start()
	r.condition("b.yaml", "Accepted", "False DuplicateName")
	r.shows("a.yaml", "worker-a 1 130")
	r.write("a.yaml", manifest("stays", 101))
	r.until("the rest is looked at", func() bool { return r.status("a.yaml").SpecHash != "" })
	if got := r.record("moved"); got.Fence != 1 {
		t.Errorf("handed over at once: %+v", got.Row)
	}
	r.write("a.yaml", two)
	r.until("it is back", func() bool { return r.status("a.yaml").Owner == "worker-a" })
	r.condition("b.yaml", "Accepted", "False DuplicateName")
	r.write("a.yaml", manifest("stays", 102))
	r.shows("b.yaml", "worker-b 2 230")
	r.write("b.yaml", manifest("another", 100))
	r.until("it is told", func() bool { return r.told("it is declared no more") == 1 })
	if !strings.Contains(r.log.String(), "job=moved") {
		t.Errorf("%s", r.log)
	}
}

// A directory that is gone before the first look is a fault, and not waited for.
func TestDirectoryGoneAtStart(t *testing.T) {
	r := newRig(t, nil)
	r.state = t.TempDir()
	r.open()
	defer r.db.Close()
	defer r.source.Close()
	if err := os.RemoveAll(r.dir); err != nil {
		t.Fatal(err)
	}
	if err := r.controller(Options{}).Run(t.Context()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("ended with %v", err)
	}
}

// Somebody keeps a file open for writing: the last good state of it stands, so its leases go round,
// and status follows when the file is closed.
func TestHeldOpen(t *testing.T) {
	t.Parallel()
	text := strings.Replace(manifest("sys", 0), "  clock: 0\n  ttl: 30\n", "  ttl: 0.2\n", 1)
	r := newRig(t, map[string]string{"a.yaml": text}).start()
	r.until("it is leased", func() bool { return r.status("a.yaml").Owner != "" })
	f, err := os.OpenFile(r.path("a.yaml"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	shown := *r.status("a.yaml").Fence
	r.until("leases go round", func() bool { return r.record("sys").Fence > shown+2 })
	if now := *r.status("a.yaml").Fence; now > shown+1 {
		t.Logf("the system tells of no writers: fence %d is shown", now)
	}
	f.Close()
	r.until("status follows", func() bool { return *r.status("a.yaml").Fence > shown+2 })
}

// A status that cannot be written does not hold up the leases that it would show.
func TestUnwritableGoesRound(t *testing.T) {
	t.Parallel()
	text := strings.Replace(manifest("sys", 0), "  clock: 0\n  ttl: 30\n", "  ttl: 0.2\n", 1)
	r := newRig(t, map[string]string{"a.yaml": text})
	if err := os.Link(r.path("a.yaml"), filepath.Join(t.TempDir(), "second-name")); err != nil {
		t.Fatal(err)
	}
	r.start()
	r.until("leases go round", func() bool { return r.record("sys").Fence > 20 })
	if n := r.told("not writable"); n != 1 {
		t.Errorf("told %d times", n)
	}
}
