package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"leasehold.dev/leasehold/manifests"
)

const externalDiff = "KUBECTL_EXTERNAL_DIFF"

func newDiffCommand(g *globals) *cobra.Command {
	o := applying{g: g}
	var differs bool
	cmd := &cobra.Command{
		Use:   "diff -f FILE|DIR|-",
		Short: "Show what apply would change",
		Long: `Shows, as a unified diff, how the documents that stand in the directory differ from what apply would
make of them. status is left out. KUBECTL_EXTERNAL_DIFF names another program to compare with.

Exit codes: 0 nothing differs; 1 something does; more than 1 an error.`,
		Example: `  # What a template would change
  render invoice | leasehold diff -f -

  # By another program
  KUBECTL_EXTERNAL_DIFF="git diff --no-index" leasehold diff -f new/`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			err := o.run(cmd.Context(), o.each(func(l *live, s *source, d *given) error {
				changed, err := o.diff(l, s, d)
				differs = differs || changed
				return err
			}))
			var exit *exitError
			switch {
			case errors.As(err, &exit):
				return err
			case err != nil:
				return &exitError{exitUsage, err}
			case differs:
				return &exitError{code: 1}
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.StringSliceVarP(&o.files, "filename", "f", nil, "`file`s, directories, or standard input (-)")
	f.BoolVarP(&o.recursive, "recursive", "R", true, "go into the subdirectories of a directory")
	f.StringVarP(&o.namespace, "namespace", "n", "", "the `namespace` of documents that name none")
	o.dryRun.value, o.dry = "client", true
	return cmd
}

// diff prints how one document differs.
func (o *applying) diff(l *live, s *source, d *given) (bool, error) {
	if d.doc.Job == nil {
		return false, refused(d.doc)
	}
	var before, after []byte
	err := error(errNotFound)
	if _, there := l.where[d.id]; there {
		err = l.edit(o.ctx, d.id, func(file *manifests.File, data []byte, doc int) ([]byte, error) {
			next, err := merged(file, data, doc, d.doc, s.record.keys(d.id))
			if err != nil {
				return nil, err
			}
			before, _ = file.Text(data, doc)
			after, _ = manifests.Decode(file.Path, next).Text(next, doc)
			return data, nil
		})
	}
	switch {
	case errors.Is(err, errNotFound):
		before, after = nil, d.text
	case err != nil:
		return false, fmt.Errorf("%s: %w", d.at, err)
	}
	if string(before) == string(after) {
		return false, nil
	}
	namespace := d.doc.Namespace
	if namespace == "" {
		namespace = "default"
	}
	name := strings.Join([]string{manifests.Group, manifests.Version, manifests.Kind, namespace, d.doc.Name}, ".")
	if program := os.Getenv(externalDiff); program != "" {
		return true, o.external(o.ctx, program, name, before, after)
	}
	text := unified("LIVE/"+name, "MERGED/"+name, string(before), string(after))
	_, err = fmt.Fprint(o.g.Out, plainLines(text))
	return true, err
}

var plainArg = regexp.MustCompile(`^[a-zA-Z0-9_=/.+-]+$`)

// external lets another program compare; that it exits with 1 is its answer.
func (o *applying) external(ctx context.Context, program, name string, before, after []byte) error {
	dir, err := os.MkdirTemp("", "leasehold-diff-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	var args []string
	for _, a := range strings.Fields(program) {
		if plainArg.MatchString(a) { // as in kubectl, so that no shell is needed
			args = append(args, a)
		}
	}
	if len(args) == 0 {
		return fmt.Errorf("%s=%q names no program", externalDiff, program)
	}
	for side, text := range map[string][]byte{"LIVE": before, "MERGED": after} {
		if err := os.Mkdir(filepath.Join(dir, side), 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, side, name), text, 0o600); err != nil {
			return err
		}
	}
	cmd := exec.CommandContext(ctx, args[0], append(args[1:], filepath.Join(dir, "LIVE"), filepath.Join(dir, "MERGED"))...)
	cmd.Stdout, cmd.Stderr = o.g.Out, o.g.Err
	err = cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == 1 {
		return nil
	}
	return err
}

// plainLines keeps a diff from steering the terminal.
func plainLines(text string) string {
	lines := strings.SplitAfter(text, "\n")
	for i, l := range lines {
		body, ok := strings.CutSuffix(l, "\n")
		body = strings.TrimSuffix(body, "\r") // the same on both sides, or the lines would all differ
		lines[i] = strings.ReplaceAll(plain(strings.ReplaceAll(body, "\t", "        ")), "\r", "")
		if ok {
			lines[i] += "\n"
		}
	}
	return strings.Join(lines, "")
}
