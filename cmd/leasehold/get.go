package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/liggitt/tabwriter"
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/cli-runtime/pkg/printers"
)

// getting is a call of get.
type getting struct {
	selection
	g              *globals
	output         string
	sortBy         string
	labelColumns   []string
	watch          bool
	watchOnly      bool
	noHeaders      bool
	showLabels     bool
	ignoreNotFound bool

	objects printers.ResourcePrinter // nil: a table
	table   printers.ResourcePrinter
	rows    *tabwriter.Writer // keeps the widths of the table's columns
}

func newGetCommand(g *globals) *cobra.Command {
	o := getting{g: g}
	cmd := &cobra.Command{
		Use:   "get (jobs | job NAME... | job/NAME... | -f FILE)",
		Short: "Show jobs and who holds them",
		Long: `Shows jobs as they stand: who holds each, under which fence, and until when. That comes from the store
or, where the store cannot be read, from the status in the files. It works with and without a running
controller.

STATE is one of Leased, Waiting, Suspended, Expired (the lease ran out, and no controller has looked
since), Complete, Failed, ClockRegressed, RestoreNeeded, Pending (never reconciled), Invalid (the
manifest is not accepted) and DuplicateName. A * says that it was decided from an earlier spec. UNTIL is
a reading of the job's CLOCK; on the system clock it is the time that is left.

The values of jsonpath, custom-columns and go-template may be in a file: -o jsonpath-file=FILE, and so
on. Fields for --field-selector are metadata.name, metadata.namespace, status.owner and status.done.

Exit codes: 0 shown; 1 a named job was not found, or a fault; 2 invalid usage.`,
		Example: `  # All jobs in the namespace default, and in all namespaces
  leasehold get jobs
  leasehold get jobs -A -o wide

  # One job, as YAML, and its fence alone
  leasehold get job invoice-42 -o yaml
  leasehold get job/invoice-42 -o jsonpath='{.status.fence}'

  # Follow what happens
  leasehold get jobs -w

  # What worker-a holds, the lease that ends first on top
  leasehold get jobs --field-selector status.owner=worker-a --sort-by .status.until

  # Columns of your own
  leasehold get jobs -o custom-columns=JOB:.metadata.name,RESULT:.status.result`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.parse(g, args); err != nil {
				return err
			}
			if err := o.prepare(); err != nil {
				return err
			}
			return o.run(cmd.Context())
		},
	}
	o.flags(cmd)
	o.fileFlags(cmd)
	f := cmd.Flags()
	f.StringVarP(&o.output, "output", "o", "", "output `format`: wide, yaml, json, name, jsonpath=, custom-columns= or go-template=")
	f.StringVar(&o.sortBy, "sort-by", "", "sort by this field, a `JSONPath` such as .status.until")
	f.StringSliceVarP(&o.labelColumns, "label-columns", "L", nil, "show these `labels` as columns")
	f.BoolVarP(&o.watch, "watch", "w", false, "after listing, print each job that changes")
	f.BoolVar(&o.watchOnly, "watch-only", false, "print each job that changes, without listing first")
	f.BoolVar(&o.noHeaders, "no-headers", false, "print no headers")
	f.BoolVar(&o.showLabels, "show-labels", false, "show all labels as the last column")
	f.BoolVar(&o.ignoreNotFound, "ignore-not-found", false, "a job that is not there is no error")
	return cmd
}

// prepare makes the printer.
func (o *getting) prepare() (err error) {
	kind, arg, _ := strings.Cut(o.output, "=")
	switch kind {
	case "", "wide":
		o.table = printers.NewTablePrinter(printers.PrintOptions{
			NoHeaders: o.noHeaders, WithNamespace: o.allNamespaces, Wide: kind == "wide",
			ShowLabels: o.showLabels, ColumnLabels: o.labelColumns,
		})
		o.rows = printers.GetNewTabWriter(o.g.Out)
	case "custom-columns", "custom-columns-file":
		o.objects, err = newColumns(kind, arg, !o.noHeaders)
	default:
		if o.showLabels || len(o.labelColumns) > 0 {
			return usageError("--show-labels and --label-columns belong to a table, not to -o %s", kind)
		}
		o.objects, err = objectPrinter(o.output)
	}
	return err
}

func (o *getting) run(ctx context.Context) error {
	b, err := o.g.browse()
	if err != nil {
		return err
	}
	defer b.Close()
	if o.watch || o.watchOnly {
		return o.follow(ctx, b)
	}
	views, _, err := b.load(ctx, true)
	if err != nil {
		return err
	}
	picked, missing := o.pick(views)
	return o.show(picked, missing)
}

// show prints the jobs at once.
func (o *getting) show(views []*jobView, missing []string) error {
	if o.sortBy != "" && len(views) > 0 {
		if err := sortBy(views, o.sortBy); err != nil {
			return err
		}
	}
	switch {
	case o.table != nil:
		if len(views) == 0 && len(missing) == 0 && !o.ignoreNotFound {
			fmt.Fprintln(o.g.Err, o.nothing())
		}
		if err := o.printRows(views); err != nil {
			return err
		}
		o.footnote(views)
	case o.single() && len(views) == 1:
		if err := o.objects.PrintObj(views[0].Object(), o.g.Out); err != nil {
			return err
		}
	case len(missing) == 0 || len(views) > 0:
		if err := o.objects.PrintObj(list(objects(views)), o.g.Out); err != nil {
			return err
		}
	}
	if o.ignoreNotFound {
		return nil
	}
	return notFound(o.g, missing)
}

// notFound is an error about each id that is not there; all but the last are printed.
func notFound(g *globals, missing []string) error {
	errs := make([]error, len(missing))
	for i, id := range missing {
		errs[i] = errJobNotFound(id)
	}
	return allErrors(g, errs)
}

func objects(views []*jobView) []*unstructured.Unstructured {
	all := make([]*unstructured.Unstructured, len(views))
	for i, v := range views {
		all[i] = v.Object()
	}
	return all
}

func (o *getting) printRows(views []*jobView) error {
	if len(views) == 0 {
		return nil
	}
	if err := o.table.PrintObj(table(views, systemClock()), o.rows); err != nil {
		return err
	}
	return o.rows.Flush()
}

// footnote explains the mark at a state.
func (o *getting) footnote(views []*jobView) {
	for _, v := range views {
		if v.Stale() && !o.noHeaders && o.output == "" {
			fmt.Fprintln(o.g.Err, "* decided from an earlier spec; leasehold run decides from the present one")
			return
		}
	}
}

// follow prints the jobs, and then each one that changes.
func (o *getting) follow(ctx context.Context, b *browser) error {
	seen := map[string]*seenJob{}
	first := true
	return b.follow(ctx, func(views []*jobView) (bool, error) {
		picked, missing := o.pick(views)
		if first {
			if len(missing) > 0 && !o.ignoreNotFound {
				return true, o.show(picked, missing)
			}
			if len(picked) == 0 && o.table != nil && !o.watchOnly {
				fmt.Fprintln(o.g.Err, o.nothing())
			}
			if o.sortBy != "" && len(picked) > 0 {
				if err := sortBy(picked, o.sortBy); err != nil {
					return false, err
				}
			}
		}
		changed := o.changed(b, seen, picked, first)
		listed := first
		first = false
		if listed && o.watchOnly {
			return false, nil
		}
		return false, o.printChanged(changed)
	})
}

// seenJob is a job as it was last printed, and how long it has been otherwise.
type seenJob struct {
	view *jobView
	face string
	odd  time.Time // since when it has been stale or gone
}

// staleRest is how long a controller has to decide from a new spec before that is worth a row.
const staleRest = 250 * time.Millisecond

// changed returns the jobs that look other than when they were last printed. A spec that nobody has
// decided from, and an absence, have to last before they count.
func (o *getting) changed(b *browser, seen map[string]*seenJob, picked []*jobView, first bool) (changed []*jobView) {
	now := time.Now()
	lasts := func(s *seenJob, d time.Duration) bool {
		if s.odd.IsZero() {
			s.odd = now
		}
		if rest := d - now.Sub(s.odd); rest > 0 {
			b.lookAgain(rest)
			return false
		}
		return true
	}
	there := map[string]bool{}
	for _, v := range picked {
		key := v.key()
		there[key] = true
		s := seen[key]
		if s == nil {
			s = &seenJob{}
			seen[key] = s
		}
		face := o.face(v)
		if !first && s.face != face && (v.Stale() || v.State == statePending) && !lasts(s, staleRest) {
			continue
		}
		s.odd = time.Time{}
		if s.face != face {
			s.view, s.face = v, face
			changed = append(changed, v)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(seen)) {
		s := seen[key]
		if there[key] || !lasts(s, absence) {
			continue
		}
		delete(seen, key)
		if s.view != nil {
			gone := *s.view
			gone.State, gone.Note = stateDeleted, "the manifest is gone, or is no longer what was asked for"
			changed = append(changed, &gone)
		}
	}
	return changed
}

func (o *getting) printChanged(views []*jobView) error {
	if o.table != nil {
		return o.printRows(views)
	}
	for _, v := range views {
		if err := o.objects.PrintObj(v.Object(), o.g.Out); err != nil {
			return err
		}
		if strings.HasPrefix(o.output, "jsonpath") || strings.HasPrefix(o.output, "go-template") {
			fmt.Fprintln(o.g.Out)
		}
	}
	return nil
}

// key tells documents apart while they are followed.
func (v *jobView) key() string {
	if v.Twin == "" && v.Doc.ID != "" {
		return v.Doc.ID
	}
	return v.Path + "\x00" + v.Namespace() + "\x00" + v.Doc.Name
}

// face is what a reader would see of the job; time that passes does not change it.
func (o *getting) face(v *jobView) string {
	if o.objects == nil {
		cells := v.cells(0)
		cells[len(cells)-1] = v.Note
		until := 0.0
		if v.Row != nil {
			until = v.Row.Until
		}
		return fmt.Sprint(cells, until, v.Labels())
	}
	obj := v.Object()
	unstructured.RemoveNestedField(obj.Object, "status", "store") // its revision alone is no change
	text, err := json.Marshal(obj)
	if err != nil {
		return err.Error()
	}
	return string(text)
}
