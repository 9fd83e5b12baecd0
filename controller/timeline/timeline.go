// Package timeline draws what happened to a job: a lane per worker, a bar per lease, and a mark for
// each thing that a worker did under it, or tried to do after it was over.
//
// It shows what the history tells, which drops the oldest entries, folds repeats, and knows no clock
// reading of a change that another program made. Nothing is decided from it.
package timeline

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"leasehold.dev/leasehold/controller"
	"leasehold.dev/leasehold/store"
)

// Axis is what a timeline goes by.
type Axis string

// The axes.
const (
	Clock Axis = "clock" // readings of the job's clock
	Wall  Axis = "wall"  // the time of day
)

// Input is what is known of a job.
type Input struct {
	ID      string
	Workers []string // as declared
	TTL     float64
	System  bool          // the job goes by the system clock
	Now     float64       // the reading at which it stands
	Row     *store.Record // nil: unknown
	Events  []store.Event // oldest first
}

// Timeline is ready to be drawn.
type Timeline struct {
	ID       string
	By       Axis
	From, To float64
	Times    bool // positions are Unix seconds
	Lanes    []*Lane
	Rules    []Mark // what concerns the job as a whole
	Note     string // what is not shown
}

// Lane is a worker's.
type Lane struct {
	Worker string
	Gone   bool // not declared any more
	Bars   []*Bar
	Marks  []Mark
	Stale  []Span // from the end of a lease to a write that was refused for it
}

// Bar is a lease.
type Bar struct {
	Span
	Fence int64
	More  int64  // leases like this one that the history folded into it
	End   string // running, completed, released, expired or ended
	Text  string

	until   float64 // where it runs out by itself
	renewed int64
}

// Span is a stretch of the axis.
type Span struct{ From, To float64 }

// Kind is what a mark stands for.
type Kind string

// The kinds of marks.
const (
	Renewed   Kind = "renewed"
	Completed Kind = "completed"
	Released  Kind = "released"
	Refused   Kind = "refused"
	Event     Kind = "event" // of the job as a whole
)

// Mark is something that happened at one moment.
type Mark struct {
	At   float64
	Kind Kind
	Text string
}

// mostLeases is how many leases are shown, and mostMarks how many marks of a lane; the latest count.
const (
	mostLeases = 120
	mostMarks  = 400
)

// New lays out a timeline.
func New(in Input, by Axis) *Timeline {
	b := builder{Input: in, t: &Timeline{ID: clean(in.ID), By: by, Times: by == Wall || in.System}}
	for _, w := range in.Workers {
		b.lane(w).Gone = false
	}
	events := in.Events
	if n := claims(events) - mostLeases; n > 0 {
		events = slices.Clone(events)
		for i, left := 0, n; i < len(events); i++ {
			if granted(events[i], "claimed") {
				if left == 0 {
					events = events[i:]
					break
				}
				left--
			}
		}
		b.t.Note = fmt.Sprintf("%d earlier leases are not shown", n)
	}
	for _, e := range events {
		b.add(e)
	}
	b.present()
	b.scale()
	b.stale()
	return b.t
}

func granted(e store.Event, verb string) bool { return e.Verb == verb && e.Reason == "" }

func claims(events []store.Event) (n int) {
	for _, e := range events {
		if granted(e, "claimed") {
			n++
		}
	}
	return n
}

// builder adds event after event to a timeline.
type builder struct {
	Input
	t       *Timeline
	current *Bar // the lease that runs
	last    float64
	known   bool // last is
}

func (b *builder) lane(worker string) *Lane {
	worker = clean(worker)
	for _, l := range b.t.Lanes {
		if l.Worker == worker {
			return l
		}
	}
	l := &Lane{Worker: worker, Gone: true}
	b.t.Lanes = append(b.t.Lanes, l)
	return l
}

// place returns where on the axis an event happened.
func (b *builder) place(e store.Event) float64 {
	wall := float64(e.At.UnixMilli()) / 1000
	at := wall
	if b.t.By == Clock {
		switch {
		case e.Clock != nil:
			at = *e.Clock
		case b.System:
		case granted(e, "claimed") && e.Until-b.TTL > b.last:
			at = e.Until - b.TTL // by another program, whose reading is not known
		case b.known:
			at = b.last
		default:
			at = b.Now
		}
	}
	if e.Verb != "enqueued" {
		b.last, b.known = at, true
	}
	return at
}

// runsOut returns where on the axis a lease until a reading ends by itself.
func (b *builder) runsOut(until float64) float64 {
	if b.t.By == Clock || b.System {
		return until
	}
	return math.Inf(1) // nobody knows when the clock will get there
}

func (b *builder) add(e store.Event) {
	if e.Verb == "enqueued" || e.Verb == "unwritten" {
		return
	}
	at := b.place(e)
	text := clean(controller.EventText(e))
	mark := Mark{At: at, Text: text}
	if e.Count > 1 {
		mark.Text += fmt.Sprintf(" (%d times)", e.Count)
	}
	if e.Reason != "" {
		mark.Kind, mark.Text = Refused, clean(string(e.Reason))+": "+mark.Text
		b.mark(e, mark)
		return
	}
	switch e.Verb {
	case "claimed":
		b.end(at, "expired")
		b.current = &Bar{Span: Span{at, at}, Fence: e.Fence, More: e.Count - 1, until: b.runsOut(e.Until), Text: text}
		l := b.lane(e.Owner)
		l.Bars = append(l.Bars, b.current)
	case "renewed":
		mark.Kind = Renewed
		b.mark(e, mark)
		if b.current != nil {
			b.current.until = b.runsOut(e.Until)
			b.current.renewed = e.Count
		}
	case "completed":
		mark.Kind = Completed
		b.mark(e, mark)
		b.end(at, "completed")
	case "released":
		mark.Kind = Released
		b.mark(e, mark)
		b.end(at, "released")
	case "reset":
		b.end(at, "ended")
		if b.t.By == Clock {
			b.begin()
		}
		b.rule(mark)
	default:
		b.end(at, "ended")
		b.rule(mark)
	}
}

func (b *builder) mark(e store.Event, m Mark) {
	l := b.lane(cmp.Or(e.Owner, "nobody"))
	l.Marks = append(l.Marks, m)
}

func (b *builder) rule(m Mark) {
	m.Kind = Event
	b.t.Rules = append(b.t.Rules, m)
}

// begin forgets what was before the clock was reset: its readings may come again.
func (b *builder) begin() {
	for _, l := range b.t.Lanes {
		l.Bars, l.Marks = nil, nil
	}
	b.t.Lanes = slices.DeleteFunc(b.t.Lanes, func(l *Lane) bool { return l.Gone })
	b.t.Rules = nil
	b.t.Note = "what was before the clock was reset is shown by wall time"
}

// end ends the lease that runs, at the latest where it runs out by itself.
func (b *builder) end(at float64, how string) {
	c := b.current
	if c == nil {
		return
	}
	b.current = nil
	c.End, c.To = how, at
	if c.renewed < 2 { // of repeated renewals only the first one's end is kept
		c.To = min(at, c.until)
	}
	c.To = max(c.To, c.From)
	c.Text += "; it was " + how
	if how == "expired" {
		c.Text = c.Text[:len(c.Text)-len("it was expired")] + "it ran out"
	}
}

// present adds what the row says beyond the history.
func (b *builder) present() {
	r := b.Row
	if r == nil || !r.Exists || r.Owner == "" || r.Done {
		return
	}
	until := b.runsOut(r.Until)
	if c := b.current; c == nil || c.Fence < r.Fence {
		var folded *Bar
		for _, o := range b.lane(r.Owner).Bars {
			folded = o
		}
		if folded == nil || folded.More == 0 {
			return // the history has been cut off, or has not caught up yet
		}
		from := b.last
		if !math.IsInf(until, 0) {
			from = max(b.last, until-b.TTL)
		}
		b.end(from, "expired")
		folded.More--
		b.current = &Bar{Span: Span{from, from}, Fence: r.Fence, Text: clean(fmt.Sprintf("%s holds fence %d", r.Owner, r.Fence))}
		l := b.lane(r.Owner)
		l.Bars = append(l.Bars, b.current)
	}
	c := b.current
	c.until, c.To, c.End = until, until, "running"
	if !r.Leased(b.Now) {
		c.End = "expired"
		c.Text += "; it ran out"
	}
}

// scale finds the stretch that is shown, and ends what is open at its end.
func (b *builder) scale() {
	t := b.t
	from, to := math.Inf(1), math.Inf(-1)
	see := func(x float64) {
		if !math.IsInf(x, 0) {
			from, to = min(from, x), max(to, x)
		}
	}
	for _, l := range t.Lanes {
		l.Marks = l.Marks[max(0, len(l.Marks)-mostMarks):]
		for _, c := range l.Bars {
			see(c.From)
			see(c.To)
		}
		for _, m := range l.Marks {
			see(m.At)
		}
	}
	for _, m := range t.Rules {
		see(m.At)
	}
	if from > to {
		from, to = b.Now, b.Now
	}
	if to-from < 1e-9*max(1, math.Abs(to)) {
		to = from + max(cmp.Or(b.TTL, 1), 1e-6*math.Abs(from))
	}
	open := false
	for _, l := range t.Lanes {
		for _, c := range l.Bars {
			if c.To < c.From {
				c.To = c.From
			}
			if math.IsInf(c.To, 0) {
				c.To, open = to+(to-from)/8, true
			}
		}
	}
	if open {
		to += (to - from) / 8
	}
	t.From, t.To = from, to
}

// stale finds the stretches between a lease and what was refused for it.
func (b *builder) stale() {
	for _, l := range b.t.Lanes {
		reach := math.Inf(-1)
		for i := len(l.Marks) - 1; i >= 0; i-- {
			m := l.Marks[i]
			if m.Kind != Refused {
				continue
			}
			end := math.Inf(-1)
			for _, c := range l.Bars {
				if c.To <= m.At && c.End != "completed" {
					end = max(end, c.To)
				}
			}
			if end < m.At && !math.IsInf(end, 0) && end != reach {
				l.Stale = append(l.Stale, Span{end, m.At})
				reach = end
			}
		}
	}
}
