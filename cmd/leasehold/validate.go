package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"leasehold.dev/leasehold/manifests"
)

type validateOptions struct {
	output    string
	allowNone bool
}

func newValidateCommand(g *globals) *cobra.Command {
	var o validateOptions
	cmd := &cobra.Command{
		Use:   "validate FILE|DIR|-...",
		Short: "Check manifests without reconciling them",
		Long: `Checks files, the manifests in directories, or standard input (-), and prints a line for each
problem: file:line:column: field: what is wrong, as editors and CI systems expect it; the column is left
out where it is not known. With -o json it prints one array of objects with file, line, column, field and
message, empty if there is nothing wrong. Documents of other API groups are skipped and counted; input
without a single Job is an error.

Exit codes: 0 all are accepted; 1 a file could not be read; 2 invalid usage; 3 something is not
accepted, or there is no Job.`,
		Example: `  # Before a commit
  leasehold validate jobs

  # What a template renders to
  render invoice | leasehold validate -

  # For a program
  leasehold validate -o json jobs`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error { return o.validate(g, args) },
	}
	cmd.Flags().StringVarP(&o.output, "output", "o", "", "json, or nothing for lines of text")
	cmd.Flags().BoolVar(&o.allowNone, "allow-no-jobs", false, "input without a single Job is no error")
	return cmd
}

// finding is a problem as -o json shows it.
type finding struct {
	File    string `json:"file"`
	Line    int    `json:"line,omitempty"`
	Column  int    `json:"column,omitempty"`
	Field   string `json:"field,omitempty"`
	Message string `json:"message"`
}

// problemLine is a problem as problem matchers understand it.
func problemLine(e *manifests.Error) string {
	text := *e
	text.Path, text.Line = "", 0
	at := e.Path
	if e.Line > 0 {
		at += fmt.Sprintf(":%d", e.Line)
		if e.Col > 0 {
			at += fmt.Sprintf(":%d", e.Col)
		}
	}
	return at + ": " + text.Error()
}

func (o *validateOptions) validate(g *globals, args []string) error {
	if o.output != "" && o.output != "json" {
		return usageError("--output: %q is not known; json is", o.output)
	}
	found := []finding{}
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
		complain := func(e *manifests.Error) {
			found = append(found, finding{e.Path, e.Line, e.Col, e.Field, e.Detail})
			if o.output == "" {
				fmt.Fprintln(g.Out, plain(problemLine(e)))
			}
		}
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
	text := count(sum.jobs, "job") + " accepted"
	if sum.bad > 0 {
		text += fmt.Sprintf(", %d not", sum.bad)
	}
	if sum.skipped > 0 {
		text += fmt.Sprintf(", %s of other kinds skipped", count(sum.skipped, "document"))
	}
	if o.output == "json" {
		enc := json.NewEncoder(g.Out)
		enc.SetEscapeHTML(false)
		enc.SetIndent("", "  ")
		if err := enc.Encode(found); err != nil {
			return err
		}
	} else {
		fmt.Fprintln(g.Out, text)
	}
	switch {
	case sum.unread > 0:
		return &exitError{code: exitFault}
	case sum.bad > 0:
		return &exitError{code: exitRefused}
	case sum.jobs == 0 && !o.allowNone:
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
