package store

import (
	"math"
	"slices"
)

// Reading is a clock reading for a decision, in the unit of the job's ttl.
type Reading struct {
	Time   float64
	System bool // read from the system clock, in seconds; otherwise spec.clock
}

// slack is how far, in seconds, the system clock may fall behind the mark and still count as it.
const slack = 1

// Observe holds a reading against the job's mark and returns the clock that counts. ok is false if
// the reading has regressed: then nothing may be decided. Where the job has changed between
// spec.clock and the system clock, a running lease is ended and the mark starts anew.
//
// The mark of spec.clock rises here. That of the system clock rises in [Record.Decided], so that
// looking at a job changes nothing.
func (r *Record) Observe(c Reading) (now float64, ok bool) {
	switch {
	case r.Mark == nil:
		r.Mark = &Mark{c.Time, c.System}
	case r.Mark.System != c.System:
		r.ResetClock(c, "the job's clock changed between spec.clock and the system clock")
	case c.Time >= r.Mark.Time:
		if !c.System && c.Time > r.Mark.Time {
			r.Mark = &Mark{c.Time, false}
		}
	case c.System && c.Time > r.Mark.Time-slack:
		return r.Mark.Time, true
	default:
		return r.Mark.Time, false
	}
	return c.Time, true
}

// Decided raises the mark to now, a reading that Observe returned and that decided something.
func (r *Record) Decided(now float64) {
	if r.Mark != nil && now > r.Mark.Time {
		r.Mark = &Mark{now, r.Mark.System}
	}
}

// ResetClock ends a running lease, keeps the fence, and starts the mark anew: the way out after a
// mistyped clock.
func (r *Record) ResetClock(c Reading, why string) {
	if r.Exists && !r.Done && r.Owner != "" {
		r.endLease("released", &c.Time, why)
	}
	r.Mark = &Mark{c.Time, c.System}
	r.note(Event{Verb: "reset", Fence: r.Fence, Clock: &c.Time, Message: why})
}

// Judge carries out a worker's report at now, once: a report that was judged before keeps its
// verdict. It returns the report with its verdict and whether it is new.
func (r *Record) Judge(p Report, now, ttl float64) (Report, bool, error) {
	if i := slices.IndexFunc(r.Reports, p.Same); i >= 0 {
		return r.Reports[i], false, nil
	}
	var err error
	switch p.Verb {
	case VerbComplete:
		p.Verdict, err = r.Complete(p.Worker, p.Fence, now, p.Result)
	case VerbRelease:
		p.Verdict, err = r.Release(p.Worker, p.Fence)
	case VerbRenew:
		if b := r.beat(p); p.Time <= b.Time {
			p.Superseded, p.Verdict = true, r.current("")
			break
		} else {
			b.Time = p.Time
		}
		p.Verdict, err = r.Renew(p.Worker, p.Fence, now, ttl)
	default:
		err = invalid("verb: %q", p.Verb)
	}
	if err != nil {
		return p, false, err
	}
	r.Reports = append(r.Reports, p)
	return p, true, nil
}

// beat returns the entry for p's worker and fence, made if there is none.
func (r *Record) beat(p Report) *Beat {
	i := slices.IndexFunc(r.Beats, func(b Beat) bool { return b.Worker == p.Worker && b.Fence == p.Fence })
	if i < 0 {
		i = len(r.Beats)
		r.Beats = append(r.Beats, Beat{p.Worker, p.Fence, math.Inf(-1)})
	}
	return &r.Beats[i]
}

// Forget drops the verdicts of reports that are not among present, which an accepted manifest
// shows, and heartbeats of fences that have passed: those are refused whatever their time.
func (r *Record) Forget(present []Report) {
	r.Reports = slices.DeleteFunc(r.Reports, func(p Report) bool { return !slices.ContainsFunc(present, p.Same) })
	r.Beats = slices.DeleteFunc(r.Beats, func(b Beat) bool { return b.Fence < r.Fence })
}

// Raise makes the next fence greater than floor, and ends a running lease: after a lost or an
// outdated database. A floor that is not above what is known changes nothing.
func (r *Record) Raise(floor int64, why string) {
	if floor <= max(r.Fence, r.High) || r.Done {
		return
	}
	r.Exists, r.Known = true, true
	r.Owner, r.Until = "", 0
	r.Fence, r.High = floor, floor
	r.note(Event{Verb: "jumped", Fence: floor, Message: why})
}

// Reinstate brings back a completion that a status showed: the restore command. It reports false
// if no restore is needed.
func (r *Record) Reinstate() bool {
	if r.Restore == nil || r.Done {
		return false
	}
	p := *r.Restore
	r.Owner, r.Result, r.Done, r.Restore = p.Owner, &p.Result, true, nil
	r.Fence = max(r.Fence, r.High, p.Fence)
	r.High = r.Fence
	r.note(Event{Verb: "restored", Owner: p.Owner, Fence: r.Fence})
	return true
}
