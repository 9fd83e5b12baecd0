package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/duration"

	"leasehold.dev/leasehold/controller"
	"leasehold.dev/leasehold/store"
)

// describing is a call of describe.
type describing struct {
	selection
	g          *globals
	showEvents bool
}

func newDescribeCommand(g *globals) *cobra.Command {
	o := describing{g: g}
	cmd := &cobra.Command{
		Use:   "describe (jobs | job NAME... | job/NAME... | -f FILE)",
		Short: "Show everything about jobs, with what happened to them",
		Long: `Shows jobs in detail: the lease, the workers and the verdicts on what they reported, the conditions,
why a manifest is not accepted, and the history as events.`,
		Example: `  # Why was a worker refused?
  leasehold describe job invoice-42

  # All jobs with a label
  leasehold describe jobs -l app=report`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.parse(g, args); err != nil {
				return err
			}
			return o.run(cmd.Context())
		},
	}
	o.flags(cmd)
	cmd.Flags().StringSliceVarP(&o.files, "filename", "f", nil, "the jobs in this `file` or directory, or in standard input (-)")
	cmd.Flags().BoolVar(&o.showEvents, "show-events", true, "show what happened")
	return cmd
}

func (o *describing) run(ctx context.Context) error {
	b, err := o.g.browse()
	if err != nil {
		return err
	}
	defer b.Close()
	views, _, err := b.load(ctx, true)
	if err != nil {
		return err
	}
	picked, missing := o.pick(views)
	if len(picked) == 0 && len(missing) == 0 {
		fmt.Fprintln(o.g.Err, o.nothing())
	}
	for i, v := range picked {
		if i > 0 {
			fmt.Fprint(o.g.Out, "\n\n")
		}
		var events []store.Event
		if o.showEvents && v.Stored {
			if events, err = b.history(ctx, v.Doc.ID, 0); err != nil {
				return err
			}
		}
		if err := o.describe(v, events); err != nil {
			return err
		}
	}
	return notFound(o.g, missing)
}

// sheet prints lines of cells that are aligned within a block.
type sheet struct {
	tw *tabwriter.Writer
}

func newSheet(w io.Writer) *sheet { return &sheet{tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)} }

// row prints a line. A line of its own width, such as a heading, has one cell.
func (s *sheet) row(cells ...string) {
	for i := range cells {
		cells[i] = plain(cells[i])
	}
	line := strings.Join(cells, "\t")
	fmt.Fprintln(s.tw, strings.TrimRight(line, " \t"))
}

// heading begins a block.
func (s *sheet) heading(text string) {
	s.tw.Flush()
	s.row(text)
	s.tw.Flush()
}

func (o *describing) describe(v *jobView, events []store.Event) error {
	s := newSheet(o.g.Out)
	s.row("Name:", v.Name())
	s.row("Namespace:", v.Namespace())
	pairs(s, "Labels:", "=", v.Labels())
	pairs(s, "Annotations:", ": ", v.metadata("annotations"))
	s.row("File:", v.Where())
	s.row("State:", v.stateText())
	if v.Stale() {
		s.row("", "("+v.hashText()+")")
	} else if v.Behind() {
		s.row("", "("+behind+")")
	}
	if v.Doc.Job == nil {
		s.heading("Errors:")
		for _, e := range v.Doc.Errors {
			s.row("  " + e.Error())
		}
	}
	v.describeLease(s)
	v.describeSpec(s)
	v.describeWorkers(s)
	v.describeConditions(s)
	if o.showEvents {
		describeEvents(s, v, events)
	}
	return s.tw.Flush()
}

func (v *jobView) stateText() string {
	if text := v.standing(); text != "" {
		return v.State + ": " + text
	}
	return v.State
}

func (v *jobView) hashText() string {
	return fmt.Sprintf("decided from the spec %s; the present one is %s: no controller has decided from it yet", v.Row.SpecHash, v.Hash)
}

// pairs prints a map, an entry a line.
func pairs(s *sheet, title, between string, m map[string]string) {
	if len(m) == 0 {
		s.row(title, none)
		return
	}
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for _, k := range keys {
		s.row(title, k+between+m[k])
		title = ""
	}
}

func (v *jobView) describeLease(s *sheet) {
	r := v.Row
	if r == nil || !r.Exists {
		return
	}
	now := systemClock()
	s.heading("Lease:")
	owner, until := none, none
	if r.Owner != "" {
		owner, until = r.Owner, moment(r.Until, v.System())
		if v.System() && !r.Done {
			until += "  (" + v.until(now)
			if r.Until > now {
				until += " left"
			}
			until += ")"
		}
	}
	s.row("  Owner:", owner)
	s.row("  Fence:", strconv.FormatInt(r.Fence, 10))
	s.row("  Until:", until)
	if m := r.Mark; m != nil {
		s.row("  Last Clock:", moment(m.Time, m.System))
	}
	attempts := strconv.FormatInt(r.Attempts, 10)
	if job := v.Doc.Job; job != nil && job.Spec.MaxAttempts != nil {
		attempts += " of " + strconv.FormatInt(*job.Spec.MaxAttempts, 10)
	}
	s.row("  Attempts:", attempts)
	s.row("  Done:", strconv.FormatBool(r.Done))
	if r.Result != nil {
		s.row("  Result:", *r.Result)
	}
	if v.Stored {
		s.row("  Store:", r.Stamp.String())
	} else {
		s.row("  Store:", "cannot be read; this is the status in the file")
	}
}

func (v *jobView) describeSpec(s *sheet) {
	job := v.Doc.Job
	if job == nil {
		return
	}
	s.heading("Spec:")
	s.row("  Clock:", v.clock())
	s.row("  TTL:", number(job.Spec.TTL))
	s.row("  Suspend:", strconv.FormatBool(job.Spec.Suspend))
	if m := job.Spec.MaxAttempts; m != nil {
		s.row("  Max Attempts:", strconv.FormatInt(*m, 10))
	}
	if len(job.Spec.Data) > 0 {
		pairs(s, "  Data:", "=", job.Spec.Data)
	}
}

func (v *jobView) describeWorkers(s *sheet) {
	job, r := v.Doc.Job, v.Row
	if job == nil {
		return
	}
	s.heading("Workers:")
	s.row("  Name", "Suspended", "Holds", "Report", "Verdict")
	s.row("  ----", "---------", "-----", "------", "-------")
	declared := false
	for _, w := range job.Spec.Workers {
		name, suspended, holds := "  "+w.Name, "no", none
		if w.Suspend {
			suspended = "yes"
		}
		if r != nil && r.Exists && r.Owner == w.Name {
			declared = true
			if v.State == stateLeased {
				holds = fmt.Sprintf("fence %d", r.Fence)
			}
		}
		var reports []store.Report
		if c := w.Complete; c != nil {
			reports = append(reports, store.Report{Worker: w.Name, Verb: store.VerbComplete, Fence: c.Fence, Result: c.Result})
		}
		if c := w.Renew; c != nil {
			reports = append(reports, store.Report{Worker: w.Name, Verb: store.VerbRenew, Fence: c.Fence, Time: c.Time})
		}
		if c := w.Release; c != nil {
			reports = append(reports, store.Report{Worker: w.Name, Verb: store.VerbRelease, Fence: c.Fence})
		}
		if len(reports) == 0 {
			s.row(name, suspended, holds, none)
		}
		for _, p := range reports {
			s.row(name, suspended, holds, reportText(p), v.verdictText(p))
			name, suspended, holds = "", "", ""
		}
	}
	if r != nil && v.State == stateLeased && !declared {
		s.row("  "+r.Owner, "-", fmt.Sprintf("fence %d", r.Fence), none, "no longer declared")
	}
}

func reportText(p store.Report) string {
	text := fmt.Sprintf("%s, fence %d", p.Verb, p.Fence)
	switch p.Verb {
	case store.VerbComplete:
		text += ", " + strconv.Quote(short(p.Result, 30))
	case store.VerbRenew:
		text += ", time " + number(p.Time)
	}
	return text
}

// verdictText is the verdict on a report in the manifest.
func (v *jobView) verdictText(p store.Report) string {
	if v.Row == nil {
		return "not judged yet"
	}
	i := slices.IndexFunc(v.Row.Reports, func(q store.Report) bool {
		if !v.Stored { // a status does not tell the result
			q.Result = p.Result
		}
		return q.Same(p)
	})
	if i < 0 {
		return "not judged yet"
	}
	switch q := v.Row.Reports[i]; {
	case q.Superseded:
		return "Superseded: a heartbeat of this time or a later one was judged before"
	case q.Verdict.OK():
		return "Accepted"
	case v.Stored:
		return fmt.Sprintf("Refused: %s: %s", q.Verdict.Reason, controller.Explain(q.Verdict, v.System()))
	default:
		return fmt.Sprintf("Refused: %s", q.Verdict.Reason)
	}
}

func (v *jobView) describeConditions(s *sheet) {
	st := v.Status()
	if st == nil || len(st.Conditions) == 0 {
		return
	}
	s.heading("Conditions:")
	s.row("  Type", "Status", "Since", "Reason", "Message")
	s.row("  ----", "------", "-----", "------", "-------")
	for _, c := range st.Conditions {
		since := number(float64(c.LastTransitionTime.Unix()))
		if v.System() {
			since = duration.HumanDuration(time.Since(c.LastTransitionTime.Time))
		}
		s.row("  "+c.Type, string(c.Status), since, c.Reason, c.Message)
	}
}

// describedEvents is how many events are shown of a job at most.
const describedEvents = 25

func describeEvents(s *sheet, v *jobView, events []store.Event) {
	if len(events) == 0 {
		s.row("Events:", none)
		return
	}
	s.heading("Events:")
	if more := len(events) - describedEvents; more > 0 {
		s.heading(fmt.Sprintf("  %d earlier ones: leasehold events job/%s", more, v.Doc.ID))
		events = events[more:]
	}
	s.row("  Type", "Reason", "Age", "From", "Message")
	s.row("  ----", "------", "---", "----", "-------")
	for _, e := range events {
		s.row("  "+eventType(e), eventReason(e), eventAge(e), e.By, controller.EventText(e))
	}
}
