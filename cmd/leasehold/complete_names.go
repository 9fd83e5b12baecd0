package main

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"leasehold.dev/leasehold/manifests"
)

// completeNames lets the shell complete the names of jobs and workers, and what flags take.
func completeNames(root *cobra.Command, g *globals) {
	for _, cmd := range root.Commands() {
		name := cmd.Name()
		switch name {
		case "get", "describe", "wait", "delete", "edit", "label", "annotate", "suspend", "resume":
			cmd.ValidArgsFunction = jobNames(g, true)
		case "tick", "renew", "complete", "release", "restore", "events", "timeline":
			cmd.ValidArgsFunction = jobNames(g, false)
		case "cordon", "uncordon":
			cmd.ValidArgsFunction = workerNames(g)
		case "work":
			// Its arguments are a command of the user's.
		default:
			continue
		}
		for flag, f := range map[string]cobra.CompletionFunc{
			"worker": workerNames(g),
			"as":     workerNames(g), // of work
			"for":    forValues(g, name),
			"output": cobra.FixedCompletions(strings.Split(formats, ", "), cobra.ShellCompDirectiveNoSpace|cobra.ShellCompDirectiveNoFileComp),
			"types":  cobra.FixedCompletions([]string{"Normal", "Warning"}, cobra.ShellCompDirectiveNoFileComp),
			"namespace": func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
				return namespaces(g), cobra.ShellCompDirectiveNoFileComp
			},
		} {
			if cmd.Flags().Lookup(flag) != nil {
				_ = cmd.RegisterFlagCompletionFunc(flag, f)
			}
		}
	}
}

// eachDoc reads the directory as far as that is possible.
func eachDoc(g *globals, f func(*manifests.Doc)) {
	tree, err := g.tree()
	if err != nil {
		return
	}
	defer tree.Close()
	_ = readAll(tree, func(path string, snap manifests.Snapshot, err error) error {
		if err == nil {
			for _, d := range manifests.Decode(path, snap.Data).Docs {
				f(d)
			}
		}
		return nil
	})
}

// jobNames completes job/NAME and, after the word job, NAME.
func jobNames(g *globals, several bool) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		const stop = cobra.ShellCompDirectiveNoFileComp
		prefix, given := "job/", args
		if len(args) > 0 && isJobs(args[0]) {
			prefix, given = "", args[1:]
		} else if kind, _, ok := strings.Cut(typed, "/"); ok && isJobs(kind) {
			prefix = kind + "/"
		}
		if !several && len(given) > 0 {
			return nil, stop
		}
		namespace := ""
		if f := cmd.Flags().Lookup("namespace"); f != nil {
			namespace = f.Value.String()
		}
		var names []string
		if prefix == "job/" && len(args) == 0 && several && !strings.HasPrefix(typed, prefix) {
			names = append(names, "jobs")
		}
		eachDoc(g, func(d *manifests.Doc) {
			if d.ID != "" && manifests.JobID(namespace, d.Name) == d.ID {
				names = append(names, prefix+d.Name)
			}
		})
		return complete(names, given, typed), stop
	}
}

// workerNames completes the workers of the job that is named, or of all.
func workerNames(g *globals) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		id, namespace := "", ""
		if f := cmd.Flags().Lookup("namespace"); f != nil {
			namespace = f.Value.String()
		}
		if name, err := parseRef(args); err == nil {
			id = namedID(namespace, name)
		}
		var names []string
		eachDoc(g, func(d *manifests.Doc) {
			if d.Job == nil || id != "" && d.ID != id {
				return
			}
			for _, w := range d.Job.Spec.Workers {
				names = append(names, w.Name)
			}
		})
		return complete(names, args, typed), cobra.ShellCompDirectiveNoFileComp
	}
}

// forValues completes --for.
func forValues(g *globals, command string) cobra.CompletionFunc {
	if command == "events" {
		return jobNames(g, false)
	}
	return func(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
		words := []string{"delete", "create", "jsonpath="}
		for _, c := range []string{manifests.ConditionAccepted, manifests.ConditionLeased, manifests.ConditionComplete,
			manifests.ConditionFailed, manifests.ConditionClockRegressed, manifests.ConditionRestoreNeeded} {
			words = append(words, "condition="+c)
		}
		return complete(words, nil, typed), cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	}
}

func namespaces(g *globals) []string {
	names := []string{"default"}
	eachDoc(g, func(d *manifests.Doc) {
		if d.ID != "" && d.Namespace != "" {
			names = append(names, d.Namespace)
		}
	})
	return complete(names, nil, "")
}

// complete returns the names that begin with what was typed and are not given yet.
func complete(names, given []string, typed string) []string {
	slices.Sort(names)
	return slices.DeleteFunc(slices.Compact(names), func(n string) bool {
		return !strings.HasPrefix(n, typed) || slices.Contains(given, n)
	})
}
