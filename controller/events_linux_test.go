package controller

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// starve runs f while the process can open no further file.
func starve(t *testing.T, f func()) {
	t.Helper()
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	top := uint64(0)
	for _, e := range open {
		n, _ := strconv.ParseUint(e.Name(), 10, 64)
		top = max(top, n)
	}
	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: top + 1, Max: was.Max}); err != nil {
		t.Fatal(err)
	}
	// Take those that are free below it, and those that displaced files still have for a moment.
	var taken []int
	for end := time.After(300 * time.Millisecond); end != nil; {
		if fd, err := unix.Dup(0); err == nil {
			taken = append(taken, fd)
			continue
		}
		select {
		case <-end:
			end = nil
		case <-time.After(time.Millisecond):
		}
	}
	defer func() {
		unix.Setrlimit(unix.RLIMIT_NOFILE, &was)
		for _, fd := range taken {
			unix.Close(fd)
		}
	}()
	f()
}

func mount(t *testing.T, dir, options string) {
	t.Helper()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, options); err != nil {
		if os.Getenv("LEASEHOLD_TEST_ALL") != "" && os.Getuid() == 0 {
			t.Fatal(err)
		}
		t.Skip("small and mounted file systems: for want of the right to mount")
	}
	t.Cleanup(func() { unix.Unmount(dir, unix.MNT_DETACH) })
}

// A file system is mounted over the directory, and taken away again. Nobody announces that.
func TestMountedOver(t *testing.T) {
	r := newRig(t, nil).apart()
	r.watch = func(w *watcher) { w.poll = 50 * time.Millisecond }
	r.jobs("a", 5, 100)
	r.start()
	r.converged(5)
	mount(t, r.dir, "size=1m")
	r.jobs("b", 3, 100)
	r.converged(3)
	r.edit("b/0.yaml", "clock: 100", "clock: 130")
	r.shows("b/0.yaml", "worker-b 2 160")
	if err := unix.Unmount(r.dir, unix.MNT_DETACH); err != nil {
		t.Fatal(err)
	}
	r.converged(5)
	r.edit("a/0.yaml", "clock: 100", "clock: 130")
	r.shows("a/0.yaml", "worker-b 2 160")
}

// The kernel's queue overflows for real.
func TestRealOverflow(t *testing.T) {
	const limit = "/proc/sys/fs/inotify/max_queued_events"
	was, err := os.ReadFile(limit)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(limit, os.O_WRONLY, 0)
	if err != nil {
		t.Skip("a real overflow of inotify's queue: for want of the right to shorten it")
	}
	defer f.Close()
	r := newRig(t, nil)
	var begun atomic.Int32 // how often the watcher began anew
	r.watch = func(w *watcher) {
		// The limit counts when a queue is made; nobody else's is to be short.
		if _, err := f.WriteAt([]byte("4\n"), 0); err != nil {
			t.Error(err)
		}
		short := newWatcher(r.source.Tree())
		if _, err := f.WriteAt(was, 0); err != nil {
			t.Error(err)
		}
		w.fs.Close()
		short.also = w.also
		*w = *short
		w.add = func(dir string) error {
			if dir == r.dir {
				begun.Add(1)
			}
			return w.fs.Add(dir)
		}
		w.poll = time.Hour
		w.watchAll()
	}
	r.start()
	r.jobs("warm", 1, 100)
	r.converged(1)
	for round := range 3 {
		for i := range 10 {
			r.jobs(fmt.Sprintf("r%d/d%d", round, i), 10, 100)
		}
		r.converged(1 + (round+1)*100)
	}
	if begun.Load() < 2 {
		t.Error("nothing overflowed")
	}
	now, _ := os.ReadFile(limit)
	if strings.TrimSpace(string(now)) != strings.TrimSpace(string(was)) {
		t.Errorf("the limit is %s and was %s", now, was)
	}
}

// No file can be opened for a while: what came meanwhile is found afterwards.
func TestNoFilesLeft(t *testing.T) {
	r := newRig(t, nil)
	r.watch = func(w *watcher) { w.poll = 50 * time.Millisecond }
	r.jobs("a", 5, 100)
	r.start()
	r.converged(5)
	ready := &rig{t: t, dir: r.dir + "-ready"}
	ready.jobs("b/c", 5, 100)
	starve(t, func() {
		r.ok(os.Rename(ready.path("b"), r.path("b")))
		r.until("it is told", func() bool { return strings.Contains(r.log.String(), "too many open files") })
	})
	r.converged(10)
	r.edit("b/c/0.yaml", "clock: 100", "clock: 130")
	r.shows("b/c/0.yaml", "worker-b 2 160")
	if n := strings.Count(r.log.String(), "too many open files"); n > 5 {
		t.Errorf("told %d times:\n%s", n, r.log)
	}
}

// A directory is replaced by a link to where it went.
func TestDirectoryReplacedByLink(t *testing.T) {
	r := newRig(t, nil)
	r.announced().jobs("a", 10, 100)
	r.start()
	r.converged(10)
	// At once: nobody sees the moment in which there is no a.
	r.ok(os.Symlink("b", r.path("tmp")))
	r.ok(unix.Renameat2(unix.AT_FDCWD, r.path("tmp"), unix.AT_FDCWD, r.path("a"), unix.RENAME_EXCHANGE))
	r.ok(os.Rename(r.path("tmp"), r.path("b")))
	r.converged(10)
	r.edit("b/0.yaml", "clock: 100", "clock: 130")
	r.shows("b/0.yaml", "worker-b 2 160")
}
