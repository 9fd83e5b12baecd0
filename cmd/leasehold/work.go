package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"leasehold.dev/leasehold/controller"
	"leasehold.dev/leasehold/manifests"
	"leasehold.dev/leasehold/store/sqlite"
	"leasehold.dev/leasehold/store/worker"
)

// working is a call of work.
type working struct {
	selection
	g         *globals
	as        string
	inFlight  int
	drain     time.Duration
	grace     time.Duration
	logFormat string
	verbose   bool
	command   []string

	log      *slog.Logger
	declared *controller.Declared
	path     string // of the database
}

func newWorkCommand(g *globals) *cobra.Command {
	o := working{g: g}
	cmd := &cobra.Command{
		Use:   "work --as NAME -- COMMAND [ARG...]",
		Short: "Run a command for each job that a worker holds",
		Long: `Takes the jobs whose lease NAME holds, and runs COMMAND for each, once a fence. While it runs the lease
is renewed at a third of its ttl. The controller (leasehold run) declares who holds what; work goes by
the same directory and store, and needs no more of it.

COMMAND gets the manifest as JSON on standard input, and in the environment

  LEASEHOLD_JOB, LEASEHOLD_OWNER   the job's id, and NAME
  LEASEHOLD_FENCE, LEASEHOLD_UNTIL the fencing token, and the lease's end when COMMAND began
  LEASEHOLD_DATA_*                 spec.data, with keys in capitals and _ for what is no letter or digit
  LEASEHOLD_STORE                  the database; leasehold guard keeps its own beside it
  LEASEHOLD_RESULT                 a file to write the result to, 64 KiB at most

The job's result is what COMMAND wrote to that file, else the end of its standard output (64 KiB), in
either case without line ends at its end. A COMMAND that fails keeps the lease for a second, doubling
with each failure in a row up to five minutes, and then gives the job back; the failure is in the
history. spec.maxAttempts makes an end of it.

At the first refusal, or when the lease could not be renewed in time, COMMAND and its whole process
group are terminated, and nothing is written. What it has sent elsewhere is fenced only if LEASEHOLD_FENCE
is checked there: see leasehold guard.

A lease for which there is no room in --max-in-flight is left to run out, and goes to the next worker; it
is kept if there is no other worker, or if spec.maxAttempts counts it.
The first SIGINT or SIGTERM lets what runs finish for --drain, then gives it back; a second one kills it.

Exit codes: 0 stopped in order; 1 a fault; 2 invalid usage.`,
		Example: `  # Charge invoices as worker-a
  leasehold work --as worker-a -- ./charge

  # The European ones, four at a time
  leasehold work --as worker-a -l region=eu --max-in-flight 4 -- ./charge`,
		Args: func(cmd *cobra.Command, args []string) error {
			if at := cmd.ArgsLenAtDash(); len(args) == 0 || at > 0 {
				return usageError("name a command, after --")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			o.command = args
			if err := o.prepare(); err != nil {
				return err
			}
			return o.run(cmd.Context())
		},
	}
	f := cmd.Flags()
	f.SetInterspersed(false)
	f.StringVar(&o.as, "as", "", "the `worker` whose leases are worked on")
	o.flags(cmd)
	f.IntVar(&o.inFlight, "max-in-flight", 10, "how many commands run at once; 0: no limit")
	f.DurationVar(&o.drain, "drain", 30*time.Second, "how long commands may go on after the first signal to stop")
	f.DurationVar(&o.grace, "grace-period", 5*time.Second, "time from SIGTERM to SIGKILL for a command that is to end; a lost lease leaves a tenth of its ttl at most")
	f.StringVar(&o.logFormat, "log-format", "text", "text or json")
	f.BoolVarP(&o.verbose, "verbose", "v", false, "tell more in the log")
	_ = cmd.MarkFlagRequired("as")
	return cmd
}

func (o *working) prepare() (err error) {
	if problems := validation.NameIsDNSSubdomain(o.as, false); len(problems) > 0 {
		return usageError("--as: Invalid value: %q: %s", o.as, problems[0])
	}
	if o.inFlight < 0 {
		return usageError("--max-in-flight: Invalid value: %d: must be at least 0", o.inFlight)
	}
	if _, err := exec.LookPath(o.command[0]); err != nil {
		return &exitError{exitUsage, err}
	}
	if o.labels, err = labels.Parse(o.selector); err != nil {
		return usageError("--selector: %v", err)
	}
	o.fields = fields.Everything()
	level := slog.LevelInfo
	if o.verbose {
		level = slog.LevelDebug
	}
	o.log, err = newLogger(o.logFormat, o.g.Err, level)
	return err
}

func (o *working) run(ctx context.Context) error {
	dir, err := o.g.directory()
	if err != nil {
		return err
	}
	path, err := storePath(dir, o.g.store)
	if err != nil {
		return err
	}
	if err := makeStateDir(filepath.Dir(path)); err != nil {
		return err
	}
	o.path = path
	db, err := sqlite.Open(ctx, path, sqlite.Options{Actor: "work"})
	if err != nil {
		return err
	}
	defer db.Close()
	if err := belongs(ctx, db, dir); err != nil {
		return err
	}
	source, err := controller.OpenDirectory(dir, controller.DirectoryOptions{
		StateDir: filepath.Dir(path), Database: path, ReadOnly: true, Log: o.log,
	})
	if err != nil {
		return err
	}
	defer source.Close()
	o.declared = controller.NewDeclared(source)

	// The directory is followed until the last command has ended.
	follow, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	work, cancel := context.WithCancel(ctx)
	defer cancel()
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		err := o.declared.Run(follow, func() { close(ready) })
		cancel()
		ended <- err
	}()
	select {
	case <-ready:
		if err = o.current(ctx, db); err != nil {
			break
		}
		o.log.Info(fmt.Sprintf("working as %s on the jobs of %s; Ctrl-C to stop", o.as, dir))
		if running, err := controller.Locked(dir); err == nil && !running {
			o.log.Warn("no controller is running in " + dir + ": nobody hands out leases there")
		}
		err = worker.Run(work, db, worker.Options{
			Name: o.as, MaxInFlight: o.inFlight, Drain: o.drain, Spec: o.spec, Wake: o.declared.Wake(), Log: o.log,
		}, o.job)
	case <-work.Done():
	}
	stop(nil)
	if e := <-ended; err == nil {
		err = e
	}
	return err
}

// current refuses a database that is an older copy: its leases are not those that were handed out last.
func (o *working) current(ctx context.Context, db *sqlite.DB) error {
	stamp, err := db.Stamp(ctx)
	if err != nil {
		return err
	}
	if id := o.declared.Outdated(stamp); id != "" {
		return fmt.Errorf("the store %s is an older copy than the status of %s: let leasehold run judge it first", db.Path(), id)
	}
	return nil
}

// belongs refuses a store that belongs to another directory.
func belongs(ctx context.Context, db *sqlite.DB, dir string) error {
	dir, err := findDir(dir)
	if err != nil {
		return err
	}
	switch other, err := db.Directory(ctx); {
	case err != nil:
		return err
	case other != "" && other != dir && isDir(other) && filepath.Dir(db.Path()) != filepath.Join(dir, stateName):
		return fmt.Errorf("the store %s belongs to the directory %s, not to %s; use another one with --store", db.Path(), other, dir)
	}
	return nil
}

// spec says what counts for a job, if it is one of those that were asked for.
func (o *working) spec(id string) (worker.Spec, bool) {
	doc, ok := o.declared.Doc(id)
	if !ok || !o.matches(&jobView{Doc: doc}) {
		return worker.Spec{}, false
	}
	spec := doc.Job.Spec
	return worker.Spec{TTL: spec.TTL, Clock: spec.Clock, Keep: o.keep(spec)}, true
}

// keep reports whether a lease for which there is no room is kept: where it could go nowhere else, or
// would be one of few that a job has.
func (o *working) keep(spec manifests.JobSpec) bool {
	return spec.MaxAttempts != nil || !slices.ContainsFunc(spec.Workers, func(w manifests.Worker) bool {
		return w.Name != o.as && !w.Suspend
	})
}

// job runs the command for a job.
func (o *working) job(ctx context.Context, job worker.Job) (string, error) {
	doc, ok := o.declared.Doc(job.ID)
	if !ok {
		return "", fmt.Errorf("the manifest is gone or not accepted")
	}
	env := append(os.Environ(),
		"LEASEHOLD_JOB="+job.ID,
		"LEASEHOLD_OWNER="+job.Owner,
		fenceVariable+"="+strconv.FormatInt(job.Fence, 10),
		"LEASEHOLD_UNTIL="+number(job.Until),
		storeVariable+"="+o.path,
	)
	for key, value := range doc.Job.Spec.Data {
		env = append(env, "LEASEHOLD_DATA_"+variable(key)+"="+value)
	}
	manifest, err := manifestJSON(doc)
	if err != nil {
		return "", err
	}
	c := command{args: o.command, env: env, stdin: manifest, stderr: o.g.Err, grace: o.grace, hurry: o.grace}
	if spec := doc.Job.Spec; spec.Clock == nil {
		c.hurry = min(o.grace, worker.Margin(spec.TTL)) // gone before the next worker begins
	}
	return c.run(ctx)
}

// variable is a key of spec.data as the end of an environment variable's name.
func variable(key string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z':
			return r - 'a' + 'A'
		case r >= 'A' && r <= 'Z', r >= '0' && r <= '9':
			return r
		}
		return '_'
	}, key)
}

// manifestJSON is the manifest as it stands in the file, without the status, which may be behind.
func manifestJSON(doc *manifests.Doc) ([]byte, error) {
	object := (&jobView{Doc: doc}).Object().Object
	delete(object, "status")
	text, err := json.Marshal(object)
	return append(text, '\n'), err
}

var _ worker.Store = (*sqlite.DB)(nil)
