package main

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"leasehold.dev/leasehold/controller"
	"leasehold.dev/leasehold/manifests"
	"leasehold.dev/leasehold/store"
	"leasehold.dev/leasehold/store/sqlite"
)

// reporting is what tick, renew, complete and release have in common: they change the manifest and
// wait until a controller has judged it.
type reporting struct {
	g         *globals
	namespace string
	wait      time.Duration
}

func (r *reporting) flags(cmd *cobra.Command) {
	namespaceFlag(cmd, &r.namespace)
	cmd.Flags().DurationVar(&r.wait, "wait", 5*time.Second, "how long to wait for the verdict of a running controller; 0: not at all")
}

func newTickCommand(g *globals) *cobra.Command {
	r := reporting{g: g}
	var by, to, resetTo float64
	cmd := &cobra.Command{
		Use:   "tick job/NAME --by N | --to N | --reset-to N",
		Short: "Move a job's clock",
		Long: `Sets spec.clock in the manifest. --by counts from the clock in the file, or from the system clock
where there is none. A clock that goes back decides nothing; --reset-to takes it back for good: it
ends a running lease, keeps the fence, and lets the clock begin anew.

Exit codes: 0 done; 2 invalid usage; 3 the clock is behind one that has already decided; 4 no
verdict in time.`,
		Example: `  # 30 seconds pass for invoice-42
  leasehold tick job/invoice-42 --by 30

  # The clock was mistyped: start again at 130
  leasehold tick job/invoice-42 --reset-to 130`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			name, err := parseRef(args)
			if err != nil {
				return err
			}
			f := cmd.Flags()
			switch {
			case f.Changed("by"):
				return r.tick(cmd.Context(), name, func(now float64) float64 { return now + by }, false)
			case f.Changed("to"):
				return r.tick(cmd.Context(), name, func(float64) float64 { return to }, false)
			}
			return r.tick(cmd.Context(), name, func(float64) float64 { return resetTo }, true)
		},
	}
	f := cmd.Flags()
	f.Float64Var(&by, "by", 0, "add this to the clock")
	f.Float64Var(&to, "to", 0, "set the clock to this")
	f.Float64Var(&resetTo, "reset-to", 0, "set the clock to this and let it count, even if it goes back")
	cmd.MarkFlagsMutuallyExclusive("by", "to", "reset-to")
	cmd.MarkFlagsOneRequired("by", "to", "reset-to")
	r.flags(cmd)
	return cmd
}

func (r *reporting) tick(ctx context.Context, name string, next func(now float64) float64, reset bool) error {
	var clock float64
	return r.do(ctx, name, func(at *found) ([]manifests.Edit, error) {
		now := systemClock()
		if c := at.Doc().Clock; c != nil {
			now = *c
		}
		clock = next(now)
		if math.IsNaN(clock) || clock < 0 || clock >= manifests.MaxClock {
			return nil, usageError("spec.clock: Invalid value: %s: must be at least 0 and less than %d", number(clock), int64(manifests.MaxClock))
		}
		return []manifests.Edit{{Path: []any{"spec", "clock"}, Value: clock}}, nil
	}, func(db *sqlite.DB, id string) error {
		if !reset {
			return nil
		}
		_, err := db.Update(ctx, []string{id}, func(rs []*store.Record) error {
			if rs[0].Known {
				rs[0].ResetClock(store.Reading{Time: clock}, "tick --reset-to "+number(clock))
				rs[0].SpecHash = "" // what was decided from this spec before does not count
			}
			return nil
		})
		return err
	}, func(rec *store.Record) error {
		if m := rec.Mark; m != nil && !m.System && m.Time > clock {
			fmt.Fprintf(r.g.Out, "%s/%s refused: ClockRegressed: spec.clock %s is behind %s, which has already decided; "+
				"set it to %[4]s or more, or use --reset-to %[3]s\n", resource, rec.ID, number(clock), number(m.Time))
			return &exitError{code: exitRefused}
		}
		fmt.Fprintf(r.g.Out, "%s/%s ticked to %s: %s\n", resource, rec.ID, number(clock), standing(rec, clock))
		return nil
	})
}

// standing says in a few words where a job stands at a clock reading.
func standing(rec *store.Record, now float64) string {
	switch {
	case rec.Done:
		return fmt.Sprintf("%s completed it with fence %d", rec.Owner, rec.Fence)
	case rec.Leased(now):
		return fmt.Sprintf("%s holds fence %d until %s", rec.Owner, rec.Fence, number(rec.Until))
	}
	return "no lease is running"
}

// newReportCommand makes renew, complete or release.
func newReportCommand(g *globals, verb store.Verb) *cobra.Command {
	r := reporting{g: g}
	p := store.Report{Verb: verb}
	var when float64
	about := map[store.Verb][3]string{
		store.VerbRenew:    {"Report a worker's heartbeat", "--fence 1", "worker-a is alive and holds fence 1"},
		store.VerbComplete: {"Report a worker's result", "--fence 2 --result 'by a'", "worker-a has the result"},
		store.VerbRelease:  {"Report that a worker gives its lease back", "--fence 1", "worker-a gives its lease back"},
	}[verb]
	use := fmt.Sprintf("%s job/NAME --worker W --fence N", verb)
	if verb == store.VerbComplete {
		use += " --result TEXT"
	}
	cmd := &cobra.Command{
		Use:   use,
		Short: about[0],
		Long: about[0] + `. The report is written into the manifest, under spec.workers. While a
controller runs, the command returns once it has been judged, and prints the verdict.

Exit codes: 0 accepted, or written while no controller runs; 2 invalid usage; 3 refused; 4 no
verdict in time.`,
		Example: fmt.Sprintf("  # %s\n  leasehold %s job/invoice-42 --worker worker-a %s", about[2], verb, about[1]),
		Args:    cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			name, err := parseRef(args)
			if err != nil {
				return err
			}
			if p.Fence < 1 {
				return usageError("--fence: Invalid value: %d: must be at least 1", p.Fence)
			}
			if !cmd.Flags().Changed("time") {
				when = math.NaN()
			}
			return r.report(cmd.Context(), name, p, when)
		},
	}
	f := cmd.Flags()
	f.StringVar(&p.Worker, "worker", "", "the worker that reports")
	f.Int64Var(&p.Fence, "fence", 0, "the fence of its lease")
	required := []string{"worker", "fence"}
	switch verb {
	case store.VerbComplete:
		f.StringVar(&p.Result, "result", "", "the job's result")
		required = append(required, "result")
	case store.VerbRenew:
		f.Float64Var(&when, "time", 0, "tells this heartbeat from earlier ones, which have smaller times (default: the job's clock)")
	}
	for _, name := range required {
		_ = cmd.MarkFlagRequired(name)
	}
	r.flags(cmd)
	return cmd
}

func (r *reporting) report(ctx context.Context, name string, p store.Report, when float64) error {
	return r.do(ctx, name, func(at *found) ([]manifests.Edit, error) {
		job := at.Doc().Job
		if job == nil {
			return nil, fmt.Errorf("the manifest is not accepted: %w", at.Doc().Errors[0])
		}
		i := slices.IndexFunc(job.Spec.Workers, func(w manifests.Worker) bool { return w.Name == p.Worker })
		if i < 0 {
			var names []string
			for _, w := range job.Spec.Workers {
				names = append(names, w.Name)
			}
			return nil, usageError("--worker: Not found: %q: %s has %s", p.Worker, at.Doc().ID, strings.Join(names, ", "))
		}
		w := job.Spec.Workers[i]
		var value any
		switch p.Verb {
		case store.VerbComplete:
			value = manifests.Complete{Fence: p.Fence, Result: p.Result}
		case store.VerbRelease:
			value = manifests.Release{Fence: p.Fence}
		case store.VerbRenew:
			p.Time = when
			if math.IsNaN(when) {
				p.Time = systemClock()
				if job.Spec.Clock != nil {
					p.Time = *job.Spec.Clock
				}
				// Two heartbeats at one clock are two.
				if w.Renew != nil && w.Renew.Fence == p.Fence && w.Renew.Time >= p.Time {
					p.Time = math.Floor(w.Renew.Time) + 1
				}
			}
			value = manifests.Renew{Fence: p.Fence, Time: p.Time}
		}
		edits := []manifests.Edit{{Path: []any{"spec", "workers", i, string(p.Verb)}, Value: value}}
		// A worker that has given a fence back and then completes with it, or the reverse: the manifest
		// cannot say both, and the report that has its verdict makes room.
		switch {
		case p.Verb == store.VerbComplete && w.Release != nil && w.Release.Fence == p.Fence && judged(at.Doc().Status, w.Name, store.VerbRelease, p.Fence):
			edits = append(edits, manifests.Edit{Path: []any{"spec", "workers", i, string(store.VerbRelease)}})
		case p.Verb == store.VerbRelease && w.Complete != nil && w.Complete.Fence == p.Fence && judged(at.Doc().Status, w.Name, store.VerbComplete, p.Fence):
			edits = append(edits, manifests.Edit{Path: []any{"spec", "workers", i, string(store.VerbComplete)}})
		}
		return edits, nil
	}, nil, func(rec *store.Record) error {
		what := fmt.Sprintf("%s/%s %s by %s with fence %d", resource, rec.ID, p.Verb, p.Worker, p.Fence)
		i := slices.IndexFunc(rec.Reports, p.Same)
		if i < 0 {
			if m := rec.Mark; m != nil {
				fmt.Fprintf(r.g.Out, "%s not judged: ClockRegressed: the job's clock is behind %s, which has already decided\n", what, number(m.Time))
				return &exitError{code: exitRefused}
			}
			return fmt.Errorf("%s was not judged", what)
		}
		switch q := rec.Reports[i]; {
		case q.Superseded:
			fmt.Fprintf(r.g.Out, "%s refused: Superseded: a heartbeat of time %s or later was judged before\n", what, number(q.Time))
			return &exitError{code: exitRefused}
		case !q.Verdict.OK():
			fmt.Fprintf(r.g.Out, "%s refused: %s: %s\n", what, q.Verdict.Reason, controller.Explain(q.Verdict, rec.Mark != nil && rec.Mark.System))
			return &exitError{code: exitRefused}
		}
		fmt.Fprintf(r.g.Out, "%s accepted\n", what)
		return nil
	})
}

// judged reports whether a status shows a verdict on a worker's report.
func judged(status *manifests.JobStatus, worker string, verb store.Verb, fence int64) bool {
	return status != nil && slices.ContainsFunc(status.Workers, func(w manifests.WorkerStatus) bool {
		return w.Name == worker && w.Report == string(verb) && w.Fence == fence
	})
}

// do changes a job's manifest, does what has to be done in the store, and waits until a running
// controller has judged the spec.
func (r *reporting) do(ctx context.Context, name string, edits func(*found) ([]manifests.Edit, error),
	then func(*sqlite.DB, string) error, verdict func(*store.Record) error) error {
	id := namespaced(r.namespace, name)
	tree, err := r.g.tree()
	if err != nil {
		return err
	}
	defer tree.Close()
	running, err := controller.Locked(tree.Dir())
	if err != nil {
		return err
	}
	at, err := change(ctx, tree, id, edits)
	if err != nil {
		return err
	}
	path, err := storePath(tree.Dir(), r.g.store)
	if err != nil {
		return err
	}
	var db *sqlite.DB
	if exists(path) {
		if db, err = sqlite.Open(ctx, path, sqlite.Options{Actor: "cli"}); err != nil {
			return err
		}
		defer db.Close()
		if then != nil {
			if err := then(db, id); err != nil {
				return err
			}
		}
	}
	if !running || r.wait <= 0 || db == nil {
		why := "no controller is running in " + tree.Dir()
		if running {
			why = "not waited for the verdict"
		}
		fmt.Fprintf(r.g.Out, "%s/%s configured (%s)\n", resource, id, why)
		return nil
	}
	job := at.Doc().Job
	if job == nil {
		return fmt.Errorf("the manifest is not accepted: %w", at.Doc().Errors[0])
	}
	rec, err := awaitSpec(ctx, tree, db, id, job.Spec.Hash(), r.wait)
	if err != nil {
		return err
	}
	return verdict(rec)
}

// awaitSpec waits until a controller has decided about the spec of this hash.
func awaitSpec(ctx context.Context, tree *manifests.Tree, db *sqlite.DB, id, hash string, wait time.Duration) (*store.Record, error) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	changed := controller.Follow(ctx, tree, db.Path())
	for {
		var rec *store.Record
		if _, err := db.View(ctx, []string{id}, func(rs []*store.Record) error { rec = rs[0].Clone(); return nil }); err != nil && ctx.Err() == nil {
			return nil, err
		}
		if rec != nil && rec.SpecHash == hash {
			return rec, nil
		}
		select {
		case <-ctx.Done():
			return nil, &exitError{exitTimeout, fmt.Errorf("timed out: the controller has not judged %s/%s within %s", resource, id, wait)}
		case <-changed:
		}
	}
}

// systemClock is the system clock as manifests show it: Unix seconds, in whole milliseconds.
func systemClock() float64 { return float64(time.Now().UnixMilli()) / 1000 }

// number prints a number without an exponent.
func number(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }
