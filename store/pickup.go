package store

// Pickup says which agent runs a job under a fence. Two agents of one name, or one that was
// restarted while what it had started lives on, share owner and fence, which no check can tell
// apart: whoever has made the pickup runs the job, and nobody else under that fence.
type Pickup struct {
	Fence int64  `json:"fence"`
	By    string `json:"by"` // an agent from its start to its end
}

// Holds returns why (owner, fence) does not hold the job at now, or nothing if it does. At minus
// infinity no lease has run out yet.
func (r *Record) Holds(owner string, fence int64, now float64) Reason {
	return r.holds(owner, fence, now)
}

// PickUp notes, once for each fence, that the agent by runs the job under the lease of (owner,
// fence), and reports whether it does. It does not if the lease is not theirs at now, or another
// agent was first; the same agent may ask again. A refusal is no event of the history.
func (r *Record) PickUp(owner string, fence int64, now float64, by string) (bool, error) {
	if err := checkClock(now); err != nil {
		return false, err
	}
	if err := checkName("by", by); err != nil {
		return false, err
	}
	switch {
	case r.holds(owner, fence, now) != "":
		return false, nil
	case r.Pickup == nil || r.Pickup.Fence < fence:
		r.Pickup = &Pickup{fence, by}
		r.note(Event{Verb: "started", Owner: owner, Fence: fence, Until: r.Until, Clock: &now, Message: "by " + by})
		return true, nil
	}
	return *r.Pickup == Pickup{fence, by}, nil
}
