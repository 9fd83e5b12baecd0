package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"regexp"
	"strconv"
	"syscall"

	"github.com/spf13/cobra"

	"leasehold.dev/leasehold/store"
	"leasehold.dev/leasehold/store/sqlite"
)

// storeCommands are the flags that the commands below store share.
type storeCommands struct {
	*streams
	*globals
	owner  string
	owners []string
	fence  int64
	now    float64
	ttl    float64
	result string
}

func newStoreCommand(s *streams, g *globals) *cobra.Command {
	sc := &storeCommands{streams: s, globals: g}
	c := &cobra.Command{
		Use:   "store",
		Short: "The store's operations, for scripts in any language",
		Long: `The operations of the store itself. Each prints one line of JSON.

Exit codes: 0 granted, 3 refused, 2 invalid usage or argument, 1 a fault.`,
		Example: `  leasehold store enqueue invoice-42
  leasehold store claim invoice-42 --owner worker-a --now 100 --ttl 30
  leasehold store complete invoice-42 --owner worker-a --fence 1 --now 110 --result "paid"`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(sc.init(), sc.enqueue(), sc.state(), sc.claim(), sc.renew(), sc.complete(), sc.release(),
		sc.claimMany(), sc.list(), sc.exec(), sc.check(), sc.backup())
	return c
}

// command makes a command that does f with the store. A command that only reads creates nothing.
func (sc *storeCommands) command(c *cobra.Command, args cobra.PositionalArgs, reads bool, f func(ctx context.Context, db *sqlite.DB, args []string) error) *cobra.Command {
	c.Args = args
	c.RunE = func(c *cobra.Command, args []string) error {
		db, err := openStore(c.Context(), sc.globals, reads)
		if err != nil {
			return err
		}
		err = f(c.Context(), db, args)
		if e := db.Close(); err == nil {
			err = e
		}
		return quiet(err)
	}
	return c
}

// openStore opens the store that the flags name.
func openStore(ctx context.Context, g *globals, reads bool) (*sqlite.DB, error) {
	path, err := storePath(g.dir, g.store)
	if err != nil {
		return nil, err
	}
	if !reads && g.store == "" {
		if err := makeStateDir(filepath.Dir(path)); err != nil {
			return nil, err
		}
	}
	db, err := sqlite.Open(ctx, path, sqlite.Options{Actor: "store", MustExist: reads})
	if reads && errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("there is no store at %s; create it with 'leasehold store init', or name another with --store", path)
	}
	return db, err
}

// quiet drops an error that says only that nobody reads the output any more.
func quiet(err error) error {
	if errors.Is(err, syscall.EPIPE) || errors.Is(err, io.ErrClosedPipe) {
		return nil
	}
	return err
}

func (sc *storeCommands) init() *cobra.Command {
	return sc.command(&cobra.Command{
		Use:     "init",
		Short:   "Create the store, or complete what is missing of it",
		Example: `  leasehold store init --store /var/lib/jobs.db`,
	}, cobra.NoArgs, false, func(ctx context.Context, db *sqlite.DB, _ []string) error {
		stamp, err := db.Stamp(ctx)
		if err != nil {
			return err
		}
		return printJSON(sc.Out, struct {
			Store string `json:"store"`
			Path  string `json:"path"`
		}{stamp.String(), db.Path()})
	})
}

func (sc *storeCommands) enqueue() *cobra.Command {
	return sc.command(&cobra.Command{
		Use:     "enqueue ID",
		Short:   "Insert a job if it is new",
		Example: `  leasehold store enqueue invoice-42`,
	}, cobra.ExactArgs(1), false, func(ctx context.Context, db *sqlite.DB, args []string) error {
		created, err := db.Enqueue(ctx, args[0])
		if err != nil {
			return err
		}
		return printJSON(sc.Out, createdAnswer{created})
	})
}

func (sc *storeCommands) state() *cobra.Command {
	return sc.command(&cobra.Command{
		Use:     "state ID",
		Short:   "Print a job's row, or null",
		Example: `  leasehold store state invoice-42`,
	}, cobra.ExactArgs(1), true, func(ctx context.Context, db *sqlite.DB, args []string) error {
		row, found, err := db.State(ctx, args[0])
		if err != nil {
			return err
		}
		return printJSON(sc.Out, stateAnswer(row, found))
	})
}

func (sc *storeCommands) claim() *cobra.Command {
	c := sc.command(&cobra.Command{
		Use:     "claim ID --owner W --now N --ttl T",
		Short:   "Lease a job under a new fence",
		Example: `  leasehold store claim invoice-42 --owner worker-a --now 100 --ttl 30`,
	}, cobra.ExactArgs(1), false, func(ctx context.Context, db *sqlite.DB, args []string) error {
		v, err := db.Claim(ctx, args[0], sc.owner, sc.now, sc.ttl)
		return sc.answer(claimAnswer(v), v.OK(), err)
	})
	sc.flags(c, "owner", "now", "ttl")
	return c
}

func (sc *storeCommands) renew() *cobra.Command {
	c := sc.command(&cobra.Command{
		Use:     "renew ID --owner W --fence F --now N --ttl T",
		Short:   "Make a running lease last longer",
		Example: `  leasehold store renew invoice-42 --owner worker-a --fence 1 --now 110 --ttl 30`,
	}, cobra.ExactArgs(1), false, func(ctx context.Context, db *sqlite.DB, args []string) error {
		v, err := db.Renew(ctx, args[0], sc.owner, sc.fence, sc.now, sc.ttl)
		return sc.answer(okAnswer(v), v.OK(), err)
	})
	sc.flags(c, "owner", "fence", "now", "ttl")
	return c
}

func (sc *storeCommands) complete() *cobra.Command {
	c := sc.command(&cobra.Command{
		Use:     "complete ID --owner W --fence F --now N --result R",
		Short:   "Store the result of a leased job",
		Example: `  leasehold store complete invoice-42 --owner worker-a --fence 1 --now 110 --result "paid"`,
	}, cobra.ExactArgs(1), false, func(ctx context.Context, db *sqlite.DB, args []string) error {
		v, err := db.Complete(ctx, args[0], sc.owner, sc.fence, sc.now, sc.result)
		return sc.answer(okAnswer(v), v.OK(), err)
	})
	sc.flags(c, "owner", "fence", "now", "result")
	return c
}

func (sc *storeCommands) release() *cobra.Command {
	c := sc.command(&cobra.Command{
		Use:     "release ID --owner W --fence F",
		Short:   "Give a lease back; the fence stays",
		Example: `  leasehold store release invoice-42 --owner worker-a --fence 1`,
	}, cobra.ExactArgs(1), false, func(ctx context.Context, db *sqlite.DB, args []string) error {
		v, err := db.Release(ctx, args[0], sc.owner, sc.fence)
		return sc.answer(okAnswer(v), v.OK(), err)
	})
	sc.flags(c, "owner", "fence")
	return c
}

func (sc *storeCommands) claimMany() *cobra.Command {
	c := sc.command(&cobra.Command{
		Use:     "claim-many ID --owner A --owner B --now N --ttl T",
		Short:   "Let several owners claim a job at the same moment",
		Example: `  leasehold store claim-many invoice-42 --owner worker-a --owner worker-b --now 100 --ttl 30`,
	}, cobra.ExactArgs(1), false, func(ctx context.Context, db *sqlite.DB, args []string) error {
		vs, err := db.ClaimMany(ctx, args[0], sc.owners, sc.now, sc.ttl)
		a := fencesAnswer(vs)
		return sc.answer(a, a.granted(), err)
	})
	c.Flags().StringArrayVar(&sc.owners, "owner", nil, "an owner that claims; repeat it for each")
	c.MarkFlagRequired("owner")
	sc.flags(c, "now", "ttl")
	return c
}

func (sc *storeCommands) list() *cobra.Command {
	return sc.command(&cobra.Command{
		Use:     "list",
		Short:   "Print every job's row, one a line",
		Example: `  leasehold store list`,
	}, cobra.NoArgs, true, func(ctx context.Context, db *sqlite.DB, _ []string) error {
		return db.List(ctx, func(row store.Row) error { return printJSON(sc.Out, stateAnswer(row, true)) })
	})
}

// answer prints a verdict and turns a refusal into its exit code.
func (sc *storeCommands) answer(a any, granted bool, err error) error {
	if err != nil {
		return err
	}
	if err := printJSON(sc.Out, a); err != nil {
		return err
	}
	if !granted {
		return &exitError{code: exitRefused}
	}
	return nil
}

// flags adds required flags by name.
func (sc *storeCommands) flags(c *cobra.Command, names ...string) {
	for _, name := range names {
		switch name {
		case "owner":
			c.Flags().StringVar(&sc.owner, name, "", "the worker that acts")
		case "fence":
			c.Flags().Var((*fenceFlag)(&sc.fence), name, "the fence of its lease")
		case "now":
			c.Flags().Var((*numberFlag)(&sc.now), name, "the clock reading that decides")
		case "ttl":
			c.Flags().Var((*numberFlag)(&sc.ttl), name, "how long the lease lasts, in the unit of the clock")
		case "result":
			c.Flags().StringVar(&sc.result, name, "", "the result to keep")
		}
		c.MarkFlagRequired(name)
	}
}

// numberFlag takes finite decimal numbers only.
type numberFlag float64

var plainDecimal = regexp.MustCompile(`^[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?$`)

func (f *numberFlag) String() string { return strconv.FormatFloat(float64(*f), 'g', -1, 64) }
func (f *numberFlag) Type() string   { return "number" }
func (f *numberFlag) Set(s string) error {
	v, err := strconv.ParseFloat(s, 64)
	if !plainDecimal.MatchString(s) || err != nil {
		return errors.New("must be a finite decimal number")
	}
	*f = numberFlag(v)
	return nil
}

// fenceFlag takes decimal whole numbers of 64 bits.
type fenceFlag int64

func (f *fenceFlag) String() string { return strconv.FormatInt(int64(*f), 10) }
func (f *fenceFlag) Type() string   { return "fence" }
func (f *fenceFlag) Set(s string) error {
	v, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return errors.New("must be a whole number of at most 64 bits")
	}
	*f = fenceFlag(v)
	return nil
}

// printJSON prints v on a line of its own.
func printJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}
