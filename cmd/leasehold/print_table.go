package main

import (
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"
)

// tableColumns are what get shows, the ones of priority 1 with -o wide only.
var tableColumns = []metav1.TableColumnDefinition{
	{Name: "Name", Type: "string", Format: "name"},
	{Name: "State", Type: "string"},
	{Name: "Owner", Type: "string"},
	{Name: "Fence", Type: "integer"},
	{Name: "Clock", Type: "string"},
	{Name: "Until", Type: "string"},
	{Name: "Attempts", Type: "string"},
	{Name: "TTL", Type: "string", Priority: 1},
	{Name: "Workers", Type: "string", Priority: 1},
	{Name: "File", Type: "string", Priority: 1},
	{Name: "Result", Type: "string", Priority: 1}, // free text last: the printer aligns bytes
	{Name: "Note", Type: "string", Priority: 1},
}

// table is what the table printer prints.
func table(views []*jobView, now float64) *metav1.Table {
	t := &metav1.Table{ColumnDefinitions: tableColumns}
	for _, v := range views {
		labels := map[string]string{}
		for k, e := range v.Labels() {
			labels[plain(k)] = plain(e)
		}
		t.Rows = append(t.Rows, metav1.TableRow{
			Cells: v.cells(now),
			Object: runtime.RawExtension{Object: &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
				Name: plain(v.Doc.Name), Namespace: plain(v.Namespace()), Labels: labels,
			}}},
		})
	}
	return t
}

func (v *jobView) cells(now float64) []any {
	state := v.State
	if v.Stale() {
		state += "*"
	}
	owner, fence, until, attempts, result := none, none, none, none, none
	if r := v.Row; r != nil && r.Exists {
		if r.Owner != "" {
			owner = plain(r.Owner)
			if !r.Done {
				until = v.until(now)
			}
		}
		fence, attempts = fmt.Sprint(r.Fence), fmt.Sprint(r.Attempts)
		if job := v.Doc.Job; job != nil && job.Spec.MaxAttempts != nil {
			attempts += "/" + fmt.Sprint(*job.Spec.MaxAttempts)
		}
		if r.Result != nil {
			result = short(*r.Result, 40)
		}
	}
	ttl, workers := none, none
	if job := v.Doc.Job; job != nil {
		ttl = number(job.Spec.TTL)
		names := make([]string, len(job.Spec.Workers))
		for i, w := range job.Spec.Workers {
			if names[i] = plain(w.Name); w.Suspend {
				names[i] += "(suspended)"
			}
		}
		workers = short(strings.Join(names, ","), 60)
	}
	note := none
	if v.Note != "" {
		note = plain(v.Note)
	} else if v.Behind() {
		note = behind
	}
	return []any{plain(v.Name()), state, owner, fence, v.clock(), until, attempts, ttl, workers, plain(v.Where()), result, note}
}

// clock is the job's clock in the manifest.
func (v *jobView) clock() string {
	switch {
	case v.Doc.Clock != nil:
		return number(*v.Doc.Clock)
	case v.Doc.Job != nil:
		return "system"
	}
	return none
}

// until tells when the lease ends: a reading of the job's own clock, or what is left of the time.
func (v *jobView) until(now float64) string {
	if !v.System() {
		return number(v.Row.Until)
	}
	return left(v.Row.Until - now)
}

// left is a time to come, or gone by, in seconds.
func left(seconds float64) string {
	const longest = 1 << 33 // a duration holds no more
	d := time.Duration(min(max(seconds, -longest), longest) * float64(time.Second))
	if d < 0 {
		return duration.HumanDuration(-d) + " ago"
	}
	return duration.HumanDuration(d)
}

// short keeps a text to one line of at most n characters.
func short(s string, n int) string {
	r := []rune(plain(s))
	if len(r) <= n {
		return string(r)
	}
	return string(r[:n-1]) + "…"
}
