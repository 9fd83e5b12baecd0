package controller

import (
	"context"
	"log/slog"
	"time"

	"k8s.io/client-go/util/workqueue"

	"leasehold.dev/leasehold/manifests"
	"leasehold.dev/leasehold/store"
)

// Options of a controller. The zero value of each is a default.
type Options struct {
	Log    *slog.Logger
	Now    func() time.Time // the system clock
	DryRun bool             // decide, tell, and change nothing
	// Jumps calls jumped whenever the system clock was set, until ctx is done. The default asks the
	// kernel, where it tells.
	Jumps func(ctx context.Context, jumped func())
	// Before, where set, is called with the name of each step of a pass, and with the key, before it
	// is taken. An error ends the pass in place of the step. Tests fail, stop or meddle there.
	Before func(step, key string) error
	Hooks  Hooks
}

// Hooks are called as things happen, by many goroutines. Those that are nil are not.
type Hooks struct {
	// Ready: every manifest that was there has been read, and deciding begins.
	Ready func()
	// Decided: a change or, with a reason, a refusal has been committed.
	Decided func(verb string, reason store.Reason)
	// Pass: a manifest was reconciled, which took so long, the writing included.
	Pass func(took time.Duration, err error)
	// Wrote: statuses were written into a manifest, or could not be.
	Wrote func(took time.Duration, err error)
	// Unread: a manifest could not be read.
	Unread func(err error)
	// Manifest: the states of a manifest's documents and the number of other mistakes in it. It has
	// neither when it is gone.
	Manifest func(key string, states []string, mistakes int)
	// Queue measures the queue of manifests.
	Queue workqueue.MetricsProvider
}

// queueName is what the queue's metrics are labelled with.
const queueName = "manifests"

func (h *Hooks) decided(events []store.Event) {
	if h.Decided == nil {
		return
	}
	for _, e := range events {
		h.Decided(e.Verb, e.Reason)
	}
}

func (h *Hooks) pass(began time.Time, err error) {
	if h.Pass != nil {
		h.Pass(time.Since(began), err)
	}
}

func (h *Hooks) wrote(began time.Time, err error) {
	if h.Wrote != nil {
		h.Wrote(time.Since(began), err)
	}
}

func (h *Hooks) unread(err error) {
	if h.Unread != nil {
		h.Unread(err)
	}
}

func (h *Hooks) manifest(key string, outcomes []outcome, mistakes int) {
	if h.Manifest == nil {
		return
	}
	var states []string
	for _, o := range outcomes {
		if o.status != nil {
			states = append(states, stateOf(o.status))
		}
	}
	h.Manifest(key, states, mistakes)
}

// States are the words for where a job stands, the same as those of get.
var States = []string{"Leased", "Waiting", "Suspended", "Expired", "Complete", "Failed", "ClockRegressed", "RestoreNeeded", "Invalid", "DuplicateName"}

// stateOf finds the word for what a status says.
func stateOf(s *manifests.JobStatus) string {
	is := map[string]manifests.Condition{}
	for _, c := range s.Conditions {
		is[c.Type] = c
	}
	holds := func(kind string) bool { return is[kind].Status == "True" }
	switch {
	case !holds(manifests.ConditionAccepted):
		return is[manifests.ConditionAccepted].Reason
	case holds(manifests.ConditionComplete):
		return "Complete"
	case holds(manifests.ConditionRestoreNeeded):
		return "RestoreNeeded"
	case holds(manifests.ConditionClockRegressed):
		return "ClockRegressed"
	case holds(manifests.ConditionLeased):
		return "Leased"
	case holds(manifests.ConditionFailed):
		return "Failed"
	}
	switch reason := is[manifests.ConditionLeased].Reason; reason {
	case "Suspended", "Expired":
		return reason
	}
	return "Waiting"
}
