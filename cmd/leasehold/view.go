package main

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"leasehold.dev/leasehold/manifests"
	"leasehold.dev/leasehold/store"
)

// jobView is a document and what is known of its job.
type jobView struct {
	Doc   *manifests.Doc
	Path  string // as the user would name the file
	Order int    // among all views
	Hash  string // of the present spec; empty if it is not accepted
	Twin  string // where the document stands to which the id belongs, if it is not this one

	Row    *store.Record // from the store or, if that cannot be read, from status; nil: nothing is known
	Stored bool          // Row is from the store
	Fault  error         // of the row alone
	State  string
	Note   string // what a reader of State has to know beside it
}

// The states that are no condition's reason.
const (
	stateLeased        = "Leased"
	stateWaiting       = "Waiting"
	stateSuspended     = "Suspended"
	stateComplete      = "Complete"
	stateFailed        = "Failed"
	stateInvalid       = "Invalid"
	stateDuplicate     = "DuplicateName"
	stateRegressed     = "ClockRegressed"
	stateRestoreNeeded = "RestoreNeeded"
	stateExpired       = "Expired" // a lease ran out and nobody has decided since
	statePending       = "Pending" // never reconciled
	stateFaulty        = "Faulty"  // its row cannot be read
	stateDeleted       = "Deleted" // while following
)

// Where names the document: file:line.
func (v *jobView) Where() string { return fmt.Sprintf("%s:%d", v.Path, v.Doc.Line) }

// Namespace is the one that commands go by.
func (v *jobView) Namespace() string {
	if v.Doc.Namespace == "" {
		return "default"
	}
	return v.Doc.Namespace
}

// Name is what may be shown of the name.
func (v *jobView) Name() string {
	if v.Doc.Name == "" {
		return "<none>"
	}
	return v.Doc.Name
}

// Stale reports whether what is known was decided from another spec than the present one.
func (v *jobView) Stale() bool {
	return v.Hash != "" && v.Row != nil && v.Row.Exists && v.Row.SpecHash != v.Hash
}

// Fresh reports whether what is known was decided from the present spec.
func (v *jobView) Fresh() bool {
	return v.Hash != "" && v.Row != nil && v.Row.Exists && v.Row.SpecHash == v.Hash
}

// behind says what Behind means.
const behind = "the status in the file is behind the store: removed, or not writable"

// Behind reports whether the file shows something else than what the store says.
func (v *jobView) Behind() bool {
	r, s := v.Row, v.Doc.Status
	if !v.Stored || r == nil || !r.Exists || r.SpecHash == "" || r.Restore != nil {
		return false
	}
	return s == nil || s.Owner != r.Owner || s.Fence == nil || *s.Fence != r.Fence ||
		s.Done == nil || *s.Done != r.Done || s.SpecHash != r.SpecHash
}

// System reports whether the job goes by the system clock.
func (v *jobView) System() bool {
	switch {
	case v.Row != nil && v.Row.Mark != nil:
		return v.Row.Mark.System
	case v.Doc.Job != nil:
		return v.Doc.Job.Spec.Clock == nil
	}
	return v.Doc.Clock == nil
}

// Now is the reading at which the job stands: of its own clock the one that last decided.
func (v *jobView) Now(system float64) float64 {
	switch {
	case v.System():
		return system
	case v.Row != nil && v.Row.Mark != nil:
		return v.Row.Mark.Time
	case v.Doc.Clock != nil:
		return *v.Doc.Clock
	}
	return system
}

// judge finds the word for where the job stands.
func (v *jobView) judge(system float64) {
	v.State, v.Note = v.state(system)
	if v.Row != nil && v.Row.Trouble != "" && v.Note == "" {
		v.Note = "status: " + v.Row.Trouble
	}
	if v.Stale() && v.Note == "" {
		v.Note = "the spec has changed since; no controller has decided from it yet"
	}
}

func (v *jobView) state(system float64) (state, note string) {
	r, job := v.Row, v.Doc.Job
	switch {
	case v.Twin != "":
		return stateDuplicate, "the job is the one in " + v.Twin
	case job == nil:
		return stateInvalid, v.Doc.Errors[0].Error()
	case v.Fault != nil:
		return stateFaulty, v.Fault.Error()
	case r == nil || !r.Exists:
		return statePending, "no controller has reconciled it yet"
	case r.Done:
		return stateComplete, ""
	case r.Restore != nil:
		return stateRestoreNeeded, fmt.Sprintf("another store's status says that it is complete: leasehold restore job/%s", v.Doc.ID)
	case v.regressed(system):
		return stateRegressed, fmt.Sprintf("spec.clock is behind %s, which has already decided", number(r.Mark.Time))
	case r.Leased(v.Now(system)):
		return stateLeased, ""
	case job.Spec.MaxAttempts != nil && r.Attempts >= *job.Spec.MaxAttempts:
		return stateFailed, fmt.Sprintf("%d of %d leases have ended without a completion", r.Attempts, *job.Spec.MaxAttempts)
	case job.Spec.Suspend:
		return stateSuspended, "spec.suspend is true"
	case r.Owner != "":
		return stateExpired, "the lease ran out, and no controller has decided since"
	case !slices.ContainsFunc(job.Spec.Workers, func(w manifests.Worker) bool { return !w.Suspend }):
		return stateWaiting, "every declared worker is suspended"
	}
	return stateWaiting, "no lease is running"
}

// standing says in a few words where the job stands.
func (v *jobView) standing() string {
	switch r := v.Row; {
	case v.Note != "" && !v.Stale(), r == nil:
		return v.Note
	case v.State == stateLeased:
		return fmt.Sprintf("%s holds fence %d until %s", r.Owner, r.Fence, moment(r.Until, v.System()))
	case r.Done:
		return fmt.Sprintf("%s completed it with fence %d", r.Owner, r.Fence)
	}
	return v.Note
}

func (v *jobView) regressed(system float64) bool {
	m, clock := v.Row.Mark, v.Doc.Job.Spec.Clock
	if m == nil || !v.Fresh() {
		return false
	}
	if m.System || clock == nil {
		return m.System && clock == nil && system < m.Time-1
	}
	return *clock < m.Time
}

// rowOfStatus makes of a status what the store would say.
func rowOfStatus(d *manifests.Doc) *store.Record {
	s := d.Status
	if s == nil || s.Fence == nil {
		return nil
	}
	r := &store.Record{Exists: true, Known: true}
	r.ID, r.Owner, r.Fence, r.Result, r.SpecHash = d.ID, s.Owner, *s.Fence, s.Result, s.SpecHash
	if s.Until != nil {
		r.Until = *s.Until
	}
	r.Done = s.Done != nil && *s.Done
	if s.Attempts != nil {
		r.Attempts = *s.Attempts
	}
	if s.ObservedClock != nil {
		r.Observed = *s.ObservedClock
		r.Mark = &store.Mark{Time: *s.ObservedClock, System: d.Clock == nil}
	}
	for _, w := range s.Workers {
		p := store.Report{Worker: w.Name, Verb: store.Verb(w.Report), Fence: w.Fence, Superseded: w.Verdict == "Superseded"}
		if w.Time != nil {
			p.Time = *w.Time
		}
		if w.Verdict == "Refused" {
			p.Verdict.Reason = store.Reason(w.Reason)
		}
		r.Reports = append(r.Reports, p)
	}
	for _, c := range s.Conditions {
		if c.Type == manifests.ConditionRestoreNeeded && c.Status == "True" {
			r.Restore = &store.Restore{Fence: r.Fence}
			r.Done = false
		}
	}
	return r
}

// namedID is the id that a name on the command line means.
func namedID(namespace, name string) string {
	if ns, rest, ok := strings.Cut(name, "/"); ok {
		return manifests.JobID(ns, rest)
	}
	return manifests.JobID(namespace, name)
}

// clockTime is the time that a clock reading stands for in a condition.
func clockTime(clock float64) metav1.Time {
	return metav1.NewTime(time.Unix(int64(math.Floor(clock)), 0).UTC())
}

// moment prints a clock reading; one of the system clock as a time.
func moment(clock float64, system bool) string {
	if !system || math.Abs(clock) >= manifests.MaxClock {
		return number(clock)
	}
	return time.UnixMilli(int64(math.Round(clock * 1000))).UTC().Format("2006-01-02T15:04:05.999Z07:00")
}
