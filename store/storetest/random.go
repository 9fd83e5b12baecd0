package storetest

import (
	"fmt"
	"math"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"leasehold.dev/leasehold/store"
)

var prefixes atomic.Int64

// Prefix returns a new prefix for ids, so that histories may share a store.
func Prefix() string { return fmt.Sprintf("h%d-", prefixes.Add(1)) }

// Ops draws operations on a few jobs whose ids have the prefix. It keeps to small clocks and fences
// near the current one, so that every rule is met often, and mixes in what no store may accept.
func Ops(prefix string) *rapid.Generator[Op] {
	times := rapid.OneOf(
		rapid.Map(rapid.IntRange(0, 24), func(n int) float64 { return float64(n) / 2 }),
		rapid.SampledFrom([]float64{0, -1, 1e18, 0.1, 0.2, 0.30000000000000004, math.NaN(), math.Inf(1), math.Inf(-1), math.MaxFloat64}),
	)
	ttls := rapid.OneOf(
		rapid.Map(rapid.IntRange(1, 8), func(n int) float64 { return float64(n) / 2 }),
		rapid.SampledFrom([]float64{0.1, 0.2, 1e-300, 0, -1, math.NaN(), math.Inf(1), math.MaxFloat64}),
	)
	return rapid.Custom(func(t *rapid.T) Op {
		op := Op{
			Name:  rapid.SampledFrom([]string{"claim", "claim", "renew", "complete", "release", "enqueue", "state"}).Draw(t, "op"),
			ID:    prefix + rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "id"),
			Owner: rapid.SampledFrom([]string{"w1", "w2", "w3", "w1", "w2", ""}).Draw(t, "owner"),
			Fence: rapid.OneOf(rapid.Int64Range(0, 6), rapid.SampledFrom([]int64{-1, math.MaxInt64, math.MinInt64})).Draw(t, "fence"),
			Now:   times.Draw(t, "now"),
			TTL:   ttls.Draw(t, "ttl"),
		}
		if op.Name == "complete" {
			op.Result = rapid.SampledFrom([]string{"", "r", "<&>\u2028", "9007199254740993"}).Draw(t, "result")
		}
		if rapid.IntRange(0, 200).Draw(t, "empty") == 0 {
			op.ID = ""
		}
		return op
	})
}

// random compares thousands of operations with the model, answer for answer.
func random(t *testing.T, e store.Engine) {
	rapid.Check(t, func(rt *rapid.T) {
		prefix := Prefix()
		jobs := map[string]Job{}
		for _, id := range []string{"a", "b"} {
			jobs[prefix+id], _ = Step(Job{}, Op{Name: "enqueue", ID: prefix + id})
			if _, err := Do(t.Context(), e, Op{Name: "enqueue", ID: prefix + id}); err != nil {
				rt.Fatal(err)
			}
		}
		for _, op := range rapid.SliceOfN(Ops(prefix), 1, 80).Draw(rt, "ops") {
			// Mostly the fence of the holder, as a worker would have it.
			if j := jobs[op.ID]; op.Fence >= 0 && op.Fence <= 4 {
				op.Fence = j.Fence - op.Fence/4
			}
			var want Answer
			jobs[op.ID], want = Step(jobs[op.ID], op)
			got, err := Do(t.Context(), e, op)
			if err != nil {
				rt.Fatalf("%v: %v", op, err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				rt.Fatalf("%v: the model (-) and the store (+) differ:\n%s", op, diff)
			}
		}
	})
}
