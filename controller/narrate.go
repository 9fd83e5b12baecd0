package controller

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"leasehold.dev/leasehold/manifests"
	"leasehold.dev/leasehold/store"
)

// line is one decision as it is told in the log.
type line struct {
	level slog.Level
	text  string
	attrs []slog.Attr
}

// narrate tells what a decision did to a job, in the order in which it happened.
func narrate(before, after *store.Record, events []store.Event) []line {
	var lines []line
	system := after.Mark != nil && after.Mark.System
	is := store.Verdict{Owner: before.Owner, Fence: before.Fence, Until: before.Until} // as of each event
	for _, e := range events {
		say := func(level slog.Level, format string, args ...any) {
			lines = append(lines, line{level, fmt.Sprintf(format, args...), attributes(e)})
		}
		until := moment(e.Until, system)
		if e.Reason != "" {
			is.Reason = e.Reason
			say(slog.LevelWarn, "%s's %s with fence %d was refused: %s: %s", e.Owner, e.Verb, e.Fence, e.Reason, Explain(is, system))
			continue
		}
		switch e.Verb {
		case "enqueued":
			say(slog.LevelDebug, "enqueued")
		case "claimed":
			switch ended := moment(is.Until, system); is.Owner {
			case "":
				say(slog.LevelInfo, "%s took it, fence %d until %s", e.Owner, e.Fence, until)
			case e.Owner:
				say(slog.LevelInfo, "%s took it again, fence %d until %s; it let its lease run out at %s", e.Owner, e.Fence, until, ended)
			default:
				say(slog.LevelInfo, "%s took over, fence %d until %s; %s let its lease run out at %s", e.Owner, e.Fence, until, is.Owner, ended)
			}
			is.Owner, is.Fence, is.Until = e.Owner, e.Fence, e.Until
		case "reset":
			say(slog.LevelInfo, "its clock begins anew at %s: %s", moment(*e.Clock, system), e.Message)
		case "renewed":
			say(slog.LevelInfo, "%s renewed fence %d until %s", e.Owner, e.Fence, until)
			is.Until = e.Until
		case "completed":
			say(slog.LevelInfo, "%s completed it with fence %d", e.Owner, e.Fence)
		case "released":
			if e.Message != "" {
				say(slog.LevelWarn, "%s lost fence %d: %s", e.Owner, e.Fence, e.Message)
			} else {
				say(slog.LevelInfo, "%s released fence %d", e.Owner, e.Fence)
			}
			is.Owner, is.Until = "", 0
		case "jumped":
			say(slog.LevelWarn, "fences go on above %d: %s", e.Fence, e.Message)
			is.Owner, is.Fence, is.Until = "", e.Fence, 0
		default:
			say(slog.LevelInfo, "%s", e.Verb)
		}
	}
	return lines
}

func attributes(e store.Event) []slog.Attr {
	attrs := []slog.Attr{slog.String("verb", e.Verb)}
	if e.Reason != "" {
		attrs = append(attrs, slog.String("reason", string(e.Reason)))
	}
	if e.Owner != "" {
		attrs = append(attrs, slog.String("owner", e.Owner))
	}
	attrs = append(attrs, slog.Int64("fence", e.Fence))
	if e.Until != 0 {
		attrs = append(attrs, slog.Float64("until", e.Until))
	}
	if e.Clock != nil {
		attrs = append(attrs, slog.Float64("clock", *e.Clock))
	}
	return attrs
}

// told are the conditions that are told in the log while they hold, beside the decisions.
var told = []string{manifests.ConditionFailed, manifests.ConditionClockRegressed, manifests.ConditionRestoreNeeded}

// waitingReasons are those for which an open job waits that no other line tells.
var waitingReasons = []string{"Suspended", "NoCandidate", "FenceExhausted", "Held"}

// diary writes decisions to the log, and folds what repeats: leases that go round because no worker
// is alive, and conditions and faults that last.
type diary struct {
	log      *slog.Logger
	mu       sync.Mutex
	states   map[string]*lasting             // by "id/condition" or key
	episodes map[string]map[string]time.Time // by what goes wrong and kind: when it was told
	rounds   map[string]int                  // by id: claims in a row with nothing in between
}

func newDiary(log *slog.Logger) *diary {
	return &diary{log: log, states: map[string]*lasting{}, episodes: map[string]map[string]time.Time{}, rounds: map[string]int{}}
}

// mostLines is how many lines a single decision, or a single file, gets in the log.
const mostLines = 50

// decision tells what was decided for a job, and each of its conditions that has changed.
func (d *diary) decision(id string, workers int, before, after *store.Record, events []store.Event, status *manifests.JobStatus) {
	n := 0
	for _, l := range narrate(before, after, events) {
		if d.quiet(id, workers, l) {
			continue
		}
		if n++; n > mostLines {
			d.log.LogAttrs(context.Background(), slog.LevelWarn, "there was more; the history has it", slog.String("job", id))
			break
		}
		d.log.LogAttrs(context.Background(), l.level, l.text, append([]slog.Attr{slog.String("job", id)}, l.attrs...)...)
	}
	for _, kind := range told {
		text := ""
		for _, c := range status.Conditions {
			if c.Type == kind && c.Status == "True" {
				text = c.Message
			}
		}
		d.state(slog.LevelWarn, id+" "+kind, text, slog.String("job", id), slog.String("condition", kind))
	}
	waits := ""
	for _, c := range status.Conditions {
		if c.Type == manifests.ConditionLeased && c.Status == "False" && slices.Contains(waitingReasons, c.Reason) {
			waits = "waits: " + c.Message
		}
	}
	d.state(slog.LevelInfo, id+" waits", waits, slog.String("job", id))
}

// quiet reports whether a claim is one of many that go round unanswered: from the second round on,
// only those at powers of two are told.
func (d *diary) quiet(id string, workers int, l line) bool {
	claim := slices.ContainsFunc(l.attrs, func(a slog.Attr) bool {
		return a.Key == "verb" && a.Value.String() == "claimed"
	})
	d.mu.Lock()
	defer d.mu.Unlock()
	if !claim {
		if l.level >= slog.LevelInfo {
			delete(d.rounds, id)
		}
		return false
	}
	d.rounds[id]++
	n := d.rounds[id]
	return n > 2*workers && n&(n-1) != 0
}

// lasting is a state as it was told last.
type lasting struct {
	text  string
	at    time.Time
	ended bool
}

// flicker is how long a state must have been told for to be told again, when it ends and comes back.
const flicker = 10 * time.Second

// state tells a lasting state once, when it begins or changes. An empty text ends it silently.
func (d *diary) state(level slog.Level, what, text string, attrs ...slog.Attr) {
	d.mu.Lock()
	s := d.states[what]
	news := text != "" && (s == nil || s.text != text || s.ended && time.Since(s.at) > flicker)
	switch {
	case news:
		d.states[what] = &lasting{text: text, at: time.Now()}
	case s == nil:
	case text != "":
		s.ended = false
	case time.Since(s.at) > flicker:
		delete(d.states, what)
	default:
		s.ended = true
	}
	d.mu.Unlock()
	if news {
		d.log.LogAttrs(context.Background(), level, text, attrs...)
	}
}

// repeat is after which time something is told again that goes wrong now and then.
const repeat = 10 * time.Minute

// episode tells each kind of what goes wrong once until it is over, or in a while, however often
// they take turns.
func (d *diary) episode(level slog.Level, what, kind, text string, attrs ...slog.Attr) {
	now := time.Now()
	d.mu.Lock()
	kinds := d.episodes[what]
	if kinds == nil {
		kinds = map[string]time.Time{}
		d.episodes[what] = kinds
	}
	last, known := kinds[kind]
	news := known && now.Sub(last) > repeat || !known && len(kinds) < mostLines
	if news {
		kinds[kind] = now
	}
	d.mu.Unlock()
	if news {
		d.log.LogAttrs(context.Background(), level, text, attrs...)
	}
}

// over ends an episode, and reports whether there was one.
func (d *diary) over(what string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, was := d.episodes[what]
	delete(d.episodes, what)
	return was
}

// forget drops what was told of a job that is no longer declared.
func (d *diary) forget(id string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.rounds, id)
	delete(d.states, id+" waits")
	for _, kind := range told {
		delete(d.states, id+" "+kind)
	}
}
