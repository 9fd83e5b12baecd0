package controller

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"leasehold.dev/leasehold/manifests"
	"leasehold.dev/leasehold/store"
)

// job returns an accepted manifest with two workers.
func job(edit ...func(*manifests.JobSpec)) *manifests.Job {
	j := &manifests.Job{Spec: manifests.JobSpec{
		Clock: ptr(100.0), TTL: 30,
		Workers: []manifests.Worker{{Name: "worker-a"}, {Name: "worker-b"}},
	}}
	j.Name = "invoice-42"
	for _, e := range edit {
		e(&j.Spec)
	}
	return j
}

func ptr[T any](v T) *T { return &v }

func at(clock float64) func(*manifests.JobSpec) {
	return func(s *manifests.JobSpec) { s.Clock = &clock }
}

func complete(worker int, fence int64, result string) func(*manifests.JobSpec) {
	return func(s *manifests.JobSpec) {
		s.Workers[worker].Complete = &manifests.Complete{Fence: fence, Result: result}
	}
}

func renew(worker int, fence int64, time float64) func(*manifests.JobSpec) {
	return func(s *manifests.JobSpec) { s.Workers[worker].Renew = &manifests.Renew{Fence: fence, Time: time} }
}

// bench is a job's record under successive specs.
type bench struct {
	t *testing.T
	r store.Record
	// shown is what the controller wrote last.
	shown  *manifests.JobStatus
	system float64
	first  bool
}

func newBench(t *testing.T) *bench {
	return &bench{t: t, r: store.Record{Row: store.Row{ID: "invoice-42"}, Stamp: store.Stamp{Identity: "6f1e0c52", Revision: 17}}}
}

func (b *bench) step(j *manifests.Job) *manifests.JobStatus {
	b.t.Helper()
	o, err := decide(&b.r, subject{job: j, shown: b.shown, wall: b.system, first: b.first, problem: "jobs/a.yaml:7: no"})
	if err != nil {
		b.t.Fatal(err)
	}
	b.shown = o.status
	return o.status
}

func (b *bench) holds(owner string, fence int64, until float64) {
	b.t.Helper()
	got := fmt.Sprintf("%s %d %v", b.r.Owner, b.r.Fence, b.r.Until)
	if want := fmt.Sprintf("%s %d %v", owner, fence, until); got != want {
		b.t.Errorf("the row is %q, want %q", got, want)
	}
}

func conditionOf(s *manifests.JobStatus, kind string) string {
	for _, c := range s.Conditions {
		if c.Type == kind {
			return string(c.Status) + " " + c.Reason
		}
	}
	return ""
}

func TestStory(t *testing.T) {
	b := newBench(t)
	b.step(job())
	b.holds("worker-a", 1, 130)
	b.step(job(at(129.5)))
	b.holds("worker-a", 1, 130)
	b.step(job(at(130)))
	b.holds("worker-b", 2, 160)

	s := b.step(job(at(130), complete(0, 1, "by a")))
	b.holds("worker-b", 2, 160)
	want := []manifests.WorkerStatus{{Name: "worker-a", Report: "complete", Fence: 1, Verdict: "Refused",
		Reason: "StaleFence", Message: "the current fence is 2, held by worker-b until 160"}}
	if d := cmp.Diff(want, s.Workers); d != "" {
		t.Error(d)
	}
	s = b.step(job(at(130), complete(0, 1, "by a"), complete(1, 2, "by b")))
	if !b.r.Done || *b.r.Result != "by b" || !*s.Done || *s.Result != "by b" || conditionOf(s, "Complete") != "True Completed" {
		t.Errorf("not completed by b: %+v", s)
	}
	// The loser's verdict and the winner's own report stay as they were judged.
	if s.Workers[0].Reason != "StaleFence" || s.Workers[1].Verdict != "Accepted" {
		t.Errorf("verdicts changed: %+v", s.Workers)
	}
	again := b.step(job(at(130), complete(0, 1, "by a"), complete(1, 2, "by b")))
	if !sameStatus(s, again) {
		t.Error(cmp.Diff(s, again))
	}
}

// A worker stalls, loses the job, gets it again under its own name, and only then does the write of
// its first life arrive.
func TestStaleWriteOfTheSameOwner(t *testing.T) {
	b := newBench(t)
	alone := func(s *manifests.JobSpec) { s.Workers = s.Workers[:1] }
	b.step(job(alone))
	b.step(job(at(130), alone))
	b.holds("worker-a", 2, 160)
	s := b.step(job(at(130), alone, complete(0, 1, "stale")))
	if b.r.Done || s.Workers[0].Reason != "StaleFence" {
		t.Errorf("the stale completion went through: %+v", s)
	}
}

func TestHeartbeats(t *testing.T) {
	b := newBench(t)
	b.step(job())
	b.step(job(at(120), renew(0, 1, 5)))
	b.holds("worker-a", 1, 150)
	// Left in the file, it keeps nothing alive.
	b.step(job(at(149), renew(0, 1, 5)))
	b.holds("worker-a", 1, 150)
	b.step(job(at(149), renew(0, 1, 6)))
	b.holds("worker-a", 1, 179)
	// An earlier one, put back after its verdict was forgotten, is not new.
	b.step(job(at(150)))
	s := b.step(job(at(151), renew(0, 1, 5)))
	b.holds("worker-a", 1, 179)
	if s.Workers[0].Verdict != "Superseded" {
		t.Errorf("an earlier heartbeat was judged %+v", s.Workers[0])
	}
	b.step(job(at(179), renew(0, 1, 6)))
	b.holds("worker-b", 2, 209)
}

// A verdict is final, also on a fence that has not been handed out yet.
func TestVerdictsAreFinal(t *testing.T) {
	b := newBench(t)
	s := b.step(job(complete(0, 1, "early")))
	b.holds("worker-a", 1, 130)
	if s.Workers[0].Reason != "StaleFence" {
		t.Fatalf("judged %+v", s.Workers[0])
	}
	b.step(job(at(101), complete(0, 1, "early")))
	if b.r.Done {
		t.Fatal("a report was judged twice")
	}
	b.step(job(at(102)))
	b.step(job(at(103), complete(0, 1, "early")))
	if !b.r.Done {
		t.Fatal("a report that was taken out and put in again is a new one")
	}
}

func TestClockRegression(t *testing.T) {
	b := newBench(t)
	b.step(job())
	s := b.step(job(at(99), complete(0, 1, "r")))
	b.holds("worker-a", 1, 130)
	if b.r.Done || conditionOf(s, "ClockRegressed") != "True ClockRegressed" || len(s.Workers) > 0 {
		t.Fatalf("a clock that went back decided: %+v", s)
	}
	if !strings.Contains(s.Conditions[3].Message, "--reset-to 99") {
		t.Errorf("no way out named: %q", s.Conditions[3].Message)
	}
	s = b.step(job(at(100), complete(0, 1, "r")))
	if !b.r.Done || conditionOf(s, "ClockRegressed") != "" {
		t.Fatalf("caught up, but %+v", s)
	}
}

func TestClockSwitchReleases(t *testing.T) {
	b := newBench(t)
	b.step(job(at(1e9)))
	b.system = 5000
	b.step(job(func(s *manifests.JobSpec) { s.Clock = nil }))
	b.holds("worker-b", 2, 5030)
	b.system = 4999.5 // less than a second behind counts as the mark
	s := b.step(job(func(s *manifests.JobSpec) { s.Clock = nil }))
	if conditionOf(s, "ClockRegressed") != "" {
		t.Error("half a second is no regression")
	}
	b.system = 4000
	s = b.step(job(func(s *manifests.JobSpec) { s.Clock = nil }))
	if conditionOf(s, "ClockRegressed") == "" {
		t.Error("a thousand seconds are one")
	}
	b.holds("worker-b", 2, 5030)
}

func TestAssignment(t *testing.T) {
	three := func(s *manifests.JobSpec) { s.Workers = append(s.Workers, manifests.Worker{Name: "worker-c"}) }
	b := newBench(t)
	b.step(job(three))
	b.step(job(three, at(130), func(s *manifests.JobSpec) { s.Workers[1].Suspend = true }))
	b.holds("worker-c", 2, 160)
	b.step(job(three, at(160)))
	b.holds("worker-a", 3, 190)
	// A holder that is no longer declared keeps its lease and is not chosen again.
	rest := func(s *manifests.JobSpec) { s.Workers = []manifests.Worker{{Name: "worker-x"}, {Name: "worker-y"}} }
	b.step(job(rest, at(170)))
	b.holds("worker-a", 3, 190)
	b.step(job(rest, at(190)))
	b.holds("worker-x", 4, 220)
	s := b.step(job(at(220), func(s *manifests.JobSpec) { s.Suspend = true }))
	if conditionOf(s, "Leased") != "False Suspended" {
		t.Errorf("suspended: %s", conditionOf(s, "Leased"))
	}
	s = b.step(job(at(220), func(s *manifests.JobSpec) { s.Workers[0].Suspend, s.Workers[1].Suspend = true, true }))
	if conditionOf(s, "Leased") != "False NoCandidate" {
		t.Errorf("nobody to lease to: %s", conditionOf(s, "Leased"))
	}
}

func TestMaxAttempts(t *testing.T) {
	two := func(s *manifests.JobSpec) { s.MaxAttempts = ptr(int64(2)) }
	b := newBench(t)
	b.step(job(two))
	s := b.step(job(two, at(130)))
	if conditionOf(s, "Failed") != "" {
		t.Fatal("failed while the last lease runs")
	}
	s = b.step(job(two, at(160)))
	if conditionOf(s, "Failed") != "True MaxAttempts" || b.r.Fence != 2 {
		t.Fatalf("not failed: %+v", s.Conditions)
	}
	s = b.step(job(at(160), func(s *manifests.JobSpec) { s.MaxAttempts = ptr(int64(3)) }))
	if conditionOf(s, "Failed") != "" {
		t.Fatal("still failed")
	}
	b.holds("worker-a", 3, 190)
}

func TestNotAcceptedFreezes(t *testing.T) {
	b := newBench(t)
	b.step(job())
	s := b.step(nil)
	b.holds("worker-a", 1, 130)
	if conditionOf(s, "Accepted") != "False Invalid" || conditionOf(s, "Leased") != "True Claimed" {
		t.Errorf("frozen: %+v", s.Conditions)
	}
	if c := s.Conditions[0]; c.LastTransitionTime.Unix() != 100 {
		t.Errorf("the transition is at %v, not by the job's clock", c.LastTransitionTime)
	}
}

// A status that was deleted or falsified comes back to the letter.
func TestStatusIsAProjection(t *testing.T) {
	b := newBench(t)
	b.step(job())
	want := b.step(job(at(110), renew(0, 1, 1)))
	for _, falsified := range []*manifests.JobStatus{nil, {}, {Fence: ptr(int64(99)), Done: ptr(true), Store: "6f1e0c52/99"},
		{Fence: ptr(int64(99)), Store: "other/3", Done: ptr(true)}} {
		b.shown = falsified
		if got := b.step(job(at(110), renew(0, 1, 1))); cmp.Diff(want, got) != "" {
			t.Error(cmp.Diff(want, got))
		}
	}
}

func TestLostDatabase(t *testing.T) {
	b := newBench(t)
	b.shown = &manifests.JobStatus{Owner: "worker-a", Fence: ptr(int64(7)), Store: "0ther000/3", Done: ptr(false)}
	b.step(job())
	b.holds("worker-a", 7+store.Jump+1, 130)

	b = newBench(t)
	b.shown = &manifests.JobStatus{Owner: "worker-a", Fence: ptr(int64(7)), Store: "0ther000/3", Done: ptr(true), Result: ptr("r")}
	for range 2 {
		s := b.step(job())
		if b.r.Owner != "" || conditionOf(s, "RestoreNeeded") == "" || !*s.Done || *s.Result != "r" {
			t.Fatalf("a completed job was leased again: %+v", s)
		}
	}
	removed := *b
	removed.shown = nil
	removed.step(job())
	removed.holds("worker-a", 7+store.Jump+1, 130)
	if !b.r.Reinstate() {
		t.Fatal("not restored")
	}
	if s := b.step(job()); !b.r.Done || *s.Result != "r" || conditionOf(s, "RestoreNeeded") != "" {
		t.Fatalf("restored as %+v", s)
	}

	// A copied manifest: this store's own status on an id that it has never seen means nothing.
	b = newBench(t)
	b.shown = &manifests.JobStatus{Fence: ptr(int64(7)), Store: "6f1e0c52/3", Done: ptr(true)}
	b.step(job())
	b.holds("worker-a", 1, 130)

	// A fence that no honest store can have handed out.
	b = newBench(t)
	b.shown = &manifests.JobStatus{Fence: ptr(int64(math.MaxInt64 - 1)), Store: "0ther000/3"}
	s := b.step(job())
	b.holds("worker-a", 1, 130)
	if !strings.Contains(s.Conditions[0].Message, "2^62") {
		t.Errorf("Accepted does not say so: %+v", s.Conditions[0])
	}
}

func TestOutdatedDatabase(t *testing.T) {
	b := newBench(t)
	b.first = true
	b.shown = &manifests.JobStatus{Fence: ptr(int64(7)), Store: "6f1e0c52/18"}
	if _, err := decide(&b.r, subject{job: job(), shown: b.shown, first: true}); err != errOutdated {
		t.Fatalf("got %v", err)
	}
	// After the store has taken a new identity, what later statuses of the old one show counts.
	b.r.Stamp, b.r.Former = store.Stamp{Identity: "new00000", Revision: 18}, []store.Stamp{{Identity: "6f1e0c52", Revision: 17}}
	b.r.Exists, b.r.Known, b.r.Fence, b.r.High = true, true, 1003, 1003
	b.shown = &manifests.JobStatus{Fence: ptr(int64(5000)), Store: "6f1e0c52/18"}
	b.step(job())
	b.holds("worker-a", 6001, 130)
}

// Whatever the specs are, deciding twice changes nothing, fences only grow, and the result stays.
func TestDecideProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := store.Record{Row: store.Row{ID: "j"}, Stamp: store.Stamp{Identity: "s", Revision: 1}}
		var shown *manifests.JobStatus
		system := 100.0
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			fence, result := r.Fence, r.Result
			j := job()
			if rapid.IntRange(0, 5).Draw(t, "system") == 0 {
				j.Spec.Clock = nil
				system += rapid.Float64Range(-5, 40).Draw(t, "passes")
			} else {
				j.Spec.Clock = ptr(float64(rapid.IntRange(90, 400).Draw(t, "clock")))
			}
			j.Spec.Suspend = rapid.IntRange(0, 9).Draw(t, "suspend") == 0
			for i := range j.Spec.Workers {
				f := rapid.Int64Range(max(1, r.Fence-1), r.Fence+1).Draw(t, "fence")
				switch rapid.IntRange(0, 9).Draw(t, "report") {
				case 0:
					complete(i, f, "r"+fmt.Sprint(f))(&j.Spec)
				case 1, 2, 3:
					renew(i, f, float64(rapid.IntRange(0, 5).Draw(t, "time")))(&j.Spec)
				case 4:
					j.Spec.Workers[i].Release = &manifests.Release{Fence: f}
				}
			}
			s := subject{job: j, shown: shown, wall: system}
			o, err := decide(&r, s)
			if err != nil {
				t.Fatal(err)
			}
			if r.Fence < fence || result != nil && (r.Result == nil || *r.Result != *result) {
				t.Fatalf("fence %d → %d, result %v → %v", fence, r.Fence, result, r.Result)
			}
			once := r
			once.Memory = r.Memory.Clone()
			s.shown = o.status
			again, err := decide(&r, s)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(once.Row, r.Row) + cmp.Diff(once.Memory, r.Memory) + cmp.Diff(o.status, again.status); d != "" {
				t.Fatalf("the second pass changed:\n%s", d)
			}
			shown = o.status
		}
	})
}
