// Package strace runs a program under strace and reads the record, for tests that ask what would be
// on disk had the power failed.
package strace

import (
	"bufio"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// Call is one system call that succeeded. Begin and End number the moments of the record at which
// it was entered and left.
type Call struct {
	Begin, End int
	Name       string
	Args       []string // strings decoded; a descriptor is its path; numbers as they are
	FDs        []int    // of the arguments that are descriptors, else -1
	Ret        string
}

// ErrMissing says that there is no strace here, or that it may not trace.
var ErrMissing = errors.New("strace is missing")

// Calls are those that decide what is on disk, and what others see.
const Calls = "openat,creat,write,pwrite64,writev,fsync,fdatasync,ftruncate,rename,renameat,renameat2,link,linkat,unlink,unlinkat,mkdir,mkdirat"

// Command makes a command that runs cmd under strace, and writes the record to a file.
func Command(cmd *exec.Cmd, record string) error {
	path, err := exec.LookPath("strace")
	if err != nil {
		return ErrMissing
	}
	if exec.Command(path, "-o", os.DevNull, "true").Run() != nil {
		return ErrMissing
	}
	cmd.Args = append([]string{path, "-f", "-y", "-xx", "-s", "200000", "-e", "trace=" + Calls, "-e", "signal=none", "-o", record, cmd.Path}, cmd.Args[1:]...)
	cmd.Path = path
	return nil
}

var (
	whole   = regexp.MustCompile(`^(\d+) +(\w+)\((.*)\) += (-?\w+)(<.*>)?`)
	begun   = regexp.MustCompile(`^(\d+) +(\w+)\((.*) <unfinished \.\.\.>$`)
	resumed = regexp.MustCompile(`^(\d+) +<\.\.\. (\w+) resumed>(.*)\) += (-?\w+)(<.*>)?`)
	escaped = regexp.MustCompile(`\\x[0-9a-f]{2}`)
	fdPath  = regexp.MustCompile(`^(-?\d+|AT_FDCWD)<(.*)>$`)
)

// Read reads a record. Calls come in the order in which they ended.
func Read(record string) ([]Call, error) {
	f, err := os.Open(record)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	r := bufio.NewReaderSize(f, 1<<20)
	open := map[string]Call{}
	text := map[string]string{}
	var calls []Call
	for n := 1; ; n++ {
		line, err := r.ReadString('\n')
		if err == io.EOF {
			return calls, nil
		}
		if err != nil {
			return nil, err
		}
		line = strings.TrimSuffix(line, "\n")
		if m := begun.FindStringSubmatch(line); m != nil {
			open[m[1]], text[m[1]] = Call{Begin: n, Name: m[2]}, m[3]
			continue
		}
		var c Call
		var args string
		if m := resumed.FindStringSubmatch(line); m != nil {
			c, args = open[m[1]], text[m[1]]+m[3]
			c.Ret = m[4]
		} else if m := whole.FindStringSubmatch(line); m != nil {
			c, args = Call{Begin: n, Name: m[2], Ret: m[4]}, m[3]
		} else {
			continue
		}
		c.End = n
		if strings.HasPrefix(c.Ret, "-") || c.Name == "" {
			continue
		}
		c.split(args)
		calls = append(calls, c)
	}
}

// split takes arguments apart. With -xx, no string holds a comma or a quote of its own.
func (c *Call) split(args string) {
	for _, a := range strings.Split(args, ", ") {
		fd := -1
		if m := fdPath.FindStringSubmatch(a); m != nil {
			fd, _ = strconv.Atoi(m[1])
			a = m[2]
		}
		a = strings.TrimSuffix(strings.TrimPrefix(a, `"`), `"`)
		c.Args = append(c.Args, escaped.ReplaceAllStringFunc(a, func(s string) string {
			b, _ := strconv.ParseUint(s[2:], 16, 8)
			return string([]byte{byte(b)})
		}))
		c.FDs = append(c.FDs, fd)
	}
}

// Path returns the path that begins at an argument: one alone, or a directory and a name in it.
func (c Call) Path(i int) string {
	if !strings.HasSuffix(strings.TrimSuffix(c.Name, "2"), "at") {
		return c.Args[i]
	}
	if filepath.IsAbs(c.Args[i+1]) {
		return c.Args[i+1]
	}
	return filepath.Join(c.Args[i], c.Args[i+1])
}
