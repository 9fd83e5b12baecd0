package metrics

import (
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/util/workqueue"
)

// queue implements workqueue.MetricsProvider. There is one queue, so its name is no label.
type queue struct {
	depth, unfinished, longest prometheus.Gauge
	adds, retries              prometheus.Counter
	latency, work              prometheus.Histogram
}

func newQueue() *queue {
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: "leasehold_queue_" + name, Help: help})
	}
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "leasehold_queue_" + name, Help: help})
	}
	histogram := func(name, help string) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{Name: "leasehold_queue_" + name, Help: help, Buckets: durations})
	}
	return &queue{
		depth:      gauge("depth", "Manifests that wait to be reconciled."),
		adds:       counter("adds_total", "How often a manifest was queued."),
		latency:    histogram("latency_seconds", "How long a manifest waited in the queue."),
		work:       histogram("work_duration_seconds", "How long a manifest that left the queue was worked on."),
		unfinished: gauge("unfinished_work_seconds", "How long what is being worked on has taken so far, added up."),
		longest:    gauge("longest_running_seconds", "How long the longest of it has taken so far."),
		retries:    counter("retries_total", "How often a manifest was queued again after a fault."),
	}
}

func (q *queue) all() []prometheus.Collector {
	return []prometheus.Collector{q.depth, q.adds, q.latency, q.work, q.unfinished, q.longest, q.retries}
}

func (q *queue) NewDepthMetric(string) workqueue.GaugeMetric            { return q.depth }
func (q *queue) NewAddsMetric(string) workqueue.CounterMetric           { return q.adds }
func (q *queue) NewLatencyMetric(string) workqueue.HistogramMetric      { return q.latency }
func (q *queue) NewWorkDurationMetric(string) workqueue.HistogramMetric { return q.work }
func (q *queue) NewUnfinishedWorkSecondsMetric(string) workqueue.SettableGaugeMetric {
	return q.unfinished
}
func (q *queue) NewLongestRunningProcessorSecondsMetric(string) workqueue.SettableGaugeMetric {
	return q.longest
}
func (q *queue) NewRetriesMetric(string) workqueue.CounterMetric { return q.retries }
