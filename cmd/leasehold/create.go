package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/rand"

	"leasehold.dev/leasehold/manifests"
	"leasehold.dev/leasehold/store"
	"leasehold.dev/leasehold/store/sqlite"
)

func newCreateCommand(g *globals) *cobra.Command {
	o := applying{g: g}
	cmd := &cobra.Command{
		Use:   "create -f FILE|DIR|-",
		Short: "Create new jobs, from files or from flags",
		Long: `Brings new jobs into the directory, each as a file of its own. A job that is there already is an
error. metadata.generateName becomes a name that neither a file nor the store knows: since a job that
is complete never runs again, that is the way to run the same work once more.

Exit codes: 0 created; 1 something exists already or was not accepted; 2 invalid usage.`,
		Example: `  # What a file declares
  leasehold create -f job.yaml

  # A job from flags
  leasehold create job invoice-42 --worker worker-a --worker worker-b --ttl 30

  # A manifest to start from
  leasehold create job invoice-42 --worker worker-a --ttl 30 --dry-run=client -o yaml >invoice.yaml`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context(), o.each(o.create)) },
	}
	o.flags(cmd)
	cmd.AddCommand(newCreateJobCommand(g))
	return cmd
}

func newCreateJobCommand(g *globals) *cobra.Command {
	o := applying{g: g}
	var workers, data []string
	var ttl, clock float64
	var attempts int64
	var suspend bool
	cmd := &cobra.Command{
		Use:   "job NAME --worker W... --ttl N",
		Short: "Create a job from flags",
		Long: `Creates a job from flags. Without --clock it goes by the system clock, and --ttl is in seconds.

Exit codes: 0 created; 1 it exists already, or a fault; 2 invalid usage or value.`,
		Example: `  # Two workers, in order of preference; a lease lasts 30 seconds
  leasehold create job invoice-42 --worker worker-a --worker worker-b --ttl 30

  # By a clock of its own, which tick moves, with data for the worker
  leasehold create job invoice-43 --worker worker-a --ttl 30 --clock 100 --data region=eu`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			o.ctx = cmd.Context()
			if o.dry, err = o.dryRun.parse(); err != nil {
				return err
			}
			spec := manifests.JobSpec{TTL: ttl, Suspend: suspend}
			if cmd.Flags().Changed("clock") {
				spec.Clock = &clock
			}
			if cmd.Flags().Changed("max-attempts") {
				spec.MaxAttempts = &attempts
			}
			for _, w := range workers {
				spec.Workers = append(spec.Workers, manifests.Worker{Name: w})
			}
			for _, d := range data {
				k, v, ok := strings.Cut(d, "=")
				if !ok || k == "" {
					return usageError("--data: Invalid value: %q: must be KEY=VALUE", d)
				}
				if spec.Data == nil {
					spec.Data = map[string]string{}
				}
				spec.Data[k] = v
			}
			doc, err := newDoc(args[0], o.namespace, spec)
			if err != nil {
				return err
			}
			l, err := g.live(o.ctx)
			if err != nil {
				return err
			}
			defer l.Close()
			return o.create(l, nil, &given{id: doc.ID, doc: doc, text: manifests.Render(doc)})
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&workers, "worker", nil, "a `worker`, in order of preference; at least one")
	f.Float64Var(&ttl, "ttl", 0, "the length of a lease, in the unit of the clock")
	f.Float64Var(&clock, "clock", 0, "the job's own clock (default: it goes by the system clock)")
	f.Int64Var(&attempts, "max-attempts", 0, "after this many leases without a completion the job has failed")
	f.StringArrayVar(&data, "data", nil, "`KEY=VALUE` that is handed to the worker")
	f.BoolVar(&suspend, "suspend", false, "assign no lease until it is resumed")
	namespaceFlag(cmd, &o.namespace)
	f.StringVarP(&o.output, "output", "o", "", "print the job in this `format`: name, yaml or json")
	o.dryRun.flag(cmd)
	_ = cmd.MarkFlagRequired("worker")
	_ = cmd.MarkFlagRequired("ttl")
	cmd.ValidArgsFunction = cobra.NoFileCompletions
	_ = cmd.RegisterFlagCompletionFunc("worker", workerNames(g))
	return cmd
}

// newDoc is the document of a job that is made of flags. What is wrong with it is wrong with them.
func newDoc(name, namespace string, spec manifests.JobSpec) (*manifests.Doc, error) {
	meta := map[string]any{"name": name}
	if namespace != "" && namespace != "default" {
		meta["namespace"] = namespace
	}
	text, err := json.Marshal(map[string]any{"apiVersion": manifests.APIVersion, "kind": manifests.Kind, "metadata": meta, "spec": spec})
	if err != nil {
		return nil, usageError("%w", err) // a number that is none
	}
	doc := manifests.Decode("", text).Docs[0]
	if doc.Job == nil {
		errs := make([]string, len(doc.Errors))
		for i, e := range doc.Errors {
			errs[i] = (&manifests.Error{Field: e.Field, Detail: e.Detail}).Error()
		}
		return nil, usageError("%s", strings.Join(errs, "; "))
	}
	return doc, nil
}

func (o *applying) create(l *live, _ *source, d *given) error {
	in := func(err error) error {
		if d.at == "" {
			return err
		}
		return fmt.Errorf("%s: %w", d.at, err)
	}
	generated := false
	if d.doc.Job == nil {
		var err error
		if generated, err = o.generate(l, d); err != nil {
			return err
		}
	}
	v := l.view(d.id)
	if path, there := l.where[d.id]; there && v == nil {
		return in(fmt.Errorf("jobs.leasehold.dev %q already exists in %s", d.id, l.shown(path)))
	} else if v != nil {
		return in(fmt.Errorf("jobs.leasehold.dev %q already exists in %s", d.id, v.Where()))
	}
	if !o.dry {
		err := o.write(l, d)
		for errors.Is(err, errExists) && generated {
			d.doc.Job = nil
			if _, err = o.generate(l, d); err == nil {
				err = o.write(l, d)
			}
		}
		if errors.Is(err, errExists) {
			err = fmt.Errorf("jobs.leasehold.dev %q already exists", d.id)
		}
		if err != nil {
			return in(err)
		}
	}
	note := ""
	if done, _ := l.completed(o.ctx, d.id); done {
		note = "it is complete; a done id never runs again"
	}
	return o.show(d, d.text, "created", note)
}

// generate makes a name from generateName, where that is all that keeps the document from being
// accepted.
func (o *applying) generate(l *live, d *given) (bool, error) {
	meta, _ := d.doc.Object["metadata"].(map[string]any)
	prefix, _ := meta["generateName"].(string)
	if name := meta["name"]; prefix == "" || name != nil && name != "" && d.doc.ID == "" {
		return false, refused(d.doc)
	}
	const longest = 63 - 5
	if len(prefix) > longest {
		prefix = prefix[:longest]
	}
	for range 100 {
		name := prefix + rand.String(5)
		text, err := manifests.Decode("", d.text).Set(d.text, 0, manifests.Edit{Path: []any{"metadata", "name"}, Value: name})
		if err != nil {
			return false, fmt.Errorf("%s: %w", d.at, err)
		}
		doc := manifests.Decode("", text).Docs[0]
		if doc.Job == nil {
			// Of what was wrong before, the missing name is not.
			errs := d.doc.Errors[:0:0]
			for _, e := range d.doc.Errors {
				if e.Field != "metadata.name" {
					errs = append(errs, e)
				}
			}
			if len(errs) == 0 {
				errs = doc.Errors
			}
			doc.Errors = errs
			return false, refused(doc)
		}
		if _, there := l.where[doc.ID]; there {
			continue
		}
		if row, err := l.row(o.ctx, doc.ID); err != nil {
			return false, err
		} else if row != nil && row.Known {
			continue
		}
		d.doc, d.id, d.text = doc, doc.ID, text
		return true, nil
	}
	return false, fmt.Errorf("%s: no free name was found for %s", d.at, prefix)
}

// row is what the store knows of an id that may be declared nowhere; nil if there is no store.
func (l *live) row(ctx context.Context, id string) (row *store.Record, err error) {
	err = l.withStore(ctx, func(db *sqlite.DB) error {
		_, err := db.View(ctx, []string{id}, func(rs []*store.Record) error { row = rs[0].Clone(); return nil })
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return row, err
}
