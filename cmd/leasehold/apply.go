package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"leasehold.dev/leasehold/manifests"
)

// applying is a call of apply, create -f or diff.
type applying struct {
	g         *globals
	ctx       context.Context
	files     []string
	recursive bool
	namespace string
	dryRun    dryRun
	output    string
	prunes    bool
	pruneAll  bool

	dry     bool
	sources []*source
	jobs    int // documents of our own
	skipped int
	seen    map[string]string // id → where it stands in the input
	errs    []error
}

// source is what one -f names.
type source struct {
	arg    string
	given  []*given
	ids    []string // of every document, accepted or not
	unread bool     // something in it could not be read, or has no id
	record *brought
}

// given is a document that is to be applied.
type given struct {
	id   string
	doc  *manifests.Doc
	text []byte // a file of its own
	at   string
}

func newApplyCommand(g *globals) *cobra.Command {
	o := applying{g: g}
	cmd := &cobra.Command{
		Use:   "apply -f FILE|DIR|-",
		Short: "Bring jobs into the directory, and change those that are there",
		Long: `A job that is not there yet becomes a file of its own, NAME.yaml (NAMESPACE.NAME.yaml in a namespace
other than default). One that is there is changed in the file where it stands, until its spec is the
one that is applied: what does not differ keeps its bytes and its comments. Labels and annotations are
added and changed; those that an earlier apply of the same source brought and the source has dropped
are removed. status is never touched. Documents of other API groups are skipped.

--prune also removes the jobs that an earlier apply of the same source brought and that the source no
longer has, and nothing else. What was brought is kept in the state directory, by the source's path: if
that is lost or the source has moved, the jobs stay. A source that holds no job any more is not pruned
without --prune-all.

Exit codes: 0 done; 1 something was not accepted or could not be done (the rest was); 2 invalid usage.`,
		Example: `  # What a template renders to
  render invoice | leasehold apply -f -

  # What would happen
  leasehold apply -f new/ --dry-run

  # Keep the live directory in step with a checkout
  leasehold apply -f ~/checkout/jobs --prune --dir /srv/jobs`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context(), o.apply) },
	}
	o.flags(cmd)
	f := cmd.Flags()
	f.BoolVar(&o.prunes, "prune", false, "remove what an earlier apply of the source brought and it no longer has")
	f.BoolVar(&o.pruneAll, "prune-all", false, "prune even if nothing of what was brought would be left")
	return cmd
}

func (o *applying) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringSliceVarP(&o.files, "filename", "f", nil, "`file`s, directories, or standard input (-)")
	f.BoolVarP(&o.recursive, "recursive", "R", true, "go into the subdirectories of a directory")
	f.StringVarP(&o.namespace, "namespace", "n", "", "the `namespace` of documents that name none")
	f.StringVarP(&o.output, "output", "o", "", "print the jobs in this `format`: name, yaml or json")
	o.dryRun.flag(cmd)
}

// run reads the sources, and calls f with each document in turn. What is wrong with one is told and
// holds up no other.
func (o *applying) run(ctx context.Context, f func(l *live, s *source, d *given) error) (err error) {
	o.ctx = ctx
	o.prunes = o.prunes || o.pruneAll
	if o.dry, err = o.dryRun.parse(); err != nil {
		return err
	}
	if !slices.Contains([]string{"", "name", "yaml", "json"}, o.output) {
		return usageError("-o %s: must be name, yaml or json", o.output)
	}
	if len(o.files) == 0 {
		return usageError("must specify -f: a file, a directory, or - for standard input")
	}
	if err := o.read(); err != nil {
		return err
	}
	l, err := o.g.live(ctx)
	if err != nil {
		return err
	}
	defer l.Close()
	if err := l.judged(ctx); err != nil {
		return err
	}
	for _, s := range o.sources {
		for _, d := range s.given {
			if err := f(l, s, d); err != nil {
				o.fail(err)
			}
		}
		if err := o.finish(l, s); err != nil {
			o.fail(err)
		}
	}
	if o.skipped > 0 {
		fmt.Fprintf(o.g.Err, "%s of other kinds skipped\n", count(o.skipped, "document"))
	}
	if o.jobs == 0 && len(o.errs) == 0 && !o.pruneAll {
		o.fail(fmt.Errorf("no Job of %s in %s", manifests.APIVersion, strings.Join(o.files, ", ")))
	}
	return allErrors(o.g, o.errs)
}

func (o *applying) fail(err error) { o.errs = append(o.errs, flat(err)...) }

// finish prunes a source and keeps what it has brought.
func (o *applying) finish(l *live, s *source) error {
	var err error
	if o.prunes {
		err = o.prune(l, s)
	}
	if s.record == nil || o.dry {
		return err
	}
	return errors.Join(err, s.record.write())
}

// read reads all sources.
func (o *applying) read() error {
	o.seen = map[string]string{}
	for _, arg := range o.files {
		s := &source{arg: arg}
		record, err := o.g.recordOf(arg)
		if err != nil {
			return err
		}
		if s.record = record; record == nil && o.prunes {
			return usageError("--prune: %s lies in the directory itself, or has no path", arg)
		}
		o.sources = append(o.sources, s)
		err = o.eachFile(arg, func(path string, data []byte, err error) {
			if err != nil {
				o.fail(err)
				s.unread = true
				return
			}
			o.readFile(s, path, data)
		})
		if err != nil {
			o.fail(err)
			s.unread = true
		}
	}
	return nil
}

// eachFile is eachManifest, but waits for a file that is just being saved, as after a pull.
func (o *applying) eachFile(arg string, each func(path string, data []byte, err error)) error {
	return eachManifest(o.g, arg, func(path string, data []byte, err error) {
		if !o.recursive && arg != "-" && path != filepath.ToSlash(arg) {
			if rel, err := filepath.Rel(arg, path); err == nil && strings.ContainsRune(filepath.ToSlash(rel), '/') {
				return
			}
		}
		if errors.Is(err, manifests.ErrBusy) {
			dir, name := filepath.Split(path)
			if tree, openErr := manifests.OpenTree(filepath.Clean(dir), ""); openErr == nil {
				defer tree.Close()
				err = again(o.ctx, func() error {
					snap, err := tree.Read(name, manifests.MaxFileSize+1)
					data = snap.Data
					return err
				})
			}
		}
		each(path, data, err)
	})
}

func (o *applying) readFile(s *source, path string, data []byte) {
	f := manifests.Decode(path, data)
	o.jobs += len(f.Docs)
	o.skipped += f.Skipped
	for _, e := range f.Errors {
		o.fail(e)
		s.unread = true
	}
	for i, d := range f.Docs {
		at := fmt.Sprintf("%s:%d", path, d.Line)
		text, _ := f.Text(data, i)
		d, text, err := o.place(d, text)
		if err != nil {
			o.fail(fmt.Errorf("%s: %w", at, err))
			s.unread = true
			continue
		}
		if d.ID != "" {
			s.ids = append(s.ids, d.ID)
		} else {
			s.unread = true
		}
		if other, twice := o.seen[d.ID]; twice && d.ID != "" {
			o.fail(&manifests.Error{Path: path, Line: d.Line, Field: "metadata.name",
				Detail: fmt.Sprintf("Duplicate value: %q: the job stands in %s already", d.ID, other)})
			continue
		}
		o.seen[d.ID] = at
		s.given = append(s.given, &given{id: d.ID, doc: d, text: text, at: at})
	}
}

// place puts a document that names no namespace into the one of the command line.
func (o *applying) place(d *manifests.Doc, text []byte) (*manifests.Doc, []byte, error) {
	if o.namespace == "" || d.Namespace == o.namespace || d.Object == nil {
		return d, text, nil
	}
	if d.Namespace != "" {
		return nil, nil, fmt.Errorf("the namespace from the provided object %q does not match the namespace %q; remove -n", d.Namespace, o.namespace)
	}
	if o.namespace == "default" {
		return d, text, nil
	}
	text, err := manifests.Decode("", text).Set(text, 0, manifests.Edit{Path: []any{"metadata", "namespace"}, Value: o.namespace})
	if err != nil {
		return nil, nil, err
	}
	placed := manifests.Decode("", text).Docs[0]
	if len(d.Errors) > 0 { // those of the file have lines
		placed.Errors = d.Errors
	}
	placed.Line = d.Line
	return placed, text, nil
}

// refused returns what is wrong with a document.
func refused(d *manifests.Doc) error {
	errs := make([]error, len(d.Errors))
	for i, e := range d.Errors {
		errs[i] = e
	}
	return errors.Join(errs...)
}

func (o *applying) apply(l *live, s *source, d *given) error {
	if d.doc.Job == nil {
		return refused(d.doc)
	}
	done := ""
	if v := l.view(d.id); v != nil && (v.State == stateComplete || v.State == stateRestoreNeeded) {
		done = "it is complete; a done id never runs again"
	}
	what := "unchanged"
	var next []byte
	change := func(at *found) ([]byte, error) {
		var err error
		if next, err = merged(at, d.doc, s.record.keys(d.id)); err != nil {
			return nil, err
		}
		what = "configured"
		if string(next) == string(at.snap.Data) {
			what = "unchanged"
		}
		if o.dry {
			return at.snap.Data, nil
		}
		return next, nil
	}
	err := error(errNotFound)
	if _, there := l.where[d.id]; there {
		err = l.edit(o.ctx, d.id, change)
	}
	if errors.Is(err, errNotFound) {
		what, next = "created", d.text
		if !o.dry {
			if err = o.write(l, d); errors.Is(err, errExists) { // since just now
				err = l.edit(o.ctx, d.id, change)
			}
		} else {
			err = nil
		}
		if completed, _ := l.completed(o.ctx, d.id); completed {
			done = "it is complete; a done id never runs again"
		}
	}
	if err != nil {
		return fmt.Errorf("%s: %w", d.at, err)
	}
	if s.record != nil && !o.dry {
		s.record.Jobs[d.id] = keysOf(d.doc)
	}
	return o.show(d, next, what, done)
}

// show prints an outcome.
func (o *applying) show(d *given, next []byte, what, note string) error {
	if o.output == "" || o.output == "name" {
		o.print(d.id, what, note)
		return nil
	}
	p, err := objectPrinter(o.output)
	if err != nil {
		return err
	}
	for _, doc := range manifests.Decode(d.at, next).Docs {
		if doc.ID == d.id {
			return p.PrintObj((&jobView{Doc: doc}).Object(), o.g.Out)
		}
	}
	return nil
}

func (o *applying) print(id, what, note string) {
	switch {
	case o.output == "name":
		fmt.Fprintf(o.g.Out, "%s/%s\n", resource, id)
		return
	case o.output != "":
		return
	case note != "":
		note = " (" + note + ")"
	}
	fmt.Fprintf(o.g.Out, "%s/%s %s%s%s\n", resource, id, what, note, o.dryRun.note())
}

// merged returns the file with a document made what is given; keys are those of metadata that came
// with it before.
func merged(at *found, want *manifests.Doc, keys broughtKeys) ([]byte, error) {
	data, file, doc := at.snap.Data, at.file, at.doc
	if file.Docs[doc].Object == nil {
		return nil, fmt.Errorf("it cannot be changed where it stands: %w", file.Docs[doc].Errors[0])
	}
	for _, part := range []struct {
		field   string
		want    map[string]string
		brought []string
	}{{"labels", want.Job.Labels, keys.Labels}, {"annotations", want.Job.Annotations, keys.Annotations}} {
		meta, _ := file.Docs[doc].Object["metadata"].(map[string]any)
		now, _ := meta[part.field].(map[string]any)
		next, err := file.Set(data, doc, metadataEdits(part.field, now, part.want, part.brought)...)
		if err != nil {
			return nil, err
		}
		file, data = manifests.Decode(file.Path, next), next
	}
	spec, _ := want.Object["spec"].(map[string]any)
	if job := file.Docs[doc].Job; job == nil || job.Spec.Hash() != want.Job.Spec.Hash() {
		next, err := file.MergeSpec(data, doc, spec)
		if err != nil {
			return nil, err
		}
		file, data = manifests.Decode(file.Path, next), next
	}
	if d := file.Docs[doc]; d.Job == nil {
		return nil, fmt.Errorf("it would not be accepted where it stands: %w", d.Errors[0])
	}
	return data, nil
}

func metadataEdits(field string, now map[string]any, want map[string]string, brought []string) (es []manifests.Edit) {
	for _, k := range brought {
		if _, there := now[k]; there {
			if _, stays := want[k]; !stays {
				es = append(es, manifests.Edit{Path: []any{"metadata", field, k}})
			}
		}
	}
	for _, k := range sortedKeys(want) {
		if now[k] != want[k] {
			es = append(es, manifests.Edit{Path: []any{"metadata", field, k}, Value: want[k]})
		}
	}
	return es
}

func keysOf(d *manifests.Doc) *broughtKeys {
	return &broughtKeys{Labels: sortedKeys(d.Job.Labels), Annotations: sortedKeys(d.Job.Annotations)}
}

func sortedKeys(m map[string]string) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

var errExists = errors.New("already exists")

// write makes the file of a new job. errExists tells that somebody else has just declared it.
func (o *applying) write(l *live, d *given) error {
	stem := d.doc.Name
	if d.doc.Namespace != "" && d.doc.Namespace != "default" {
		stem = d.doc.Namespace + "." + stem
	}
	if len(stem) > 200 {
		stem = stem[:200]
	}
	for i := 1; ; i++ {
		path := stem + ".yaml"
		if i > 1 {
			path = fmt.Sprintf("%s-%d.yaml", stem, i)
		}
		err := l.tree.Create(path, d.text)
		if err == nil {
			l.where[d.id] = path
			return nil
		}
		if !errors.Is(err, fs.ErrExist) {
			return err
		}
		if snap, err := l.patiently(o.ctx, path); err == nil {
			for _, there := range manifests.Decode(path, snap.Data).Docs {
				if there.ID == d.id {
					l.where[d.id] = path
					return errExists
				}
			}
		}
	}
}

// completed tells whether the store has a result for an id that is declared nowhere yet.
func (l *live) completed(ctx context.Context, id string) (done bool, err error) {
	r, err := l.row(ctx, id)
	return r != nil && r.Done, err
}
