//go:build linux

package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"leasehold.dev/leasehold/hack/strace"
)

// traced starts the program under strace.
func traced(t *testing.T, args ...string) (cmd *exec.Cmd, record string) {
	t.Helper()
	dir := t.TempDir()
	bin, record := filepath.Join(dir, "leasehold"), filepath.Join(dir, "record")
	if err := os.Symlink(testBinary(t), bin); err != nil { // TestMain goes by the name
		t.Fatal(err)
	}
	cmd = exec.Command(bin, args...)
	cmd.Stderr = os.Stderr
	if err := strace.Command(cmd, record); err != nil {
		if errors.Is(err, strace.ErrMissing) && os.Getenv("LEASEHOLD_TEST_ALL") == "" {
			t.Skip("the record of a power cut: for want of strace")
		}
		t.Fatal(err)
	}
	return cmd, record
}

func testBinary(t *testing.T) string {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// wal follows the write-ahead log through a record: which of our commits it holds, and which of them
// were on disk at which moment.
type wal struct {
	written  []commit // in the order in which they were written
	revision int64    // that the frames since the last commit name
	identity string
	dirs     map[string]int // directories made, and the moment; removed when their parent is synced
}

type commit struct {
	revision int64
	end      int // of the last write
	synced   int // the end of the sync that covers it; 0: none
}

// metaRow is the row of leasehold_meta as it lies in a page: types, then identity and revision.
var metaRow = regexp.MustCompile(`(?s)\x00\x1d([\x01-\x06\x08\x09])[\x01-\x09]{2}[\x0c-\xff]{1,2}?([0-9a-f]{8})`)

func (w *wal) see(t *testing.T, c strace.Call, database string) {
	switch {
	case c.Name == "pwrite64" && c.Args[0] == database+"-wal":
		data := c.Args[1]
		if len(data) == 24 && data[4:8] != "\x00\x00\x00\x00" { // the header of a frame that commits
			w.written = append(w.written, commit{w.revision, 0, 0})
		}
		if len(data) > 24 {
			if m := metaRow.FindStringSubmatchIndex(data); m != nil {
				w.identity = data[m[4]:m[5]]
				w.revision = number64(data[m[2]], data[m[5]:])
			}
		}
		if n := len(w.written); n > 0 && w.written[n-1].synced == 0 {
			w.written[n-1].end, w.written[n-1].revision = c.End, w.revision
		}
	case (c.Name == "fsync" || c.Name == "fdatasync") && c.Args[0] == database+"-wal":
		for i := range w.written {
			if k := &w.written[i]; k.synced == 0 && k.end < c.Begin {
				k.synced = c.End
			}
		}
	case strings.HasPrefix(c.Name, "mkdir"):
		if strings.HasPrefix(database, c.Path(0)+"/") {
			w.dirs[c.Path(0)] = c.End
		}
	case c.Name == "fsync":
		for d := range w.dirs {
			if filepath.Dir(d) == c.Args[0] {
				delete(w.dirs, d)
			}
		}
	}
}

// number64 is an integer as SQLite stores it.
func number64(kind byte, b string) int64 {
	size := map[byte]int{1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8}[kind]
	if size == 0 {
		return int64(kind) - 8
	}
	n := int64(0)
	for i := range size {
		n = n<<8 | int64(b[i])
	}
	return n
}

// durable is the latest revision that was on disk before a moment, with all before it.
func (w *wal) durable(moment int) (revision int64, all bool) {
	all = true
	for _, c := range w.written {
		if c.synced == 0 || c.synced >= moment {
			all = false
		} else if all {
			revision = max(revision, c.revision)
		}
	}
	return revision, all && len(w.dirs) == 0
}

// No answer of store exec leaves before what it tells is on disk, the directories of the database
// among it.
func TestPowerCutExec(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd, record := traced(t, "store", "exec", "--dir", dir)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	answers := bufio.NewScanner(out)
	for i := range 12 {
		// Some in one burst, and no refusals: their entries are written later, by design.
		text := fmt.Sprintf(`{"op":"enqueue","id":"j%[1]d"}`+"\n"+`{"op":"claim","id":"j%[1]d","owner":"a","now":0,"ttl":10}`+"\n", i)
		lines := []string{text, fmt.Sprintf(`{"op":"renew","id":"j%d","owner":"a","fence":1,"now":1,"ttl":10}`+"\n", i), fmt.Sprintf(`{"op":"complete","id":"j%d","owner":"a","fence":1,"now":2,"result":"r"}`+"\n", i)}
		for _, l := range lines {
			if _, err := in.Write([]byte(l)); err != nil {
				t.Fatal(err)
			}
			for range strings.Count(l, "\n") {
				if !answers.Scan() || strings.Contains(answers.Text(), "error") || strings.Contains(answers.Text(), "reason") {
					t.Fatalf("%q, %v", answers.Text(), answers.Err())
				}
			}
		}
	}
	in.Close()
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	calls, err := strace.Read(record)
	if err != nil {
		t.Fatal(err)
	}
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		t.Fatal(err)
	}
	database := filepath.Join(real, ".leasehold", "leasehold.db")
	told, commits, early := answersBefore(t, calls, database)
	for _, e := range early {
		t.Error(e)
	}
	if told != 48 || commits < 30 {
		t.Errorf("%d answers and %d commits in the record", told, commits)
	}
	if _, _, early := answersBefore(t, without(calls, database), database); len(early) == 0 {
		t.Error("a record without its last syncs passes as well")
	}
	t.Logf("figures: power cut, store exec: %d answers, %d commits, each answer after the sync of its commit", told, commits)
}

// without leaves out the later half of the syncs of the log: the check must see it.
func without(calls []strace.Call, database string) (rest []strace.Call) {
	syncs := 0
	for _, c := range calls {
		if strings.HasSuffix(c.Name, "sync") && c.Args[0] == database+"-wal" {
			if syncs++; syncs > 10 {
				continue
			}
		}
		rest = append(rest, c)
	}
	return rest
}

// answersBefore counts answers and commits, and tells of answers that left too early.
func answersBefore(t *testing.T, calls []strace.Call, database string) (told, commits int, early []string) {
	w := wal{dirs: map[string]int{}}
	for _, c := range calls {
		w.see(t, c, database)
		if c.Name == "write" && c.FDs[0] == 1 {
			n := strings.Count(c.Args[1], "\n")
			told += n
			if _, all := w.durable(c.Begin); !all {
				early = append(early, fmt.Sprintf("answers %d to %d left before everything was on disk: %q; directories not synced: %v", told-n+1, told, c.Args[1], w.dirs))
			}
		}
	}
	return told, len(w.written), early
}

var storeLine = regexp.MustCompile(`(?m)^  store: ([0-9a-f]{8})/(\d+)$`)

// No manifest with a status takes its place before the revision that the status names is on disk, nor
// before its own bytes are.
func TestPowerCutRun(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "jobs")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		t.Fatal(err)
	}
	clock := func(i, now int) string {
		return fmt.Sprintf("apiVersion: leasehold.dev/v1alpha1\nkind: Job\nmetadata:\n  name: j%d\nspec:\n  clock: %d\n  ttl: 10\n  workers:\n  - name: a\n  - name: b\n", i, now)
	}
	const jobs, ticks = 5, 6
	path := func(i int) string { return filepath.Join(dir, fmt.Sprintf("j%d.yaml", i)) }
	for i := range jobs {
		if err := os.WriteFile(path(i), []byte(clock(i, 0)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	cmd, record := traced(t, "run", dir)
	cmd.Stderr = nil
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := false
	defer func() {
		if !ended {
			cmd.Process.Kill()
			cmd.Wait()
		}
	}()
	deadline := time.After(60 * time.Second)
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	for n := range ticks {
		for i := range jobs {
			for want := fmt.Sprintf("\n  fence: %d\n", n+1); ; {
				text, err := os.ReadFile(path(i))
				if err == nil && strings.Contains(string(text), want) {
					break
				}
				select {
				case <-deadline:
					t.Fatalf("waited in vain for fence %d:\n%s", n+1, text)
				case <-look.C:
				}
			}
			// As an editor that renames: in the record it is the test's, which is not traced.
			if err := os.WriteFile(path(i)+"~", []byte(clock(i, 10*(n+1))), 0o644); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(path(i)+"~", path(i)); err != nil {
				t.Fatal(err)
			}
		}
	}
	interrupt(t, record)
	if err := cmd.Wait(); err != nil {
		t.Errorf("run ended with %v", err)
	}
	ended = true
	calls, err := strace.Read(record)
	if err != nil {
		t.Fatal(err)
	}
	database := filepath.Join(dir, ".leasehold", "leasehold.db")
	statuses, revisions, commits, early := statusesBefore(t, calls, database)
	for _, e := range early {
		t.Error(e)
	}
	if statuses < jobs*ticks {
		t.Errorf("only %d writes of status in the record", statuses)
	}
	if _, _, _, early := statusesBefore(t, without(calls, database), database); len(early) == 0 {
		t.Error("a record without its last syncs passes as well")
	}
	t.Logf("figures: power cut, run: %d writes of status, %d revisions, %d commits, each status after the sync of its commit and of its own bytes", statuses, revisions, commits)
}

// statusesBefore counts the manifests that were put in their place, and tells of those that came too
// early.
func statusesBefore(t *testing.T, calls []strace.Call, database string) (statuses, revisions, commits int, early []string) {
	w := wal{dirs: map[string]int{}}
	texts, synced := map[string]string{}, map[string]bool{} // of files that are being written
	named := map[string]bool{}
	tell := func(format string, args ...any) { early = append(early, fmt.Sprintf(format, args...)) }
	for _, c := range calls {
		w.see(t, c, database)
		switch {
		case (c.Name == "write" || c.Name == "pwrite64") && strings.Contains(c.Args[0], ".leasehold-tmp-"):
			texts[c.Args[0]] += c.Args[1]
			synced[c.Args[0]] = false
		case (c.Name == "fsync" || c.Name == "fdatasync") && texts[c.Args[0]] != "":
			synced[c.Args[0]] = true
		case strings.HasPrefix(c.Name, "rename"):
			at := 2
			if c.Name == "rename" {
				at = 1
			}
			from, to := c.Path(0), c.Path(at)
			text, ok := texts[from]
			if !ok {
				continue
			}
			if !strings.HasSuffix(to, ".yaml") {
				texts[to], synced[to] = text, synced[from]
				continue
			}
			statuses++
			if !synced[from] {
				tell("%s took its place before its bytes were on disk", to)
			}
			m := storeLine.FindStringSubmatch(text)
			if m == nil {
				tell("%s has no store in its status: %s", to, text)
				continue
			}
			named[m[0]] = true
			n, _ := strconv.ParseInt(m[2], 10, 64)
			if on, _ := w.durable(c.Begin); m[1] != w.identity || n > on || len(w.dirs) > 0 {
				tell("%s shows store %s/%d, but only %s/%d was on disk; directories not synced: %v", to, m[1], n, w.identity, on, w.dirs)
			}
		}
	}
	return statuses, len(named), len(w.written), early
}

// interrupt ends the traced program, and not strace.
func interrupt(t *testing.T, record string) {
	t.Helper()
	f, err := os.Open(record)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var pid int
	if _, err := fmt.Fscan(f, &pid); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
}
