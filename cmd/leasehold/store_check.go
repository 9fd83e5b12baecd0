package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"leasehold.dev/leasehold/controller"
	"leasehold.dev/leasehold/manifests"
	"leasehold.dev/leasehold/store"
	"leasehold.dev/leasehold/store/sqlite"
)

func (sc *storeCommands) check() *cobra.Command {
	return &cobra.Command{
		Use:   "check",
		Short: "Look for damage, and compare the store with the manifests' status",
		Long: `Looks at the whole file for damage, at every row, at the history and at the triggers for what breaks
the rules, and compares the rows with the status in the manifests of the directory. It changes
nothing, and prints a line for each problem and one at the end that counts.

Exit codes: 0 no problems, 1 problems or a fault, 2 invalid usage.`,
		Example: `  leasehold store check
  leasehold store check --store /backup/leasehold-monday.db`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return sc.runCheck(c.Context()) },
	}
}

// catchUp is how long a controller that is at work may take to write what it has decided.
const catchUp = 3 * time.Second

func (sc *storeCommands) runCheck(ctx context.Context) error {
	path, err := storePath(sc.dir, sc.globals.store)
	if err != nil {
		return err
	}
	running := false
	if dir, err := findDir(sc.dir); err == nil {
		running, _ = controller.Locked(dir)
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	again := time.NewTicker(100 * time.Millisecond)
	defer again.Stop()
	for start := time.Now(); ; {
		c := comparison{rows: map[string]*store.Record{}}
		report, err := sqlite.Check(ctx, path, func(r *store.Record) { c.rows[r.ID] = r })
		if errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("there is no store at %s; create it with 'leasehold store init', or name another with --store", path)
		}
		if err != nil {
			return err
		}
		if report.Stamp.Identity != "" && (sc.globals.store == "" || sc.dir != "") {
			if err := c.compare(sc.globals, report); err != nil {
				return err
			}
		}
		if running && len(c.problems) > 0 && time.Since(start) < catchUp {
			select {
			case <-ctx.Done():
			case <-again.C:
			}
			continue
		}
		problems := append(report.Problems, c.problems...)
		for _, p := range problems {
			fmt.Fprintln(sc.Out, p)
		}
		fmt.Fprintf(sc.Out, "%s: %s, %s of history, %s: %s\n", path, count(report.Jobs, "job"), count(report.Events, "line"),
			count(c.manifests, "manifest"), count(len(problems), "problem"))
		if len(problems) > 0 {
			return &exitError{code: exitFault}
		}
		return nil
	}
}

// comparison holds the manifests of a directory against the rows.
type comparison struct {
	rows      map[string]*store.Record
	manifests int
	problems  []string
}

func (c *comparison) compare(g *globals, report *sqlite.Report) error {
	tree, err := g.tree()
	if err != nil {
		return err
	}
	defer tree.Close()
	owners := map[string]bool{}
	return readAll(tree, func(path string, snap manifests.Snapshot, err error) error {
		c.manifests++
		if err != nil {
			c.problems = append(c.problems, err.Error())
			return nil
		}
		for _, d := range manifests.Decode(path, snap.Data).Docs {
			first := d.ID != "" && !owners[d.ID]
			owners[d.ID] = true
			if !first || d.Job == nil || report.Faulty[d.ID] {
				continue // its status holds conditions only, or its job is frozen: validate tells of it
			}
			for _, p := range differences(d, c.rows[d.ID], report) {
				c.problems = append(c.problems, fmt.Sprintf("%s:%d: job %s: %s", path, d.Line, d.ID, p))
			}
		}
		return nil
	})
}

// differences says where a status and a row do not belong together.
func differences(d *manifests.Doc, r *store.Record, report *sqlite.Report) (all []string) {
	add := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	s := d.Status
	if r == nil {
		if s == nil || s.Fence == nil {
			add("has no row yet; leasehold run enqueues it")
		} else {
			add("has no row, though its status shows fence %d: the row, or the database, was lost; leasehold run goes on above that fence", *s.Fence)
		}
		return all
	}
	if s == nil || s.Store == "" {
		if r.SpecHash != "" {
			add("its status is missing; leasehold run restores it")
		}
		return all
	}
	identity, revision, _ := strings.Cut(s.Store, "/")
	n, _ := strconv.ParseInt(revision, 10, 64)
	switch {
	case identity == report.Stamp.Identity && n > report.Stamp.Revision:
		add("its status is of revision %d, the database of %d: it is an older copy, or damaged; leasehold run goes on with new fences", n, report.Stamp.Revision)
	case identity != report.Stamp.Identity:
		what := "another store"
		for _, f := range report.Former {
			if f.Identity == identity {
				what = "a former identity of this store"
			}
		}
		add("its status is of %s, %s, not of %s", what, identity, report.Stamp.Identity)
	}
	if s.Fence != nil && *s.Fence > max(r.Fence, r.High) {
		add("its status shows fence %d, the highest that the store knows is %d", *s.Fence, max(r.Fence, r.High))
	} else if s.Fence != nil && *s.Fence != r.Fence {
		add("its status shows fence %d, the row %d", *s.Fence, r.Fence)
	}
	if s.Owner != r.Owner {
		add("its status shows owner %q, the row %q", s.Owner, r.Owner)
	}
	if done := s.Done != nil && *s.Done; done != r.Done {
		add("its status shows done %v, the row %v", done, r.Done)
	} else if done && r.Result != nil && (s.Result == nil || *s.Result != *r.Result) {
		add("its status shows another result than the row")
	}
	return all
}
