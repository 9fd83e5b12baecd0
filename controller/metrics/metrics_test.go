package metrics

import (
	"context"
	"errors"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"leasehold.dev/leasehold/controller"
	"leasehold.dev/leasehold/store"
	"leasehold.dev/leasehold/store/sqlite"
)

const job = `apiVersion: leasehold.dev/v1alpha1
kind: Job
metadata: {name: NAME}
spec:
  clock: 0
  ttl: 30
  workers: [{name: worker-a, complete: {fence: 7, result: x}}]
`

// A controller at work is measured, and what it shows keeps Prometheus's conventions.
func TestMetrics(t *testing.T) {
	m := New("v0")
	dir := t.TempDir()
	for _, name := range []string{"one", "two"} {
		if err := os.WriteFile(filepath.Join(dir, name+".yaml"), []byte(strings.Replace(job, "NAME", name, 1)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "bad.yaml"), []byte(strings.Replace(strings.Replace(job, "NAME", "bad", 1), "ttl: 30", "ttl: -1", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	state := t.TempDir()
	db, err := sqlite.Open(t.Context(), filepath.Join(state, "leasehold.db"), sqlite.Options{Committed: m.Committed})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	source, err := controller.OpenDirectory(dir, controller.DirectoryOptions{StateDir: state, Database: db.Path()})
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	if _, err := controller.New(source, db, controller.Options{Hooks: m.Hooks()}).Once(context.Background(), 10*time.Second); err != nil {
		t.Fatal(err)
	}
	m.Hooks().Wrote(time.Millisecond, errors.New("x"))
	m.Hooks().Decided("claim", store.Held)

	problems, err := testutil.GatherAndLint(m.registry)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	for _, want := range []string{
		`leasehold_decisions_total{reason="",verb="claim",verdict="accepted"} 2`,
		`leasehold_decisions_total{reason="StaleFence",verb="complete",verdict="refused"} 2`,
		`leasehold_decisions_total{reason="Held",verb="claim",verdict="refused"} 1`,
		`leasehold_jobs{state="Leased"} 2`,
		`leasehold_jobs{state="Invalid"} 1`,
		`leasehold_jobs{state="Complete"} 0`,
		`leasehold_ready 1`,
		`leasehold_queue_depth 0`,
		`leasehold_queue_latency_seconds_count`,
		`leasehold_store_commit_batch_size_count`,
		`leasehold_status_write_duration_seconds_count{outcome="ok"} 3`,
		`leasehold_reconcile_duration_seconds_count{outcome="ok"}`,
		`leasehold_build_info{version="v0"} 1`,
	} {
		if !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s is missing in\n%s", want, w.Body)
		}
	}
	// What the dashboard and the alerts ask for is there.
	for _, path := range []string{"../../hack/service/dashboard.json", "../../hack/service/README.md"} {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		names := regexp.MustCompile(`leasehold_[a-z_]+`).FindAllString(string(text), -1)
		if len(names) < 5 {
			t.Errorf("%s asks for %v", path, names)
		}
		for _, name := range names {
			if !strings.Contains(w.Body.String(), "\n"+name+"{") && !strings.Contains(w.Body.String(), "\n"+name+" ") {
				t.Errorf("%s asks for %s", path, name)
			}
		}
	}
	m.Hooks().Manifest("bad.yaml", nil, 0)
	w = httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	if !strings.Contains(w.Body.String(), `leasehold_jobs{state="Invalid"} 0`) {
		t.Error("a manifest that is gone is still counted")
	}
}
