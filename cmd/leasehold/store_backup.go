package main

import (
	"context"

	"github.com/spf13/cobra"

	"leasehold.dev/leasehold/store/sqlite"
)

func (sc *storeCommands) backup() *cobra.Command {
	return sc.command(&cobra.Command{
		Use:   "backup FILE",
		Short: "Copy the store to a new file while it is in use",
		Long: `Copies one state of the store to FILE, which must not exist, while a controller and other programs
work on. FILE is whole and on disk when the command returns.

To put a backup back: stop the controller, remove leasehold.db, leasehold.db-wal and
leasehold.db-shm, and copy FILE to leasehold.db. The controller tells from the status in the
manifests that it is an older copy: it takes a new identity, running leases end, and every fence
goes on 1,000 higher.`,
		Example: `  leasehold store backup /backup/leasehold-monday.db`,
	}, cobra.ExactArgs(1), true, func(ctx context.Context, db *sqlite.DB, args []string) error {
		stamp, err := db.Backup(ctx, args[0])
		if err != nil {
			return err
		}
		return printJSON(sc.Out, struct {
			Store string `json:"store"`
			Path  string `json:"path"`
		}{stamp.String(), args[0]})
	})
}
