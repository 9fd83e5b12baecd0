// Package metrics measures a controller and its store for Prometheus.
package metrics

import (
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"leasehold.dev/leasehold/controller"
	"leasehold.dev/leasehold/store"
)

// Metrics counts what its hooks are told.
type Metrics struct {
	registry *prometheus.Registry

	decisions *prometheus.CounterVec
	passes    *prometheus.HistogramVec
	writes    *prometheus.HistogramVec
	unread    prometheus.Counter
	ready     prometheus.Gauge
	commits   prometheus.Histogram
	batches   prometheus.Histogram
	queue     *queue
	jobs      *jobs
}

// durations reach from a decision in memory to a disk that is in trouble.
var durations = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}

// New returns metrics that start at zero. version is that of the program.
func New(version string) *Metrics {
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		decisions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "leasehold_decisions_total",
			Help: "Decisions committed by this process, by what was asked for, the verdict, and the reason of a refusal.",
		}, []string{"verb", "verdict", "reason"}),
		passes: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "leasehold_reconcile_duration_seconds", Buckets: durations,
			Help: "How long it took to reconcile a manifest, writing its status included, by outcome.",
		}, []string{"outcome"}),
		writes: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "leasehold_status_write_duration_seconds", Buckets: durations,
			Help: "How long it took to write status into a manifest, by outcome.",
		}, []string{"outcome"}),
		unread: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "leasehold_manifest_read_errors_total",
			Help: "Manifests that could not be read.",
		}),
		ready: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "leasehold_ready",
			Help: "1 once every manifest has been read and deciding has begun.",
		}),
		commits: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "leasehold_store_commit_duration_seconds", Buckets: durations,
			Help: "How long a transaction of the store took, until it was durable.",
		}),
		batches: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "leasehold_store_commit_batch_size", Buckets: prometheus.ExponentialBuckets(1, 2, 9),
			Help: "How many decisions shared a commit.",
		}),
		queue: newQueue(),
		jobs:  newJobs(),
	}
	for _, outcome := range []string{"ok", "error"} {
		m.passes.WithLabelValues(outcome)
		m.writes.WithLabelValues(outcome)
	}
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "leasehold_build_info", Help: "1, with the version of the program.",
		ConstLabels: prometheus.Labels{"version": version},
	})
	build.Set(1)
	m.registry.MustRegister(m.decisions, m.passes, m.writes, m.unread, m.ready, m.commits, m.batches, m.jobs, build,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m.registry.MustRegister(m.queue.all()...)
	return m
}

// Hooks are what a controller tells.
func (m *Metrics) Hooks() controller.Hooks {
	return controller.Hooks{
		Ready:    func() { m.ready.Set(1) },
		Decided:  m.decided,
		Pass:     func(took time.Duration, err error) { m.passes.WithLabelValues(outcome(err)).Observe(took.Seconds()) },
		Wrote:    func(took time.Duration, err error) { m.writes.WithLabelValues(outcome(err)).Observe(took.Seconds()) },
		Unread:   func(error) { m.unread.Inc() },
		Manifest: m.jobs.set,
		Queue:    m.queue,
	}
}

// Committed is what a store tells.
func (m *Metrics) Committed(took time.Duration, decisions int) {
	m.commits.Observe(took.Seconds())
	m.batches.Observe(float64(decisions))
}

// Handler serves the metrics.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}

func outcome(err error) string {
	if err != nil {
		return "error"
	}
	return "ok"
}

// asked is what was asked for where the history says what was done.
var asked = map[string]string{
	"enqueued": "enqueue", "claimed": "claim", "renewed": "renew", "completed": "complete", "released": "release",
}

func (m *Metrics) decided(verb string, reason store.Reason) {
	verdict := "accepted"
	if reason != "" {
		verdict = "refused"
	}
	if v, ok := asked[verb]; ok {
		verb = v
	}
	m.decisions.WithLabelValues(verb, verdict, string(reason)).Inc()
}

// jobs counts documents by state, from what was last decided about each manifest.
type jobs struct {
	states, mistakes *prometheus.Desc

	mu    sync.Mutex
	files map[string]file
}

type file struct {
	states   []string
	mistakes int
}

func newJobs() *jobs {
	return &jobs{
		states: prometheus.NewDesc("leasehold_jobs",
			"Declared jobs, by the state in which the last decision left them.", []string{"state"}, nil),
		mistakes: prometheus.NewDesc("leasehold_manifest_mistakes",
			"Mistakes in manifests that concern no job that could be named, such as broken YAML.", nil, nil),
		files: map[string]file{},
	}
}

func (j *jobs) set(key string, states []string, mistakes int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(states) == 0 && mistakes == 0 {
		delete(j.files, key)
		return
	}
	j.files[key] = file{states, mistakes}
}

func (j *jobs) Describe(ch chan<- *prometheus.Desc) { ch <- j.states; ch <- j.mistakes }

func (j *jobs) Collect(ch chan<- prometheus.Metric) {
	counts := map[string]int{}
	for _, s := range controller.States {
		counts[s] = 0
	}
	mistakes := 0
	j.mu.Lock()
	for _, f := range j.files {
		mistakes += f.mistakes
		for _, s := range f.states {
			counts[s]++
		}
	}
	j.mu.Unlock()
	for state, n := range counts {
		ch <- prometheus.MustNewConstMetric(j.states, prometheus.GaugeValue, float64(n), state)
	}
	ch <- prometheus.MustNewConstMetric(j.mistakes, prometheus.GaugeValue, float64(mistakes))
}
