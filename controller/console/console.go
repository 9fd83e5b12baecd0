// Package console shows the jobs of a directory in a browser, as they stand and as they change.
//
// It is read-only: it answers GET and nothing else changes. [Guard] keeps pages of other origins away
// from it. What a manifest contains reaches a page as text only.
package console

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"html/template"
	"net/http"
	"strconv"
	"strings"
	"time"

	"leasehold.dev/leasehold/controller/timeline"
	"leasehold.dev/leasehold/store"
)

// Source is where the console learns of jobs.
type Source interface {
	// Follow calls f with the jobs as they are, and again whenever they, or their history, may have
	// changed, until ctx is done or they cannot be read.
	Follow(ctx context.Context, f func(*Snapshot)) error
	// History returns the last events of a job, oldest first.
	History(ctx context.Context, id string) ([]store.Event, error)
}

// Snapshot is what is known at one moment. Nothing in it changes.
type Snapshot struct {
	Jobs     []*Job
	Mistakes []string // in files, beside those of jobs
}

// Job is a document and what is known of its job.
type Job struct {
	ID          string // empty: it has no page of its own
	Key         string // tells documents apart
	Namespace   string
	Name        string
	Where       string // file:line
	State       string
	Tone        Tone
	Note        string
	Owner       string
	Fence       int64
	Attempts    int64
	MaxAttempts int64
	Clock       string // empty: the system clock
	Until       float64
	UntilText   string // empty: no lease
	System      bool   // Until is Unix seconds
	Result      *string
	Labels      []Pair
	Errors      []string

	// Detail returns what only the job's page shows.
	Detail func() Detail

	words string // what the filter looks at
}

// Pair is a label.
type Pair struct{ Key, Value string }

// Tone is how a state is shown.
type Tone string

// The tones.
const (
	Held Tone = "held"
	Good Tone = "good"
	Idle Tone = "idle"
	Bad  Tone = "bad"
)

// Detail is what only a job's page shows.
type Detail struct {
	Spec, Status string         // YAML
	Timeline     timeline.Input // without events
}

//go:embed assets
var assets embed.FS

// Options of a console.
type Options struct {
	Title   string // what is looked at
	Version string
}

// Console serves the pages.
type Console struct {
	opt       Options
	hub       *hub
	source    Source
	templates *template.Template
	mux       *http.ServeMux
}

// New returns a console that follows src while somebody looks, until ctx is done.
func New(ctx context.Context, src Source, opt Options) *Console {
	c := &Console{opt: opt, source: src, hub: newHub(ctx, src), mux: http.NewServeMux()}
	c.templates = template.Must(template.New("console").Funcs(template.FuncMap{
		"thousands": thousands,
		"stamp":     func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05.000") },
		"iso":       func(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) },
		"seconds":   func(f float64) string { return strconv.FormatFloat(f, 'f', 3, 64) },
		"unixtime": func(f float64) string {
			return time.UnixMilli(int64(f * 1000)).UTC().Format("2006-01-02T15:04:05.000Z")
		},
	}).ParseFS(assets, "assets/*.html"))
	c.mux.HandleFunc("/{$}", c.page("jobs", c.jobs))
	c.mux.HandleFunc("/job", c.page("job", c.job))
	c.mux.HandleFunc("/part/jobs", c.part("jobs", c.jobs))
	c.mux.HandleFunc("/live/jobs", c.live("jobs", c.jobs))
	c.mux.HandleFunc("/live/job", c.live("job", c.job))
	c.mux.HandleFunc("/timeline.svg", c.drawing)
	c.asset("/console.css", "text/css; charset=utf-8", timeline.CSS())
	c.asset("/console.js", "text/javascript; charset=utf-8", "")
	c.asset("/icon.svg", "image/svg+xml", "")
	return c
}

func (c *Console) ServeHTTP(w http.ResponseWriter, r *http.Request) { c.mux.ServeHTTP(w, r) }

func (c *Console) asset(path, kind, more string) {
	data, err := assets.ReadFile("assets" + path)
	if err != nil {
		panic(err) // it is embedded
	}
	data = append([]byte(more), data...)
	c.mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", kind)
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(data))
	})
}

// errNotFound says that there is nothing to show.
var errNotFound = errors.New("not found")

// view makes what a template shows out of a request.
type view func(ctx context.Context, s *Snapshot, r *http.Request) (any, error)

// frame is what every page has.
type frame struct {
	Title   string
	Version string
	Now     time.Time
	Live    template.HTML // made by a template
	View    any
}

// part serves the part of a page that changes.
func (c *Console) part(name string, v view) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		text, _, err := c.render(r, name, v)
		if err != nil {
			c.fail(w, err)
			return
		}
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = w.Write(text)
	}
}

func (c *Console) page(name string, v view) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		text, shown, err := c.render(r, name, v)
		if err != nil {
			c.fail(w, err)
			return
		}
		var page bytes.Buffer
		f := frame{c.opt.Title, c.opt.Version, time.Now(), template.HTML(text), shown}
		if err := c.templates.ExecuteTemplate(&page, name+".html", f); err != nil {
			c.fail(w, err)
			return
		}
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = page.WriteTo(w)
	}
}

// render makes the part of a page that changes, from what is known now.
func (c *Console) render(r *http.Request, name string, v view) ([]byte, any, error) {
	defer c.hub.use()()
	s, _, err := c.hub.current(r.Context())
	if err != nil {
		return nil, nil, err
	}
	return c.renderFrom(r, s, name, v)
}

func (c *Console) renderFrom(r *http.Request, s *Snapshot, name string, v view) ([]byte, any, error) {
	shown, err := v(r.Context(), s, r)
	if err != nil {
		return nil, nil, err
	}
	var b bytes.Buffer
	err = c.templates.ExecuteTemplate(&b, name+"-part", shown)
	return b.Bytes(), shown, err
}

func (c *Console) fail(w http.ResponseWriter, err error) {
	code, text := http.StatusServiceUnavailable, "The jobs cannot be read: "+err.Error()
	if errors.Is(err, errNotFound) {
		code, text = http.StatusNotFound, "There is no such job."
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(code)
	_ = c.templates.ExecuteTemplate(w, "fault.html", frame{Title: c.opt.Title, Version: c.opt.Version, Now: time.Now(), View: text})
}

// thousands prints a number as people read it.
func thousands(n int) string {
	s := strconv.Itoa(n)
	var groups []string
	for len(s) > 3 {
		groups = append([]string{s[len(s)-3:]}, groups...)
		s = s[:len(s)-3]
	}
	return strings.Join(append([]string{s}, groups...), ",")
}

// Unix is Now for the script.
func (f frame) Unix() float64 { return float64(f.Now.UnixMilli()) / 1000 }
