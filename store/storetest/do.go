package storetest

import (
	"context"
	"errors"

	"leasehold.dev/leasehold/store"
)

// Do carries op out on an engine. The error is of a kind that the model does not know.
func Do(ctx context.Context, e store.Engine, op Op) (Answer, error) {
	ops := store.Ops{Engine: e}
	var v store.Verdict
	var err error
	switch op.Name {
	case "enqueue":
		var a Answer
		a.Created, err = ops.Enqueue(ctx, op.ID)
		return failed(a, err)
	case "state":
		row, found, err := ops.State(ctx, op.ID)
		if !found {
			return failed(Answer{}, err)
		}
		return failed(Answer{Job: JobOf(row)}, err)
	case "claim":
		v, err = ops.Claim(ctx, op.ID, op.Owner, op.Now, op.TTL)
	case "renew":
		v, err = ops.Renew(ctx, op.ID, op.Owner, op.Fence, op.Now, op.TTL)
	case "complete":
		v, err = ops.Complete(ctx, op.ID, op.Owner, op.Fence, op.Now, op.Result)
	case "release":
		v, err = ops.Release(ctx, op.ID, op.Owner, op.Fence)
	}
	return failed(Answer{Reason: v.Reason, Owner: v.Owner, Fence: v.Fence, Until: v.Until}, err)
}

func failed(a Answer, err error) (Answer, error) {
	switch {
	case errors.Is(err, store.ErrInvalid):
		return Answer{Failed: "invalid"}, nil
	case errors.Is(err, store.ErrFenceExhausted):
		return Answer{Failed: "exhausted"}, nil
	}
	return a, err
}

// JobOf returns a row as the model sees it.
func JobOf(r store.Row) Job {
	j := Job{Exists: true, Owner: r.Owner, Until: r.Until, Fence: r.Fence, Done: r.Done}
	if r.Result != nil {
		j.Result, j.HasResult = *r.Result, true
	}
	return j
}
