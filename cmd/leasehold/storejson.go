package main

import (
	"encoding/json"

	"leasehold.dev/leasehold/store"
)

// The answers of the commands below store.

type createdAnswer struct {
	Created bool `json:"created"`
}

type rowAnswer struct {
	ID     string  `json:"id"`
	Owner  *string `json:"owner"`
	Until  float64 `json:"until"`
	Fence  int64   `json:"fence"`
	Result *string `json:"result"`
	Done   bool    `json:"done"`
}

// stateAnswer is the row, or null.
func stateAnswer(row store.Row, found bool) *rowAnswer {
	if !found {
		return nil
	}
	return &rowAnswer{row.ID, orNull(row.Owner), row.Until, row.Fence, row.Result, row.Done}
}

// verdictAnswer is a verdict after the field that says whether it was granted. What is current is
// null where there is no such job.
type verdictAnswer struct {
	first   string
	granted any
	v       store.Verdict
}

func claimAnswer(v store.Verdict) verdictAnswer { return verdictAnswer{"fence", v.Fence, v} }
func okAnswer(v store.Verdict) verdictAnswer    { return verdictAnswer{"ok", true, v} }

func (a verdictAnswer) MarshalJSON() ([]byte, error) {
	if a.v.OK() {
		return json.Marshal(map[string]any{a.first: a.granted})
	}
	r := refusal{Reason: a.v.Reason, Owner: orNull(a.v.Owner)}
	if a.v.Reason != store.NotFound {
		r.Until, r.CurrentFence = &a.v.Until, &a.v.Fence
	}
	if a.first == "ok" {
		return json.Marshal(struct {
			OK bool `json:"ok"`
			refusal
		}{false, r})
	}
	return json.Marshal(struct {
		Fence *int64 `json:"fence"`
		refusal
	}{nil, r})
}

type refusal struct {
	Reason       store.Reason `json:"reason"`
	Owner        *string      `json:"owner"`
	Until        *float64     `json:"until"`
	CurrentFence *int64       `json:"currentFence"`
}

type manyAnswer struct {
	Fences []*int64 `json:"fences"`
}

func fencesAnswer(vs []store.Verdict) manyAnswer {
	a := manyAnswer{make([]*int64, len(vs))}
	for i, v := range vs {
		if v.OK() {
			a.Fences[i] = &v.Fence
		}
	}
	return a
}

func (a manyAnswer) granted() bool {
	for _, f := range a.Fences {
		if f != nil {
			return true
		}
	}
	return false
}

type errorAnswer struct {
	Error string `json:"error"`
}

func orNull(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
