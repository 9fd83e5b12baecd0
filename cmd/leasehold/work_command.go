package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"leasehold.dev/leasehold/store/worker"
)

// resultLimit is how large a result may be, and how much of the end of standard output is kept.
const resultLimit = 64 << 10

// command is one run of the command of work.
type command struct {
	args   []string
	env    []string
	stdin  []byte
	stderr io.Writer
	grace  time.Duration // from TERM to KILL
	hurry  time.Duration // the same where the lease is lost
}

// groups are the process groups that run.
var groups sync.Map // *os.Process → nil

// killGroups kills what work has started: the last thing before the process ends in haste.
func killGroups() {
	groups.Range(func(p, _ any) bool {
		signalGroup(p.(*os.Process), killSignal)
		return true
	})
}

// run returns the command's result. When ctx is done it ends the command's whole process group. A
// command that has ended leaves none of its group behind.
func (c *command) run(ctx context.Context) (result string, err error) {
	dir, err := os.MkdirTemp("", "leasehold-work-")
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	// A file, so that a command need not read it, and nobody waits for one that does not.
	stdin := filepath.Join(dir, "manifest.json")
	if err := os.WriteFile(stdin, c.stdin, 0o600); err != nil {
		return "", err
	}
	in, err := os.Open(stdin)
	if err != nil {
		return "", err
	}
	defer in.Close()
	file := filepath.Join(dir, "result")

	out := &tail{limit: resultLimit}
	stdout, err := newPipe(out)
	if err != nil {
		return "", err
	}
	defer stdout.close()
	said := &tail{limit: 1024}
	stderr, err := newPipe(io.MultiWriter(c.stderr, said))
	if err != nil {
		return "", err
	}
	defer stderr.close()
	cmd := exec.Command(c.args[0], c.args[1:]...)
	cmd.Env = append(c.env, "LEASEHOLD_RESULT="+file)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, stdout.w, stderr.w
	ownGroup(cmd)
	if err := context.Cause(ctx); err != nil {
		return "", err
	}
	if err := cmd.Start(); err != nil {
		return "", err
	}
	groups.Store(cmd.Process, nil)
	defer groups.Delete(cmd.Process)
	stdout.w.Close()
	stderr.w.Close()
	exited := make(chan error, 1)
	go func() { exited <- cmd.Wait() }()
	select {
	case err = <-exited:
		signalGroup(cmd.Process, killSignal)
	case <-ctx.Done():
		grace := c.hurry
		if context.Cause(ctx) == worker.ErrStopping {
			grace = c.grace
		}
		err = end(cmd, exited, grace)
	}
	stdout.drain()
	stderr.drain()
	if err != nil {
		if line := lastLine(said.String()); line != "" {
			return "", fmt.Errorf("%w: %s", err, line)
		}
		return "", err
	}
	return c.result(file, out)
}

// end terminates the process group, and kills what is left of it after the grace period.
func end(cmd *exec.Cmd, exited <-chan error, grace time.Duration) (err error) {
	signalGroup(cmd.Process, termSignal)
	deadline := time.NewTimer(grace)
	defer deadline.Stop()
	look := time.NewTicker(10 * time.Millisecond) // nobody tells of the end of a group
	defer look.Stop()
	ended := false
	for {
		select {
		case err = <-exited:
			ended, exited = true, nil
		case <-look.C:
		case <-deadline.C:
			signalGroup(cmd.Process, killSignal)
			if !ended {
				err = <-exited
			}
			return err
		}
		if ended && !groupLives(cmd.Process) {
			return err
		}
	}
}

// result reads what the command wrote to the file, or else the end of its standard output.
func (c *command) result(file string, out *tail) (string, error) {
	text := out.String()
	f, err := os.Open(file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return "", err
	default:
		defer f.Close()
		data, err := io.ReadAll(io.LimitReader(f, resultLimit+1))
		if err != nil {
			return "", err
		}
		if len(data) > resultLimit {
			return "", fmt.Errorf("the result is larger than %d KiB; store it elsewhere, under the fence, and its place here", resultLimit>>10)
		}
		text = string(data)
	}
	return strings.TrimRight(strings.ToValidUTF8(text, "\uFFFD"), "\r\n"), nil
}

// lastLine is the last line of a text that is not empty.
func lastLine(text string) string {
	text = strings.TrimSpace(text)
	return strings.TrimSpace(text[strings.LastIndexByte(text, '\n')+1:])
}

// pipe copies what comes through w. Unlike exec's own, it does not keep those waiting who wait for
// the process.
type pipe struct {
	r, w *os.File
	done chan struct{}
}

func newPipe(to io.Writer) (*pipe, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	p := &pipe{r, w, make(chan struct{})}
	go func() {
		defer close(p.done)
		io.Copy(to, r)
	}()
	return p, nil
}

// drain waits for the end of what was written, but not for somebody who left the process group with
// the pipe.
func (p *pipe) drain() {
	p.r.SetReadDeadline(time.Now().Add(time.Second))
	<-p.done
}

func (p *pipe) close() {
	p.w.Close()
	p.r.Close()
	<-p.done
}

// tail keeps the end of what is written to it.
type tail struct {
	limit int
	buf   bytes.Buffer
	cut   bool
}

func (t *tail) Write(p []byte) (int, error) {
	t.buf.Write(p)
	if t.buf.Len() > 2*t.limit {
		t.trim()
	}
	return len(p), nil
}

func (t *tail) trim() {
	if over := t.buf.Len() - t.limit; over > 0 {
		t.buf.Next(over)
		t.cut = true
	}
}

// String begins at a whole character.
func (t *tail) String() string {
	t.trim()
	b := t.buf.Bytes()
	for n := 0; t.cut && n < utf8.UTFMax-1 && len(b) > 0 && !utf8.RuneStart(b[0]); n++ {
		b = b[1:]
	}
	return string(b)
}
