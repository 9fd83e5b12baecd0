package controller

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"leasehold.dev/leasehold/store"
)

// What is declared follows the directory, by the rules of the controller.
func TestDeclared(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	job := func(name, ttl string) string {
		return "apiVersion: leasehold.dev/v1alpha1\nkind: Job\nmetadata: {name: " + name + "}\nspec: {ttl: " + ttl + ", workers: [{name: a}]}\n"
	}
	write("b.yaml", job("j", "10")+"status: {store: abcd/7}\n")
	source, err := OpenDirectory(dir, DirectoryOptions{StateDir: filepath.Join(dir, ".leasehold"), ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	d := NewDeclared(source)
	ctx, cancel := context.WithCancel(t.Context())
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- d.Run(ctx, func() { close(ready) }) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	<-ready
	until := func(what string, f func() bool) {
		t.Helper()
		deadline := time.After(10 * time.Second)
		for !f() {
			select {
			case <-d.Wake():
			case <-deadline:
				t.Fatal("waited in vain until " + what)
			}
		}
	}
	ttl := func(id string, want float64) func() bool {
		return func() bool {
			doc, ok := d.Doc(id)
			return ok && doc.Job.Spec.TTL == want || !ok && want == 0
		}
	}
	if !ttl("j", 10)() {
		t.Fatal("not read")
	}
	for revision, want := range map[int64]string{6: "j", 7: ""} {
		if got := d.Outdated(store.Stamp{Identity: "abcd", Revision: revision}); got != want {
			t.Errorf("revision %d: %q", revision, got)
		}
	}
	if got := d.Outdated(store.Stamp{Identity: "other"}); got != "" {
		t.Error(got)
	}
	write("b.yaml", job("j", "20"))
	until("it is changed", ttl("j", 20))
	write("b.yaml", job("j", "-1"))
	until("it is not accepted", ttl("j", 0))
	write("b.yaml", job("j", "30"))
	until("it is again", ttl("j", 30))
	write("a.yaml", job("j", "40")) // the first in the order of paths
	until("the id belongs to the first", ttl("j", 40))
	if err := os.Remove(filepath.Join(dir, "a.yaml")); err != nil {
		t.Fatal(err)
	}
	until("the other has taken over", ttl("j", 30))
	if err := os.Remove(filepath.Join(dir, "b.yaml")); err != nil {
		t.Fatal(err)
	}
	until("it is gone", ttl("j", 0))
}
