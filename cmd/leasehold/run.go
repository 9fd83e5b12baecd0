package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"leasehold.dev/leasehold/controller"
	"leasehold.dev/leasehold/controller/gitindex"
	"leasehold.dev/leasehold/manifests"
	"leasehold.dev/leasehold/store/sqlite"
)

type runOptions struct {
	init, once, dryRun bool
	logFormat          string
	verbose            bool
	historyLimit       int
	group              string
	serving            serving
}

func newRunCommand(g *globals) *cobra.Command {
	var o runOptions
	cmd := &cobra.Command{
		Use:   "run [DIR]",
		Short: "Reconcile a directory of Job manifests",
		Long: `Watches DIR, leases each job to one of its workers at a time, judges what workers report, and
writes status back into the files. It runs until it is interrupted.

Exit codes: 0 stopped in order; 1 a fault, or another controller is at work in DIR; 2 invalid usage;
3 with --once, a manifest was not accepted.`,
		Example: `  # Write the samples into jobs, if that is missing or empty, and reconcile it
  leasehold run --init jobs

  # Reconcile everything once, as a CI job would
  leasehold run --once jobs

  # Say what would happen, and change nothing
  leasehold run --once --dry-run jobs

  # With the console, for a browser, and metrics
  leasehold run --listen 127.0.0.1:8080 jobs`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				g.dir = args[0]
			}
			err := o.run(cmd.Context(), g)
			if cmd.Context().Err() != nil && errors.Is(err, context.Canceled) {
				return nil // interrupted before there was anything to finish
			}
			return err
		},
	}
	f := cmd.Flags()
	f.BoolVar(&o.init, "init", false, "first write the samples into DIR, which must be missing or empty")
	f.BoolVar(&o.once, "once", false, "reconcile everything once and exit")
	f.BoolVar(&o.dryRun, "dry-run", false, "say what would be done and change nothing (implies --once)")
	f.StringVar(&o.group, "group", "", "group that shares the store; without it, the state directory is private to its owner")
	f.StringVar(&o.logFormat, "log-format", "text", "text or json")
	f.BoolVarP(&o.verbose, "verbose", "v", false, "tell more in the log")
	f.IntVar(&o.historyLimit, "history-limit", 100_000, "number of entries that the history keeps")
	o.serving.flags(f)
	return cmd
}

// patience is how long --once waits for manifests that somebody is writing.
const patience = 10 * time.Second

func (o *runOptions) run(ctx context.Context, g *globals) error {
	level := slog.LevelInfo
	if o.verbose {
		level = slog.LevelDebug
	}
	log, err := newLogger(o.logFormat, g.Err, level)
	if err != nil {
		return err
	}
	dir, err := g.directory()
	if err != nil {
		return err
	}
	if o.init {
		if o.dryRun {
			return usageError("--init and --dry-run: one writes, the other does not")
		}
		if err := writeSamples(dir); err != nil {
			return err
		}
	}
	if info, err := os.Stat(dir); err != nil {
		return err
	} else if !info.IsDir() {
		return usageError("%s: is not a directory", dir)
	}
	if err := nested(dir); err != nil {
		return err
	}
	if o.serving.listen != "" && (o.once || o.dryRun) {
		return usageError("--listen: --once and --dry-run end before anybody could look")
	}
	if err := o.serving.open(ctx); err != nil {
		return err
	}
	defer o.serving.close()
	st, release, err := o.open(ctx, g, dir)
	if err != nil {
		return err
	}
	defer release()

	var index *gitindex.Index
	if !o.dryRun {
		index = gitindex.Open(ctx, dir, log)
	}
	source, err := controller.OpenDirectory(dir, controller.DirectoryOptions{
		StateDir: filepath.Dir(st.Path()), Database: st.Path(), ReadOnly: o.dryRun, Git: index, Log: log,
	})
	if err != nil {
		return err
	}
	defer source.Close()
	c := controller.New(source, st, controller.Options{Log: log, DryRun: o.dryRun, Hooks: o.hooks()})
	if o.once || o.dryRun {
		summary, err := c.Once(ctx, patience)
		if err != nil {
			return err
		}
		return o.report(g, dir, summary)
	}
	log.Info(fmt.Sprintf("watching %s; the store is %s. Edit a manifest to see it react, Ctrl-C to stop", dir, st.Path()))
	return o.work(ctx, g, dir, c, st, log)
}

// hooks tell those who watch from outside.
func (o *runOptions) hooks() controller.Hooks {
	var h controller.Hooks
	if m := o.serving.metrics; m != nil {
		h = m.Hooks()
	}
	ready := h.Ready
	h.Ready = func() {
		o.serving.ready.Store(true)
		if ready != nil {
			ready()
		}
		notify("READY=1")
	}
	return h
}

// work reconciles, and serves beside it where that is wanted, until ctx is done.
func (o *runOptions) work(ctx context.Context, g *globals, dir string, c *controller.Controller, st *sqlite.DB, log *slog.Logger) error {
	defer context.AfterFunc(ctx, func() { notify("STOPPING=1") })()
	group, ctx := errgroup.WithContext(ctx)
	ctx, stop := context.WithCancel(ctx)
	group.Go(func() error {
		defer stop()
		return c.Run(ctx)
	})
	group.Go(func() error {
		watchdog(ctx, st)
		return nil
	})
	if o.serving.listener != nil {
		log.Info("the console is at " + o.serving.url())
		group.Go(func() error { return o.serving.run(ctx, g, dir, st, log) })
	}
	return group.Wait()
}

// open opens the store, and keeps other controllers away until release is called.
func (o *runOptions) open(ctx context.Context, g *globals, dir string) (*sqlite.DB, func(), error) {
	path, err := storePath(dir, g.store)
	if err != nil {
		return nil, nil, err
	}
	opt := sqlite.Options{Actor: "controller", HistoryLimit: o.historyLimit}
	if m := o.serving.metrics; m != nil {
		opt.Committed = m.Committed
	}
	if o.dryRun {
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
			db, err := sqlite.OpenMemory(ctx, opt)
			if err != nil {
				return nil, nil, err
			}
			return db, func() { db.Close() }, nil
		}
		db, err := sqlite.Open(ctx, path, opt)
		if err != nil {
			return nil, nil, err
		}
		return db, func() { db.Close() }, nil
	}
	gid := -1
	if o.group != "" {
		if gid, err = groupID(o.group); err != nil {
			return nil, nil, err
		}
	}
	state := filepath.Dir(path)
	if g.store == "" {
		if err := checkState(dir, state); err != nil {
			return nil, nil, err
		}
	}
	if err := makeStateDir(state); err != nil {
		return nil, nil, err
	}
	if gid >= 0 && g.store == "" {
		if err := shareDir(state, gid); err != nil {
			return nil, nil, err
		}
	}
	lock, err := controller.Acquire(dir, path)
	if err != nil {
		return nil, nil, err
	}
	if err := sqlite.Verify(ctx, path); err != nil {
		lock.Close()
		return nil, nil, err
	}
	db, err := sqlite.Open(ctx, path, opt)
	if err != nil {
		lock.Close()
		return nil, nil, err
	}
	release := func() {
		db.Close()
		lock.Close()
	}
	if gid >= 0 {
		err = shareFiles(path, gid)
	}
	if err = errors.Join(err, bind(ctx, db, dir)); err != nil {
		release()
		return nil, nil, err
	}
	return db, release, nil
}

func (o *runOptions) report(g *globals, dir string, s controller.Summary) error {
	fmt.Fprintf(g.Out, "%s: %s reconciled", dir, count(s.Manifests, "manifest"))
	if s.Refused > 0 {
		fmt.Fprintf(g.Out, ", %s not accepted", count(s.Refused, "document"))
	}
	if s.Faulty > 0 {
		fmt.Fprintf(g.Out, ", %d faulty", s.Faulty)
	}
	fmt.Fprintln(g.Out)
	switch {
	case s.Faulty > 0:
		return &exitError{code: 1}
	case s.Refused > 0:
		return &exitError{code: 3}
	}
	return nil
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// writeSamples writes the samples into dir, which must be missing or hold nothing that one could see.
func writeSamples(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), ".") {
			return usageError("--init: %s is not empty: it has %s; choose a new directory, or run without --init", dir, e.Name())
		}
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	samples, err := fs.Sub(manifests.Samples, "samples")
	if err != nil {
		return err
	}
	return fs.WalkDir(samples, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := fs.ReadFile(samples, path)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(dir, path), data, 0o644)
	})
}
