package controller

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"leasehold.dev/leasehold/manifests"
)

// fill leaves no block of a small file system free.
func fill(t *testing.T, dir string) (name string) {
	t.Helper()
	f, err := os.Create(filepath.Join(dir, "filler"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for size := 1 << 20; size > 0; {
		if _, err := f.Write(make([]byte, size)); errors.Is(err, unix.ENOSPC) {
			size /= 2
		} else if err != nil {
			t.Fatal(err)
		}
	}
	return f.Name()
}

// The database's disk is full.
func TestStoreDiskFull(t *testing.T) {
	r := newRig(t, nil).apart()
	mount(t, r.state, "size=3m")
	filler := ""
	storeOut(r, &meter{}, func() { filler = fill(t, r.state) }, func() { r.ok(os.Remove(filler)) })
}

// The manifests' disk is full, and then read-only: leases go on, their neighbours are written, and
// they are when it is over.
func TestManifestDisk(t *testing.T) {
	for name, fault := range map[string]func(t *testing.T, dir string) (text string, end func()){
		"full": func(t *testing.T, dir string) (string, func()) {
			filler := fill(t, dir)
			return "no space left on device", func() { os.Remove(filler) }
		},
		"read-only": func(t *testing.T, dir string) (string, func()) {
			remount := func(flags uintptr) {
				if err := unix.Mount("", dir, "", unix.MS_REMOUNT|flags, ""); err != nil {
					t.Fatal(err)
				}
			}
			remount(unix.MS_RDONLY)
			return "read-only file system", func() { remount(0) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, nil)
			r.ok(os.Mkdir(r.path("small"), 0o755))
			mount(t, r.path("small"), "size=1m")
			r.jobs("small", 20, 100)
			r.jobs("large", 20, 100)
			r.once()
			for i := range 20 {
				r.edit(fmt.Sprintf("small/%d.yaml", i), "clock: 100", "clock: 140")
			}
			text, end := fault(t, r.path("small"))
			user := string(manifests.StripStatus("0.yaml", []byte(r.read("small/0.yaml"))))
			r.log = &buffer{}
			r.start()
			r.until("it is told", func() bool { return r.told(text) > 0 })
			r.edit("large/0.yaml", "clock: 100", "clock: 140")
			r.shows("large/0.yaml", "worker-b 2 170")
			r.until("it is decided", func() bool { return r.record("small-0").Fence == 2 })
			if got := string(manifests.StripStatus("0.yaml", []byte(r.read("small/0.yaml")))); got != user {
				t.Errorf("the user's bytes changed:\n%s", got)
			}
			end()
			r.converged(40)
			if n := r.told(text); n > 3 {
				t.Errorf("told %d times\n%s", n, r.log)
			}
		})
	}
}
