package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"leasehold.dev/leasehold/manifests"
)

// live is the directory as one look saw it, to be changed.
type live struct {
	*browser
	views []*jobView
	where map[string]string // id → path in the tree
	first map[string]int    // id → index in views
}

// live reads the directory. Unlike what is only shown, what is going to be changed must have been
// read whole: a job that stands in a file which is just being saved is not a missing one.
func (g *globals) live(ctx context.Context) (*live, error) {
	b, err := g.browse()
	if err != nil {
		return nil, err
	}
	l := &live{browser: b, where: map[string]string{}, first: map[string]int{}}
	err = readAll(b.tree, func(path string, snap manifests.Snapshot, err error) error {
		if errors.Is(err, manifests.ErrBusy) {
			snap, err = l.patiently(ctx, path)
		}
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case errors.Is(err, manifests.ErrBusy):
			return err
		case err != nil:
			b.warn(err.Error())
			return nil
		}
		f := manifests.Decode(b.shown(path), snap.Data)
		b.files[path] = &browsed{snap.Sig, snap.Settled, f}
		for _, d := range f.Docs {
			if _, ok := l.where[d.ID]; !ok && d.ID != "" {
				l.where[d.ID] = path
			}
		}
		return nil
	})
	if err != nil {
		b.Close()
		return nil, err
	}
	l.views = b.views()
	for i, v := range l.views {
		if v.Twin == "" && v.Doc.ID != "" {
			l.first[v.Doc.ID] = i
		}
	}
	return l, nil
}

// judged adds what the store says.
func (l *live) judged(ctx context.Context) error {
	if err := l.readStore(ctx, l.views); err != nil {
		return err
	}
	system := systemClock()
	for _, v := range l.views {
		v.judge(system)
	}
	return nil
}

// view returns the job's, or nil.
func (l *live) view(id string) *jobView {
	if i, ok := l.first[id]; ok {
		return l.views[i]
	}
	return nil
}

// patiently reads a file that somebody is saving.
func (l *live) patiently(ctx context.Context, path string) (snap manifests.Snapshot, err error) {
	err = again(ctx, func() error {
		snap, err = l.tree.Read(path, manifests.MaxFileSize+1)
		return err
	})
	return snap, err
}

// again calls f until nobody else is saving the file, for as long as is reasonable.
func again(ctx context.Context, f func() error) error {
	ctx, cancel := context.WithTimeout(ctx, saveTime)
	defer cancel()
	retry := time.NewTicker(5 * time.Millisecond)
	defer retry.Stop()
	for {
		err := f()
		if !errors.Is(err, manifests.ErrBusy) && !errors.Is(err, manifests.ErrChanged) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-retry.C:
		}
	}
}

var errMoved = errors.New("stands elsewhere now")

// rewrite gives one file other bytes; none remove it. What somebody saves in between is read again,
// and f is called again with it.
func (l *live) rewrite(ctx context.Context, path string, f func(file *manifests.File, data []byte) ([]byte, error)) error {
	return again(ctx, func() error {
		snap, err := l.tree.Read(path, manifests.MaxFileSize+1)
		if errors.Is(err, fs.ErrNotExist) {
			return errMoved
		}
		if err != nil {
			return err
		}
		next, err := f(manifests.Decode(l.shown(path), snap.Data), snap.Data)
		switch {
		case err != nil || bytes.Equal(next, snap.Data):
			return err
		case len(next) == 0:
			return l.tree.Remove(path, snap)
		}
		_, err = l.tree.Replace(path, snap, next)
		return err
	})
}

// editFunc changes one document of a file, or of a part of one, and returns the new bytes; none remove
// it. It may be called again.
type editFunc func(file *manifests.File, data []byte, doc int) ([]byte, error)

// edit changes the file in which one job stands, as rewrite does.
func (l *live) edit(ctx context.Context, id string, f editFunc) error {
	moved := time.Now().Add(saveTime)
	for {
		path, ok := l.where[id]
		err := errMoved
		if ok {
			err = l.rewrite(ctx, path, func(file *manifests.File, data []byte) ([]byte, error) {
				i := slices.IndexFunc(file.Docs, func(d *manifests.Doc) bool { return d.ID == id })
				if i < 0 {
					return nil, errMoved
				}
				return f(file, data, i)
			})
		}
		if !errors.Is(err, errMoved) || time.Now().After(moved) {
			return err
		}
		at, err := find(l.tree, id)
		if err != nil {
			return err
		}
		l.where[id] = at.path
	}
}

// editEach changes the documents of several jobs, each file once if possible, and returns what went
// wrong, by id.
func (l *live) editEach(ctx context.Context, ids []string, f editFunc) map[string]error {
	errs := map[string]error{}
	var paths []string
	byPath := map[string][]string{}
	for _, id := range ids {
		path := l.where[id]
		if byPath[path] == nil {
			paths = append(paths, path)
		}
		byPath[path] = append(byPath[path], id)
	}
	for _, path := range paths {
		ids := byPath[path]
		var failed map[string]error
		err := error(errMoved)
		if path != "" && len(ids) > 1 {
			err = l.rewrite(ctx, path, func(file *manifests.File, data []byte) (next []byte, err error) {
				next, failed, err = editIDs(file, data, ids, f)
				return next, err
			})
		}
		if err == nil {
			maps.Copy(errs, failed)
			continue
		}
		for _, id := range ids { // by itself, so that one holds up no other
			if err := l.edit(ctx, id, f); err != nil {
				errs[id] = err
			}
		}
	}
	return errs
}

func editIDs(file *manifests.File, data []byte, ids []string, f editFunc) ([]byte, map[string]error, error) {
	at := map[string]int{}
	for i, d := range file.Docs {
		if _, twice := at[d.ID]; !twice {
			at[d.ID] = i
		}
	}
	docs := make([]int, len(ids))
	for i, id := range ids {
		doc, ok := at[id]
		if !ok {
			return nil, nil, errMoved
		}
		docs[i] = doc
	}
	next, failed, err := file.EditEach(data, docs, f)
	byID := map[string]error{}
	for doc, err := range failed {
		byID[file.Docs[doc].ID] = err
	}
	return next, byID, err
}

// sets makes an editFunc of what says which values are to be set.
func sets(edits func(d *manifests.Doc) ([]manifests.Edit, error)) editFunc {
	return func(file *manifests.File, data []byte, doc int) ([]byte, error) {
		es, err := edits(file.Docs[doc])
		if err != nil {
			return nil, err
		}
		return file.Set(data, doc, es...)
	}
}

// dryRun is kubectl's flag.
type dryRun struct{ value string }

func (d *dryRun) flag(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&d.value, "dry-run", "none", "`none` or client: only print what would be done")
	f.Lookup("dry-run").NoOptDefVal = "client"
	_ = cmd.RegisterFlagCompletionFunc("dry-run", cobra.FixedCompletions([]string{"none", "client"}, cobra.ShellCompDirectiveNoFileComp))
}

func (d *dryRun) parse() (bool, error) {
	switch d.value {
	case "none", "false":
		return false, nil
	case "client", "server", "true":
		return true, nil
	}
	return false, usageError("--dry-run: Invalid value: %q: must be none or client", d.value)
}

// note is what is added to a line of output.
func (d *dryRun) note() string {
	if on, _ := d.parse(); on {
		return " (dry run)"
	}
	return ""
}

// targets are the ids of the jobs that are meant, in order, and those that are not there.
func (l *live) targets(s *selection) (ids, missing []string) {
	picked, missing := s.pick(l.views)
	for _, v := range picked {
		if v.Twin == "" && v.Doc.ID != "" {
			ids = append(ids, v.Doc.ID)
		}
	}
	return ids, missing
}

// someOnly demands that jobs are named or chosen, where all of them must be asked for.
func (s *selection) someOnly(all bool) error {
	if len(s.ids) == 0 && s.selector == "" && s.fieldSelector == "" && !all {
		return usageError("name a job as job/NAME, or choose some with -l or --all")
	}
	if all && (len(s.ids) > 0 || s.selector != "") {
		return usageError("--all cannot be used with names or a selector")
	}
	return nil
}

// outcomes prints an outcome for each id, and returns what went wrong.
func (g *globals) outcomes(ids, missing []string, failed map[string]error, says func(id string) string) error {
	for _, id := range ids {
		if failed[id] == nil {
			if text := says(id); text != "" {
				fmt.Fprintln(g.Out, text)
			}
		}
	}
	var errs []error
	for _, id := range ids {
		if err := failed[id]; err != nil {
			errs = append(errs, flat(err)...)
		}
	}
	for _, id := range missing {
		errs = append(errs, errJobNotFound(id))
	}
	return allErrors(g, errs)
}

// flat takes joined errors apart: each gets a line of its own.
func flat(err error) []error {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return []error{err}
	}
	if strings.Contains(err.Error(), "\n") {
		var all []error
		for _, e := range joined.Unwrap() {
			all = append(all, flat(e)...)
		}
		return all
	}
	return []error{err}
}
