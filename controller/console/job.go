package console

import (
	"bytes"
	"cmp"
	"context"
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"leasehold.dev/leasehold/controller"
	"leasehold.dev/leasehold/controller/timeline"
	"leasehold.dev/leasehold/store"
)

// showing is the page of one job.
type showing struct {
	*Job
	Detail
	By       timeline.Axis
	Drawing  template.HTML
	Note     string // of the timeline
	Unit     string
	Axes     []axisLink
	Events   []shownEvent // latest first
	Earlier  int
	Trouble  string // why there is no history
	FileLink string
}

type axisLink struct {
	Title, Link string
	On          bool
}

type shownEvent struct {
	store.Event
	DOM  string
	Text string
	Tone Tone
}

// mostEvents is how many events a page lists.
const mostEvents = 100

func find(s *Snapshot, id string) *Job {
	for _, j := range s.Jobs {
		if j.ID == id && id != "" {
			return j
		}
	}
	return nil
}

func axis(r *http.Request) timeline.Axis {
	if r.URL.Query().Get("by") == string(timeline.Wall) {
		return timeline.Wall
	}
	return timeline.Clock
}

func (c *Console) job(ctx context.Context, s *Snapshot, r *http.Request) (any, error) {
	j := find(s, r.URL.Query().Get("id"))
	if j == nil {
		return nil, errNotFound
	}
	v := &showing{Job: j, Detail: j.Detail(), By: axis(r)}
	events, err := c.source.History(ctx, j.ID)
	if err != nil {
		v.Trouble = err.Error()
	}
	in := v.Timeline
	in.Events = events
	t := timeline.New(in, v.By)
	var drawn bytes.Buffer
	if err := t.SVG(&drawn); err != nil {
		return nil, err
	}
	v.Drawing, v.Note, v.Unit = template.HTML(drawn.String()), t.Note, t.Unit() // made by a template
	for _, a := range []struct {
		by    timeline.Axis
		title string
	}{{timeline.Clock, "Clock"}, {timeline.Wall, "Wall time"}} {
		v.Axes = append(v.Axes, axisLink{a.title, "/job?" + url.Values{"id": {j.ID}, "by": {string(a.by)}}.Encode(), a.by == v.By})
	}
	v.FileLink = "/timeline.svg?" + url.Values{"id": {j.ID}, "by": {string(v.By)}}.Encode()
	v.Earlier = max(0, len(events)-mostEvents)
	for _, e := range events[v.Earlier:] {
		shown := shownEvent{Event: e, DOM: "e" + strconv.FormatInt(e.Seq, 10), Text: controller.EventText(e), Tone: Idle}
		switch {
		case e.Reason != "":
			shown.Tone = Bad
		case e.Verb == "completed":
			shown.Tone = Good
		case e.Verb == "claimed", e.Verb == "renewed":
			shown.Tone = Held
		}
		v.Events = append(v.Events, shown)
	}
	slices.Reverse(v.Events)
	return v, nil
}

// Word is what happened, in one word, or why it was refused.
func (e shownEvent) Word() string { return cmp.Or(string(e.Reason), e.Verb) }

// drawing serves a timeline as a file.
func (c *Console) drawing(w http.ResponseWriter, r *http.Request) {
	defer c.hub.use()()
	s, _, err := c.hub.current(r.Context())
	if err != nil {
		c.fail(w, err)
		return
	}
	j := find(s, r.URL.Query().Get("id"))
	if j == nil {
		c.fail(w, errNotFound)
		return
	}
	in := j.Detail().Timeline
	if in.Events, err = c.source.History(r.Context(), j.ID); err != nil {
		c.fail(w, err)
		return
	}
	w.Header().Set("Content-Type", "image/svg+xml")
	// The drawing carries its own style sheet, and nothing else.
	w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; sandbox")
	_ = timeline.New(in, axis(r)).File(w)
}
