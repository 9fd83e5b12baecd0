package controller

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"leasehold.dev/leasehold/manifests"
	"leasehold.dev/leasehold/store"
)

// subject is what a decision is about: one document, as it stands, and a clock.
type subject struct {
	role    role
	job     *manifests.Job // nil: not accepted
	problem string         // why it is not accepted
	shown   *manifests.JobStatus
	clock   *float64 // spec.clock, where it can be read
	wall    float64  // the system clock, Unix seconds in whole milliseconds
	// first says that this process has not decided for the job before, so that what its status
	// names may be later than the store.
	first bool
}

// role is what a document is to the job that it names.
type role int

const (
	roleOwner     role = iota // it decides
	roleNameless              // it names none
	roleDuplicate             // the id belongs to another document
	roleHeir                  // that other document has just gone, perhaps in a save
)

// outcome is what a decision leads to, beyond what it did to the record.
type outcome struct {
	status *manifests.JobStatus
	wake   float64 // system clock reading at which to come back; 0: none
	lazy   bool    // a change of until alone may be written up to half a ttl late

	id      string // of the job, where one was decided about
	trouble string // why its status could not be written the last time
}

// errOutdated says that a status names a later revision of this store than the store has.
var errOutdated = errors.New("the database is an older copy than a manifest's status")

// largestShown is the largest fence that is believed from a status.
const largestShown = 1 << 62

// decide brings a job's record to where the subject wants it and says what its status is then. It
// depends on nothing but its arguments.
func decide(r *store.Record, s subject) (outcome, error) {
	before := *r
	before.Memory = r.Memory.Clone()

	note, err := heed(r, s)
	if err != nil {
		return outcome{}, err
	}
	if s.job == nil {
		return s.frozen(r), nil
	}
	hash := s.job.Spec.Hash()
	switch {
	case note != "":
		r.Remark = note
	case r.SpecHash != "" && r.SpecHash != hash:
		r.Remark = "" // it was about what stood beside the spec before
	}
	v := view{subject: s, Record: r}
	r.Enqueue()
	v.now, v.ok = r.Observe(s.reading())
	if v.ok {
		if err := v.judge(); err != nil {
			return outcome{}, err
		}
		if err := v.assign(); err != nil {
			return outcome{}, err
		}
	}
	r.SpecHash, r.TTL = hash, s.job.Spec.TTL
	return v.conclude(before), nil
}

// heed takes from a status that another store wrote, or a later state of this one, what the store
// has to know lest a fence comes back or a result is lost. It returns a remark for the user.
func heed(r *store.Record, s subject) (note string, err error) {
	if s.shown == nil {
		r.Restore = nil // the user has removed the status
		return "", nil
	}
	named, ok := parseStamp(s.shown.Store)
	if !ok {
		return "", nil
	}
	why := "the status is of store " + named.Identity + ", which was lost or is elsewhere"
	if named.Identity == r.Stamp.Identity {
		if s.first && named.Revision > r.Stamp.Revision {
			return "", errOutdated
		}
		return "", nil
	}
	former := false
	for _, f := range r.Former {
		if f.Identity == named.Identity {
			if named.Revision <= f.Revision {
				return "", nil
			}
			former = true
			if why = "the database was restored from a copy older than the status"; f.Revision < 0 {
				why = "store " + f.Identity + " stood here before"
			}
		}
	}
	// A row that some program has put there, and for which nothing was ever decided, knows nothing.
	bare := r.High == 0 && r.Mark == nil && !r.Done
	if r.Known && !bare && !former {
		return "", nil
	}
	var fence int64
	if s.shown.Fence != nil {
		fence = max(*s.shown.Fence, 0)
	}
	if fence > largestShown {
		note = fmt.Sprintf("the fence %d in the status of store %s is above 2^62 and was ignored", fence, named.Identity)
		fence = 0
	}
	if fence > 0 {
		r.Raise(fence+store.Jump, why)
	}
	if s.shown.Done != nil && *s.shown.Done && !r.Done {
		r.Restore = &store.Restore{Owner: s.shown.Owner, Fence: fence}
		if s.shown.Result != nil {
			r.Restore.Result = *s.shown.Result
		}
	}
	return note, nil
}

func (s subject) reading() store.Reading {
	if s.job.Spec.Clock != nil {
		return store.Reading{Time: *s.job.Spec.Clock}
	}
	return store.Reading{Time: s.wall, System: true}
}

// frozen is the outcome for a document that is not accepted: nothing is decided, and a running
// lease goes on.
func (s subject) frozen(r *store.Record) outcome {
	v := view{subject: s, Record: r, ok: true, now: s.wall}
	switch {
	case r.Mark != nil && !r.Mark.System:
		v.now = r.Mark.Time
	case r.Mark == nil && s.clock != nil:
		v.now = *s.clock
	}
	o := outcome{status: v.status()}
	if r.Mark != nil && r.Mark.System && r.Leased(v.now) {
		o.wake = r.Until
	}
	return o
}

// aside is the status of a document that stands for no job of its own: one without an id, or whose
// id belongs to another document. It holds conditions only.
func (s subject) aside(reason, message string) *manifests.JobStatus {
	v := view{subject: s, Record: &store.Record{}, ok: true, now: s.wall}
	if s.clock != nil {
		v.now = *s.clock
	}
	c := condition(manifests.ConditionAccepted, false, reason, message)
	c.LastTransitionTime = clockTime(v.since(c))
	return &manifests.JobStatus{Conditions: []manifests.Condition{c}}
}

// view is a decision under way.
type view struct {
	subject
	*store.Record
	now     float64
	ok      bool // the clock has not regressed
	waiting waiting
}

// waiting says why an open job has no lease.
type waiting struct{ reason, message string }

// judge carries out the reports in the manifest that have not been, worker by worker.
func (v *view) judge() error {
	var present []store.Report
	for _, w := range v.job.Spec.Workers {
		if c := w.Complete; c != nil {
			present = append(present, store.Report{Worker: w.Name, Verb: store.VerbComplete, Fence: c.Fence, Result: c.Result})
		}
		if c := w.Renew; c != nil {
			present = append(present, store.Report{Worker: w.Name, Verb: store.VerbRenew, Fence: c.Fence, Time: c.Time})
		}
		if c := w.Release; c != nil {
			present = append(present, store.Report{Worker: w.Name, Verb: store.VerbRelease, Fence: c.Fence})
		}
	}
	return v.Judge(present, v.now, v.job.Spec.TTL)
}

// assign leases an open job to the next worker, or says why it waits.
func (v *view) assign() error {
	spec := v.job.Spec
	switch {
	case v.Done || v.Leased(v.now):
		return nil
	case v.Restore != nil:
		v.waiting = waiting{"RestoreNeeded", "its status says that it is complete, which this store does not know"}
		return nil
	case v.failed():
		v.waiting = waiting{"Failed", fmt.Sprintf("%d of %d leases have ended without a completion", v.Attempts, *spec.MaxAttempts)}
		return nil
	case spec.Suspend:
		v.waiting = waiting{"Suspended", "spec.suspend is true"}
		return nil
	}
	worker, ok := next(spec.Workers, v.Holder)
	if !ok {
		v.waiting = waiting{"NoCandidate", "every declared worker is suspended"}
		return nil
	}
	if v.Until > v.now { // a foreign program's row: until without an owner
		v.waiting = waiting{"Held", "the store's row is held by nobody until " + v.moment(v.Until)}
		return nil
	}
	_, err := v.Claim(worker, v.now, spec.TTL)
	if errors.Is(err, store.ErrFenceExhausted) {
		v.waiting = waiting{"FenceExhausted", err.Error()}
		return nil
	}
	return err
}

func (v *view) failed() bool {
	m := v.job.Spec.MaxAttempts
	return m != nil && !v.Done && v.Attempts >= *m && !v.Leased(v.now)
}

// next returns the worker to lease to: in declared order, starting after the last holder, wrapping
// around, passing over suspended ones.
func next(workers []manifests.Worker, last string) (name string, ok bool) {
	start := 0
	for i, w := range workers {
		if w.Name == last {
			start = i + 1
		}
	}
	for i := range workers {
		if w := workers[(start+i)%len(workers)]; !w.Suspend {
			return w.Name, true
		}
	}
	return "", false
}

// conclude writes down what the decision leaves behind and returns its outcome.
func (v *view) conclude(before store.Record) outcome {
	status := v.status()
	if !reflect.DeepEqual(before.Row, v.Row) || !reflect.DeepEqual(before.Memory, v.Memory) || before.Attempts != v.Attempts {
		if v.ok {
			v.Decided(v.now)
		}
		v.Observed = v.now
	}
	observed := v.Observed
	status.ObservedClock = &observed
	o := outcome{status: status}
	if v.job.Spec.Clock == nil {
		switch {
		case !v.ok:
			o.wake = v.Mark.Time
		case v.Leased(v.now):
			o.wake, o.lazy = v.Until, true
		case !v.Done && v.Until > v.now:
			o.wake = v.Until
		}
	}
	return o
}

// status projects the record.
func (v *view) status() *manifests.JobStatus {
	s := &manifests.JobStatus{}
	if v.Exists {
		s.SpecHash, s.Store = v.SpecHash, v.Stamp.String()
		row := v.Row
		attempts, observed := v.Attempts, v.Observed
		s.Owner, s.Fence, s.Done, s.Result = row.Owner, &row.Fence, &row.Done, row.Result
		s.Attempts, s.ObservedClock = &attempts, &observed
		if row.Owner != "" {
			s.Until = &row.Until
		}
		if p := v.Restore; p != nil { // the evidence stays in the file until it has been dealt with
			done, result := true, p.Result
			s.Owner, s.Done, s.Result = p.Owner, &done, &result
		}
	}
	for _, p := range v.Reports {
		s.Workers = append(s.Workers, workerStatus(p, v.system()))
	}
	for _, c := range v.conditions() {
		c.LastTransitionTime = clockTime(v.since(c))
		s.Conditions = append(s.Conditions, c)
	}
	v.keepConditions(s.Conditions)
	return s
}

// conditions are in the order in which a reader wants them.
func (v *view) conditions() []manifests.Condition {
	var cs []manifests.Condition
	add := func(kind string, status bool, reason, message string) {
		cs = append(cs, condition(kind, status, reason, message))
	}
	if v.job != nil {
		add(manifests.ConditionAccepted, true, "Accepted", cmp.Or(v.Remark, "the manifest is valid"))
	} else {
		add(manifests.ConditionAccepted, false, "Invalid", v.problem)
	}
	if !v.Exists {
		return cs
	}
	switch {
	case v.Done:
		add(manifests.ConditionLeased, false, "Complete", "the job is complete")
	case v.Leased(v.now):
		add(manifests.ConditionLeased, true, "Claimed",
			fmt.Sprintf("%s holds fence %d until %s", v.Owner, v.Fence, v.moment(v.Until)))
	case v.waiting.reason != "":
		add(manifests.ConditionLeased, false, v.waiting.reason, v.waiting.message)
	case v.Owner != "":
		add(manifests.ConditionLeased, false, "Expired",
			fmt.Sprintf("%s let fence %d run out at %s", v.Owner, v.Fence, v.moment(v.Until)))
	default:
		add(manifests.ConditionLeased, false, "Waiting", "no lease is running")
	}
	if v.Done {
		message := fmt.Sprintf("%s completed it with fence %d", v.Owner, v.Fence)
		add(manifests.ConditionComplete, true, "Completed", message)
	} else {
		add(manifests.ConditionComplete, false, "NotComplete", "no completion has been accepted")
	}
	if v.job != nil && v.failed() {
		add(manifests.ConditionFailed, true, "MaxAttempts", v.failure())
	}
	if !v.ok {
		add(manifests.ConditionClockRegressed, true, "ClockRegressed", v.regression())
	}
	if v.Restore != nil && !v.Done {
		add(manifests.ConditionRestoreNeeded, true, "RestoreNeeded", fmt.Sprintf(
			"a status of another store says that it was completed with fence %d; bring that back with "+
				"leasehold restore job/%s, or remove the status to run the job again", v.Restore.Fence, v.ID))
	}
	return cs
}

func (v *view) failure() string {
	return fmt.Sprintf("%d of %d leases have ended without a completion; raise spec.maxAttempts to go on",
		v.Attempts, *v.job.Spec.MaxAttempts)
}

func (v *view) regression() string {
	if v.Mark.System {
		return fmt.Sprintf("the system clock is behind %s, which has already decided; waiting until it catches up",
			v.moment(v.Mark.Time))
	}
	clock := number(*v.job.Spec.Clock)
	return fmt.Sprintf("spec.clock %s is behind %s, which has already decided; set it to %[2]s or more, or run "+
		"leasehold tick job/%s --reset-to %[1]s", clock, number(v.Mark.Time), v.ID)
}

// since returns the clock reading of a condition's last transition.
func (v *view) since(c manifests.Condition) float64 {
	if !v.Exists && v.shown != nil { // nothing is kept of such a job: what stands in the file has to do
		for _, k := range v.shown.Conditions {
			if k.Type == c.Type && k.Status == c.Status {
				return float64(k.LastTransitionTime.Unix())
			}
		}
	}
	for _, k := range v.Conditions {
		if k.Type == c.Type && k.Status == string(c.Status) {
			return k.Since
		}
	}
	return v.now
}

func (v *view) keepConditions(cs []manifests.Condition) {
	if !v.Exists {
		return
	}
	kept := make([]store.Condition, len(cs))
	for i, c := range cs {
		kept[i] = store.Condition{Type: c.Type, Status: string(c.Status), Since: v.since(c)}
	}
	v.Conditions = kept
}

func condition(kind string, status bool, reason, message string) manifests.Condition {
	c := manifests.Condition{Type: kind, Status: metav1.ConditionFalse, Reason: reason, Message: message}
	if status {
		c.Status = metav1.ConditionTrue
	}
	return c
}

func workerStatus(p store.Report, system bool) manifests.WorkerStatus {
	w := manifests.WorkerStatus{Name: p.Worker, Report: string(p.Verb), Fence: p.Fence, Verdict: "Accepted"}
	if p.Verb == store.VerbRenew {
		t := p.Time
		w.Time = &t
	}
	switch {
	case p.Superseded:
		w.Verdict, w.Message = "Superseded", "a heartbeat of this time or a later one was judged before"
	case !p.Verdict.OK():
		w.Verdict, w.Reason, w.Message = "Refused", string(p.Verdict.Reason), Explain(p.Verdict, system)
	}
	return w
}

// Explain says what is current, to somebody who was refused. system says that the job goes by the
// system clock.
func Explain(v store.Verdict, system bool) string {
	until := moment(v.Until, system)
	switch {
	case v.Reason == store.Done:
		return fmt.Sprintf("the job was completed by %s with fence %d", v.Owner, v.Fence)
	case v.Fence == 0:
		return "no fence has been handed out"
	case v.Owner == "":
		return fmt.Sprintf("the current fence is %d, held by nobody", v.Fence)
	case v.Reason == store.Expired:
		return fmt.Sprintf("the lease of fence %d ran out at %s", v.Fence, until)
	}
	return fmt.Sprintf("the current fence is %d, held by %s until %s", v.Fence, v.Owner, until)
}

// sameStatus reports whether next need not be written where shown stands. A newer revision or
// reading alone is no reason; a revision that the store has not reached is.
func sameStatus(shown, next *manifests.JobStatus) bool {
	if shown == nil || next == nil {
		return shown == next
	}
	a, b := *shown, *next
	was, ok := parseStamp(a.Store)
	is, _ := parseStamp(b.Store)
	if ok != (b.Store != "") || was.Identity != is.Identity || was.Revision > is.Revision {
		return false
	}
	if (a.ObservedClock == nil) != (b.ObservedClock == nil) {
		return false
	}
	a.Store, a.ObservedClock = b.Store, b.ObservedClock
	return equalStatus(&a, &b)
}

// sameButUntil reports whether nothing but until, and what follows from it, differs.
func sameButUntil(shown, next *manifests.JobStatus) bool {
	a := *shown
	a.Until = next.Until
	a.Conditions = slices.Clone(a.Conditions)
	for i := range a.Conditions {
		if c := &a.Conditions[i]; c.Type == manifests.ConditionLeased && c.Status == metav1.ConditionTrue {
			for _, n := range next.Conditions {
				if n.Type == c.Type {
					c.Message = n.Message
				}
			}
		}
	}
	return sameStatus(&a, next)
}

// equalStatus compares two statuses field by field; times count, their zones do not.
func equalStatus(a, b *manifests.JobStatus) bool {
	return reflect.DeepEqual(normalised(a), normalised(b))
}

func normalised(s *manifests.JobStatus) manifests.JobStatus {
	n := *s
	n.Conditions = nil
	for _, c := range s.Conditions {
		c.LastTransitionTime = metav1.NewTime(c.LastTransitionTime.UTC())
		n.Conditions = append(n.Conditions, c)
	}
	if len(n.Workers) == 0 {
		n.Workers = nil
	}
	return n
}

func parseStamp(s string) (store.Stamp, bool) {
	identity, revision, ok := strings.Cut(s, "/")
	n, err := strconv.ParseInt(revision, 10, 64)
	if !ok || identity == "" || err != nil || n < 0 {
		return store.Stamp{}, false
	}
	return store.Stamp{Identity: identity, Revision: n}, true
}

// clockTime is the time that a clock reading stands for in a condition.
func clockTime(clock float64) metav1.Time {
	return metav1.NewTime(time.Unix(int64(math.Floor(clock)), 0).UTC())
}

// system reports whether the job goes by the system clock.
func (v *view) system() bool { return v.Mark != nil && v.Mark.System }

func (v *view) moment(clock float64) string { return moment(clock, v.system()) }

// moment prints a clock reading: that of the system clock as a time.
func moment(clock float64, system bool) string {
	if !system || clock <= 0 || clock >= manifests.MaxClock {
		return number(clock)
	}
	return time.UnixMilli(int64(math.Round(clock * 1000))).UTC().Format("2006-01-02T15:04:05.999Z")
}

// number prints a clock reading without an exponent.
func number(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }
