package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
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

// run reads the sources, and calls f with each in turn. What is wrong with a document is told and
// holds up no other.
func (o *applying) run(ctx context.Context, f func(l *live, s *source)) (err error) {
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
		f(l, s)
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

// each makes of a function for a document one for a source.
func (o *applying) each(f func(l *live, s *source, d *given) error) func(l *live, s *source) {
	return func(l *live, s *source) {
		for _, d := range s.given {
			if err := f(l, s, d); err != nil {
				o.fail(err)
			}
		}
	}
}

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

const neverAgain = "it is complete; a done id never runs again"

// outcome is what came of one document.
type outcome struct {
	what string
	next []byte // a file, or a part of one, in which the document stands now
	err  error
}

// merge changes the jobs of a source that are there already, each file once.
func (o *applying) merge(l *live, s *source) map[string]*outcome {
	byID := map[string]*given{}
	outcomes := map[string]*outcome{}
	var ids []string
	for _, d := range s.given {
		if _, there := l.where[d.id]; there && d.doc.Job != nil {
			byID[d.id] = d
			outcomes[d.id] = &outcome{}
			ids = append(ids, d.id)
		}
	}
	failed := l.editEach(o.ctx, ids, func(file *manifests.File, data []byte, doc int) ([]byte, error) {
		id := file.Docs[doc].ID
		next, err := merged(file, data, doc, byID[id].doc, s.record.keys(id))
		if err != nil {
			return nil, err
		}
		outcomes[id].next, outcomes[id].what = next, "configured"
		if string(next) == string(data) {
			outcomes[id].what = "unchanged"
		}
		if o.dry {
			return data, nil
		}
		return next, nil
	})
	for id, err := range failed {
		outcomes[id].err = err
	}
	return outcomes
}

// apply brings a source over.
func (o *applying) apply(l *live, s *source) {
	outcomes := o.merge(l, s)
	for _, d := range s.given {
		if d.doc.Job == nil {
			o.fail(refused(d.doc))
			continue
		}
		was, done := outcomes[d.id], false
		if was != nil && !errors.Is(was.err, errNotFound) {
			if v := l.view(d.id); v != nil {
				done = v.State == stateComplete || v.State == stateRestoreNeeded
			}
		} else {
			was = &outcome{what: "created", next: d.text}
			if !o.dry {
				was.err = o.write(l, d)
			}
			if errors.Is(was.err, errExists) { // since just now
				was = o.merge(l, &source{given: []*given{d}, record: s.record})[d.id]
			}
			done, _ = l.completed(o.ctx, d.id)
		}
		if was.err != nil {
			o.fail(fmt.Errorf("%s: %w", d.at, was.err))
			continue
		}
		if s.record != nil && !o.dry {
			s.record.Jobs[d.id] = keysOf(d.doc)
		}
		note := ""
		if done {
			note = neverAgain
		}
		if err := o.show(d, was.next, was.what, note); err != nil {
			o.fail(err)
		}
	}
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
func merged(file *manifests.File, data []byte, doc int, want *manifests.Doc, keys broughtKeys) ([]byte, error) {
	if file.Docs[doc].Object == nil {
		return nil, unfit("it cannot be changed where it stands", file.Docs[doc])
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
		return nil, unfit("it would not be accepted where it stands", d)
	}
	return data, nil
}

// unfit tells what is wrong with a document in its file. The lines may be those of a part.
func unfit(what string, d *manifests.Doc) error {
	e := d.Errors[0]
	return fmt.Errorf("%s, in %s: %w", what, e.Path, &manifests.Error{Field: e.Field, Detail: e.Detail})
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
