package controller

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"leasehold.dev/leasehold/manifests"
	"leasehold.dev/leasehold/store"
	"leasehold.dev/leasehold/store/sqlite"
)

// meter counts the passes that get as far as asking the store.
type meter struct{ passes atomic.Int64 }

func (m *meter) count(o *Options) {
	o.Before = func(step, _ string) error {
		if step == "decide" {
			m.passes.Add(1)
		}
		return nil
	}
}

// told counts the lines of the log that have a text.
func (r *rig) told(text string) (n int) {
	for line := range strings.Lines(r.log.String()) {
		if strings.Contains(line, text) {
			n++
		}
	}
	return n
}

func (r *rig) flat(n int) {
	r.t.Helper()
	for i := range n {
		r.write(fmt.Sprintf("%d.yaml", i), manifest(fmt.Sprint("j", i), 100))
	}
}

func (r *rig) all(n int, want string) {
	r.t.Helper()
	for i := range n {
		r.shows(fmt.Sprintf("%d.yaml", i), want)
	}
}

func (r *rig) tick(n int, from, to string) {
	r.t.Helper()
	for i := range n {
		r.edit(fmt.Sprintf("%d.yaml", i), "clock: "+from, "clock: "+to)
	}
}

// storeOut plays a time in which the store decides nothing: nothing is shown that was not decided,
// one manifest asks again from time to time, one line tells, and all go on once it is over.
func storeOut(r *rig, m *meter, begin, end func()) {
	t := r.t
	t.Helper()
	const n = 40
	r.flat(n)
	r.start(m.count)
	r.all(n, "worker-a 1 130")
	begin()
	before := m.passes.Load()
	r.tick(n, "100", "140")
	r.until("it is told", func() bool { return r.told("the store decides nothing") > 0 })
	// Each has found out, and then the probe has tried several times more.
	r.until("it is tried again", func() bool { return m.passes.Load() > before+n+4 })
	r.write("bad.yaml", "kind: Job\napiVersion: leasehold.dev/v1alpha1\nmetadata: {name: bad}\nspec: {ttl: -1, workers: [{name: a}]}\n")
	r.until("the rest goes on", func() bool { return r.told("bad.yaml:4: spec.ttl") > 0 })
	for i := range n {
		if got := summary(r.status(fmt.Sprintf("%d.yaml", i))); got != "worker-a 1 130" {
			t.Errorf("shown without being decided: %s", got)
		}
	}
	passes := m.passes.Load() - before
	if passes > 4*n {
		t.Errorf("%d passes for %d edits", passes, n)
	}
	end()
	r.all(n, "worker-b 2 170")
	r.condition("bad.yaml", "Accepted", "False Invalid")
	r.until("its end is told", func() bool { return r.told("the store decides again") > 0 })
	nothing, again := r.told("the store decides nothing"), r.told("the store decides again")
	if nothing > 2 || again > 1 {
		t.Errorf("told %d times, and %d times that it is over", nothing, again)
	}
	for i := range n {
		if got := r.record(fmt.Sprint("j", i)); got.Fence != 2 || got.Attempts != 2 {
			t.Errorf("%d leases, fence %d", got.Attempts, got.Fence)
		}
	}
	t.Logf("%d edits while the store was out: %d passes, %d lines, all decided once it was back", n, passes, nothing)
}

// Another program holds the lock for longer than we wait for it.
func TestStoreLockedForLong(t *testing.T) {
	r := newRig(t, nil)
	r.busy = 50 * time.Millisecond
	other, err := openSQL(r.database())
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	conn, err := other.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	run := func(statement string) func() {
		return func() {
			if _, err := conn.ExecContext(context.Background(), "PRAGMA busy_timeout = 5000; "+statement); err != nil {
				t.Error(err)
			}
		}
	}
	storeOut(r, &meter{}, run("BEGIN IMMEDIATE"), run("ROLLBACK"))
}

// unwell is a store that fails.
type unwell struct {
	Store
	mu  sync.Mutex
	err error
}

func (u *unwell) set(err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.err = err
}

func (u *unwell) Update(ctx context.Context, ids []string, decide func([]*store.Record) error) (store.Stamp, error) {
	u.mu.Lock()
	err := u.err
	u.mu.Unlock()
	if err != nil {
		return store.Stamp{}, err
	}
	return u.Store.Update(ctx, ids, decide)
}

func (u *unwell) Changes(ctx context.Context) ([]string, bool, error) {
	u.mu.Lock()
	err := u.err
	u.mu.Unlock()
	if err != nil {
		return nil, false, err
	}
	return u.Store.Changes(ctx)
}

func TestStoreIOError(t *testing.T) {
	r := newRig(t, nil)
	u := &unwell{}
	r.wrap = func(s Store) Store { u.Store = s; return u }
	storeOut(r, &meter{}, func() { u.set(fmt.Errorf("%w: disk I/O error", sqlite.ErrIO)) }, func() { u.set(nil) })
}

// Writing manifests fails, at every step, for every reason: decisions go on, it is told where people
// look, once, and the status is written by itself when it can be.
func TestManifestFaults(t *testing.T) {
	for _, step := range []string{"temp", "write", "attributes", "sync", "name", "check", "exchange", "look", "syncdir"} {
		for _, errno := range []syscall.Errno{syscall.EIO, syscall.ENOSPC, syscall.EACCES} {
			if errno != syscall.EIO && step != "temp" && step != "write" {
				continue
			}
			t.Run(step+"/"+errno.Error(), func(t *testing.T) {
				t.Parallel()
				const n = 20
				r := newRig(t, nil)
				r.flat(n)
				r.once()
				r.log = &buffer{}
				r.tick(n, "100", "140")
				r.write("free/free.yaml", manifest("free", 100))
				var ill atomic.Bool
				var tries atomic.Int64
				ill.Store(true)
				r.seam = func(tree *manifests.Tree) {
					tree.Before = func(at, path string) error {
						if at == step && ill.Load() && !strings.HasPrefix(path, "free") {
							tries.Add(1)
							return errno
						}
						return nil
					}
				}
				r.start()
				r.shows("free/free.yaml", "worker-a 1 130")
				done := step == "look" || step == "syncdir" // the file is in its place already
				for i := range n {
					r.until("it is decided, and told that it is not written", func() bool {
						rec := r.record(fmt.Sprint("j", i))
						return rec.Fence == 2 && (done || strings.Contains(rec.Trouble, errno.Error()))
					})
				}
				r.until("it is tried again", func() bool { return tries.Load() > 3*n || done && tries.Load() >= n })
				r.log.mu.Lock()
				lines := strings.Count(r.log.b.String(), "level=WARN")
				r.log.mu.Unlock()
				if most := map[bool]int{true: n, false: 1}[errno == syscall.EACCES]; lines > most {
					t.Errorf("%d warnings:\n%s", lines, r.log)
				}
				ill.Store(false)
				r.all(n, "worker-b 2 170")
				for i := range n {
					r.until("it is forgotten", func() bool { return r.record(fmt.Sprint("j", i)).Trouble == "" })
				}
				if err := r.halt(); err != nil && !errors.Is(err, errno) {
					t.Error(err)
				}
				r.open() // sweeps
				r.source.Close()
				r.db.Close()
				r.nothingLeft()
			})
		}
	}
}

// A fault in the instant after a swap, when a save had slipped in: the save is back in its place soon,
// without a restart.
func TestFaultAfterSwap(t *testing.T) {
	t.Parallel()
	r := newRig(t, map[string]string{"a.yaml": manifest("a", 100)})
	var once atomic.Bool
	saved := manifest("a", 150) + "# the user's\n"
	r.seam = func(tree *manifests.Tree) {
		tree.Before = func(at, path string) error {
			switch {
			case at == "exchange" && !once.Load():
				if err := os.WriteFile(r.path(".save"), []byte(saved), 0o644); err != nil {
					t.Error(err)
				}
				return os.Rename(r.path(".save"), r.path("a.yaml"))
			case at == "look" && once.CompareAndSwap(false, true):
				return syscall.EIO
			}
			return nil
		}
	}
	r.start()
	r.until("the save is back, and decided", func() bool {
		return strings.HasPrefix(r.read("a.yaml"), saved) && r.status("a.yaml").Owner != ""
	})
	if err := r.halt(); err != nil {
		t.Error(err)
	}
	r.nothingLeft()
}
