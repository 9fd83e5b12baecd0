package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"leasehold.dev/leasehold/manifests"
)

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
