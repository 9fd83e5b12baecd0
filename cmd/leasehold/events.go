package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/liggitt/tabwriter"
	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/cli-runtime/pkg/printers"

	"leasehold.dev/leasehold/controller"
	"leasehold.dev/leasehold/manifests"
	"leasehold.dev/leasehold/store"
)

// eventing is a call of events.
type eventing struct {
	g             *globals
	namespace     string
	allNamespaces bool
	of            string
	output        string
	watch         bool
	noHeaders     bool
	types         []string

	id      string // empty: all
	objects printers.ResourcePrinter
	table   printers.ResourcePrinter
	rows    *tabwriter.Writer
}

func newEventsCommand(g *globals) *cobra.Command {
	o := eventing{g: g}
	cmd := &cobra.Command{
		Use:   "events [job/NAME | --for job/NAME]",
		Short: "Show what happened to jobs",
		Long: `Shows the history that the store keeps of every accepted change and every refusal, the oldest first.
Refusals are of type Warning, and say why as the reason. What repeats is one line with a count.`,
		Example: `  # What happened in the namespace default
  leasehold events

  # Why was a worker refused?
  leasehold events job/invoice-42 --types Warning

  # Follow one job
  leasehold events --for job/invoice-42 -w`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.parse(args); err != nil {
				return err
			}
			return o.run(cmd.Context())
		},
	}
	f := cmd.Flags()
	f.StringVarP(&o.namespace, "namespace", "n", "", "the `namespace` of the jobs (default \"default\")")
	f.BoolVarP(&o.allNamespaces, "all-namespaces", "A", false, "events of all namespaces")
	f.StringVar(&o.of, "for", "", "only events of `job/NAME`")
	f.StringVarP(&o.output, "output", "o", "", "output `format`: yaml, json, name, jsonpath=, go-template=")
	f.BoolVarP(&o.watch, "watch", "w", false, "after listing, print what happens")
	f.BoolVar(&o.noHeaders, "no-headers", false, "print no headers")
	f.StringSliceVar(&o.types, "types", nil, "only events of these `types`: Normal, Warning")
	return cmd
}

func (o *eventing) parse(args []string) (err error) {
	if o.of != "" {
		args = append(args, o.of)
	}
	if len(args) > 0 {
		name, err := parseRef(args)
		if err != nil {
			return err
		}
		o.id = namedID(o.namespace, name)
	}
	for _, t := range o.types {
		if !strings.EqualFold(t, "Normal") && !strings.EqualFold(t, "Warning") {
			return usageError("--types: Unsupported value: %q: must be Normal or Warning", t)
		}
	}
	if o.output != "" && o.output != "wide" {
		o.objects, err = objectPrinter(o.output)
		return err
	}
	o.table = printers.NewTablePrinter(printers.PrintOptions{NoHeaders: o.noHeaders, WithNamespace: o.allNamespaces && o.id == ""})
	o.rows = printers.GetNewTabWriter(o.g.Out)
	return nil
}

// eventTail is how many of the last events are looked at again for a higher count.
const eventTail = 64

func (o *eventing) run(ctx context.Context) error {
	b, err := o.g.browse()
	if err != nil {
		return err
	}
	defer b.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var signals <-chan struct{}
	if o.watch {
		signals = controller.Follow(ctx, b.tree, b.database)
	}
	counts := map[int64]int64{}
	var after int64
	for first := true; ; first = false {
		events, err := b.history(ctx, o.id, after)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, fs.ErrNotExist): // no store yet, so nothing has happened
		case err != nil:
			return err
		}
		fresh := slices.DeleteFunc(slices.Clone(events), func(e store.Event) bool {
			return counts[e.Seq] == e.Count || !o.wants(e)
		})
		for _, e := range events {
			counts[e.Seq] = e.Count
		}
		if n := len(events); n > eventTail {
			after = events[n-eventTail].Seq
		}
		if err := o.print(fresh, first); err != nil || !o.watch {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-signals:
		}
	}
}

func (o *eventing) wants(e store.Event) bool {
	if o.id == "" && !o.allNamespaces {
		namespace, _ := splitID(e.ID)
		if namespace != cmp.Or(o.namespace, "default") {
			return false
		}
	}
	return len(o.types) == 0 || slices.ContainsFunc(o.types, func(t string) bool { return strings.EqualFold(t, eventType(e)) })
}

func (o *eventing) print(events []store.Event, first bool) error {
	if o.objects != nil {
		items := make([]*unstructured.Unstructured, len(events))
		for i, e := range events {
			items[i] = eventObject(e)
		}
		if first && !o.watch {
			return o.objects.PrintObj(list(items), o.g.Out)
		}
		for _, u := range items {
			if err := o.objects.PrintObj(u, o.g.Out); err != nil {
				return err
			}
		}
		return nil
	}
	if len(events) == 0 {
		if first {
			fmt.Fprintln(o.g.Err, o.nothing())
		}
		return nil
	}
	if err := o.table.PrintObj(eventTable(events), o.rows); err != nil {
		return err
	}
	return o.rows.Flush()
}

func (o *eventing) nothing() string {
	switch {
	case o.id != "":
		return fmt.Sprintf("No events found for job/%s.", o.id)
	case o.allNamespaces:
		return "No events found."
	}
	return fmt.Sprintf("No events found in %s namespace.", cmp.Or(o.namespace, "default"))
}

// splitID returns the namespace and the name in a job's id.
func splitID(id string) (namespace, name string) {
	if ns, name, ok := strings.Cut(id, "/"); ok {
		return ns, name
	}
	return "default", id
}

func eventTable(events []store.Event) *metav1.Table {
	t := &metav1.Table{ColumnDefinitions: []metav1.TableColumnDefinition{
		{Name: "Last Seen", Type: "string"}, {Name: "Type", Type: "string"}, {Name: "Reason", Type: "string"},
		{Name: "Object", Type: "string"}, {Name: "Message", Type: "string"},
	}}
	for _, e := range events {
		namespace, name := splitID(e.ID)
		t.Rows = append(t.Rows, metav1.TableRow{
			Cells:  []any{eventAge(e), fmt.Sprintf("%-7s", eventType(e)), eventReason(e), "job/" + plain(name), plain(controller.EventText(e))},
			Object: runtime.RawExtension{Object: &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: plain(namespace)}}},
		})
	}
	return t
}

// eventAge is how long ago the event was first seen, and how often it was.
func eventAge(e store.Event) string {
	age := duration.HumanDuration(time.Since(e.At))
	if e.Count > 1 {
		return fmt.Sprintf("%s (x%d)", age, e.Count)
	}
	return age
}

func eventType(e store.Event) string {
	switch {
	case e.Reason != "", e.Verb == "jumped", e.Verb == "deleted", e.Verb == "failed", e.Verb == "released" && e.Message != "":
		return "Warning"
	}
	return "Normal"
}

// eventReason is what happened, in one word, or why it was refused.
func eventReason(e store.Event) string {
	if e.Reason != "" {
		return plain(string(e.Reason))
	}
	if e.Verb == "" {
		return none
	}
	return plain(strings.ToUpper(e.Verb[:1]) + e.Verb[1:])
}

// eventObject is the event in the shape that kubectl's events have, with what is ours beside it.
func eventObject(e store.Event) *unstructured.Unstructured {
	namespace, name := splitID(e.ID)
	at := e.At.UTC().Format("2006-01-02T15:04:05.000Z")
	obj := map[string]any{
		"apiVersion": manifests.APIVersion, "kind": "Event",
		"metadata":       map[string]any{"name": name + "." + strconv.FormatInt(e.Seq, 10), "namespace": namespace, "creationTimestamp": at},
		"involvedObject": map[string]any{"apiVersion": manifests.APIVersion, "kind": manifests.Kind, "name": name, "namespace": namespace},
		"type":           eventType(e), "reason": eventReason(e), "message": controller.EventText(e), "count": e.Count,
		"firstTimestamp": at, "source": map[string]any{"component": e.By},
		"verb": e.Verb, "fence": e.Fence,
	}
	if e.Owner != "" {
		obj["owner"] = e.Owner
	}
	if e.Until != 0 {
		obj["until"] = exactly(e.Until)
	}
	if e.Clock != nil {
		obj["clock"] = exactly(*e.Clock)
	}
	return &unstructured.Unstructured{Object: obj}
}
