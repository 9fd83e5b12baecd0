//go:build unix

package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"leasehold.dev/leasehold/manifests"
	"leasehold.dev/leasehold/store"
	"leasehold.dev/leasehold/store/sqlite"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv("LEASEHOLD_TEST_CONTROL"); dir != "" {
		os.Exit(control(dir, os.Getenv("LEASEHOLD_TEST_STEP")))
	}
	os.Exit(m.Run())
}

// control is a controller in a process of its own. With a step, it reconciles once and dies before
// that step, with 9; without one it runs until it is killed.
func control(dir, step string) int {
	state := filepath.Join(dir, ".leasehold")
	ctx := context.Background()
	lock, err := Acquire(dir, filepath.Join(state, "leasehold.db"))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer lock.Close()
	db, err := sqlite.Open(ctx, filepath.Join(state, "leasehold.db"), sqlite.Options{Actor: "controller"})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	source, err := OpenDirectory(dir, DirectoryOptions{StateDir: state, Database: db.Path(), Log: log})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	opt := Options{Log: log}
	if step == "" {
		fmt.Println("ready")
		fmt.Fprintln(os.Stderr, New(source, db, opt).Run(ctx))
		return 1
	}
	die := func(at, _ string) error {
		if at == step {
			os.Exit(9)
		}
		return nil
	}
	opt.Before, source.Tree().Before = die, die
	_, err = New(source, db, opt).Once(ctx, 10*time.Second)
	err = errors.Join(err, source.Close(), db.Close())
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func child(dir, step string) *exec.Cmd {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "LEASEHOLD_TEST_CONTROL="+dir, "LEASEHOLD_TEST_STEP="+step)
	return cmd
}

// crashSteps are those of a pass, with those of replacing a file among them.
var crashSteps = []string{"load", "decide", "decided", "write",
	"temp", "write", "attributes", "sync", "name", "check", "exchange", "look", "syncdir", "written", "unlink"}

// crashEdits are what the user does to the file, one after the other; each leads to a decision. The
// short form crashes at some of them.
var crashEdits = []struct {
	old, with string
	short     bool
}{
	{short: true},
	{old: "clock: 100", with: "clock: 110"},
	{"name: worker-a", "name: worker-a\r\n    renew: {fence: 1, time: 1} # the heartbeat", true},
	{old: "clock: 110", with: "clock: 140"},
	{old: "renew: {fence: 1, time: 1}", with: "complete: {fence: 1, result: late}"},
	{"name: worker-b", "name: worker-b\r\n    release: {fence: 2}", true},
	{old: "release: {fence: 2}", with: "complete: {fence: 4, result: by b}"},
	{"complete: {fence: 1, result: late}", "complete: {fence: 3, result: by a}", true},
	{old: "clock: 140", with: "clock: 171"},
}

// A crash before any step, at any decision, leaves the user's bytes; the next start comes to exactly
// the state, file and history, to which a run without a crash comes, and leaves nothing behind. With
// LEASEHOLD_SOAK it crashes at every edit.
func TestSoakCrashPoints(t *testing.T) {
	t.Parallel()
	text := "# of the user\r\n" + strings.ReplaceAll(manifest("invoice-42", 100), "\n", "\r\n") +
		"---\r\nkind: ConfigMap\r\napiVersion: v1\r\n---\r\n" + strings.ReplaceAll(manifest("second", 7), "\n", "\r\n") + "# the end"
	calm := newRig(t, map[string]string{"sub/a.yaml": text})
	calm.events() // makes the database, so that all have the same identity
	points, hits := 0, 0
	for n, edit := range crashEdits {
		if n > 0 {
			calm.edit("sub/a.yaml", edit.old, edit.with)
		}
		before := t.TempDir()
		if err := os.CopyFS(before, os.DirFS(calm.dir)); err != nil {
			t.Fatal(err)
		}
		user := string(manifests.StripStatus("a.yaml", []byte(calm.read("sub/a.yaml"))))
		calm.once()
		for _, step := range crashSteps {
			if !edit.short && soak(t) == 0 {
				continue
			}
			points++
			r := &rig{t: t, dir: filepath.Join(t.TempDir(), "jobs"), log: &buffer{}}
			if err := os.CopyFS(r.dir, os.DirFS(before)); err != nil {
				t.Fatal(err)
			}
			out, err := child(r.dir, step).CombinedOutput()
			var exit *exec.ExitError
			switch {
			case errors.As(err, &exit) && exit.ExitCode() == 9:
				hits++
			case err != nil:
				t.Fatalf("edit %d, before %s: %v\n%s", n, step, err, out)
			}
			if got := string(manifests.StripStatus("a.yaml", []byte(r.read("sub/a.yaml")))); got != user {
				t.Errorf("edit %d, before %s: the user's bytes changed\n%s", n, step, cmp.Diff(user, got))
			}
			r.once()
			if diff := cmp.Diff(unstamped(calm.read("sub/a.yaml")), unstamped(r.read("sub/a.yaml"))); diff != "" {
				t.Errorf("edit %d, before %s: the file differs from one without a crash\n%s", n, step, diff)
			}
			if diff := cmp.Diff(calm.history(), r.history()); diff != "" {
				t.Errorf("edit %d, before %s: the history differs from one without a crash\n%s", n, step, diff)
			}
			r.nothingLeft()
		}
	}
	if got := summary(calm.status("sub/a.yaml")); got != "worker-a 3 170 done by a" && !t.Failed() {
		t.Errorf("the story ended with %s", got)
	}
	if hits != points {
		t.Errorf("only %d of %d crash points were reached", hits, points)
	}
	if !t.Failed() {
		t.Logf("%d crash points, %d of them reached: after the next start as if nothing had happened", points, hits)
	}
}

// unstamped is a manifest without the revisions of the store, which a crash may use up.
func unstamped(text string) string {
	lines := strings.SplitAfter(text, "\n")
	for i, l := range lines {
		if rest, ok := strings.CutPrefix(strings.TrimSpace(l), "store: "); ok {
			identity, _, _ := strings.Cut(rest, "/")
			lines[i] = "  store: " + identity + "\n"
		}
	}
	return strings.Join(lines, "")
}

// history is what was accepted and refused, as far as it does not depend on when.
func (r *rig) history() (all []string) {
	r.t.Helper()
	for _, e := range r.events() {
		all = append(all, fmt.Sprintf("%s %s %s %s %d %v", e.ID, e.Verb, e.Reason, e.Owner, e.Fence, e.Until))
	}
	return all
}

func (r *rig) events() []store.Event {
	r.t.Helper()
	db, err := sqlite.Open(r.t.Context(), r.database(), sqlite.Options{})
	if err != nil {
		r.t.Fatal(err)
	}
	defer db.Close()
	events, err := db.History(r.t.Context(), "", 0, 0)
	if err != nil {
		r.t.Fatal(err)
	}
	return events
}
