package store

import (
	"maps"
	"strconv"
	"strings"
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

// Judge carries out the reports that an accepted manifest shows, in the order given, at now. Each is
// carried out once: a report that was judged before keeps its verdict. Verdicts on reports that the
// manifest no longer shows are forgotten.
func (r *Record) Judge(reports []Report, now, ttl float64) error {
	judged := make(map[reportKey]Report, len(r.Reports))
	for _, p := range r.Reports {
		judged[p.key()] = p
	}
	r.Reports = nil
	for _, p := range reports {
		if q, ok := judged[p.key()]; ok {
			p = q
		} else if err := r.judge(&p, now, ttl); err != nil {
			return err
		}
		r.Reports = append(r.Reports, p)
	}
	return nil
}

func (r *Record) judge(p *Report, now, ttl float64) (err error) {
	switch p.Verb {
	case VerbComplete:
		p.Verdict, err = r.Complete(p.Worker, p.Fence, now, p.Result)
	case VerbRelease:
		p.Verdict, err = r.Release(p.Worker, p.Fence)
	case VerbRenew:
		if !r.newest(*p) {
			p.Superseded, p.Verdict = true, r.current("")
			return nil
		}
		p.Verdict, err = r.Renew(p.Worker, p.Fence, now, ttl)
	default:
		err = invalid("verb: %q", p.Verb)
	}
	return err
}

// newest reports whether p's time is greater than every time judged for its worker and fence, and
// remembers it.
func (r *Record) newest(p Report) bool {
	key := strconv.FormatInt(p.Fence, 10) + "/" + p.Worker
	if last, ok := r.Beats[key]; ok && p.Time <= last {
		return false
	}
	if r.Beats == nil {
		r.Beats = make(map[string]float64)
	}
	r.Beats[key] = p.Time
	return true
}

// forgetBeats drops the heartbeats of fences that have passed: those are refused whatever their time.
func (r *Record) forgetBeats() {
	maps.DeleteFunc(r.Beats, func(key string, _ float64) bool {
		fence, _, _ := strings.Cut(key, "/")
		n, err := strconv.ParseInt(fence, 10, 64)
		return err != nil || n < r.Fence
	})
	if len(r.Beats) == 0 {
		r.Beats = nil
	}
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
	r.forgetBeats()
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
