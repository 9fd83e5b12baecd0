package manifests

import (
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var update = flag.Bool("update", false, "write the golden files anew")

// golden compares with testdata/NAME.golden.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, got, 0o666); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", path, diff)
	}
}

func ptr[T any](v T) *T { return &v }

func sampleStatus() *JobStatus {
	return &JobStatus{
		Owner: "worker-b", Fence: ptr[int64](2), Until: ptr(160.0), Done: ptr(false), Attempts: ptr[int64](2),
		ObservedClock: ptr(130.5), SpecHash: "9f2c41d07b6e", Store: "6f1e0c52/17",
		Conditions: []Condition{{
			Type: ConditionLeased, Status: metav1.ConditionTrue, Reason: "Claimed",
			Message:            "worker-b holds fence 2 until 160",
			LastTransitionTime: metav1.NewTime(time.Unix(130, 0).UTC()),
		}},
		Workers: []WorkerStatus{{
			Name: "worker-a", Report: "complete", Fence: 1, Verdict: "Refused", Reason: "StaleFence",
			Message: "it's \"fence\" 2: now\n\u2028\x00",
		}},
	}
}

// setAll gives every document the sample status, and sees that doing it twice changes nothing.
func setAll(t *testing.T, path string, data []byte) []byte {
	t.Helper()
	f := Decode(path, data)
	status := map[int]*JobStatus{}
	for i := range f.Docs {
		status[i] = sampleStatus()
	}
	out, err := f.EditStatus(data, status)
	if err != nil {
		t.Fatalf("EditStatus: %v", err)
	}
	g := Decode(path, out)
	again, err := g.EditStatus(out, status)
	if err != nil || string(again) != string(out) {
		t.Fatalf("the second edit differs: %v\n%s", err, again)
	}
	for i, d := range g.Docs {
		want := sampleStatus()
		if diff := cmp.Diff(want, d.Status); diff != "" {
			t.Errorf("status of %d (-want +got):\n%s", i, diff)
		}
	}
	return out
}

// The other cases have none.
var caseErrors = map[string][]string{
	"case-variant-key.yaml": {`case-variant-key.yaml:9: Spec: unknown field "Spec"; did you mean "spec"?`},
}

// TestCases edits inputs from public reports, in which editors of YAML went wrong: kubernetes/website
// job-tmpl.yaml (flow-root), sixeyed/kiamol disk-calc-job.yaml (no-final-newline), traefik/traefik#13840
// and mikefarah/yq#2532 (crlf-two-documents), elastic/kibana PR#283622 (status-in-text),
// kubernetes-sigs/yaml#15 (case-variant-key) and #45 (big-number), and the output of a client-side dry
// run (status-empty).
func TestCases(t *testing.T) {
	files, err := filepath.Glob("testdata/cases/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal("no cases", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var errs []string
			for _, d := range Decode(filepath.Base(file), data).Docs {
				for _, e := range d.Errors {
					errs = append(errs, e.Error())
				}
			}
			if diff := cmp.Diff(caseErrors[filepath.Base(file)], errs); diff != "" {
				t.Errorf("errors (-want +got):\n%s", diff)
			}
			golden(t, "cases/"+filepath.Base(file), setAll(t, filepath.Base(file), data))
		})
	}
}
