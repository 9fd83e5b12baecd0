package worker_test

import (
	"context"
	"fmt"
	"log"

	"leasehold.dev/leasehold/store"
	"leasehold.dev/leasehold/store/sqlite"
	"leasehold.dev/leasehold/store/worker"
)

// A worker in ten lines. The controller (leasehold run) leases jobs to it; here the example does.
func Example() {
	ctx, stop := context.WithCancel(context.Background())
	db, err := sqlite.OpenMemory(ctx, sqlite.Options{}) // or Open(ctx, "jobs/.leasehold/leasehold.db", …)
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	leaseTo("worker-a", db, "invoice-42")

	err = worker.Run(ctx, db, worker.Options{Name: "worker-a"}, func(ctx context.Context, job worker.Job) (string, error) {
		defer stop()
		return fmt.Sprintf("charged with fence %d", job.Fence), ctx.Err()
	})
	if err != nil {
		log.Fatal(err)
	}
	row, _, _ := db.State(context.Background(), "invoice-42")
	fmt.Println(row.Done, *row.Result)
	// Output: true charged with fence 1
}

func leaseTo(owner string, db *sqlite.DB, id string) {
	_, err := db.Update(context.Background(), []string{id}, func(rs []*store.Record) error {
		r := rs[0]
		r.Enqueue()
		r.TTL = 30
		now, _ := r.Observe(worker.SystemClock())
		_, err := r.Claim(owner, now, r.TTL)
		return err
	})
	if err != nil {
		log.Fatal(err)
	}
}

// Without a controller: a program that leases a job to itself, to be the only one that does it.
func ExampleHold() {
	ctx := context.Background()
	db, err := sqlite.OpenMemory(ctx, sqlite.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()

	lease, err := worker.Hold(ctx, db, worker.Claim{ID: "nightly-2026-12-01", Owner: "host-1", TTL: 30})
	if err != nil {
		log.Fatal(err) // a *worker.LostError if somebody else has it
	}
	// The work goes here, under lease.Context() and lease.Fence().
	if err := lease.Complete(ctx, "done"); err != nil {
		log.Fatal(err)
	}
	_, err = worker.Hold(ctx, db, worker.Claim{ID: "nightly-2026-12-01", Owner: "host-2", TTL: 30})
	fmt.Println(err)
	// Output: nightly-2026-12-01: not leased: Done: completed by host-1 with fence 1
}
