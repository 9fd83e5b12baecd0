package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"

	"github.com/spf13/cobra"

	"leasehold.dev/leasehold/manifests"
)

func newEditCommand(g *globals) *cobra.Command {
	var namespace string
	cmd := &cobra.Command{
		Use:   "edit job/NAME...",
		Short: "Edit a job's manifest in an editor",
		Long: `Opens the document of one job, without its status, in the editor that KUBE_EDITOR or EDITOR names, else
in vi. What is saved takes the document's place; the rest of the file and the status stay. A document
that is not accepted comes back with the errors on top. If somebody has changed the same lines
meanwhile, or the editor fails, what was typed is kept in a file, and the message says where.

Exit codes: 0 done or cancelled; 1 no such job, a conflict, or a fault; 2 invalid usage.`,
		Example: `  leasehold edit job/invoice-42

  # In another editor
  KUBE_EDITOR="code --wait" leasehold edit job/invoice-42`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			names, err := parseRefs(args)
			if err != nil {
				return err
			}
			if len(names) == 0 {
				return usageError("name a job as job/NAME")
			}
			l, err := g.live(cmd.Context())
			if err != nil {
				return err
			}
			defer l.Close()
			var errs []error
			for _, name := range names {
				e := editing{g: g, l: l, ctx: cmd.Context(), id: namedID(namespace, name)}
				if err := e.run(); err != nil {
					errs = append(errs, flat(err)...)
				}
			}
			return allErrors(g, errs)
		},
	}
	namespaceFlag(cmd, &namespace)
	return cmd
}

// editing is the editing of one document.
type editing struct {
	g   *globals
	l   *live
	ctx context.Context
	id  string

	base []byte // the document's text as the user got it
	own  bool   // it is the document's own, and not written anew
	file string // what the editor has open
}

// note marks the lines that are ours; the user's comments stay.
const note = "#| "

const editHead = note + `Edit the job below. Lines that begin like this one are left out. Save it
` + note + `unchanged to cancel. If it cannot be accepted it is opened again with the reason.
`

func (e *editing) run() error {
	at, err := e.current()
	if err != nil {
		return err
	}
	e.base, e.own = at.file.Text(at.snap.Data, at.doc)
	temp, err := os.CreateTemp("", "leasehold-edit-*.yaml")
	if err != nil {
		return err
	}
	e.file = temp.Name()
	if err := temp.Close(); err != nil {
		return err
	}
	eol := "\n"
	if bytes.Contains(e.base, []byte("\r\n")) {
		eol = "\r\n"
	}
	head, text := editHead, e.base
	var refusedText []byte
	for {
		shown := strings.ReplaceAll(head, "\n", eol) + string(text)
		if err := os.WriteFile(e.file, []byte(shown), 0o600); err != nil {
			return e.keep(text, err)
		}
		failure := e.edit()
		saved, err := os.ReadFile(e.file)
		if err != nil {
			return errors.Join(failure, err)
		}
		text = e.stripped(saved, eol)
		unchanged := bytes.Equal(text, e.base) || len(bytes.TrimSpace(text)) == 0
		switch {
		case failure != nil && unchanged:
			os.Remove(e.file)
			return failure
		case failure != nil:
			return e.keep(text, failure)
		case unchanged:
			os.Remove(e.file)
			fmt.Fprintln(e.g.Err, "Edit cancelled, no changes made.")
			return nil
		case refusedText != nil && bytes.Equal(text, refusedText):
			//lint:ignore ST1005 kubectl's words
			return e.keep(text, errors.New("Edit cancelled, no valid changes were saved."))
		}
		if problem := e.check(text); problem != "" {
			refusedText = text
			head = editHead + note + "\n"
			for line := range strings.Lines(problem) {
				head += note + plain(strings.TrimRight(line, "\n")) + "\n"
			}
			continue
		}
		err = e.put(text)
		var bad *unacceptable
		if errors.As(err, &bad) { // where it stands: others have changed the document, too
			refusedText = text
			head = editHead + note + "\n" + note + plain(bad.Error()) + "\n"
			continue
		}
		if err != nil {
			return e.keep(text, err)
		}
		os.Remove(e.file)
		fmt.Fprintf(e.g.Out, "%s/%s edited\n", resource, e.id)
		return nil
	}
}

// unacceptable is an error that the user can put right by editing on.
type unacceptable struct{ err error }

func (u *unacceptable) Error() string { return u.err.Error() }

// keep leaves what was typed in a file and says so.
func (e *editing) keep(text []byte, why error) error {
	if err := os.WriteFile(e.file, text, 0o600); err != nil {
		// Printed, it is not lost either.
		fmt.Fprintln(e.g.Err, string(text))
		return errors.Join(why, err)
	}
	return errors.Join(why, fmt.Errorf("a copy of your changes has been stored to %q", e.file))
}

// current reads the document as it stands now.
func (e *editing) current() (at *found, err error) {
	err = e.l.edit(e.ctx, e.id, func(file *manifests.File, data []byte, doc int) ([]byte, error) {
		at = &found{snap: manifests.Snapshot{Data: data}, file: file, doc: doc}
		return data, nil
	})
	return at, err
}

// stripped is what was saved without our own lines, with the line breaks that the document had.
func (e *editing) stripped(saved []byte, eol string) []byte {
	var b bytes.Buffer
	for line := range bytes.Lines(saved) {
		if bytes.HasPrefix(line, []byte(strings.TrimSpace(note))) {
			continue
		}
		if body, ok := bytes.CutSuffix(line, []byte("\n")); ok && eol == "\r\n" {
			line = append(bytes.TrimSuffix(bytes.Clone(body), []byte("\r")), eol...)
		}
		b.Write(line)
	}
	return b.Bytes()
}

// check says what is wrong with a text, or nothing.
func (e *editing) check(text []byte) string {
	f := manifests.Decode("", text)
	var lines []string
	for _, err := range f.Errors {
		lines = append(lines, err.Error())
	}
	for _, d := range f.Docs {
		for _, err := range d.Errors {
			lines = append(lines, err.Error())
		}
	}
	switch {
	case len(lines) > 0:
	case len(f.Docs) != 1 || f.Skipped > 0:
		lines = []string{fmt.Sprintf("It must be one Job, and it is %s.", count(len(f.Docs)+f.Skipped, "document"))}
	case f.Docs[0].ID != e.id:
		lines = []string{fmt.Sprintf("The name and the namespace of a job cannot be changed: it is %s, not %s.", e.id, f.Docs[0].ID)}
	}
	return strings.Join(lines, "\n")
}

// put brings the text into the file as that stands now.
func (e *editing) put(text []byte) error {
	typed := manifests.Decode("", text).Docs[0]
	return e.l.edit(e.ctx, e.id, func(file *manifests.File, data []byte, doc int) ([]byte, error) {
		at := &found{snap: manifests.Snapshot{Data: data}, file: file, doc: doc}
		now, own := at.file.Text(at.snap.Data, at.doc)
		if !bytes.Equal(now, e.base) {
			both, ok := mergeLines(string(e.base), string(text), string(now))
			if !ok || own != e.own {
				return nil, fmt.Errorf("%s has been changed meanwhile, in the same lines", file.Path)
			}
			f := manifests.Decode("", []byte(both))
			if len(f.Docs) != 1 || f.Docs[0].Job == nil || f.Docs[0].ID != e.id {
				return nil, fmt.Errorf("%s has been changed meanwhile, and both changes together cannot be accepted", file.Path)
			}
			return e.set(at, []byte(both), f.Docs[0])
		}
		return e.set(at, text, typed)
	})
}

func (e *editing) set(at *found, text []byte, typed *manifests.Doc) ([]byte, error) {
	var next []byte
	var err error
	if e.own {
		next, err = at.file.SetText(at.snap.Data, at.doc, text)
	} else {
		was := at.Doc().Job
		keys := broughtKeys{}
		if was != nil { // what was there and is typed no more goes
			keys = *keysOf(at.Doc())
		}
		next, err = merged(at.file, at.snap.Data, at.doc, typed, keys)
		if err == nil && was != nil {
			now := manifests.Decode(at.file.Path, next).Docs[at.doc].Job
			if fmt.Sprint(now.ObjectMeta) != fmt.Sprint(typed.Job.ObjectMeta) {
				err = errors.New("of the metadata, only labels and annotations can be edited in a list or in JSON")
			}
		}
	}
	if err != nil {
		return nil, &unacceptable{err}
	}
	return next, nil
}

// edit runs the editor and waits for it.
func (e *editing) edit() error {
	program := os.Getenv("KUBE_EDITOR")
	if program == "" {
		program = os.Getenv("EDITOR")
	}
	if strings.TrimSpace(program) == "" {
		program = "vi"
		if runtime.GOOS == "windows" {
			program = "notepad"
		}
	}
	// The variables may hold arguments and quotes, as shells and git take them. An interrupt is for the
	// editor to take: it is not killed with what was typed in it.
	cmd := exec.Command("sh", "-c", program+` "$@"`, program, e.file)
	if runtime.GOOS == "windows" {
		words := strings.Fields(program)
		cmd = exec.Command(words[0], append(words[1:], e.file)...)
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = e.g.In, e.g.Out, e.g.Err
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("there was a problem with the editor %q: %w", program, err)
	}
	return nil
}
