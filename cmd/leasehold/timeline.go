package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"leasehold.dev/leasehold/controller/timeline"
	"leasehold.dev/leasehold/manifests"
	"leasehold.dev/leasehold/store"
)

// timelining is a call of timeline.
type timelining struct {
	g         *globals
	namespace string
	by        string
	output    string
}

func newTimelineCommand(g *globals) *cobra.Command {
	o := timelining{g: g}
	cmd := &cobra.Command{
		Use:   "timeline job/NAME",
		Short: "Draw who held a job, and what was refused",
		Long: `Draws the history of a job: a lane per worker, a bar per lease with its fence, and marks for what the
worker did under it, or tried to do when it was over. It goes by the job's clock, or by wall time.`,
		Example: `  # In the terminal
  leasehold timeline job/invoice-42

  # As a drawing, which follows the viewer's light or dark theme
  leasehold timeline job/invoice-42 -o svg >invoice-42.svg`,
		RunE: func(cmd *cobra.Command, args []string) error {
			name, err := parseRef(args)
			if err != nil {
				return err
			}
			return o.run(cmd.Context(), namedID(o.namespace, name))
		},
	}
	f := cmd.Flags()
	f.StringVarP(&o.namespace, "namespace", "n", "", "the `namespace` of the job (default \"default\")")
	f.StringVar(&o.by, "by", "clock", "what the axis shows: clock, the job's, or wall, the time of day")
	f.StringVarP(&o.output, "output", "o", "text", "output `format`: text or svg")
	return cmd
}

func (o *timelining) run(ctx context.Context, id string) error {
	by := timeline.Axis(o.by)
	if by != timeline.Clock && by != timeline.Wall {
		return usageError("--by: Unsupported value: %q: must be clock or wall", o.by)
	}
	if o.output != "text" && o.output != "svg" {
		return usageError("--output: Unsupported value: %q: must be text or svg", o.output)
	}
	b, err := o.g.browse()
	if err != nil {
		return err
	}
	defer b.Close()
	t, err := b.timeline(ctx, id, by)
	if err != nil {
		return err
	}
	if o.output == "svg" {
		return t.File(o.g.Out)
	}
	return printTimeline(o.g.Out, t)
}

// timeline lays out what happened to a job, which may be declared no more.
func (b *browser) timeline(ctx context.Context, id string, by timeline.Axis) (*timeline.Timeline, error) {
	views, _, err := b.load(ctx, true)
	if err != nil {
		return nil, err
	}
	view := &jobView{Doc: &manifests.Doc{ID: id}}
	for _, v := range views {
		if v.Doc.ID == id && v.Twin == "" {
			view = v
		}
	}
	if view.Path == "" {
		if rows, _, err := b.rows(ctx); err == nil {
			view.Row = rows[id]
		}
	}
	events, err := b.history(ctx, id, 0)
	if view.Path == "" && len(events) == 0 {
		return nil, errors.Join(errJobNotFound(id), err)
	}
	if err != nil {
		return nil, fmt.Errorf("the history: %w", err)
	}
	return timeline.New(view.timelineInput(events, systemClock()), by), nil
}

func (v *jobView) timelineInput(events []store.Event, system float64) timeline.Input {
	in := timeline.Input{ID: v.Doc.ID, System: v.System(), Now: v.Now(system), Row: v.Row, Events: events}
	if job := v.Doc.Job; job != nil {
		in.TTL = job.Spec.TTL
		for _, w := range job.Spec.Workers {
			in.Workers = append(in.Workers, w.Name)
		}
	}
	return in
}

func printTimeline(w io.Writer, t *timeline.Timeline) error {
	columns := 100
	if f, ok := w.(*os.File); ok {
		if n, _, err := term.GetSize(int(f.Fd())); err == nil && n > 0 {
			columns = n
		}
	}
	return t.Text(w, columns, colourful(w))
}
