// Package storetest holds every storage engine to the contract of package store: by [Run], a suite
// of cases, random histories and concurrent ones, and by a model that is written apart from the
// rules in store and shares no code with them.
package storetest

import (
	"fmt"
	"math"
	"unicode/utf8"

	"leasehold.dev/leasehold/store"
)

// Op is one operation of the contract. Which fields count depends on Name.
type Op struct {
	Name   string // enqueue, state, claim, renew, complete, release
	ID     string
	Owner  string
	Fence  int64
	Now    float64
	TTL    float64
	Result string
}

func (o Op) String() string {
	return fmt.Sprintf("%s(%q owner=%q fence=%d now=%v ttl=%v)", o.Name, o.ID, o.Owner, o.Fence, o.Now, o.TTL)
}

// Answer is what an operation returned.
type Answer struct {
	Created bool   // of enqueue
	Job     Job    // of state
	Failed  string // "", "invalid" or "exhausted"

	Reason store.Reason // of the others; and what is current after it
	Owner  string
	Fence  int64
	Until  float64

	// Unknown says that there was no answer: the caller was killed, and the operation took effect at
	// some moment after its call, or never.
	Unknown bool
	// Bare says that the caller, a plain SQL statement, knows only whether it was granted, and of a
	// claim the fence.
	Bare bool
}

// agrees reports whether an answer to op is the one that the model gives.
func (a Answer) agrees(op Op, want Answer) bool {
	switch {
	case a.Unknown:
		return true
	case !a.Bare:
		return a == want
	case op.Name == "state":
		return a.Job == want.Job
	case op.Name == "enqueue":
		return a.Created == want.Created
	case want.Failed != "" || a.Failed != "":
		return want.Failed == a.Failed
	}
	granted := want.Reason == ""
	return granted == (a.Reason == "") && (!granted || op.Name != "claim" || a.Fence == want.Fence)
}

// Job is the model's idea of one job. The zero value is a job that does not exist.
type Job struct {
	Exists    bool
	Owner     string
	Until     float64
	Fence     int64
	Result    string
	HasResult bool
	Done      bool
}

// Step says what op must do to a job, and answer. It is written from the table in the contract.
func Step(j Job, op Op) (Job, Answer) {
	if op.ID == "" || !utf8.ValidString(op.ID) {
		return j, Answer{Failed: "invalid"}
	}
	switch op.Name {
	case "enqueue":
		if j.Exists {
			return j, Answer{}
		}
		j.Exists = true
		return j, Answer{Created: true}
	case "state":
		return j, Answer{Job: j}
	}
	if op.Owner == "" || !utf8.ValidString(op.Owner) || op.Name == "complete" && !utf8.ValidString(op.Result) {
		return j, Answer{Failed: "invalid"}
	}
	usesClock := op.Name != "release"
	usesTTL := op.Name == "claim" || op.Name == "renew"
	until := op.Now + op.TTL
	finite := func(x float64) bool { return !math.IsNaN(x) && math.Abs(x) <= math.MaxFloat64 }
	if usesClock && !finite(op.Now) {
		return j, Answer{Failed: "invalid"}
	}
	if usesTTL && !(finite(op.TTL) && op.TTL > 0 && finite(until) && until > op.Now) {
		return j, Answer{Failed: "invalid"}
	}

	// Each condition of refusal with the operations that it concerns, in the contract's order.
	held := op.Name != "claim" // the operations of a holder
	for _, c := range []struct {
		reason  store.Reason
		applies bool
	}{
		{"NotFound", !j.Exists},
		{"Done", j.Done},
		{"Held", op.Name == "claim" && j.Until > op.Now},
		{"StaleFence", held && op.Fence != j.Fence},
		{"NotOwner", held && op.Owner != j.Owner},
		{"Expired", held && usesClock && !(j.Until > op.Now)},
	} {
		if c.applies {
			a := Answer{Reason: c.reason}
			if j.Exists {
				a.Owner, a.Fence, a.Until = j.Owner, j.Fence, j.Until
			}
			return j, a
		}
	}
	switch op.Name {
	case "claim":
		if j.Fence == math.MaxInt64 {
			return j, Answer{Failed: "exhausted"}
		}
		j.Owner, j.Until, j.Fence = op.Owner, until, j.Fence+1
	case "renew":
		j.Until = until
	case "complete":
		j.Done, j.Result, j.HasResult = true, op.Result, true
	case "release":
		j.Owner, j.Until = "", 0
	default:
		panic("no such operation: " + op.Name)
	}
	return j, Answer{Owner: j.Owner, Fence: j.Fence, Until: j.Until}
}
