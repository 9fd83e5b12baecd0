package controller

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The machine's clock is set for real, by LEASEHOLD_TEST_SET_CLOCK (0s leaves it where it is), and
// the kernel tells. A preloaded library such as faketime's would not do: Go asks the kernel itself.
func TestSetClock(t *testing.T) {
	by, err := time.ParseDuration(os.Getenv("LEASEHOLD_TEST_SET_CLOCK"))
	if err != nil {
		return // not asked to
	}
	set := func(by time.Duration) {
		t.Helper()
		now := unix.NsecToTimespec(time.Now().Add(by).UnixNano())
		if err := unix.ClockSettime(unix.CLOCK_REALTIME, &now); err != nil {
			t.Fatal(err)
		}
	}
	told := make(chan time.Time, 10)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		jumps(ctx, func() { told <- time.Now() })
		close(ended)
	}()
	// Once it waits, it is told; nothing shows when it begins to.
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for waits := true; waits; {
		set(0)
		select {
		case <-told:
			waits = false
		case <-tick.C:
		}
	}
	stop()
	<-ended

	text := strings.Replace(manifest("sys", 0), "  clock: 0\n  ttl: 30\n", "  ttl: 600\n", 1)
	r := newRig(t, map[string]string{"a.yaml": text}).start()
	r.until("it is leased", func() bool { return r.status("a.yaml").Owner == "worker-a" })
	set(by)
	defer set(-by)
	if by > 600*time.Second {
		r.until("the lease is over", func() bool { return r.status("a.yaml").Owner == "worker-b" })
	} else {
		r.until("it is told", func() bool { return strings.Contains(r.log.String(), "the system clock was set") })
	}
	t.Logf("the clock set by %v for real: noticed without a timer", by)
}
