package store

import "time"

// Event is one entry of the history. Its fields never change after it was written, except for
// Count. Nothing is ever decided from it.
type Event struct {
	Seq int64     `json:"seq"` // grows; gaps are ordinary
	At  time.Time `json:"at"`  // wall time, set by the engine
	ID  string    `json:"id"`
	// Verb is what happened (enqueued, claimed, renewed, completed, released, deleted, jumped,
	// restored, reset, started by an agent, failed under it, unwritten) or, with a Reason, what was refused (claim, renew, complete, release).
	Verb    string   `json:"verb"`
	Reason  Reason   `json:"reason,omitempty"`
	Owner   string   `json:"owner,omitempty"` // who acted
	Fence   int64    `json:"fence"`           // with which fence; of a grant, under which
	Until   float64  `json:"until,omitempty"`
	Clock   *float64 `json:"clock,omitempty"` // the clock reading that decided; nil if unknown
	Message string   `json:"message,omitempty"`
	By      string   `json:"by,omitempty"` // which program wrote it: the engine's actor, or "sql"
	Count   int64    `json:"count"`        // how often in a row
}

func (r *Record) note(e Event) {
	e.ID = r.ID
	r.events = append(r.events, e)
}

// Note adds an event to the history with the next commit of this record.
func (r *Record) Note(e Event) { r.note(e) }

// Events returns what the rules have noted since the record was loaded. Engines write them.
func (r *Record) Events() []Event { return r.events }
