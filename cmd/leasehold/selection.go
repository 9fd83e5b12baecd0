package main

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"leasehold.dev/leasehold/manifests"
)

// selection is which jobs a command is about.
type selection struct {
	namespace     string
	allNamespaces bool
	selector      string
	fieldSelector string
	files         []string

	names  []string
	ids    []string // of names and files; empty: all
	labels labels.Selector
	fields fields.Selector
}

func (s *selection) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVarP(&s.namespace, "namespace", "n", "", "the `namespace` of the jobs (default \"default\")")
	f.BoolVarP(&s.allNamespaces, "all-namespaces", "A", false, "jobs of all namespaces")
	f.StringVarP(&s.selector, "selector", "l", "", "only jobs with these `labels`, as in app=report,tier!=front")
}

func (s *selection) fileFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&s.fieldSelector, "field-selector", "", "only jobs with these `fields`, as in status.owner=worker-a,status.done=false")
	f.StringSliceVarP(&s.files, "filename", "f", nil, "the jobs in this `file` or directory, or in standard input (-)")
}

// fieldNames are what field selectors may ask for.
var fieldNames = []string{"metadata.name", "metadata.namespace", "status.done", "status.owner"}

// parse reads the arguments. Without any, and without files, all jobs are meant.
func (s *selection) parse(g *globals, args []string) (err error) {
	if s.labels, err = labels.Parse(s.selector); err != nil {
		return usageError("--selector: %v", err)
	}
	if s.fields, err = fields.ParseSelector(s.fieldSelector); err != nil {
		return usageError("--field-selector: %v", err)
	}
	for _, r := range s.fields.Requirements() {
		if !slices.Contains(fieldNames, r.Field) {
			return usageError("--field-selector: field label not supported: %s; must be one of %s", r.Field, strings.Join(fieldNames, ", "))
		}
	}
	if len(s.files) > 0 {
		if len(args) > 0 || s.selector != "" || s.fieldSelector != "" {
			return usageError("when paths are provided with -f, neither names nor selectors may be given")
		}
		return s.readFiles(g)
	}
	if s.names, err = parseRefs(args); err != nil {
		return err
	}
	switch {
	case len(s.names) > 0 && (s.selector != "" || s.fieldSelector != ""):
		return usageError("name cannot be provided when a selector is specified")
	case len(s.names) > 0 && s.allNamespaces:
		return usageError("a job cannot be retrieved by name across all namespaces; name it as job/NAMESPACE/NAME")
	}
	for _, n := range s.names {
		if id := namedID(s.namespace, n); !slices.Contains(s.ids, id) {
			s.ids = append(s.ids, id)
		}
	}
	return nil
}

// readFiles takes the ids from files.
func (s *selection) readFiles(g *globals) error {
	var errs []error
	for _, arg := range s.files {
		err := eachManifest(g, arg, func(path string, data []byte, err error) {
			if err != nil {
				errs = append(errs, err)
				return
			}
			for _, d := range manifests.Decode(path, data).Docs {
				if id := namedID(s.namespace, d.ID); d.ID != "" && !slices.Contains(s.ids, id) {
					s.ids = append(s.ids, id)
				}
			}
		})
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if len(s.ids) == 0 {
		return fmt.Errorf("no Job of %s in %s", manifests.APIVersion, strings.Join(s.files, ", "))
	}
	return nil
}

// single reports whether one job was named, so that it is printed alone and not in a list.
func (s *selection) single() bool { return len(s.ids) == 1 && len(s.files) == 0 }

// pick returns the jobs that are meant, and the ids of those that are not there.
func (s *selection) pick(views []*jobView) (picked []*jobView, missing []string) {
	if len(s.ids) > 0 {
		for _, id := range s.ids {
			i := slices.IndexFunc(views, func(v *jobView) bool { return v.Twin == "" && v.refID() == id })
			if i < 0 {
				missing = append(missing, id)
				continue
			}
			picked = append(picked, views[i])
		}
		return picked, missing
	}
	for _, v := range views {
		if s.matches(v) {
			picked = append(picked, v)
		}
	}
	return picked, nil
}

func (s *selection) matches(v *jobView) bool {
	if namespace := s.only(); namespace != "" && v.Namespace() != namespace {
		return false
	}
	if !s.labels.Matches(labels.Set(v.Labels())) {
		return false
	}
	if s.fields.Empty() {
		return true
	}
	owner, done := "", false
	if st := v.Status(); st != nil {
		owner, done = st.Owner, st.Done != nil && *st.Done
	}
	return s.fields.Matches(fields.Set{
		"metadata.name": v.Doc.Name, "metadata.namespace": v.Namespace(),
		"status.owner": owner, "status.done": strconv.FormatBool(done),
	})
}

// only is the one namespace that is asked for, or empty.
func (s *selection) only() string {
	switch {
	case s.allNamespaces:
		return ""
	case s.namespace == "":
		return "default"
	}
	return s.namespace
}

// nothing says, as kubectl does, that no job was found.
func (s *selection) nothing() string {
	if s.allNamespaces {
		return "No resources found"
	}
	return fmt.Sprintf("No resources found in %s namespace.", s.only())
}

// refID is the id by which a user may name the document, even if it cannot be a job's.
func (v *jobView) refID() string {
	if v.Doc.ID != "" {
		return v.Doc.ID
	}
	return manifests.JobID(v.Doc.Namespace, v.Doc.Name)
}

// Labels are those in the document, accepted or not.
func (v *jobView) Labels() map[string]string { return v.metadata("labels") }

// metadata returns a string map of the document's metadata.
func (v *jobView) metadata(key string) map[string]string {
	meta, _ := v.Doc.Object["metadata"].(map[string]any)
	m, _ := meta[key].(map[string]any)
	if len(m) == 0 {
		return nil
	}
	all := make(map[string]string, len(m))
	for k, e := range m {
		if text, ok := e.(string); ok {
			all[k] = text
		}
	}
	return all
}
