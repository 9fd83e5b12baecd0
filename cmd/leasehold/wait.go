package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// exitNever is the exit code of a wait for what can no longer happen.
const exitNever = 4

// week stands for no timeout, as in kubectl.
const week = 7 * 24 * time.Hour

// absence is how long a manifest has to be gone; a save may move it aside for a moment.
const absence = time.Second

// waiting is a call of wait.
type waiting struct {
	selection
	g       *globals
	all     bool
	fors    []string
	timeout time.Duration

	aims []aim
}

func newWaitCommand(g *globals) *cobra.Command {
	o := waiting{g: g}
	cmd := &cobra.Command{
		Use:   "wait (job/NAME... | jobs -l LABEL | jobs --all) --for=WHAT",
		Short: "Wait until jobs have reached a condition",
		Long: `Waits until each of the jobs has reached what --for says:

  condition=TYPE[=STATUS]   a condition such as Complete, Leased or Failed; STATUS is True if left out
  jsonpath=PATH[=VALUE]     a field has a value, or any at all
  delete                    the manifest is gone
  create                    the manifest is there

Any one of several --for is enough. Only a status that was decided from the present spec counts. A job
that can no longer get there, such as one that has failed while Complete is waited for, ends the wait.

Exit codes: 0 reached; 1 timed out, no such job, or a fault; 2 invalid usage; 4 a job can no longer get
there.`,
		Example: `  # Until the result is there
  leasehold wait job/invoice-42 --for=condition=Complete --timeout=5m

  # Whichever comes first
  leasehold wait job/invoice-42 --for=condition=Complete --for=condition=Failed

  # Until worker-b holds it
  leasehold wait job/invoice-42 --for=jsonpath='{.status.owner}'=worker-b

  # All jobs with a label
  leasehold wait jobs -l app=report --for=condition=Complete`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.prepare(args); err != nil {
				return err
			}
			return o.run(cmd.Context())
		},
	}
	o.flags(cmd)
	o.fileFlags(cmd)
	f := cmd.Flags()
	f.BoolVar(&o.all, "all", false, "all jobs in the namespace")
	f.StringArrayVar(&o.fors, "for", nil, "`what` to wait for, see above; may be repeated")
	f.DurationVar(&o.timeout, "timeout", 30*time.Second, "how long to wait; 0: look once; negative: a week")
	_ = cmd.MarkFlagRequired("for")
	return cmd
}

func (o *waiting) prepare(args []string) error {
	if err := o.parse(o.g, args); err != nil {
		return err
	}
	if len(o.ids) == 0 && o.selector == "" && o.fieldSelector == "" && !o.all && !o.allNamespaces {
		return usageError("name a job as job/NAME, or choose some with -l, --field-selector or --all")
	}
	for _, text := range o.fors {
		a, err := parseAim(text)
		if err != nil {
			return err
		}
		o.aims = append(o.aims, a)
	}
	return nil
}

// target is a job that is waited for.
type target struct {
	id   string
	met  bool
	gone time.Time // since when its manifest has been absent
}

func (o *waiting) run(ctx context.Context) error {
	b, err := o.g.browse()
	if err != nil {
		return err
	}
	defer b.Close()
	views, _, err := b.load(ctx, true)
	if err != nil {
		return err
	}
	targets, err := o.targets(views)
	if err != nil {
		return err
	}
	done, err := o.look(b, targets, views)
	if err != nil || done {
		return err
	}
	if o.timeout != 0 {
		limit := o.timeout
		if limit < 0 {
			limit = week
		}
		timed, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		err := b.follow(timed, func(views []*jobView) (bool, error) {
			done, err = o.look(b, targets, views)
			return done, err
		})
		if err != nil || done {
			return err
		}
		if ctx.Err() != nil {
			return errors.New("interrupted")
		}
	}
	var errs []error
	for _, t := range targets {
		if !t.met {
			errs = append(errs, fmt.Errorf("timed out waiting for the condition on jobs/%s", t.id))
		}
	}
	return allErrors(o.g, errs)
}

// allErrors prints all errors but the last, which it returns.
func allErrors(g *globals, errs []error) error {
	for i, err := range errs {
		if i == len(errs)-1 {
			return err
		}
		fmt.Fprintln(g.Err, "error: "+plain(err.Error()))
	}
	return nil
}

// targets are the jobs to wait for, as they are at the beginning.
func (o *waiting) targets(views []*jobView) ([]*target, error) {
	picked, missing := o.pick(views)
	may := false // wait for a job that is not there
	for _, a := range o.aims {
		may = may || a.kind == "create" || a.kind == "delete"
	}
	if len(missing) > 0 && !may {
		return nil, notFound(o.g, missing)
	}
	targets := []*target{}
	if len(o.ids) > 0 {
		for _, id := range o.ids {
			targets = append(targets, &target{id: id})
		}
		return targets, nil
	}
	for _, v := range picked {
		if v.Twin == "" {
			targets = append(targets, &target{id: v.refID()})
		}
	}
	if len(targets) == 0 && !may {
		return nil, errors.New("no matching resources found")
	}
	return targets, nil
}

// look sees which targets have got there, and reports whether all have.
func (o *waiting) look(b *browser, targets []*target, views []*jobView) (all bool, err error) {
	byID := map[string]*jobView{}
	for _, v := range views {
		if v.Twin == "" {
			byID[v.refID()] = v
		}
	}
	all = true
	for _, t := range targets {
		if t.met {
			continue
		}
		v := byID[t.id]
		gone := o.gone(b, t, v)
		never := make([]string, 0, len(o.aims))
		for _, a := range o.aims {
			met, why := a.look(v, gone)
			if met {
				t.met = true
				fmt.Fprintf(o.g.Out, "%s/%s condition met\n", resource, t.id)
				break
			}
			if why != "" {
				never = append(never, why)
			}
		}
		if !t.met && len(never) == len(o.aims) {
			return false, &exitError{exitNever, fmt.Errorf("jobs/%s can no longer get there: %s", t.id, strings.Join(never, "; "))}
		}
		all = all && t.met
	}
	return all, nil
}

// gone reports whether a job's manifest has been away for long enough.
func (o *waiting) gone(b *browser, t *target, v *jobView) bool {
	switch now := time.Now(); {
	case v != nil:
		t.gone = time.Time{}
		return false
	case t.gone.IsZero():
		t.gone = now
		b.lookAgain(absence)
		return o.timeout == 0
	default:
		if rest := absence - now.Sub(t.gone); rest > 0 {
			b.lookAgain(rest)
			return false
		}
		return true
	}
}
