package store

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
)

// Row is a job as it stands in the shared table.
type Row struct {
	ID     string  `json:"id"`
	Owner  string  `json:"owner"`  // empty: nobody
	Until  float64 `json:"until"`  // clock reading at which the lease ends
	Fence  int64   `json:"fence"`  // the last fence handed out
	Result *string `json:"result"` // nil: none
	Done   bool    `json:"done"`
}

// MarshalJSON writes the row as scripts read it: absent values are null.
func (r Row) MarshalJSON() ([]byte, error) {
	var owner *string
	if r.Owner != "" {
		owner = &r.Owner
	}
	return json.Marshal(struct {
		ID     string  `json:"id"`
		Owner  *string `json:"owner"`
		Until  float64 `json:"until"`
		Fence  int64   `json:"fence"`
		Result *string `json:"result"`
		Done   bool    `json:"done"`
	}{r.ID, owner, r.Until, r.Fence, r.Result, r.Done})
}

// Record is everything that is known of a job: the shared row and what stands beside it. The rules
// are its methods; they change the record and nothing else.
type Record struct {
	Row
	Exists bool // there is a row
	Known  bool // there is a row, or there once was one

	High     int64  // the highest fence ever handed out for the id, by whomever
	Holder   string // the owner of the last claim, by whomever
	Attempts int64  // the number of claims, by whomever

	Memory // what decisions for a manifest left behind

	Stamp  Stamp   // the state of the store that was loaded; set by the engine
	Former []Stamp // earlier identities of the store, each at its last revision; set by the engine

	events []Event
}

// Memory is what decisions made for a manifest keep beside the row. Engines store it as JSON.
type Memory struct {
	Mark     *Mark    `json:"mark,omitempty"`
	Observed float64  `json:"observed,omitempty"` // clock reading of the last change of status
	SpecHash string   `json:"specHash,omitempty"` // of the spec last decided from
	TTL      float64  `json:"ttl,omitempty"`      // of that spec: what a worker's renewal counts
	Pickup   *Pickup  `json:"pickup,omitempty"`   // who runs the job, under the highest fence that was picked up
	Reports  []Report `json:"reports,omitempty"`  // judged reports that still stand in the manifest
	// Beats holds the time of the latest heartbeat judged, by "fence/worker". It outlives the report,
	// so that an earlier heartbeat cannot come back as a new one.
	Beats      map[string]float64 `json:"beats,omitempty"`
	Conditions []Condition        `json:"conditions,omitempty"` // since when each has its value
	Restore    *Restore           `json:"restore,omitempty"`    // set while RestoreNeeded
	Trouble    string             `json:"trouble,omitempty"`    // why the status cannot be written
	Remark     string             `json:"remark,omitempty"`     // on what was found in a status and not believed
}

// Clone returns a copy that shares nothing with m.
func (m Memory) Clone() Memory {
	m.Reports, m.Beats, m.Conditions = slices.Clone(m.Reports), maps.Clone(m.Beats), slices.Clone(m.Conditions)
	return m
}

// Mark is the largest clock reading that decided for a job.
type Mark struct {
	Time   float64 `json:"time"`
	System bool    `json:"system,omitempty"` // by the system clock; otherwise by spec.clock
}

// Verb names what a worker reports.
type Verb string

// The verbs of reports, in the order in which they are judged.
const (
	VerbComplete Verb = "complete"
	VerbRenew    Verb = "renew"
	VerbRelease  Verb = "release"
)

// Report is what a worker reported in a manifest. The fields before Verdict identify it.
type Report struct {
	Worker string  `json:"worker"`
	Verb   Verb    `json:"verb"`
	Fence  int64   `json:"fence"`
	Result string  `json:"result,omitempty"` // of a completion
	Time   float64 `json:"time,omitempty"`   // of a heartbeat: an identity, not a clock

	Verdict Verdict `json:"verdict"`
	// Superseded says that the heartbeat's time is not greater than one judged before, so that
	// nothing was done.
	Superseded bool `json:"superseded,omitempty"`
}

// reportKey is what identifies a report within its job.
type reportKey struct {
	worker string
	verb   Verb
	fence  int64
	result string
	time   float64
}

func (p Report) key() reportKey { return reportKey{p.Worker, p.Verb, p.Fence, p.Result, p.Time} }

// Same reports whether both are the same report.
func (p Report) Same(q Report) bool { return p.key() == q.key() }

// Condition remembers since which clock reading a condition has its status, so that a deleted
// status is restored as it was.
type Condition struct {
	Type   string  `json:"type"`
	Status string  `json:"status"`
	Since  float64 `json:"since"`
}

// Restore is the completion that a status of another store, or of a later state of this one,
// shows for a job of which this store knows nothing of the kind.
type Restore struct {
	Owner  string `json:"owner,omitempty"`
	Fence  int64  `json:"fence"`
	Result string `json:"result"`
}

// Jump is how far a fence goes on above one that another state of the store showed: a few may have
// been handed out after it.
const Jump = 1000

// Enqueue creates the row if there is none and reports whether it did.
func (r *Record) Enqueue() bool {
	if r.Exists {
		return false
	}
	r.Exists, r.Known = true, true
	r.Row = Row{ID: r.ID, Fence: max(r.Fence, r.High)}
	r.note(Event{Verb: "enqueued", Fence: r.Fence})
	return true
}

// Claim leases the job to owner until now+ttl. It is refused if there is no such job, it is done,
// or a lease runs at now.
func (r *Record) Claim(owner string, now, ttl float64) (Verdict, error) {
	until, err := deadline(now, ttl)
	if err != nil {
		return Verdict{}, err
	}
	if err := checkName("owner", owner); err != nil {
		return Verdict{}, err
	}
	switch {
	case !r.Exists:
		return r.refuse("claim", NotFound, owner, 0, now), nil
	case r.Done:
		return r.refuse("claim", Done, owner, 0, now), nil
	case r.Until > now:
		return r.refuse("claim", Held, owner, 0, now), nil
	}
	last := max(r.Fence, r.High)
	if last == math.MaxInt64 {
		return Verdict{}, ErrFenceExhausted
	}
	r.Owner, r.Until, r.Fence, r.High = owner, until, last+1, last+1
	r.Holder, r.Attempts = owner, r.Attempts+1
	r.forgetBeats()
	r.note(Event{Verb: "claimed", Owner: owner, Fence: r.Fence, Until: until, Clock: &now})
	return r.current(""), nil
}

// Renew makes the lease last until now+ttl. It is refused unless owner and fence are current, the
// job is not done and the lease runs at now.
func (r *Record) Renew(owner string, fence int64, now, ttl float64) (Verdict, error) {
	until, err := deadline(now, ttl)
	if err != nil {
		return Verdict{}, err
	}
	if err := checkName("owner", owner); err != nil {
		return Verdict{}, err
	}
	if reason := r.holds(owner, fence, now); reason != "" {
		return r.refuse("renew", reason, owner, fence, now), nil
	}
	r.Until = until
	r.note(Event{Verb: "renewed", Owner: owner, Fence: fence, Until: until, Clock: &now})
	return r.current(""), nil
}

// Complete stores the result and ends the job, under the conditions of Renew.
func (r *Record) Complete(owner string, fence int64, now float64, result string) (Verdict, error) {
	if err := checkClock(now); err != nil {
		return Verdict{}, err
	}
	if err := checkName("owner", owner); err != nil {
		return Verdict{}, err
	}
	if err := checkText("result", result); err != nil {
		return Verdict{}, err
	}
	if reason := r.holds(owner, fence, now); reason != "" {
		return r.refuse("complete", reason, owner, fence, now), nil
	}
	r.Result, r.Done = &result, true
	r.note(Event{Verb: "completed", Owner: owner, Fence: fence, Until: r.Until, Clock: &now})
	return r.current(""), nil
}

// Release gives the lease back. It is refused unless owner and fence are current and the job is
// not done; an expired lease may be given back.
func (r *Record) Release(owner string, fence int64) (Verdict, error) {
	if err := checkName("owner", owner); err != nil {
		return Verdict{}, err
	}
	if reason := r.holds(owner, fence, math.Inf(-1)); reason != "" {
		r.note(Event{Verb: "release", Reason: reason, Owner: owner, Fence: fence, Message: r.standing(reason)})
		return r.current(reason), nil
	}
	r.endLease("released", nil, "")
	return r.current(""), nil
}

// holds returns why (owner, fence) does not hold the job at now, or nothing if it does.
func (r *Record) holds(owner string, fence int64, now float64) Reason {
	switch {
	case !r.Exists:
		return NotFound
	case r.Done:
		return Done
	case r.Fence != fence:
		return StaleFence
	case r.Owner != owner:
		return NotOwner
	case r.Until <= now:
		return Expired
	}
	return ""
}

// Leased reports whether a lease runs at now.
func (r *Record) Leased(now float64) bool {
	return r.Exists && !r.Done && r.Owner != "" && r.Until > now
}

func (r *Record) endLease(verb string, clock *float64, why string) {
	owner, fence := r.Owner, r.Fence
	r.Owner, r.Until = "", 0
	r.note(Event{Verb: verb, Owner: owner, Fence: fence, Clock: clock, Message: why})
}

func (r *Record) current(reason Reason) Verdict {
	if !r.Exists {
		return Verdict{Reason: reason}
	}
	return Verdict{Reason: reason, Owner: r.Owner, Fence: r.Fence, Until: r.Until}
}

func (r *Record) refuse(verb string, reason Reason, owner string, fence int64, now float64) Verdict {
	r.note(Event{Verb: verb, Reason: reason, Owner: owner, Fence: fence, Clock: &now, Message: r.standing(reason)})
	return r.current(reason)
}

// standing says what is current, for the history. It leaves out until, which moves with every
// renewal, so that repeats fold.
func (r *Record) standing(reason Reason) string {
	switch {
	case !r.Exists:
		return ""
	case reason == Expired:
		return fmt.Sprintf("the lease of fence %d had run out", r.Fence)
	case r.Fence == 0:
		return "no fence had been handed out"
	case r.Done:
		return fmt.Sprintf("%s has completed it with fence %d", r.Owner, r.Fence)
	case r.Owner == "":
		return fmt.Sprintf("fence %d is current, and nobody's", r.Fence)
	}
	return fmt.Sprintf("fence %d is current, and %s's", r.Fence, r.Owner)
}
