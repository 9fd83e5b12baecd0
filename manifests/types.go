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

// The CustomResourceDefinition in crd/ is made from these types, and the JSON schema and what
// explain prints are made from that. Of comments, only those above a field get there.
//
// +groupName=leasehold.dev
// +versionName=v1alpha1

// Job is a piece of work that one of several workers holds at a time, under a lease with a fencing
// token. A result that is reported under a lease that is over is refused, and the first result that
// is accepted stays.
//
// +kubebuilder:resource:path=jobs,singular=job,shortName=lhj
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Owner",type=string,JSONPath=`.status.owner`,description="The worker that holds the job"
// +kubebuilder:printcolumn:name="Fence",type=integer,JSONPath=`.status.fence`,description="The highest fencing token handed out"
// +kubebuilder:printcolumn:name="Until",type=integer,JSONPath=`.status.until`,description="When the lease ends, on the job's clock, in whole units"
// +kubebuilder:printcolumn:name="Done",type=boolean,JSONPath=`.status.done`,description="Whether a result has been accepted"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Clock",type=number,JSONPath=`.spec.clock`,priority=1,description="The job's clock; none where that is the system clock"
// +kubebuilder:printcolumn:name="TTL",type=number,JSONPath=`.spec.ttl`,priority=1,description="The length of a lease"
// +kubebuilder:printcolumn:name="Attempts",type=integer,JSONPath=`.status.attempts`,priority=1,description="The number of leases so far"
// +kubebuilder:printcolumn:name="Result",type=string,JSONPath=`.status.result`,priority=1,description="The accepted result"
type Job struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// What is wanted: how long a lease lasts, and who may hold the job.
	Spec JobSpec `json:"spec"`
	// What is: who holds the job, until when, and what became of the workers' reports. The controller
	// writes it; what anybody else writes here changes nothing and is put right.
	Status *JobStatus `json:"status,omitempty"`
}

// JobSpec is what the user wants.
//
// +kubebuilder:validation:XValidation:rule="has(self.clock) ? self.clock + self.ttl > self.clock : self.ttl >= 0.000001",message="is too small: added to the clock it makes no difference",fieldPath=".ttl"
type JobSpec struct {
	// The reading that counts as "now" for every decision about this job: at least 0 and less than
	// 253402300800, in any unit. It only goes forward; a smaller reading decides nothing. Left out, the
	// job runs on the system clock, in Unix seconds. Example: 120.
	//
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=253402300800
	// +kubebuilder:validation:ExclusiveMaximum=true
	Clock *float64 `json:"clock,omitempty"`
	// The length of a lease, greater than 0, in the unit of the clock: seconds on the system clock. A
	// lease that begins or is renewed at 100 with a ttl of 30 ends at 130, and at 130 the next worker may
	// have the job. A change counts from the next lease or renewal. Example: 30.
	//
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:ExclusiveMinimum=true
	TTL float64 `json:"ttl"`
	// True keeps new leases from being assigned. A running lease goes on, and can be renewed and
	// completed. Example: true.
	Suspend bool `json:"suspend,omitempty"`
	// The number of leases after which a job that is not complete has failed, at least 1. Left out, the
	// job is leased again and again until it is complete. A failed job goes on when the number is raised.
	// Example: 5.
	//
	// +kubebuilder:validation:Minimum=1
	MaxAttempts *int64 `json:"maxAttempts,omitempty"`
	// Texts that are handed to the worker as they are. Numbers and booleans want quotes.
	// Example: {region: eu, year: "2026"}.
	Data map[string]string `json:"data,omitempty"`
	// Who may hold the job, in order of preference: at least one, with names of their own. When a lease
	// ends, the next one in the list gets the job, and after the last one the first.
	// Example: [{name: worker-a}, {name: worker-b}].
	//
	// +kubebuilder:validation:MinItems=1
	// +listType=map
	// +listMapKey=name
	Workers []Worker `json:"workers"`
}

// Worker may hold the job, and reports at most one of each verb.
//
// +kubebuilder:validation:XValidation:rule="!has(self.complete) || !has(self.release) || self.complete.fence != self.release.fence",message="contradicts complete, which has the same fence; keep one of them",fieldPath=".release.fence"
type Worker struct {
	// The worker's name, unique among the workers of this job: lower case letters, digits, '-' and '.',
	// beginning and ending with a letter or a digit, at most 253 characters. Example: worker-a.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	Name string `json:"name"`
	// True passes the worker over when the job is assigned. A lease that it holds goes on. Example: true.
	Suspend bool `json:"suspend,omitempty"`
	// A heartbeat by this worker. If its lease is still running, it then lasts a ttl from the job's clock.
	// Example: {fence: 2, time: 140}.
	Renew *Renew `json:"renew,omitempty"`
	// The job's result, as this worker reports it. It is accepted once, from the worker that holds the
	// job under that fence, while the lease lasts. Example: {fence: 2, result: "by b"}.
	Complete *Complete `json:"complete,omitempty"`
	// Gives the lease back, so that the next worker need not wait for its end. Example: {fence: 2}.
	Release *Release `json:"release,omitempty"`
}

// Renew is a heartbeat.
type Renew struct {
	// The fencing token of the lease that is to be renewed, as in status.fence: a whole number, at
	// least 1. Example: 2.
	//
	// +kubebuilder:validation:Minimum=1
	Fence int64 `json:"fence"`
	// Tells one heartbeat from the next: a number that is greater with each of them. The renewal counts
	// from the job's clock, whatever stands here. Example: 140.
	Time float64 `json:"time"`
}

// Complete reports the job's result.
type Complete struct {
	// The fencing token of the lease under which the work was done, as in status.fence: a whole number,
	// at least 1. Example: 2.
	//
	// +kubebuilder:validation:Minimum=1
	Fence int64 `json:"fence"`
	// The result, any text, which may be empty. Example: "by b".
	Result string `json:"result"`
}

// Release gives the lease back.
type Release struct {
	// The fencing token of the lease that is given back, as in status.fence: a whole number, at least 1.
	// Example: 2.
	//
	// +kubebuilder:validation:Minimum=1
	Fence int64 `json:"fence"`
}

// JobStatus is a projection of the store, written by the controller.
//
// +kubebuilder:pruning:PreserveUnknownFields
type JobStatus struct {
	// The worker that holds the job, or held it last. Example: worker-b.
	Owner string `json:"owner,omitempty"`
	// The highest fencing token handed out for this job. It only grows. Example: 2.
	Fence *int64 `json:"fence,omitempty"`
	// When the lease ends, on the job's clock. At that reading the job may be leased again. Example: 160.
	Until *float64 `json:"until,omitempty"`
	// Whether a result has been accepted. A done job never runs again.
	Done *bool `json:"done,omitempty"`
	// The accepted result, once the job is done. Example: "by b".
	Result *string `json:"result,omitempty"`
	// The number of leases so far, to be compared with spec.maxAttempts. Example: 2.
	Attempts *int64 `json:"attempts,omitempty"`
	// The reading of the clock at the last change. Example: 130.
	ObservedClock *float64 `json:"observedClock,omitempty"`
	// A hash of the spec that this status was decided from. Where it differs from the spec that stands
	// beside it, that one has not been seen yet. Example: 9f2c41d07b6e.
	SpecHash string `json:"specHash,omitempty"`
	// The identity of the store and its revision. Example: 6f1e0c52/17.
	Store string `json:"store,omitempty"`
	// What can be said about the job, one of each type: Accepted, Leased, Complete, and Failed,
	// ClockRegressed and RestoreNeeded where they apply.
	//
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:items:XPreserveUnknownFields
	Conditions []Condition `json:"conditions,omitempty"`
	// The verdicts on the reports that stand in spec.workers.
	//
	// +listType=atomic
	Workers []WorkerStatus `json:"workers,omitempty"`
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
//
// +kubebuilder:pruning:PreserveUnknownFields
type WorkerStatus struct {
	// The worker that reports. Example: worker-a.
	Name string `json:"name"`
	// What it reports: complete, renew or release.
	Report string `json:"report"`
	// The fencing token that it reports. Example: 1.
	Fence int64 `json:"fence"`
	// The time of a heartbeat. Example: 140.
	Time *float64 `json:"time,omitempty"`
	// Accepted, Refused, or Superseded: a heartbeat that is not newer than one judged before.
	Verdict string `json:"verdict"`
	// Why it was refused, in one word: NotFound, Done, StaleFence, NotOwner or Expired.
	Reason string `json:"reason,omitempty"`
	// The same for people.
	Message string `json:"message,omitempty"`
}
