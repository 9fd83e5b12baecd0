package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Manifests with one or two changes at random, judged by the decoder (as `leasehold validate`, for
// this module does not depend on the other) and by both schemas.
func TestRandom(t *testing.T) {
	const n = 1500
	dir := t.TempDir()
	leasehold := filepath.Join(dir, "leasehold")
	if out, err := exec.Command("go", "build", "-C", "../..", "-o", leasehold, "./cmd/leasehold").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	files := filepath.Join(dir, "files")
	if err := os.Mkdir(files, 0o700); err != nil {
		t.Fatal(err)
	}
	texts := make(map[string]string, n)
	for i := range n {
		name := fmt.Sprintf("%04d.json", i)
		texts[name] = change(t, rand.New(rand.NewPCG(1, uint64(i))))
		if err := os.WriteFile(filepath.Join(files, name), []byte(texts[name]), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	out, err := exec.Command(leasehold, "validate", files).Output()
	if exit := new(exec.ExitError); err != nil && (!errors.As(err, &exit) || exit.ExitCode() != 3) {
		t.Fatalf("%v\n%s", err, out)
	}
	complaints := map[string][]string{}
	for _, m := range regexp.MustCompile(`(?m)^[^:]*/(\d+\.json):(.*)$`).FindAllStringSubmatch(string(out), -1) {
		if !strings.Contains(m[2], "the job stands in") { // all have one name
			complaints[m[1]] = append(complaints[m[1]], m[2])
		}
	}
	if len(complaints) < n/4 || len(complaints) > n*9/10 {
		t.Fatalf("the decoder refuses %d of %d", len(complaints), n)
	}

	// What each cannot express, and what it refuses besides, as the reasons in the table say.
	judges := []struct {
		name             string
		judge            judge
		excuse, stricter *regexp.Regexp
	}{
		{"json", editor(t), regexp.MustCompile(`added to the clock|Duplicate value|contradicts complete`), regexp.MustCompile(`^$`)},
		{"crd", server(t), regexp.MustCompile(`metadata\.name: Required value`),
			regexp.MustCompile(`^unknown fields \[(status\S* ?)+\]$|^apiVersion or kind is not set$|metadata\.(generateName|generation|finalizers):`)},
	}
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		for _, j := range judges {
			err := j.judge.file(texts[name])
			wrong := complaints[name]
			excused := slices.ContainsFunc(wrong, j.excuse.MatchString)
			switch {
			case err != nil && len(wrong) == 0 && !j.stricter.MatchString(err.Error()):
				t.Errorf("%s refuses what is good: %v\n%s", j.name, err, texts[name])
			case err == nil && len(wrong) > 0 && !excused:
				t.Errorf("%s accepts what is bad: %s\n%s", j.name, strings.Join(wrong, "; "), texts[name])
			}
		}
	}
}

const changed = `{
"apiVersion": "leasehold.dev/v1alpha1", "kind": "Job",
"metadata": {"name": "a", "namespace": "n", "labels": {"a": "b"}, "annotations": {"c": "d"}, "generateName": "g-", "generation": 1, "resourceVersion": "7"},
"spec": {"clock": 100, "ttl": 10, "suspend": false, "maxAttempts": 3, "data": {"e": "f"}, "workers": [
  {"name": "w", "renew": {"fence": 3, "time": 5}, "complete": {"fence": 2, "result": "r"}, "release": {"fence": 1}},
  {"name": "v", "suspend": true}]},
"status": {"owner": "w", "fence": 2, "conditions": [{"type": "Leased", "status": "True"}], "workers": [{"name": "w", "fence": 1}]}}`

var pool = []string{
	`null`, `""`, `"a"`, `"w"`, `"A_b"`, `"a.b"`, `"-"`, `"1"`, `"true"`, `"x y"`, `"é"`, `"a\n"`, `"2026-01-02T03:04:05Z"`,
	`0`, `-0.0`, `1`, `2`, `-1`, `1.5`, `1.0`, `1e3`, `1e-7`, `1e-12`, `1e300`, `253402300799`, `253402300800`, `9007199254740993`,
	`9223372036854775807`, `9223372036854775808`, `-9223372036854775809`,
	`true`, `false`, `[]`, `{}`, `[null]`, `["a"]`, `[{}]`, `{"a": null}`, `{"a": "b"}`, `{"a": 1}`, `{"fence": 1}`, `{"name": "w"}`,
	`[{"name": "w"}]`, `[{"name": "w"}, {"name": "w"}]`, `[{"name": "w"}, {"name": "w", "suspend": true}]`,
}

var keys = []string{"clock", "ttl", "Clock", "name", "fence", "result", "time", "suspend", "labels", "data", "creationTimestamp", "finalizers", "kind", "x"}

// change returns a manifest with a change or two.
func change(t *testing.T, r *rand.Rand) string {
	dec := json.NewDecoder(strings.NewReader(changed))
	dec.UseNumber()
	var doc any
	if err := dec.Decode(&doc); err != nil {
		t.Fatal(err)
	}
	for range 1 + r.IntN(2) {
		// The mappings and lists, in an order that does not change.
		var places []any
		var walk func(v any)
		walk = func(v any) {
			switch v := v.(type) {
			case map[string]any:
				places = append(places, v)
				for _, k := range slices.Sorted(maps.Keys(v)) {
					walk(v[k])
				}
			case []any:
				if len(v) > 0 {
					places = append(places, v)
				}
				for _, e := range v {
					walk(e)
				}
			}
		}
		walk(doc)
		value := json.RawMessage(pool[r.IntN(len(pool))])
		switch place := places[r.IntN(len(places))].(type) {
		case map[string]any:
			names := slices.Sorted(maps.Keys(place))
			switch what := r.IntN(6); {
			case what == 0 && len(names) > 0:
				delete(place, names[r.IntN(len(names))])
			case what == 1 || len(names) == 0:
				place[keys[r.IntN(len(keys))]] = value
			default:
				place[names[r.IntN(len(names))]] = value
			}
		case []any:
			place[r.IntN(len(place))] = value
		}
	}
	text, err := json.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
