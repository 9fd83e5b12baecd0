package controller

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"leasehold.dev/leasehold/manifests"
	"leasehold.dev/leasehold/store"
	"leasehold.dev/leasehold/store/sqlite"
)

// rig is a controller at work in a directory.
type rig struct {
	t      *testing.T
	dir    string
	state  string        // the state directory, if it is not in dir
	busy   time.Duration // of the store
	watch  func(*watcher)
	seam   func(*manifests.Tree)
	wrap   func(Store) Store
	db     *sqlite.DB
	log    *buffer
	source *Directory
	stop   context.CancelFunc
	ended  chan error
}

// buffer is a log that can be read while it is written.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// newRig prepares a directory with the files, by name.
func newRig(t *testing.T, files map[string]string) *rig {
	t.Helper()
	r := &rig{t: t, dir: filepath.Join(t.TempDir(), "jobs"), log: &buffer{}}
	if err := os.MkdirAll(filepath.Join(r.dir, ".leasehold"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		r.write(name, text)
	}
	return r
}

func (r *rig) database() string {
	return filepath.Join(cmp.Or(r.state, filepath.Join(r.dir, ".leasehold")), "leasehold.db")
}

func (r *rig) path(name string) string { return filepath.Join(r.dir, filepath.FromSlash(name)) }

func (r *rig) write(name, text string) {
	r.t.Helper()
	if err := os.MkdirAll(filepath.Dir(r.path(name)), 0o755); err != nil {
		r.t.Fatal(err)
	}
	if err := os.WriteFile(r.path(name), []byte(text), 0o644); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) read(name string) string {
	data, err := os.ReadFile(r.path(name))
	if err != nil {
		return ""
	}
	return string(data)
}

// edit replaces a part of a file, as an editor does that saves by renaming.
func (r *rig) edit(name, old, with string) {
	r.t.Helper()
	for {
		text := r.read(name)
		if !strings.Contains(text, old) {
			r.t.Fatalf("%s has no %q:\n%s", name, old, text)
		}
		temp := filepath.Join(filepath.Dir(r.path(name)), ".edit")
		if err := os.WriteFile(temp, []byte(strings.Replace(text, old, with, 1)), 0o644); err != nil {
			r.t.Fatal(err)
		}
		if r.read(name) != text {
			continue // the controller wrote in between: this editor looks before it saves
		}
		if err := os.Rename(temp, r.path(name)); err != nil {
			r.t.Fatal(err)
		}
		return
	}
}

func (r *rig) open() {
	r.t.Helper()
	var err error
	if r.db, err = sqlite.Open(r.t.Context(), r.database(), sqlite.Options{Actor: "controller", BusyTimeout: r.busy}); err != nil {
		r.t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(r.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	r.source, err = OpenDirectory(r.dir, DirectoryOptions{StateDir: filepath.Dir(r.database()), Database: r.database(), Log: log})
	if err != nil {
		r.t.Fatal(err)
	}
	r.source.prepare = r.watch
	if r.seam != nil {
		r.seam(r.source.Tree())
	}
}

func (r *rig) controller(opt Options) *Controller {
	opt.Log = slog.New(slog.NewTextHandler(r.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	var st Store = r.db
	if r.wrap != nil {
		st = r.wrap(st)
	}
	return New(r.source, st, opt)
}

// start runs the controller until halt or the end of the test.
func (r *rig) start(opts ...func(*Options)) *rig {
	r.t.Helper()
	r.open()
	var opt Options
	for _, o := range opts {
		o(&opt)
	}
	ctx, stop := context.WithCancel(context.Background())
	r.stop, r.ended = stop, make(chan error, 1)
	c := r.controller(opt)
	go func() { r.ended <- c.Run(ctx) }()
	r.t.Cleanup(func() {
		if r.stop != nil {
			if err := r.halt(); err != nil {
				r.t.Errorf("the controller ended with %v", err)
			}
		}
		if r.t.Failed() {
			log := r.log.String()
			r.t.Logf("the log:\n%s", log[max(0, len(log)-4000):])
		}
	})
	return r
}

// halt stops the controller in order and returns the error that it ended with.
func (r *rig) halt() error {
	r.stop()
	r.stop = nil
	err := <-r.ended
	r.source.Close()
	r.db.Close()
	return err
}

// once reconciles the directory once.
func (r *rig) once() Summary {
	r.t.Helper()
	r.open()
	defer r.db.Close()
	defer r.source.Close()
	s, err := r.controller(Options{}).Once(r.t.Context(), 10*time.Second)
	if err != nil {
		r.t.Fatalf("%v\n%s", err, r.log)
	}
	return s
}

// until waits for a condition.
func (r *rig) until(what string, ok func() bool) {
	r.t.Helper()
	waitFor(r.t, what, func() (bool, string) { return ok(), r.log.String() })
}

func waitFor(t *testing.T, what string, ok func() (bool, string)) {
	t.Helper()
	patience := 30 * time.Second
	if os.Getenv("LEASEHOLD_SOAK") != "" {
		patience = 10 * time.Minute
	}
	deadline := time.After(patience)
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		done, state := ok()
		if done {
			return
		}
		select {
		case <-deadline:
			t.Fatalf("waited in vain: %s\n%s", what, state[max(0, len(state)-4000):])
		case <-tick.C:
		}
	}
}

// status returns what stands in a file, of its first document.
func (r *rig) status(name string) *manifests.JobStatus {
	f := manifests.Decode(name, []byte(r.read(name)))
	if len(f.Docs) == 0 || f.Docs[0].Status == nil {
		return &manifests.JobStatus{}
	}
	return f.Docs[0].Status
}

// shows waits until a file's status has this owner, fence and until, as "worker-a 1 130".
func (r *rig) shows(name, want string) {
	r.t.Helper()
	got := ""
	waitFor(r.t, name+" shows "+want, func() (bool, string) {
		got = summary(r.status(name))
		return got == want, got + "\n" + r.read(name) + r.log.String()
	})
}

func summary(s *manifests.JobStatus) string {
	out := s.Owner
	if s.Fence != nil {
		out += fmt.Sprintf(" %d", *s.Fence)
	}
	if s.Until != nil {
		out += " " + number(*s.Until)
	}
	if s.Done != nil && *s.Done {
		out += " done"
		if s.Result != nil {
			out += " " + *s.Result
		}
	}
	return out
}

// condition waits until a file's status has a condition, as "False Invalid".
func (r *rig) condition(name, kind, want string) {
	r.t.Helper()
	r.until(fmt.Sprintf("%s has %s %s", name, kind, want), func() bool { return conditionOf(r.status(name), kind) == want })
}

func (r *rig) record(id string) (rec *store.Record) {
	r.t.Helper()
	if _, err := r.db.View(r.t.Context(), []string{id}, func(rs []*store.Record) error { rec = rs[0].Clone(); return nil }); err != nil {
		r.t.Fatal(err)
	}
	return rec
}

// manifest is a Job with two workers.
func manifest(name string, clock float64, more ...string) string {
	return "apiVersion: leasehold.dev/v1alpha1\nkind: Job\nmetadata:\n  name: " + name +
		"\nspec:\n  clock: " + number(clock) + "\n  ttl: 30\n  workers:\n  - name: worker-a\n  - name: worker-b\n" +
		strings.Join(more, "")
}

// openSQL opens the database as another program does.
func openSQL(path string) (*sql.DB, error) { return sql.Open("sqlite", "file:"+path) }

// nothingLeft looks for what a crash, or the controller, should not have left.
func (r *rig) nothingLeft() {
	r.t.Helper()
	err := filepath.WalkDir(r.dir, func(path string, d fs.DirEntry, err error) error {
		name := d.Name()
		if err == nil && strings.HasPrefix(name, ".") && name != ".leasehold" || strings.Contains(name, "leasehold-") {
			r.t.Errorf("left behind: %s", path)
		}
		return err
	})
	if err != nil {
		r.t.Error(err)
	}
}
