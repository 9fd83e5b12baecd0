package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"leasehold.dev/leasehold/controller"
	"leasehold.dev/leasehold/manifests"
)

// resource is how jobs are printed, as kubectl does it.
const resource = "job.leasehold.dev"

// isJobs reports whether word names the kind of our objects.
func isJobs(word string) bool {
	switch strings.ToLower(word) {
	case "job", "jobs", "lhj", "job.leasehold.dev", "jobs.leasehold.dev":
		return true
	}
	return false
}

// parseRefs reads "job/NAME", "job NAME…" or "jobs", and returns the names; none mean all.
func parseRefs(args []string) ([]string, error) {
	if len(args) == 0 {
		return nil, usageError("you must name a resource: jobs, job NAME or job/NAME")
	}
	if !strings.Contains(args[0], "/") {
		if !isJobs(args[0]) {
			return nil, usageError("the directory doesn't have a resource type %q; it has jobs", args[0])
		}
		return args[1:], nil
	}
	var names []string
	for _, a := range args {
		kind, name, ok := strings.Cut(a, "/")
		if !ok || !isJobs(kind) || name == "" {
			return nil, usageError("%q: must be job/NAME", a)
		}
		names = append(names, name)
	}
	return names, nil
}

// parseRef reads exactly one job.
func parseRef(args []string) (string, error) {
	names, err := parseRefs(args)
	if err != nil {
		return "", err
	}
	if len(names) != 1 {
		return "", usageError("name exactly one job, as job/NAME")
	}
	return names[0], nil
}

// namespaced is the id of a job in a namespace, where name does not already say one.
func namespaced(namespace, name string) string {
	if space, rest, ok := strings.Cut(name, "/"); ok {
		namespace, name = space, rest
	}
	return manifests.JobID(namespace, name)
}

// tree opens the directory of the manifests.
func (g *globals) tree() (*manifests.Tree, error) {
	dir, err := g.directory()
	if err != nil {
		return nil, err
	}
	temps := ""
	if path, err := storePath(dir, g.store); err == nil {
		temps = filepath.Dir(path)
	}
	return manifests.OpenTree(dir, temps)
}

// found is a document and the file it stands in.
type found struct {
	path string
	snap manifests.Snapshot
	file *manifests.File
	doc  int
}

func (f *found) Doc() *manifests.Doc { return f.file.Docs[f.doc] }

var errNotFound = errors.New("not found")

// errJobNotFound is worded as kubectl does it.
func errJobNotFound(id string) error {
	return fmt.Errorf("jobs.leasehold.dev %q %w", id, errNotFound)
}

// readAll reads every manifest in path order, and tells of each file that cannot be read.
func readAll(tree *manifests.Tree, each func(path string, snap manifests.Snapshot, err error) error) error {
	entries, err := controller.Scan(tree)
	if err != nil {
		return err
	}
	for _, e := range entries {
		var snap manifests.Snapshot
		err := e.Err
		if err == nil {
			snap, err = tree.Read(e.Path, manifests.MaxFileSize+1)
		}
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err := each(e.Path, snap, err); err != nil {
			return err
		}
	}
	return nil
}

// find returns the document that the id belongs to.
func find(tree *manifests.Tree, id string) (*found, error) {
	var at *found
	stop := errors.New("found")
	var unread []error
	err := readAll(tree, func(path string, snap manifests.Snapshot, err error) error {
		if err != nil {
			unread = append(unread, err)
			return nil
		}
		file := manifests.Decode(path, snap.Data)
		i := slices.IndexFunc(file.Docs, func(d *manifests.Doc) bool { return d.ID == id })
		if i < 0 {
			return nil
		}
		at = &found{path: path, snap: snap, file: file, doc: i}
		return stop
	})
	switch {
	case err != nil && err != stop:
		return nil, err
	case at == nil && len(unread) > 0:
		return nil, fmt.Errorf("%w (and %s could not be read: %w)", errJobNotFound(id), count(len(unread), "file"), unread[0])
	case at == nil:
		return nil, errJobNotFound(id)
	}
	return at, nil
}

// saveTime is how long a change is tried again where somebody else is saving the same file.
const saveTime = 5 * time.Second

// change edits one job's document, again and again where somebody saves in between, and returns
// the document as it stands then. edits may refuse by an error.
func change(ctx context.Context, tree *manifests.Tree, id string, edits func(*found) ([]manifests.Edit, error)) (*found, error) {
	ctx, cancel := context.WithTimeout(ctx, saveTime)
	defer cancel()
	retry := time.NewTicker(5 * time.Millisecond)
	defer retry.Stop()
	for {
		at, err := changeOnce(tree, id, edits)
		if !errors.Is(err, manifests.ErrBusy) && !errors.Is(err, manifests.ErrChanged) {
			return at, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-retry.C:
		}
	}
}

func changeOnce(tree *manifests.Tree, id string, edits func(*found) ([]manifests.Edit, error)) (*found, error) {
	at, err := find(tree, id)
	if err != nil {
		return nil, err
	}
	es, err := edits(at)
	if err != nil {
		return nil, err
	}
	next, err := at.file.Set(at.snap.Data, at.doc, es...)
	if err != nil {
		return nil, err
	}
	edited := manifests.Decode(at.path, next)
	if d := edited.Docs[at.doc]; d.Job == nil && at.Doc().Job != nil {
		return nil, usageError("the manifest would not be accepted: %w", d.Errors[0])
	}
	if string(next) != string(at.snap.Data) {
		if at.snap, err = tree.Replace(at.path, at.snap, next); err != nil {
			return nil, err
		}
	}
	at.file = edited
	return at, nil
}

// namespaceFlag adds -n.
func namespaceFlag(cmd *cobra.Command, namespace *string) {
	cmd.Flags().StringVarP(namespace, "namespace", "n", "", "namespace of the job")
}

// exists reports whether there is something at the path.
func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
