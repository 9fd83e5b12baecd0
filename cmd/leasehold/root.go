package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"syscall"

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
	exitTimeout = 4
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

// usageError is an error about how the command was called.
func usageError(format string, args ...any) error {
	return &exitError{exitUsage, fmt.Errorf(format, args...)}
}

// globals are the streams and flags that every command has.
type globals struct {
	streams
	dir   string
	store string
}

// directory returns the directory of the manifests, as the user would name it.
func (g *globals) directory() (string, error) {
	if g.dir != "" {
		return filepath.Clean(g.dir), nil
	}
	found, err := findDir("")
	if err != nil {
		return "", err
	}
	if cwd, err := findDir("."); err == nil {
		if rel, err := filepath.Rel(cwd, found); err == nil {
			return rel, nil
		}
	}
	return found, nil
}

// run executes a command line and returns the exit code. Errors are printed here and nowhere else.
func run(ctx context.Context, args []string, s streams) int {
	g := globals{streams: s}
	started := false // past the checks of usage
	root := &cobra.Command{
		Use:   "leasehold",
		Short: "Fenced leases on jobs that are declared as files",
		Long: `Leasehold reconciles a directory of Job manifests: it leases each job to one of its workers at a
time, hands out a fencing token that only grows, judges what workers report, and writes status back
into the files. A worker that stalls, loses its job and wakes up cannot overwrite its successor's
result.`,
		Example: `  # Write the samples into jobs, and reconcile them
  leasehold run --init jobs

  # See a stale worker being refused
  leasehold demo`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.NoArgs,
		RunE:          func(c *cobra.Command, _ []string) error { return c.Help() },
		PersistentPreRunE: func(c *cobra.Command, _ []string) error {
			if err := errors.Join(c.ValidateRequiredFlags(), c.ValidateFlagGroups()); err != nil {
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
	root.AddCommand(
		newRunCommand(&g),
		newWorkCommand(&g),
		newGuardCommand(&g),
		newValidateCommand(&g),
		newGetCommand(&g),
		newDescribeCommand(&g),
		newEventsCommand(&g),
		newTimelineCommand(&g),
		newWaitCommand(&g),
		newApplyCommand(&g),
		newCreateCommand(&g),
		newEditCommand(&g),
		newDeleteCommand(&g),
		newDiffCommand(&g),
		newLabelCommand(&g, "label"),
		newLabelCommand(&g, "annotate"),
		newSuspendCommand(&g, true),
		newSuspendCommand(&g, false),
		newCordonCommand(&g, true),
		newCordonCommand(&g, false),
		newTickCommand(&g),
		newReportCommand(&g, "renew"),
		newReportCommand(&g, "complete"),
		newReportCommand(&g, "release"),
		newRestoreCommand(&g),
		newGitCommand(&g),
		newStoreCommand(&s, &g),
		newDemoCommand(&g),
		newExplainCommand(&g),
		newSchemaCommand(&g),
		newCRDCommand(&g),
		newDocsCommand(&g),
		newVersionCommand(&g),
	)
	completeNames(root, &g)
	fitHelp(root)

	c, err := root.ExecuteContextC(ctx)
	var exit *exitError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &exit) && exit.err == nil:
		return exit.code
	case errors.Is(err, syscall.EPIPE):
		return exitFault // nobody reads any more: there is nobody to tell
	}
	fmt.Fprintln(s.Err, "error: "+plain(err.Error()))
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
