package storetest

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

// Soak is how long a test shall go on trying: the value of LEASEHOLD_SOAK, such as 2h, or 0 for the
// short form.
func Soak() time.Duration {
	d, err := time.ParseDuration(os.Getenv("LEASEHOLD_SOAK"))
	if err != nil {
		return 0
	}
	return d
}

// Call is one line of what a client tells: the call of an operation, before it begins, or the answer
// to its last one. At is a clock that all clients share.
type Call struct {
	Client int
	At     int64
	Op     *Op     `json:",omitempty"`
	Answer *Answer `json:",omitempty"`
}

// Recording puts together what clients tell. It is not safe for concurrent use.
type Recording struct {
	Operations []porcupine.Operation
	open       map[int]porcupine.Operation
}

// Add takes a line.
func (r *Recording) Add(c Call) error {
	if r.open == nil {
		r.open = map[int]porcupine.Operation{}
	}
	o, running := r.open[c.Client]
	if (c.Op != nil) == running || (c.Op != nil) == (c.Answer != nil) {
		return fmt.Errorf("client %d: neither a call nor an answer: %+v", c.Client, c)
	}
	if c.Op != nil {
		r.open[c.Client] = porcupine.Operation{ClientId: c.Client, Input: *c.Op, Call: c.At}
		return nil
	}
	o.Output, o.Return = *c.Answer, c.At
	r.Operations = append(r.Operations, o)
	delete(r.open, c.Client)
	return nil
}

// End closes the operations that were never answered. One that never took effect is as one that
// took effect after everything else, so these return at the end of time.
func (r *Recording) End() (unanswered int) {
	for _, o := range r.open {
		o.Output, o.Return = Answer{Unknown: true}, math.MaxInt64
		r.Operations = append(r.Operations, o)
		unanswered++
	}
	r.open = nil
	return unanswered
}

// Linearizable reports whether some order of the operations explains their answers.
func Linearizable(history []porcupine.Operation) bool {
	return porcupine.CheckOperationsTimeout(Porcupine, history, time.Minute) == porcupine.Ok
}

// Check fails the test if no order of the recorded operations explains their answers, and keeps them
// and a picture of them.
func Check(t *testing.T, history []porcupine.Operation) {
	t.Helper()
	result := porcupine.CheckOperationsTimeout(Porcupine, history, 2*time.Minute)
	if result == porcupine.Ok {
		return
	}
	// The picture is of the jobs at fault: one of all of them could not be looked at.
	var bad []porcupine.Operation
	for _, part := range Porcupine.Partition(history) {
		if len(bad) == 0 && porcupine.CheckOperationsTimeout(Porcupine, part, time.Minute) != porcupine.Ok {
			bad = part
		}
	}
	slices.SortFunc(bad, func(a, b porcupine.Operation) int { return int(a.Call - b.Call) })
	_, info := porcupine.CheckOperationsVerbose(Porcupine, bad, time.Minute)
	dir, err := os.MkdirTemp("", "leasehold-history-")
	if err == nil {
		err = porcupine.VisualizePath(Porcupine, info, filepath.Join(dir, "history.html"))
	}
	if err == nil {
		var text []byte
		if text, err = json.MarshalIndent(bad, "", " "); err == nil {
			err = os.WriteFile(filepath.Join(dir, "history.json"), text, 0o644)
		}
	}
	if err != nil {
		t.Log(err)
	}
	t.Fatalf("the recorded history is %s: no order of the operations explains the answers; see history.html and history.json in %s", result, dir)
}
