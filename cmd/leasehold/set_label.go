package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/validation"

	"leasehold.dev/leasehold/manifests"
)

// newLabelCommand makes label or annotate.
func newLabelCommand(g *globals, verb string) *cobra.Command {
	o := setting{g: g}
	var overwrite, list bool
	field, one, done, undone := "labels", "label", "labeled", "unlabeled"
	short, about := "Set or remove labels of jobs", "A label is what -l selects jobs by."
	if verb == "annotate" {
		field, one, done, undone = "annotations", "annotation", "annotated", "annotated"
		short, about = "Set or remove annotations of jobs", "An annotation is a note on a job; nothing selects by it."
	}
	cmd := &cobra.Command{
		Use:   verb + " (job/NAME... | jobs -l LABEL | jobs --all) KEY=VALUE... KEY-...",
		Short: short,
		Long: about + ` KEY=VALUE sets it, KEY- removes it. One that has another value
already is only changed with --overwrite.

Exit codes: 0 done; 1 no such job, another value without --overwrite, or a fault; 2 invalid usage.`,
		Example: fmt.Sprintf(`  # Set one, and change another
  leasehold %[1]s job/invoice-42 team=billing
  leasehold %[1]s job/invoice-42 team=finance --overwrite

  # Remove it
  leasehold %[1]s job/invoice-42 team-

  # On all jobs that have a label
  leasehold %[1]s jobs -l app=report tier=batch`, verb),
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		refs, set, drop, err := labelArgs(args, verb == "label")
		if err != nil {
			return err
		}
		if len(set)+len(drop) == 0 && !list {
			return usageError("at least one %s update is required, as KEY=VALUE or KEY-", one)
		}
		if list {
			set, drop = nil, nil
		}
		says := map[string]string{}
		return o.change(cmd, refs, func(d *manifests.Doc) ([]manifests.Edit, error) {
			meta, _ := d.Object["metadata"].(map[string]any)
			now, _ := meta[field].(map[string]any)
			var es []manifests.Edit
			var lines []string
			for _, k := range slices.Sorted(maps.Keys(set)) {
				was, there := now[k]
				if there && was == set[k] {
					continue
				}
				if there && !overwrite {
					return nil, fmt.Errorf("%s/%s: '%s' already has a value (%v), and --overwrite is false", resource, d.ID, k, was)
				}
				es = append(es, manifests.Edit{Path: []any{"metadata", field, k}, Value: set[k]})
			}
			verdict := done
			if len(set) == 0 {
				verdict = undone
			}
			for _, k := range drop {
				if _, there := now[k]; !there {
					lines = append(lines, fmt.Sprintf("%s %q not found.", one, k))
					continue
				}
				es = append(es, manifests.Edit{Path: []any{"metadata", field, k}})
			}
			if len(es) == 0 {
				verdict = "not " + done
			}
			if list {
				for _, k := range slices.Sorted(maps.Keys(now)) {
					lines = append(lines, fmt.Sprintf("%s=%v", plain(k), now[k]))
				}
				says[d.ID] = fmt.Sprintf("Listing %s for %s/%s:\n %s", field, resource, d.ID, strings.Join(lines, "\n "))
				return nil, nil
			}
			says[d.ID] = strings.Join(append(lines, fmt.Sprintf("%s/%s %s", resource, d.ID, verdict)), "\n")
			return es, nil
		}, func(id string) string { return says[id] })
	}
	o.flags(cmd)
	cmd.Flags().BoolVar(&overwrite, "overwrite", false, "change one that has another value")
	cmd.Flags().BoolVar(&list, "list", false, "only show those that are there")
	return cmd
}

// labelArgs sorts out names, values to set, and keys to remove.
func labelArgs(args []string, label bool) (refs []string, set map[string]string, drop []string, err error) {
	set = map[string]string{}
	for i, a := range args {
		key, value, isSet := strings.Cut(a, "=")
		cut, isDrop := strings.CutSuffix(a, "-")
		switch {
		case isSet && key != "":
		case isDrop && i > 0 && !strings.HasPrefix(a, "job/"):
			key = cut
		default:
			if len(set)+len(drop) > 0 {
				return nil, nil, nil, usageError("%q: names come before what is to be set: KEY=VALUE or KEY-", a)
			}
			refs = append(refs, a)
			continue
		}
		if msgs := validation.IsQualifiedName(key); len(msgs) > 0 {
			return nil, nil, nil, usageError("%q: invalid key: %s", key, strings.Join(msgs, "; "))
		}
		if !isSet {
			drop = append(drop, key)
			continue
		}
		if msgs := validation.IsValidLabelValue(value); label && len(msgs) > 0 {
			return nil, nil, nil, usageError("%q: invalid label value: %s", a, strings.Join(msgs, "; "))
		}
		if was, twice := set[key]; twice && was != value {
			return nil, nil, nil, usageError("%q: is given two values", key)
		}
		set[key] = value
	}
	for _, k := range drop {
		if _, both := set[k]; both {
			return nil, nil, nil, usageError("%q: can not both be set and removed", k)
		}
	}
	return refs, set, drop, nil
}
