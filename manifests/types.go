package manifests

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// The group, version and kind of the manifests.
const (
	Group      = "leasehold.dev"
	Version    = "v1alpha1"
	APIVersion = Group + "/" + Version
	Kind       = "Job"
)

// MaxClock is the first clock reading that is too large: the year 10000, in Unix seconds.
const MaxClock = 253402300800

// Job declares a job and the workers that may hold it.
type Job struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   JobSpec    `json:"spec"`
	Status *JobStatus `json:"status,omitempty"`
}

// JobSpec is what the user wants.
type JobSpec struct {
	// Clock is "now" for every decision about this job, 0 <= clock < 253402300800. Left out: the
	// system clock, in Unix seconds.
	Clock *float64 `json:"clock,omitempty"`
	// TTL is the length of a lease, in the unit of the clock.
	TTL float64 `json:"ttl"`
	// Suspend keeps new leases from being assigned. A running one goes on.
	Suspend bool `json:"suspend,omitempty"`
	// MaxAttempts is the number of leases after which a job that is not complete has failed.
	MaxAttempts *int64 `json:"maxAttempts,omitempty"`
	// Data is handed to the worker.
	Data map[string]string `json:"data,omitempty"`
	// Workers are declared in order of preference. Their names are unique.
	Workers []Worker `json:"workers"`
}

// Worker may hold the job, and reports at most one of each verb.
type Worker struct {
	Name string `json:"name"`
	// Suspend passes the worker over when the job is assigned.
	Suspend  bool      `json:"suspend,omitempty"`
	Renew    *Renew    `json:"renew,omitempty"`
	Complete *Complete `json:"complete,omitempty"`
	Release  *Release  `json:"release,omitempty"`
}

// Renew is a heartbeat.
type Renew struct {
	// Fence is the token of the lease that is to be renewed.
	Fence int64 `json:"fence"`
	// Time tells one heartbeat from the next: a new one has a greater time. It is not a clock.
	Time float64 `json:"time"`
}

// Complete reports the job's result.
type Complete struct {
	// Fence is the token of the lease under which the work was done.
	Fence int64 `json:"fence"`
	// Result is the job's result.
	Result string `json:"result"`
}

// Release gives the lease back.
type Release struct {
	// Fence is the token of the lease that is given back.
	Fence int64 `json:"fence"`
}

// JobStatus is a projection of the store, written by the controller.
type JobStatus struct {
	Owner         string         `json:"owner,omitempty"`
	Fence         *int64         `json:"fence,omitempty"`
	Until         *float64       `json:"until,omitempty"`
	Done          *bool          `json:"done,omitempty"`
	Result        *string        `json:"result,omitempty"`
	Attempts      *int64         `json:"attempts,omitempty"`
	ObservedClock *float64       `json:"observedClock,omitempty"` // reading of the last change
	SpecHash      string         `json:"specHash,omitempty"`      // of the spec decided from
	Store         string         `json:"store,omitempty"`         // identity/revision
	Conditions    []Condition    `json:"conditions,omitempty"`
	Workers       []WorkerStatus `json:"workers,omitempty"`
}

// Condition is a Kubernetes condition.
type Condition = metav1.Condition

// The condition types.
const (
	ConditionAccepted       = "Accepted"
	ConditionLeased         = "Leased"
	ConditionComplete       = "Complete"
	ConditionFailed         = "Failed"
	ConditionClockRegressed = "ClockRegressed"
	ConditionRestoreNeeded  = "RestoreNeeded"
)

// WorkerStatus is the verdict on a report.
type WorkerStatus struct {
	Name    string   `json:"name"`
	Report  string   `json:"report"` // complete, renew or release
	Fence   int64    `json:"fence"`
	Time    *float64 `json:"time,omitempty"` // of a heartbeat
	Verdict string   `json:"verdict"`        // Accepted, Refused or Superseded
	Reason  string   `json:"reason,omitempty"`
	Message string   `json:"message,omitempty"`
}
