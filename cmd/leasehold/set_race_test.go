package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"leasehold.dev/leasehold/manifests"
)

// Commands, a controller and a user's editor change one file at the same time: no save is lost, and
// neither is what the commands were told to do.
func TestCommandsBesideSaves(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "jobs.yaml")
	doc := func(name string) string {
		return "apiVersion: leasehold.dev/v1alpha1\nkind: Job\nmetadata: {name: " + name + "}\nspec: {clock: 0, ttl: 10, workers: [{name: w}]}\n"
	}
	if err := os.WriteFile(path, []byte(doc("a")+"---\n"+doc("b")+"---\n# notes\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	call := func(ctx context.Context, in string, args ...string) (int, string) {
		var out bytes.Buffer
		s := streams{In: strings.NewReader(in), Out: &out, Err: &out}
		return run(ctx, append(args, "--dir", dir), s), out.String()
	}
	ctx, stop := context.WithCancel(context.Background())
	var controller, others sync.WaitGroup
	controller.Go(func() { call(ctx, "", "run") })
	defer controller.Wait()
	defer stop()

	const n = 25
	others.Go(func() { // an editor that appends in place, and one that renames
		for i := range n {
			f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
			if err != nil {
				t.Error(err)
				return
			}
			fmt.Fprintf(f, "# note %d\n", i)
			f.Close()
		}
	})
	others.Go(func() {
		for i := range n {
			if code, out := call(ctx, "", "label", "job/a", fmt.Sprintf("n%d=%d", i, i)); code != 0 {
				t.Errorf("label: %d %s", code, out)
			}
		}
	})
	others.Go(func() {
		for i := range n {
			in := strings.Replace(doc("b"), "ttl: 10", fmt.Sprintf("ttl: %d", 20+i), 1)
			if code, out := call(ctx, in, "apply", "-f", "-"); code != 0 {
				t.Errorf("apply: %d %s", code, out)
			}
		}
	})
	others.Wait()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	f := manifests.Decode("jobs.yaml", data)
	if len(f.Docs) != 2 || f.Docs[0].Job == nil || f.Docs[1].Job == nil {
		t.Fatalf("%s", data)
	}
	if got := len(f.Docs[0].Job.Labels); got != n {
		t.Errorf("%d labels are left of %d", got, n)
	}
	if got := f.Docs[1].Job.Spec.TTL; got != 20+n-1 {
		t.Errorf("ttl is %v", got)
	}
	for i := range n {
		if !bytes.Contains(data, fmt.Appendf(nil, "# note %d\n", i)) {
			t.Errorf("note %d is lost", i)
		}
	}
}
