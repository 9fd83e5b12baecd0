// Command leasehold leases jobs, declared as files, to one worker at a time.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	// A closed pipe is an error of Write, which ends the command quietly, and not a signal.
	signal.Ignore(syscall.SIGPIPE)
	ctx, stop := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-signals
		stop() // the first drains
		<-signals
		killGroups()
		os.Exit(exitFault)
	}()
	os.Exit(run(ctx, os.Args[1:], streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}))
}
