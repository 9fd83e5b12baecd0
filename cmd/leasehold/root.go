package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"leasehold.dev/leasehold/store"
)

// streams are what a command reads and writes.
type streams struct {
	In       io.Reader
	Out, Err io.Writer
}

// Exit codes.
const (
	exitOK      = 0
	exitFault   = 1
	exitUsage   = 2 // invalid usage or argument
	exitRefused = 3
)

// exitError ends a command with a code. Without err, what there was to say has been printed.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// globals are the flags that every command has.
type globals struct {
	dir   string
	store string
}

// run executes a command line and returns the exit code. Errors are printed here and nowhere else.
func run(ctx context.Context, args []string, s streams) int {
	var g globals
	started := false // past the checks of usage
	root := &cobra.Command{
		Use:           "leasehold",
		Short:         "Fenced leases on jobs that are declared as files",
		SilenceErrors: true,
		SilenceUsage:  true,
		PersistentPreRunE: func(c *cobra.Command, _ []string) error {
			if err := c.ValidateRequiredFlags(); err != nil {
				return err
			}
			started = true
			return nil
		},
	}
	root.SetArgs(args)
	root.SetIn(s.In)
	root.SetOut(s.Out)
	root.SetErr(s.Err)
	root.PersistentFlags().StringVar(&g.dir, "dir", "", "the `directory` of the manifests (default: the nearest parent that is one, else the current directory)")
	root.PersistentFlags().StringVar(&g.store, "store", "", "the database `file` (default: leasehold.db in the state directory)")
	root.AddCommand(newStoreCommand(&s, &g))

	c, err := root.ExecuteContextC(ctx)
	var exit *exitError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &exit) && exit.err == nil:
		return exit.code
	}
	fmt.Fprintf(s.Err, "error: %v\n", err)
	switch {
	case exit != nil:
		return exit.code
	case !started:
		fmt.Fprintf(s.Err, "See '%s --help' for usage.\n", c.CommandPath())
		return exitUsage
	case errors.Is(err, store.ErrInvalid):
		return exitUsage
	}
	return exitFault
}
