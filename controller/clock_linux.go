package controller

import (
	"context"
	"errors"
	"math"
	"os"

	"golang.org/x/sys/unix"
)

// jumps calls jumped whenever the system clock was set, or went on while the machine slept: Go's
// timers follow another clock and notice neither. It returns when ctx is done, or at once where the
// kernel does not tell. Nothing wakes up in between.
func jumps(ctx context.Context, jumped func()) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_REALTIME, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return
	}
	f := os.NewFile(uintptr(fd), "clock")
	defer f.Close()
	defer context.AfterFunc(ctx, func() { f.Close() })()
	never := unix.ItimerSpec{Value: unix.NsecToTimespec(math.MaxInt64)}
	if unix.TimerfdSettime(fd, unix.TFD_TIMER_ABSTIME|unix.TFD_TIMER_CANCEL_ON_SET, &never, nil) != nil {
		return
	}
	for buf := make([]byte, 8); ; {
		if _, err := f.Read(buf); errors.Is(err, unix.ECANCELED) {
			jumped()
		} else if err != nil {
			return
		}
	}
}
