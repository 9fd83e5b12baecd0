package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"testing"
)

func TestCompareValues(t *testing.T) {
	// Each is less than the next.
	ordered := []any{nil, false, true, int64(-1), exact(0.5), int64(1), int64(math.MaxInt64 - 1), int64(math.MaxInt64),
		"", "job", "job-2", "job-10", "job-10-a", "job-a", "kob"}
	for i, a := range ordered {
		for j, b := range ordered {
			if got, want := compareValues(a, b), cmp.Compare(i, j); got != want {
				t.Errorf("compareValues(%v, %v) = %d, want %d", a, b, got, want)
			}
		}
	}
}

func TestSplitPathValue(t *testing.T) {
	for _, c := range []struct {
		text, path, value string
		any               bool
	}{
		{"{.status.owner}=worker-a", "{.status.owner}", "worker-a", false},
		{".status.result='a=b'", ".status.result", "a=b", false},
		{`{.status.conditions[?(@.type=="Leased")].status}=True`, `{.status.conditions[?(@.type=="Leased")].status}`, "True", false},
		{`{.status.conditions[?(@.type=="a}b")].status}`, `{.status.conditions[?(@.type=="a}b")].status}`, "", true},
		{".status.until", ".status.until", "", true},
		{".status.owner=", ".status.owner", "", false},
	} {
		path, value, any := splitPathValue(c.text)
		if path != c.path || value != c.value || any != c.any {
			t.Errorf("splitPathValue(%q) = %q, %q, %v", c.text, path, value, any)
		}
	}
}

func TestExactNumbers(t *testing.T) {
	for in, want := range map[float64]string{
		1e21: "1000000000000000000000", 1e-9: "0.000000001", 1796135811.205: "1796135811.205",
		253402300799: "253402300799", -2.5: "-2.5", 0: "0",
	} {
		text, err := json.Marshal(exactly(in))
		if err != nil || string(text) != want || fmt.Sprint(exactly(in)) != want {
			t.Errorf("%v is %s in JSON and %v in text, want %s (%v)", in, text, exactly(in), want, err)
		}
	}
}
