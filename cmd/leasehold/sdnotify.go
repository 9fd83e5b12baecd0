package main

import (
	"context"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"leasehold.dev/leasehold/store/sqlite"
)

// notify tells the service manager a state, where there is one: sd_notify(3). Nobody is there to be
// told that it failed.
func notify(state string) {
	address := os.Getenv("NOTIFY_SOCKET")
	if address == "" {
		return
	}
	if strings.HasPrefix(address, "@") {
		address = "\x00" + address[1:]
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: address, Net: "unixgram"})
	if err != nil {
		return
	}
	defer conn.Close()
	_ = conn.SetWriteDeadline(time.Now().Add(time.Second))
	_, _ = conn.Write([]byte(state))
}

// watchdog gives the service manager signs of life, as often as it asks for, while the store answers
// or is held by others.
func watchdog(ctx context.Context, db *sqlite.DB) {
	if pid := os.Getenv("WATCHDOG_PID"); pid != "" && pid != strconv.Itoa(os.Getpid()) {
		return
	}
	us, err := strconv.ParseInt(os.Getenv("WATCHDOG_USEC"), 10, 64)
	if err != nil || us <= 0 {
		return
	}
	tick := time.NewTicker(time.Duration(us) * time.Microsecond / 2)
	defer tick.Stop()
	for {
		if living(ctx, db) == nil {
			notify("WATCHDOG=1")
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
