package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"leasehold.dev/leasehold/controller"
	"leasehold.dev/leasehold/controller/timeline"
	"leasehold.dev/leasehold/manifests"
	"leasehold.dev/leasehold/store"
	"leasehold.dev/leasehold/store/sqlite"
)

func newDemoCommand(g *globals) *cobra.Command {
	var keep bool
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Play the story of a stale worker in a temporary directory",
		Long: `A worker takes a job, stalls, and loses its lease. Another worker takes the job over. Then the first
one wakes up and writes with the fence that it was given. It is stopped twice: by the ledger that both
write to, which keeps the highest fence it has seen, and by the store, which keeps the job's result. The
demo plays this with a real controller, by edits of a manifest in a temporary directory.`,
		Example: `  leasehold demo

  # Look at the files afterwards
  leasehold demo --keep`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return demo(cmd.Context(), g, keep) },
	}
	cmd.Flags().BoolVar(&keep, "keep", false, "keep the directory")
	return cmd
}

const demoManifest = `apiVersion: leasehold.dev/v1alpha1
kind: Job
metadata:
  name: invoice-42
spec:
  clock: 100
  ttl: 30
  workers:
  - name: worker-a
  - name: worker-b
`

// scene is a step of the demo: an edit, and what it leads to.
type scene struct {
	say   string
	shell string // what a user would type
	edits []manifests.Edit
	want  func(*store.Record) bool
	enter func(context.Context, *ledger) (string, error) // instead: a write to the ledger
}

func demoScenes() []scene {
	report := func(worker int, fence int64, result string) []manifests.Edit {
		return []manifests.Edit{{Path: []any{"spec", "workers", worker, "complete"}, Value: manifests.Complete{Fence: fence, Result: result}}}
	}
	enter := func(fence int64, entry string) func(context.Context, *ledger) (string, error) {
		return func(ctx context.Context, l *ledger) (string, error) { return l.enter(ctx, fence, entry) }
	}
	clock := func(to float64) []manifests.Edit {
		return []manifests.Edit{{Path: []any{"spec", "clock"}, Value: to}}
	}
	return []scene{
		{say: "A job is declared, with a clock of its own. The first worker gets it, under fence 1.",
			shell: "cat invoice-42.yaml", want: func(r *store.Record) bool { return r.Fence == 1 }},
		{say: "worker-a stalls. Just before its lease ends, nothing changes.",
			shell: "leasehold tick job/invoice-42 --to 129.5", edits: clock(129.5),
			want: func(r *store.Record) bool { return r.Fence == 1 && r.Mark.Time == 129.5 }},
		{say: "At 130 the lease has run out, and worker-b takes over, under fence 2.",
			shell: "leasehold tick job/invoice-42 --to 130", edits: clock(130), want: func(r *store.Record) bool { return r.Fence == 2 }},
		{say: "worker-b enters the payment into a ledger outside of the store. The ledger notes the fence.",
			shell: "leasehold guard --resource ledger --fence 2 -- ./enter 'invoice 42, paid by worker-b'",
			enter: enter(2, "invoice 42, paid by worker-b")},
		{say: "worker-a wakes up, knows nothing of worker-b, and would pay a second time. The ledger stops it:\n   its fence is stale.",
			shell: "leasehold guard --resource ledger --fence 1 -- ./enter 'invoice 42, paid by worker-a'",
			enter: enter(1, "invoice 42, paid by worker-a")},
		{say: "At 142 it reports its result all the same. The store stops it.",
			shell: "leasehold tick job/invoice-42 --to 142; leasehold complete job/invoice-42 --worker worker-a --fence 1 --result 'by a'",
			edits: append(clock(142), report(0, 1, "by a")...),
			want:  func(r *store.Record) bool { return len(r.Reports) == 1 && !r.Done }},
		{say: "At 151 worker-b finishes, with the fence that is current.",
			shell: "leasehold tick job/invoice-42 --to 151; leasehold complete job/invoice-42 --worker worker-b --fence 2 --result 'by b'",
			edits: append(clock(151), report(1, 2, "by b")...),
			want:  func(r *store.Record) bool { return r.Done }},
	}
}

func demo(ctx context.Context, g *globals, keep bool) (err error) {
	// The controller tells its decisions beside us.
	g = &globals{streams: g.streams, dir: g.dir, store: g.store}
	g.Out = &lockedWriter{w: g.Out}
	dir, err := os.MkdirTemp("", "leasehold-demo-")
	if err != nil {
		return err
	}
	if keep {
		defer fmt.Fprintf(g.Out, "\nThe directory is %s; look around with leasehold get jobs --dir %[1]s\n", dir)
	} else {
		defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	}
	state := filepath.Join(dir, stateName)
	if err := makeStateDir(state); err != nil {
		return err
	}
	db, err := sqlite.Open(ctx, filepath.Join(state, databaseName), sqlite.Options{Actor: "controller"})
	if err != nil {
		return err
	}
	defer db.Close()
	log, err := newLogger("text", g.Out, 0)
	if err != nil {
		return err
	}
	source, err := controller.OpenDirectory(dir, controller.DirectoryOptions{StateDir: state, Database: db.Path(), Log: log})
	if err != nil {
		return err
	}
	defer source.Close()

	play, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- controller.New(source, db, controller.Options{Log: log}).Run(play) }()

	if err := source.Tree().Create("invoice-42.yaml", []byte(demoManifest)); err != nil {
		return err
	}
	book, err := openLedger(ctx, state)
	if err != nil {
		return err
	}
	defer book.db.Close()
	for i, s := range demoScenes() {
		fmt.Fprintf(g.Out, "\n%d. %s\n   $ %s\n", i+1, s.say, s.shell)
		if s.enter != nil {
			text, err := s.enter(ctx, book)
			if err != nil {
				return err
			}
			log.Info(text)
			continue
		}
		if err := s.play(play, source.Tree(), db, ended); err != nil {
			return err
		}
	}
	stop()
	if err := <-ended; err != nil {
		return err
	}
	text, err := os.ReadFile(filepath.Join(dir, "invoice-42.yaml"))
	if err != nil {
		return err
	}
	_, status, _ := strings.Cut(string(text), "\nstatus:\n")
	entries, err := book.entries(context.WithoutCancel(ctx))
	if err != nil {
		return err
	}
	fmt.Fprintf(g.Out, "\nThe stale write was stopped twice. The ledger has\n\n%s\n"+
		"the result is worker-b's, and the manifest's status says what became of both:\n\nstatus:\n%s", entries, status)
	fmt.Fprintf(g.Out, "\nWho held it, and what was refused:\n   $ leasehold timeline job/invoice-42\n\n")
	return demoTimeline(ctx, g, dir)
}

func demoTimeline(ctx context.Context, g *globals, dir string) error {
	look := &globals{streams: g.streams, dir: dir}
	b, err := look.browse()
	if err != nil {
		return err
	}
	defer b.Close()
	t, err := b.timeline(ctx, "invoice-42", timeline.Clock)
	if err != nil {
		return err
	}
	return printTimeline(g.Out, t)
}

// play makes the edit and waits until the controller has decided and written what follows from it.
func (s scene) play(ctx context.Context, tree *manifests.Tree, db *sqlite.DB, ended <-chan error) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	if s.edits != nil {
		if _, err := change(ctx, tree, "invoice-42", func(*found) ([]manifests.Edit, error) { return s.edits, nil }); err != nil {
			return err
		}
	}
	changes := controller.Follow(ctx, tree, db.Path())
	for {
		ok, err := s.happened(ctx, tree, db)
		if err != nil || ok {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the controller did not do what was expected: %w", context.Cause(ctx))
		case err := <-ended:
			return errors.Join(errors.New("the controller has ended"), err)
		case <-changes:
		}
	}
}

// happened reports whether the store has what the scene wants, and the file shows it.
func (s scene) happened(ctx context.Context, tree *manifests.Tree, db *sqlite.DB) (ok bool, err error) {
	var hash string
	if _, err = db.View(ctx, []string{"invoice-42"}, func(rs []*store.Record) error {
		ok, hash = s.want(rs[0]), rs[0].SpecHash
		return nil
	}); err != nil || !ok {
		return false, err
	}
	at, err := find(tree, "invoice-42")
	if errors.Is(err, manifests.ErrBusy) {
		return false, nil
	} else if err != nil {
		return false, err
	}
	d := at.Doc()
	return d.Status != nil && d.Status.SpecHash == hash && d.Job.Spec.Hash() == hash, nil
}
