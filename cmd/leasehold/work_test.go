//go:build unix

package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"leasehold.dev/leasehold/store"
	"leasehold.dev/leasehold/store/sqlite"
)

// shop is a directory with a controller, and agents at work in it.
type shop struct {
	t   *testing.T
	dir string
	db  *sqlite.DB
}

func newShop(t *testing.T, spec string, workers ...string) *shop {
	t.Helper()
	s := &shop{t: t, dir: t.TempDir()}
	s.write("j.yaml", fmt.Sprintf("apiVersion: leasehold.dev/v1alpha1\nkind: Job\nmetadata: {name: j}\nspec: {%s, workers: [{name: %s}]}\n",
		spec, strings.Join(workers, "}, {name: ")))
	if err := os.Mkdir(filepath.Join(s.dir, stateName), 0o700); err != nil {
		t.Fatal(err)
	}
	var err error
	if s.db, err = sqlite.Open(t.Context(), filepath.Join(s.dir, stateName, databaseName), sqlite.Options{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.db.Close() })
	s.start("run")
	s.until("the job is leased", func() bool { return s.record().Owner != "" })
	return s
}

func (s *shop) path(name string) string { return filepath.Join(s.dir, name) }

func (s *shop) write(name, text string) {
	s.t.Helper()
	if err := os.WriteFile(s.path(name), []byte(text), 0o644); err != nil {
		s.t.Fatal(err)
	}
}

func (s *shop) read(name string) string {
	data, _ := os.ReadFile(s.path(name))
	return strings.TrimSpace(string(data))
}

func (s *shop) pid(name string) int {
	s.until(name+" is written", func() bool { return s.read(name) != "" })
	pid, err := strconv.Atoi(s.read(name))
	if err != nil {
		s.t.Fatal(err)
	}
	return pid
}

func (s *shop) record() (r store.Record) {
	s.t.Helper()
	if _, err := s.db.View(s.t.Context(), []string{"j"}, func(rs []*store.Record) error { r = *rs[0]; return nil }); err != nil {
		s.t.Fatal(err)
	}
	return r
}

// history is what happened to the job: "worker-a claimed 1", and refusals with their reason.
func (s *shop) history() (lines []string) {
	s.t.Helper()
	events, err := s.db.History(s.t.Context(), "j", 0, 0)
	if err != nil {
		s.t.Fatal(err)
	}
	for _, e := range events {
		lines = append(lines, strings.TrimSpace(fmt.Sprintf("%s %s %d %s", e.Owner, e.Verb, e.Fence, e.Reason)))
	}
	return lines
}

func (s *shop) until(what string, f func() bool) {
	s.t.Helper()
	deadline := time.After(30 * time.Second)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !f() {
		select {
		case <-tick.C:
		case <-deadline:
			s.t.Fatalf("waited in vain until %s; %+v\n%s", what, s.record().Row, strings.Join(s.history(), "\n"))
		}
	}
}

// process is a leasehold that runs.
type process struct {
	*exec.Cmd
	log   *lockedBuffer
	ended chan struct{}
}

type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

func (s *shop) start(args ...string) *process {
	s.t.Helper()
	p := &process{exec.Command("leasehold", args...), &lockedBuffer{}, make(chan struct{})}
	p.Dir, p.Stderr = s.dir, p.log
	if err := p.Start(); err != nil {
		s.t.Fatal(err)
	}
	go func() {
		defer close(p.ended)
		p.Wait()
	}()
	s.t.Cleanup(func() {
		p.Process.Signal(syscall.SIGCONT)
		p.stop()
		if s.t.Failed() {
			s.t.Logf("%s:\n%s", strings.Join(args, " "), p.log)
		}
	})
	return p
}

func (p *process) stop() {
	p.Process.Signal(syscall.SIGINT)
	<-p.ended
}

func (s *shop) agent(name, script string) *process {
	return s.start("work", "--as", name, "--grace-period", "100ms", "--drain", "100ms", "--", "sh", "-c", script)
}

func (s *shop) suspend(p *process) {
	if err := p.Process.Signal(syscall.SIGSTOP); err != nil {
		s.t.Fatal(err)
	}
}

// slowly leaves its pid and finishes when there is a file go.
const slowly = `echo $$ > pid$LEASEHOLD_FENCE; while [ ! -e go ]; do sleep 0.01; done; echo finished >> finished; echo "by $LEASEHOLD_OWNER with $LEASEHOLD_FENCE"`

// A stale agent, suspended past its lease, wakes up after its successor has completed the job, or the
// same name has: it writes nothing.
func TestStaleAgent(t *testing.T) {
	for _, successor := range []string{"worker-b", "worker-a"} {
		t.Run("then "+successor, func(t *testing.T) {
			t.Parallel()
			workers := []string{"worker-a", "worker-b"}
			if successor == "worker-a" {
				workers = workers[:1]
			}
			s := newShop(t, "ttl: 1", workers...)
			stale := s.agent("worker-a", slowly)
			s.pid("pid1")
			s.suspend(stale)
			s.write("go", "") // its command finishes while nobody renews
			s.until("the command has finished", func() bool { return s.read("finished") != "" })
			s.until("the lease has gone on", func() bool { return s.record().Fence == 2 })
			s.agent(successor, `echo "by $LEASEHOLD_OWNER with $LEASEHOLD_FENCE"`)
			s.until("the job is done", func() bool { return s.record().Done })
			s.until("the controller has nothing left to write", func() bool { return strings.Contains(s.read("j.yaml"), "done: true") })
			before, was := s.history(), s.record()
			stale.Process.Signal(syscall.SIGCONT)
			s.until("it has noticed", func() bool { return strings.Contains(stale.log.String(), "nothing is written") })
			stale.stop()
			if after := s.history(); !slices.Equal(before, after) {
				t.Errorf("it left in the history: %q", after[len(before):])
			}
			if is := s.record(); *is.Result != "by "+successor+" with 2" || *is.Mark != *was.Mark || is.Stamp != was.Stamp {
				t.Errorf("%+v, result %q", is.Row, *is.Result)
			}
		})
	}
}

// On the manifest's clock no time passes for it: the store is what tells it.
func TestStaleAgentOwnClock(t *testing.T) {
	t.Parallel()
	s := newShop(t, "clock: 100, ttl: 30", "worker-a", "worker-b")
	stale := s.agent("worker-a", slowly)
	s.pid("pid1")
	s.suspend(stale)
	s.write("go", "")
	s.until("the command has finished", func() bool { return s.read("finished") != "" })
	if out, err := exec.Command("leasehold", "tick", "job/j", "--to", "130", "--dir", s.dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	s.agent("worker-b", `echo "by $LEASEHOLD_OWNER with $LEASEHOLD_FENCE"`)
	s.until("the job is done", func() bool { return s.record().Done })
	s.until("the controller has nothing left to write", func() bool { return strings.Contains(s.read("j.yaml"), "done: true") })
	was := s.record()
	stale.Process.Signal(syscall.SIGCONT)
	s.until("it has noticed", func() bool { return strings.Contains(stale.log.String(), "nothing is written") })
	stale.stop()
	if is := s.record(); *is.Result != "by worker-b with 2" || *is.Mark != *was.Mark {
		t.Errorf("%+v, result %q", is.Row, *is.Result)
	}
}

// An agent that is killed leaves its command running. The one that is started in its place does not
// resume that fence, and runs the next one.
func TestAgentKilled(t *testing.T) {
	t.Parallel()
	s := newShop(t, "ttl: 2", "worker-a")
	first := s.agent("worker-a", slowly)
	pid := s.pid("pid1")
	t.Cleanup(func() { syscall.Kill(-pid, syscall.SIGKILL) })
	first.Process.Kill()
	<-first.ended
	s.agent("worker-a", slowly)
	s.pid("pid2")
	if syscall.Kill(pid, 0) != nil {
		t.Error("the command of the killed agent was to live on")
	}
	s.write("go", "")
	s.until("the job is done", func() bool { return s.record().Done })
	if r := s.record(); *r.Result != "by worker-a with 2" {
		t.Errorf("result %q", *r.Result)
	}
	if n := strings.Count(strings.Join(s.history(), "\n"), "started 1"); n != 1 {
		t.Errorf("fence 1 was started %d times", n)
	}
}

// Two agents of one name run a job once.
func TestTwoAgents(t *testing.T) {
	t.Parallel()
	s := newShop(t, "ttl: 30", "worker-a")
	script := `echo $$ >> runs; while [ ! -e go ]; do sleep 0.01; done; echo r`
	one, two := s.agent("worker-a", script), s.agent("worker-a", script)
	for _, p := range []*process{one, two} {
		s.until("it works", func() bool { return strings.Contains(p.log.String(), "working as") })
	}
	s.until("it runs", func() bool { return s.read("runs") != "" })
	s.write("go", "")
	s.until("the job is done", func() bool { return s.record().Done })
	one.stop()
	two.stop()
	if runs := strings.Fields(s.read("runs")); len(runs) != 1 {
		t.Errorf("run %d times", len(runs))
	}
}

// When the lease is lost the whole process group goes, also those who do not heed TERM.
func TestGroupKilled(t *testing.T) {
	t.Parallel()
	s := newShop(t, "ttl: 3000", "worker-a", "worker-b")
	s.agent("worker-a", `trap "" TERM; echo $$ > leader; sh -c 'echo $$ > child; sleep 1000 & echo $! > grandchild; wait; sleep 1000'; sleep 1000`)
	pids := []int{s.pid("leader"), s.pid("child"), s.pid("grandchild")}
	t.Cleanup(func() { syscall.Kill(-pids[0], syscall.SIGKILL) })
	if v, err := s.db.Release(t.Context(), "j", "worker-a", 1); err != nil || !v.OK() {
		t.Fatal(v, err)
	}
	for _, pid := range pids {
		s.until(fmt.Sprintf("%d has ended", pid), func() bool { return !alive(pid) })
	}
	s.until("the next one has it", func() bool { return s.record().Owner == "worker-b" })
	for _, line := range s.history() {
		if strings.HasPrefix(line, "worker-a") && (strings.Contains(line, "failed") || strings.Contains(line, "complete")) {
			t.Error(line)
		}
	}
}

// The second signal to stop kills what runs.
func TestSecondSignal(t *testing.T) {
	t.Parallel()
	s := newShop(t, "ttl: 3000", "worker-a")
	p := s.start("work", "--as", "worker-a", "--drain", "1h", "--", "sh", "-c", `trap "" TERM INT; echo $$ > pid; sleep 1000`)
	pid := s.pid("pid")
	for alive(pid) { // one by one: signals that wait are one
		p.Process.Signal(syscall.SIGINT)
		select {
		case <-p.ended:
		case <-time.After(50 * time.Millisecond):
		}
	}
	<-p.ended
	if code := p.ProcessState.ExitCode(); code != exitFault {
		t.Errorf("exit code %d", code)
	}
	if r := s.record(); r.Done || r.Owner != "worker-a" {
		t.Errorf("%+v", r.Row)
	}
}

// alive reports whether a process runs. One that has ended and that nobody waits for does not.
func alive(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return err != nil && !os.IsNotExist(err)
	}
	_, state, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(state, "Z")
}

// An older copy of the database is for the controller to judge.
func TestWorkOutdated(t *testing.T) {
	t.Parallel()
	s := newShop(t, "ttl: 3000", "worker-b")
	s.until("there is a status", func() bool { return strings.Contains(s.read("j.yaml"), "store: ") })
	stamp := s.record().Stamp
	dir := t.TempDir()
	text := strings.Replace(s.read("j.yaml"), stamp.Identity+"/", stamp.Identity+"/9", 1)
	if err := os.WriteFile(filepath.Join(dir, "j.yaml"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(filepath.Join(dir, stateName), os.DirFS(s.path(stateName))); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("leasehold", "work", "--as", "worker-b", "--dir", dir, "--", "true").CombinedOutput()
	if exitCode(err) != "1" || !strings.Contains(string(out), "is an older copy than the status of j") {
		t.Errorf("%v: %s", err, out)
	}
}

// Whoever leaves the process group alone is not waited for, and neither is what a command leaves
// behind in it.
func TestLeftBehind(t *testing.T) {
	t.Parallel()
	s := newShop(t, "ttl: 30", "worker-a")
	s.agent("worker-a", `sleep 1000 & echo $! > left; echo r`)
	s.until("the job is done", func() bool { return s.record().Done })
	left := s.pid("left")
	s.until("what was left has ended", func() bool { return !alive(left) })
	if r := s.record(); *r.Result != "r" {
		t.Errorf("%q", *r.Result)
	}
}

// A result is the end of standard output, at most 64 KiB in whole characters; a larger file is an error.
func TestResultSize(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, script, end string }{
		{"long", `i=0; while [ $i -lt 4000 ]; do echo "ééééééééééééééééééééé $i"; i=$((i+1)); done`, "é 3999"},
		{"file", `yes | head -c 65535 > $LEASEHOLD_RESULT; printf é >> $LEASEHOLD_RESULT; yes | head -c 65536 > $LEASEHOLD_RESULT`, "y"},
		{"empty", `:`, ""},
		{"empty file", `echo noise; : > $LEASEHOLD_RESULT`, ""},
		{"no text", `printf 'a\377b\n\n'`, "a\uFFFDb"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t, "ttl: 30", "worker-a")
			s.agent("worker-a", c.script)
			s.until("the job is done", func() bool { return s.record().Done })
			got := *s.record().Result
			if !strings.HasSuffix(got, c.end) || len(got) > resultLimit || c.name == "long" && (len(got) < resultLimit-4 || strings.Contains(got, "\uFFFD")) {
				t.Errorf("%d bytes, from %.20q to %q", len(got), got, got[max(0, len(got)-20):])
			}
		})
	}
	t.Run("too large", func(t *testing.T) {
		t.Parallel()
		s := newShop(t, "ttl: 30", "worker-a")
		s.agent("worker-a", `yes | head -c 65537 > $LEASEHOLD_RESULT`)
		s.until("it has failed", func() bool { return slices.Contains(s.history(), "worker-a failed 1") })
	})
}
