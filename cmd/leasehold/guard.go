package main

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"leasehold.dev/leasehold/controller"
	"leasehold.dev/leasehold/store/guard"
)

// What work tells its commands and guard goes by.
const (
	fenceVariable = "LEASEHOLD_FENCE"
	storeVariable = "LEASEHOLD_STORE"
)

// guarding is a call of guard.
type guarding struct {
	g        *globals
	resource string
	fence    int64
	once     bool
	db       string
	wait     time.Duration
	command  []string
}

func newGuardCommand(g *globals) *cobra.Command {
	o := guarding{g: g}
	cmd := &cobra.Command{
		Use:   "guard --resource R [--fence N] [--db FILE] -- COMMAND [ARG...]",
		Short: "Run a command unless its fence is stale",
		Long: `Runs COMMAND only if no higher fence than N has been seen for the resource R, and keeps every other
command of guard out of R until COMMAND and what it leaves behind have ended. A stale worker that wakes up
cannot write to R any more.

The same fence may come again, since its holder writes more than once; with --once it is refused, too.
Fences of different jobs say nothing about each other: guard a resource by one job. What writes to R
without guard is not kept from it.

The fences are kept in a SQLite file, in the table leasehold_guard; programs that write to a table of that
file can check them there, in the transaction that writes.

Exit codes: that of COMMAND; 3 the fence is stale; 4 R was in use for longer than --wait; 2 invalid usage;
1 a fault; 126 COMMAND cannot be run; 127 there is no COMMAND; 128 and the signal that ended it.`,
		Example: `  # In a command of leasehold work, which knows the fence
  leasehold guard --resource ledger.csv -- sh -c 'echo 42,paid >> ledger.csv'

  # Anywhere else
  leasehold guard --resource ledger.csv --fence 2 --db guard.db -- ./append`,
		Args: func(cmd *cobra.Command, args []string) error {
			if at := cmd.ArgsLenAtDash(); len(args) == 0 || at > 0 {
				return usageError("name a command, after --")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			o.command = args
			if !cmd.Flags().Changed("fence") {
				text := os.Getenv(fenceVariable)
				n, err := strconv.ParseInt(text, 10, 64)
				if err != nil {
					return usageError("--fence: Required value: it is not in %s either", fenceVariable)
				}
				o.fence = n
			}
			return o.run(cmd.Context())
		},
	}
	f := cmd.Flags()
	f.SetInterspersed(false)
	f.StringVar(&o.resource, "resource", "", "`what` is written to, by any name that all of its writers use")
	f.Int64Var(&o.fence, "fence", 0, "the fence of the lease under which it is written (default: $"+fenceVariable+")")
	f.BoolVar(&o.once, "once", false, "refuse the same fence, too")
	f.StringVar(&o.db, "db", "", "the SQLite `file` of the fences (default: guard.db in the state directory)")
	f.DurationVar(&o.wait, "wait", time.Minute, "how long to wait for another command that writes to the resource")
	_ = cmd.MarkFlagRequired("resource")
	return cmd
}

// path returns where the fences are kept.
func (o *guarding) path() (string, error) {
	if o.db != "" {
		return filepath.Abs(o.db)
	}
	db := os.Getenv(storeVariable)
	if db == "" || o.g.dir != "" || o.g.store != "" {
		var err error
		if db, err = storePath(o.g.dir, o.g.store); err != nil {
			return "", err
		}
	}
	state := filepath.Dir(db)
	return filepath.Join(state, "guard.db"), makeStateDir(state)
}

func (o *guarding) run(ctx context.Context) error {
	program, err := exec.LookPath(o.command[0])
	switch { // as shells do it
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, fs.ErrNotExist):
		return &exitError{127, err}
	case err != nil:
		return &exitError{126, err}
	}
	path, err := o.path()
	if err != nil {
		return err
	}
	db, err := openFences(ctx, path)
	if err != nil {
		return err
	}
	defer db.Close()
	check := (guard.Guard{}).Check
	if o.once {
		check = (guard.Guard{}).CheckFirst
	} else if err := o.check(ctx, db, check); err != nil {
		// The fence is seen before anybody is waited for, so that no stale command begins meanwhile; and
		// it is looked at again when its turn has come.
		return err
	}
	lock, err := o.lock(ctx, path)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := o.check(ctx, db, check); err != nil {
		return err
	}
	return o.execute(ctx, program, lock)
}

// openFences opens the file and creates the table. Nothing is changed for others who use the file.
func openFences(ctx context.Context, path string) (*sql.DB, error) {
	slashed := filepath.ToSlash(path)
	if !strings.HasPrefix(slashed, "/") {
		slashed = "/" + slashed
	}
	u := url.URL{Scheme: "file", Path: slashed, RawQuery: "_txlock=immediate&_pragma=busy_timeout(10000)&_pragma=synchronous(FULL)"}
	db, err := sql.Open("sqlite", u.String())
	if err != nil {
		return nil, err
	}
	if err := (guard.Guard{}).Init(ctx, db); err != nil {
		db.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return db, nil
}

func (o *guarding) check(ctx context.Context, db *sql.DB, check func(context.Context, *sql.Tx, string, int64) error) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	var stale *guard.StaleError
	switch err := check(ctx, tx, o.resource, o.fence); {
	case errors.As(err, &stale):
		return &exitError{exitRefused, stale}
	case errors.Is(err, guard.ErrInvalid):
		return &exitError{exitUsage, err}
	case err != nil:
		return err
	}
	return tx.Commit()
}

// lock keeps others out of the resource. The command inherits the lock, so that it lasts even if
// guard itself is killed.
func (o *guarding) lock(ctx context.Context, path string) (*os.File, error) {
	dir := path + ".locks"
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	name := filepath.Join(dir, fmt.Sprintf("%x", sha256.Sum256([]byte(o.resource))))
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	deadline := time.NewTimer(o.wait)
	defer deadline.Stop()
	retry := time.NewTicker(10 * time.Millisecond)
	defer retry.Stop()
	for {
		ok, err := controller.TryLock(f)
		if err != nil {
			f.Close()
			return nil, err
		}
		if ok {
			if err := f.Truncate(0); err == nil {
				_, _ = f.WriteAt(fmt.Appendf(nil, "process %d, with fence %d", os.Getpid(), o.fence), 0)
			}
			return f, nil
		}
		select {
		case <-ctx.Done():
			f.Close()
			return nil, context.Cause(ctx)
		case <-deadline.C:
			who, _ := os.ReadFile(name)
			f.Close()
			return nil, &exitError{exitTimeout, fmt.Errorf("timed out: %s is in use by %s", o.resource, who)}
		case <-retry.C:
		}
	}
}

// execute runs the command in guard's own process group and hands signals on to it.
func (o *guarding) execute(ctx context.Context, program string, lock *os.File) error {
	cmd := exec.Command(program, o.command[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = o.g.In, o.g.Out, o.g.Err
	if runtime.GOOS != "windows" {
		cmd.ExtraFiles = []*os.File{lock}
	}
	if err := cmd.Start(); err != nil {
		return &exitError{126, err}
	}
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Signal(termSignal) })
	defer stop()
	err := cmd.Wait()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		return &exitError{code: exitStatus(exit)}
	case err != nil:
		return &exitError{126, err}
	}
	return nil
}
