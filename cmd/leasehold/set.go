package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"leasehold.dev/leasehold/manifests"
)

// setting is what label, annotate, suspend and resume have in common: they set values in the
// manifests of some jobs.
type setting struct {
	selection
	dryRun
	g   *globals
	all bool
}

func (o *setting) flags(cmd *cobra.Command) {
	o.selection.flags(cmd)
	f := cmd.Flags()
	f.StringSliceVarP(&o.files, "filename", "f", nil, "the jobs that `file`s, directories or standard input (-) name")
	f.BoolVar(&o.all, "all", false, "all jobs in the namespace")
	o.dryRun.flag(cmd)
}

// change edits the jobs that args and flags mean. edits returns no edits where there is nothing to do;
// says is what is printed about a job.
func (o *setting) change(cmd *cobra.Command, args []string, edits func(*manifests.Doc) ([]manifests.Edit, error), says func(id string) string) error {
	dry, err := o.dryRun.parse()
	if err != nil {
		return err
	}
	if err := o.selection.parse(o.g, args); err != nil {
		return err
	}
	if err := o.someOnly(o.all || o.allNamespaces && o.selector == ""); err != nil {
		return err
	}
	l, err := o.g.live(cmd.Context())
	if err != nil {
		return err
	}
	defer l.Close()
	ids, missing := l.targets(&o.selection)
	if len(ids) == 0 && len(missing) == 0 {
		fmt.Fprintln(o.g.Err, o.nothing())
		return nil
	}
	failed := map[string]error{}
	if dry {
		for _, id := range ids {
			if v := l.view(id); v != nil {
				if _, err := edits(v.Doc); err != nil {
					failed[id] = err
				}
			}
		}
	} else {
		failed = l.editEach(cmd.Context(), ids, sets(edits))
	}
	return o.g.outcomes(ids, missing, failed, func(id string) string { return says(id) + o.note() })
}

// newSuspendCommand makes suspend or resume.
func newSuspendCommand(g *globals, suspend bool) *cobra.Command {
	o := setting{g: g}
	use, done, short, long, example := "resume", "resumed", "Let suspended jobs be leased again",
		"Takes spec.suspend back, so that the job is assigned again.",
		"  # Go on with invoice-42\n  leasehold resume job/invoice-42\n\n  # With every job that has a label\n  leasehold resume jobs -l app=report"
	if suspend {
		use, done, short, long, example = "suspend", "suspended", "Keep jobs from being leased",
			"Sets spec.suspend: no new lease is assigned. One that is running goes on, and may complete the job.",
			"  # No new lease for invoice-42\n  leasehold suspend job/invoice-42\n\n  # For every job that has a label\n  leasehold suspend jobs -l app=report"
	}
	cmd := &cobra.Command{
		Use:     use + " (job/NAME... | jobs -l LABEL | jobs --all)",
		Short:   short,
		Long:    long + "\n\nExit codes: 0 done; 1 no such job, or a fault; 2 invalid usage.",
		Example: example,
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		already := map[string]bool{}
		return o.change(cmd, args, func(d *manifests.Doc) ([]manifests.Edit, error) {
			spec, _ := d.Object["spec"].(map[string]any)
			now, _ := spec["suspend"].(bool)
			if already[d.ID] = now == suspend; now == suspend {
				return nil, nil
			}
			e := manifests.Edit{Path: []any{"spec", "suspend"}}
			if suspend {
				e.Value = true
			}
			return []manifests.Edit{e}, nil
		}, func(id string) string {
			if already[id] {
				return fmt.Sprintf("%s/%s already %s", resource, id, done)
			}
			return fmt.Sprintf("%s/%s %s", resource, id, done)
		})
	}
	o.flags(cmd)
	return cmd
}

// newCordonCommand makes cordon or uncordon.
func newCordonCommand(g *globals, cordon bool) *cobra.Command {
	o := selection{}
	var dry dryRun
	use, short, long := "uncordon", "Let a worker have leases again", "Takes suspend back for the worker in every manifest that declares it"
	if cordon {
		use, short, long = "cordon", "Pass a worker over when jobs are assigned", "Sets suspend for the worker in every manifest that declares it"
	}
	cmd := &cobra.Command{
		Use:   use + " WORKER... [-n NAMESPACE] [-l LABEL]",
		Short: short,
		Long: long + `,
in all namespaces unless -n names one. A lease that the worker holds goes on.

Exit codes: 0 done; 1 no manifest declares the worker, or a fault; 2 invalid usage.`,
		Example: fmt.Sprintf("  # In every job\n  leasehold %s worker-a\n\n  # In the jobs that have a label\n  leasehold %[1]s worker-a -l app=report", use),
		Args:    cobra.MinimumNArgs(1),
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		isDry, err := dry.parse()
		if err != nil {
			return err
		}
		o.allNamespaces = o.allNamespaces || o.namespace == ""
		if err := o.parse(g, []string{"jobs"}); err != nil {
			return err
		}
		l, err := g.live(cmd.Context())
		if err != nil {
			return err
		}
		defer l.Close()
		var ids []string
		declared := map[string]bool{}
		picked, _ := o.pick(l.views)
		for _, v := range picked {
			if v.Twin != "" || v.Doc.ID == "" {
				continue
			}
			has := false
			for _, name := range workersOf(v.Doc) {
				if slices.Contains(args, name) {
					has, declared[name] = true, true
				}
			}
			if has {
				ids = append(ids, v.Doc.ID)
			}
		}
		lines := map[string][]string{}
		edits := func(d *manifests.Doc) ([]manifests.Edit, error) {
			es, text := cordonEdits(d, args, cordon)
			lines[d.ID] = text
			return es, nil
		}
		failed := map[string]error{}
		if isDry {
			for _, v := range picked {
				if slices.Contains(ids, v.Doc.ID) && v.Twin == "" {
					_, _ = edits(v.Doc)
				}
			}
		} else {
			failed = l.editEach(cmd.Context(), ids, sets(edits))
		}
		err = g.outcomes(ids, nil, failed, func(id string) string {
			for i := range lines[id] {
				lines[id][i] = fmt.Sprintf("%s/%s %s%s", resource, id, lines[id][i], dry.note())
			}
			return strings.Join(lines[id], "\n")
		})
		var errs []error
		if err != nil {
			errs = append(errs, err)
		}
		for _, name := range args {
			if !declared[name] {
				errs = append(errs, fmt.Errorf("no manifest here declares a worker %s", strconv.Quote(name)))
			}
		}
		return allErrors(g, errs)
	}
	o.flags(cmd)
	dry.flag(cmd)
	return cmd
}

// cordonEdits sets suspend for workers of one document, and says what that comes to.
func cordonEdits(d *manifests.Doc, workers []string, cordon bool) (es []manifests.Edit, says []string) {
	spec, _ := d.Object["spec"].(map[string]any)
	list, _ := spec["workers"].([]any)
	done := map[bool]string{true: "cordoned", false: "uncordoned"}[cordon]
	for i, w := range list {
		m, _ := w.(map[string]any)
		name, _ := m["name"].(string)
		if name == "" || !slices.Contains(workers, name) {
			continue
		}
		if now, _ := m["suspend"].(bool); now == cordon {
			says = append(says, fmt.Sprintf("%s already %s", name, done))
			continue
		}
		e := manifests.Edit{Path: []any{"spec", "workers", i, "suspend"}}
		if cordon {
			e.Value = true
		}
		es = append(es, e)
		says = append(says, fmt.Sprintf("%s %s", name, done))
	}
	return es, says
}

func workersOf(d *manifests.Doc) (names []string) {
	spec, _ := d.Object["spec"].(map[string]any)
	list, _ := spec["workers"].([]any)
	for _, w := range list {
		m, _ := w.(map[string]any)
		if name, _ := m["name"].(string); name != "" {
			names = append(names, name)
		}
	}
	return names
}
