package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"leasehold.dev/leasehold/manifests"
)

func newValidateCommand(g *globals) *cobra.Command {
	return &cobra.Command{
		Use:   "validate FILE|DIR|-...",
		Short: "Check manifests without reconciling them",
		Long: `Checks files, the manifests in directories, or standard input (-), and prints a line for each
problem: file:line: field: what is wrong. Documents of other API groups are skipped and counted; input
without a single Job is an error.

Exit codes: 0 all are accepted; 1 a file could not be read; 2 invalid usage; 3 something is not
accepted, or there is no Job.`,
		Example: `  # Before a commit
  leasehold validate jobs

  # What a template renders to
  render invoice | leasehold validate -`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error { return validate(g, args) },
	}
}

func validate(g *globals, args []string) error {
	var sum struct{ jobs, bad, skipped, unread int }
	first := map[string]string{} // id → where it stands first
	check := func(path string, data []byte, err error) {
		if err != nil {
			sum.unread++
			fmt.Fprintln(g.Err, "error: "+plain(err.Error()))
			return
		}
		f := manifests.Decode(path, data)
		sum.skipped += f.Skipped
		complain := func(e *manifests.Error) { fmt.Fprintln(g.Out, plain(e.Error())) }
		for _, e := range f.Errors {
			sum.bad++
			complain(e)
		}
		for _, d := range f.Docs {
			here := fmt.Sprintf("%s:%d", path, d.Line)
			other, twice := first[d.ID]
			switch {
			case d.Job == nil:
				sum.bad++
				for _, e := range d.Errors {
					complain(e)
				}
			case twice:
				sum.bad++
				complain(&manifests.Error{Path: path, Line: d.Line, Field: "metadata.name",
					Detail: fmt.Sprintf("Duplicate value: %q: the job stands in %s already", d.ID, other)})
			default:
				sum.jobs++
			}
			if d.ID != "" && !twice {
				first[d.ID] = here
			}
		}
	}
	for _, arg := range args {
		if err := eachManifest(g, arg, check); err != nil {
			check(arg, nil, err)
		}
	}
	fmt.Fprintf(g.Out, "%s accepted", count(sum.jobs, "job"))
	if sum.bad > 0 {
		fmt.Fprintf(g.Out, ", %d not", sum.bad)
	}
	if sum.skipped > 0 {
		fmt.Fprintf(g.Out, ", %s of other kinds skipped", count(sum.skipped, "document"))
	}
	fmt.Fprintln(g.Out)
	switch {
	case sum.unread > 0:
		return &exitError{code: exitFault}
	case sum.bad > 0:
		return &exitError{code: exitRefused}
	case sum.jobs == 0:
		return &exitError{exitRefused, fmt.Errorf("no Job of %s among %s", manifests.APIVersion, count(sum.skipped, "document"))}
	}
	return nil
}

// eachManifest reads a file, the manifests of a directory, or standard input.
func eachManifest(g *globals, arg string, each func(path string, data []byte, err error)) error {
	if arg == "-" {
		data, err := readLimited(g.In)
		each("-", data, err)
		return nil
	}
	info, err := os.Stat(arg)
	if err != nil {
		return err
	}
	if info.IsDir() {
		tree, err := manifests.OpenTree(arg, "")
		if err != nil {
			return err
		}
		defer tree.Close()
		return readAll(tree, func(path string, snap manifests.Snapshot, err error) error {
			each(filepath.ToSlash(filepath.Join(arg, path)), snap.Data, err)
			return nil
		})
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s: is not a file, a directory or -", arg)
	}
	f, err := os.Open(arg)
	if err != nil {
		return err
	}
	defer f.Close()
	data, err := readLimited(f)
	each(filepath.ToSlash(arg), data, err)
	return nil
}

// readLimited reads as much as a manifest may have, and one byte more.
func readLimited(r io.Reader) ([]byte, error) {
	return io.ReadAll(io.LimitReader(r, manifests.MaxFileSize+1))
}
