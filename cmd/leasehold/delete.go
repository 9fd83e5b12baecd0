package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"leasehold.dev/leasehold/manifests"
)

func newDeleteCommand(g *globals) *cobra.Command {
	o := setting{g: g}
	var ignoreNotFound bool
	var output string
	cmd := &cobra.Command{
		Use:   "delete (job/NAME... | -f FILE | jobs -l LABEL | jobs --all)",
		Short: "Delete jobs from the directory",
		Long: `Takes the documents of jobs out of their files; what else stands in a file stays as it is, byte for
byte, and a file in which nothing is left is removed. A save that comes in between is never lost.

The store keeps the job's row, with its fence and its result: a job of the same name that is declared
later goes on where this one was.

Exit codes: 0 deleted; 1 no such job, or a fault; 2 invalid usage.`,
		Example: `  # One job
  leasehold delete job/invoice-42

  # The jobs that a file declares
  leasehold delete -f invoice.yaml

  # What would go, by label
  leasehold delete jobs -l app=report --dry-run`,
		RunE: func(cmd *cobra.Command, args []string) error {
			dry, err := o.dryRun.parse()
			if err != nil {
				return err
			}
			if output != "" && output != "name" {
				return usageError("-o %s: must be name", output)
			}
			if err := o.selection.parse(g, args); err != nil {
				return err
			}
			if err := o.someOnly(o.all); err != nil {
				return err
			}
			ctx := cmd.Context()
			l, err := g.live(ctx)
			if err != nil {
				return err
			}
			defer l.Close()
			ids, missing := l.targets(&o.selection)
			if ignoreNotFound {
				missing = nil
			}
			if len(ids) == 0 && len(missing) == 0 && !ignoreNotFound {
				fmt.Fprintln(g.Err, o.nothing())
			}
			failed := map[string]error{}
			var gone []string
			if !dry {
				failed = l.editEach(ctx, ids, removal)
				for _, id := range ids {
					if errors.Is(failed[id], errNotFound) && ignoreNotFound {
						delete(failed, id)
					}
					if failed[id] == nil {
						gone = append(gone, id)
					}
				}
			}
			forget(g, gone)
			twins := map[string]*jobView{}
			for _, v := range l.views {
				if v.Twin != "" && twins[v.Doc.ID] == nil {
					twins[v.Doc.ID] = v
				}
			}
			return g.outcomes(ids, missing, failed, func(id string) string {
				if v := twins[id]; v != nil {
					fmt.Fprintf(g.Err, "Warning: %s declares %s too, and stands for it from now on\n", v.Where(), id)
				}
				if output == "name" {
					return fmt.Sprintf("%s/%s", resource, id)
				}
				return fmt.Sprintf("%s %q deleted%s", resource, id, o.note())
			})
		},
	}
	o.flags(cmd)
	cmd.Flags().BoolVar(&ignoreNotFound, "ignore-not-found", false, "a job that is not there is no error")
	cmd.Flags().StringVarP(&output, "output", "o", "", "`name` prints only the names")
	return cmd
}

// removal takes a document out of its file.
func removal(file *manifests.File, data []byte, doc int) ([]byte, error) {
	return file.Remove(data, doc)
}
