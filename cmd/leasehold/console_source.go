package main

import (
	"bytes"
	"context"
	"io"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/cli-runtime/pkg/printers"

	"leasehold.dev/leasehold/controller/console"
	"leasehold.dev/leasehold/store"
	"leasehold.dev/leasehold/store/sqlite"
)

// consoleSource shows the console what get and describe show.
type consoleSource struct {
	g  globals
	db *sqlite.DB
}

func newConsoleSource(g *globals, db *sqlite.DB) *consoleSource {
	quiet := *g
	quiet.Err = io.Discard // what get warns of stands on the page
	return &consoleSource{quiet, db}
}

// Follow implements console.Source.
func (s *consoleSource) Follow(ctx context.Context, f func(*console.Snapshot)) error {
	b, err := s.g.browse()
	if err != nil {
		return err
	}
	defer b.Close()
	b.db, b.borrowed = s.db, true
	return b.follow(ctx, func(views []*jobView) (bool, error) {
		s := &console.Snapshot{Jobs: make([]*console.Job, len(views)), Mistakes: b.mistakes()}
		for i, v := range views {
			s.Jobs[i] = v.consoleJob(b.shown("") + "/")
		}
		f(s)
		return false, nil
	})
}

// consoleEvents is how far back the console looks.
const consoleEvents = 2000

// History implements console.Source.
func (s *consoleSource) History(ctx context.Context, id string) ([]store.Event, error) {
	return s.db.Recent(ctx, id, consoleEvents)
}

// mistakes are those in files that no document is to blame for.
func (b *browser) mistakes() []string {
	var all []string
	dir := b.shown("") + "/"
	for _, path := range slices.Sorted(maps.Keys(b.unread)) {
		all = append(all, strings.TrimPrefix(b.unread[path].Error(), dir))
	}
	for _, path := range slices.Sorted(maps.Keys(b.files)) {
		for _, e := range b.files[path].file.Errors {
			all = append(all, strings.TrimPrefix(e.Error(), dir))
		}
	}
	return all
}

// consoleJob is the job as the console shows it, below the directory that its heading names.
func (v *jobView) consoleJob(dir string) *console.Job {
	j := &console.Job{
		Key: v.key(), Namespace: v.Namespace(), Name: v.Name(), Where: strings.TrimPrefix(v.Where(), dir), State: v.State, Tone: toneOf(v.State),
		Note: v.Note, System: v.System(), Detail: v.consoleDetail,
	}
	if v.Twin == "" {
		j.ID = v.Doc.ID
	}
	labels := v.Labels()
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		j.Labels = append(j.Labels, console.Pair{Key: k, Value: labels[k]})
	}
	for _, e := range v.Doc.Errors {
		j.Errors = append(j.Errors, strings.TrimPrefix(e.Error(), dir))
	}
	if job := v.Doc.Job; job != nil && job.Spec.MaxAttempts != nil {
		j.MaxAttempts = *job.Spec.MaxAttempts
	}
	if v.Doc.Clock != nil {
		j.Clock = number(*v.Doc.Clock)
	}
	if r := v.Row; r != nil && r.Exists {
		j.Owner, j.Fence, j.Attempts, j.Result = r.Owner, r.Fence, r.Attempts, r.Result
		if r.Owner != "" && !r.Done && v.State != stateFailed {
			j.Until, j.UntilText = r.Until, moment(r.Until, v.System())
		}
	}
	return j
}

func toneOf(state string) console.Tone {
	switch state {
	case stateLeased:
		return console.Held
	case stateComplete:
		return console.Good
	case stateWaiting, stateSuspended, statePending, stateExpired:
		return console.Idle
	}
	return console.Bad
}

func (v *jobView) consoleDetail() console.Detail {
	obj := v.Object()
	status := obj.Object["status"]
	delete(obj.Object, "status")
	d := console.Detail{Spec: yamlOf(obj.Object), Timeline: v.timelineInput(nil, systemClock())}
	if status != nil {
		_, d.Status, _ = strings.Cut(yamlOf(map[string]any{"apiVersion": "v1", "kind": "Status", "status": status}), "kind: Status\n")
	}
	return d
}

func yamlOf(obj map[string]any) string {
	var b bytes.Buffer
	if err := exactYAML(&printers.YAMLPrinter{}).PrintObj(&unstructured.Unstructured{Object: obj}, &b); err != nil {
		return err.Error()
	}
	return b.String()
}
