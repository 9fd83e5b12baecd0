package storetest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"leasehold.dev/leasehold/store"
)

// Porcupine is the model for checking recorded histories, one job at a time.
var Porcupine = porcupine.Model{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		byID := map[string][]porcupine.Operation{}
		for _, o := range history {
			id := o.Input.(Op).ID
			byID[id] = append(byID[id], o)
		}
		var parts [][]porcupine.Operation
		for _, p := range byID {
			parts = append(parts, p)
		}
		return parts
	},
	Init: func() any { return Job{} },
	Step: func(state, input, output any) (bool, any) {
		next, want := Step(state.(Job), input.(Op))
		return output.(Answer).agrees(input.(Op), want), next
	},
	DescribeOperation: func(input, output any) string { return fmt.Sprintf("%v -> %+v", input, output) },
}

// concurrent records what many goroutines did to a few jobs at once, and asks whether some order of
// it explains every answer.
func concurrent(t *testing.T, e store.Engine) {
	const workers, steps = 8, 60
	prefix := Prefix()
	var clock, fence atomic.Int64
	var mu sync.Mutex
	var history []porcupine.Operation
	start := time.Now()
	ctx := t.Context()
	var wg sync.WaitGroup
	for w := range workers {
		rng := rand.New(rand.NewPCG(uint64(w), 7))
		wg.Go(func() {
			for range steps {
				op := Op{
					Name:  []string{"enqueue", "claim", "claim", "claim", "renew", "complete", "release", "release", "state"}[rng.IntN(9)],
					ID:    prefix + []string{"a", "b", "c"}[rng.IntN(3)],
					Owner: fmt.Sprintf("w%d", rng.IntN(3)),
					Fence: max(fence.Load()-int64(rng.IntN(2)), 0),
					Now:   float64(clock.Add(int64(rng.IntN(2)))),
					TTL:   float64(1 + rng.IntN(4)),
				}
				if op.Name == "complete" {
					if op.Result = fmt.Sprint(w); rng.IntN(8) > 0 {
						op.Name = "renew"
					}
				}
				call := time.Since(start).Nanoseconds()
				got, err := Do(ctx, e, op)
				back := time.Since(start).Nanoseconds()
				if err != nil {
					t.Errorf("%v: %v", op, err)
					return
				}
				if op.Name == "claim" && got.Reason == "" {
					fence.Store(got.Fence)
				}
				mu.Lock()
				history = append(history, porcupine.Operation{ClientId: w, Input: op, Output: got, Call: call, Return: back})
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	Check(t, history)
}

// oneWinner lets many goroutines claim a job again and again, and counts.
func oneWinner(t *testing.T, e store.Engine) {
	ctx := context.Background()
	ops := store.Ops{Engine: e}
	id := Prefix() + "j"
	if _, err := ops.Enqueue(ctx, id); err != nil {
		t.Fatal(err)
	}
	for round := range 20 {
		var owners []string
		for i := range 16 {
			owners = append(owners, fmt.Sprintf("w%d", i))
		}
		vs, err := ops.ClaimMany(ctx, id, owners, float64(round*10), 10)
		if err != nil {
			t.Fatal(err)
		}
		winner := ""
		for i, v := range vs {
			switch {
			case !v.OK():
				if v.Reason != store.Held || v.Fence != int64(round+1) {
					t.Fatalf("round %d: %s was refused with %+v", round, owners[i], v)
				}
			case winner != "":
				t.Fatalf("round %d: %s and %s both won", round, winner, owners[i])
			default:
				if winner = owners[i]; v.Fence != int64(round+1) || v.Owner != winner {
					t.Fatalf("round %d: %s won with %+v", round, winner, v)
				}
			}
		}
		if winner == "" {
			t.Fatalf("round %d: nobody won", round)
		}
	}
}
