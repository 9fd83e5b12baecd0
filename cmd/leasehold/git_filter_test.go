package main

import (
	"bufio"
	"bytes"
	"fmt"
	"strings"
	"testing"

	"leasehold.dev/leasehold/manifests"
)

// conversation is what Git says to a filter.
type conversation struct{ bytes.Buffer }

func (c *conversation) lines(lines ...string) {
	for _, l := range lines {
		fmt.Fprintf(c, "%04x%s\n", len(l)+5, l)
	}
	c.WriteString("0000")
}

func (c *conversation) file(command, path string, data []byte, part int) {
	c.lines("command="+command, "pathname="+path, "treeish=main")
	for len(data) > 0 {
		n := min(len(data), part)
		fmt.Fprintf(c, "%04x%s", n+4, data[:n])
		data = data[n:]
	}
	c.WriteString("0000")
}

func hello() *conversation {
	c := &conversation{}
	c.lines("git-filter-client", "version=2", "version=42")
	c.lines("capability=clean", "capability=smudge", "capability=delay")
	return c
}

type answer struct {
	status string
	data   string
}

// hear runs a filter process on a conversation, and takes its answers apart.
func hear(t *testing.T, c *conversation, files int) (answers []answer, err error) {
	t.Helper()
	var out bytes.Buffer
	err = (&filterProcess{in: bufio.NewReader(c), out: bufio.NewWriter(&out)}).serve()
	r := &filterProcess{in: bufio.NewReader(&out)}
	list := func() string {
		lines, err := r.list()
		if err != nil {
			t.Fatal(err)
		}
		return strings.Join(lines, " ")
	}
	if got := list() + "; " + list(); got != "git-filter-server version=2; capability=clean" {
		t.Fatalf("it said %s", got)
	}
	for range files {
		a := answer{status: list()}
		if a.status == "status=success" {
			data, _, err := r.content()
			if err != nil {
				t.Fatal(err)
			}
			a.data = string(data)
			if rest := list(); rest != "" {
				t.Errorf("after the content: %s", rest)
			}
		}
		answers = append(answers, a)
	}
	if out.Len()+r.in.Buffered() > 0 {
		t.Errorf("it said %d bytes more", out.Len()+r.in.Buffered())
	}
	return answers, err
}

func TestFilterProcess(t *testing.T) {
	bare := fixedJob("a", 100)
	with := bare + "status:\n  owner: worker-a\n"
	long := "# " + strings.Repeat("x", 200_000) + "\n"
	conflict := "<<<<<<< HEAD\n" + with + "=======\n>>>>>>> b\n"
	huge := strings.Repeat("status: x\n", manifests.MaxFileSize/10+1)
	var c *conversation
	rows := []struct{ command, path, data, want string }{
		{"clean", "jobs/a.yaml", with, bare},
		{"clean", "jobs/a.yaml", bare, bare},
		{"clean", "jobs/a b=c.json", "", ""},
		{"clean", "jobs/a.yaml", long + with, long + bare},
		{"clean", "jobs/a.yaml", conflict, conflict},
		{"clean", "jobs/a.yaml", "status: {\x00", "status: {\x00"},
		{"clean", "jobs/a.txt", with, with},
		{"clean", "jobs/.a.yaml", with, with},
		{"smudge", "jobs/a.yaml", with, with},
		{"clean", "jobs/a.yaml", huge, "ERROR"},
		{"unheard-of", "jobs/a.yaml", with, "ERROR"},
		{"clean", "jobs/a.yaml", with, bare},
	}
	for _, part := range []int{maxPacket, 1000, 7} {
		c = hello()
		for _, r := range rows {
			if part < 1000 && len(r.data) > 1<<20 {
				r.data = with
			}
			c.file(r.command, r.path, []byte(r.data), part)
		}
		answers, err := hear(t, c, len(rows))
		if err != nil {
			t.Errorf("%v", err)
		}
		for i, r := range rows {
			want := answer{"status=success", r.want}
			if r.want == "ERROR" {
				want = answer{status: "status=error"}
				if part < 1000 && len(r.data) > 1<<20 {
					want = answer{"status=success", bare}
				}
			}
			if answers[i] != want {
				t.Errorf("%s %s %.60q: %.80q, want %.80q", r.command, r.path, r.data, answers[i], want)
			}
		}
	}
}

// What breaks off or makes no sense ends the process with an error, and Git goes on without it.
func TestFilterProcessBroken(t *testing.T) {
	whole := hello()
	whole.file("clean", "a.yaml", []byte("status: {}\n"), maxPacket)
	text := whole.String()
	start := hello().Len()
	for n := range len(text) {
		var out bytes.Buffer
		err := (&filterProcess{in: bufio.NewReader(strings.NewReader(text[:n])), out: bufio.NewWriter(&out)}).serve()
		if (err == nil) != (n == start) {
			t.Errorf("cut off after %d of %d bytes: %v", n, len(text), err)
		}
	}
	for _, bad := range []string{"0003", "zzzz", "fff5" + strings.Repeat("x", 70000), "0009hello0000", text[:start] + "-001"} {
		var out bytes.Buffer
		if err := (&filterProcess{in: bufio.NewReader(strings.NewReader(bad)), out: bufio.NewWriter(&out)}).serve(); err == nil {
			t.Errorf("%.20q was taken for an order", bad)
		}
	}
}

func TestBlock(t *testing.T) {
	a, b := block{"/a/", []string{"x", "y"}}, block{"/b \"c\"/", []string{"z"}}
	for _, text := range []string{"", "\n", "one\n", "one", "one\n\n", "# leasehold git install\n"} {
		with := b.add(b.add(a.add([]byte(text))))
		if got := a.remove(b.remove(with)); !bytes.Equal(got, []byte(text)) {
			t.Errorf("%q became %q", text, got)
		}
		want := strings.TrimSuffix(text, "\n") + "\ntwo\n"
		if text == "" {
			want = "two\n"
		}
		if got := b.remove(a.remove(append(with, "two\n"...))); string(got) != want {
			t.Errorf("%q and two became %q", text, got)
		}
	}
}
