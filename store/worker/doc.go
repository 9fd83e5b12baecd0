// Package worker lets a Go program be a worker: it takes the jobs that the store has leased to a
// name, runs a function for each, keeps the lease, and writes down what came of it.
//
//	err := worker.Run(ctx, db, worker.Options{Name: "worker-a"}, func(ctx context.Context, job worker.Job) (string, error) {
//		return charge(ctx, job.ID, job.Fence) // hand the fence on, see package guard
//	})
//
// What it promises:
//
//   - The function's context is cancelled, with a [*LostError] as its cause, at the first refusal, or
//     when the lease can no longer be trusted: it is trusted until the start of the last successful
//     renewal plus ttl, less a margin, by the monotonic clock and by the system clock.
//   - After that nothing is written, even if the process was stopped meanwhile: the trust is looked
//     at again when the store's lock has been had, and the store checks owner, fence and lease.
//   - A function runs once for each fence, whichever agents share the name and however often they are
//     restarted: the first to note its pickup in the store runs it. An agent that is started again
//     waits for a new fence.
//   - A job that the store calls done under the lease's own fence was completed by it: an answer that
//     was lost on the way is no failure.
//   - Each decision reads and raises the job's clock mark, as everything that acts for a manifest.
//
// What it does not: it cannot stop a function that does not heed its context, nor what the function
// has already sent elsewhere. That needs the fence to be checked where it arrives.
package worker
