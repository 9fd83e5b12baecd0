package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"leasehold.dev/leasehold/store"
	"leasehold.dev/leasehold/store/sqlite"
)

func newRestoreCommand(g *globals) *cobra.Command {
	var namespace string
	cmd := &cobra.Command{
		Use:   "restore job/NAME",
		Short: "Bring back a completion that only a manifest's status knows",
		Long: `After the database was lost or restored from an older copy, a status may say that a job is complete
while the store does not know it. Such a job has the condition RestoreNeeded and gets no lease.
restore takes done and result from the status into the store. To run the job again instead, remove
the status from the manifest.

Exit codes: 0 restored; 1 a fault; 2 invalid usage; 3 nothing is to be restored.`,
		Example: `  leasehold restore job/invoice-42`,
		Args:    cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			name, err := parseRef(args)
			if err != nil {
				return err
			}
			dir, err := g.directory()
			if err != nil {
				return err
			}
			path, err := storePath(dir, g.store)
			if err != nil {
				return err
			}
			db, err := sqlite.Open(cmd.Context(), path, sqlite.Options{Actor: "cli", MustExist: true})
			if err != nil {
				return err
			}
			defer db.Close()
			id, restored := namespaced(namespace, name), false
			_, err = db.Update(cmd.Context(), []string{id}, func(rs []*store.Record) error {
				restored = rs[0].Reinstate()
				return nil
			})
			if err != nil {
				return err
			}
			if !restored {
				fmt.Fprintf(g.Out, "%s/%s unchanged (it does not need to be restored)\n", resource, id)
				return &exitError{code: exitRefused}
			}
			fmt.Fprintf(g.Out, "%s/%s restored\n", resource, id)
			return nil
		},
	}
	namespaceFlag(cmd, &namespace)
	return cmd
}
