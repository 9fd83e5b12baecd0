package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"leasehold.dev/leasehold/manifests"
)

func newGitFilterCommand(g *globals) *cobra.Command {
	return &cobra.Command{
		Use:    "filter-process",
		Short:  "Git's long-running filter process, started by Git",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			debug.SetGCPercent(400) // it has little to keep, and ends with the git command
			p := &filterProcess{in: bufio.NewReader(g.In), out: bufio.NewWriter(g.Out)}
			return p.serve()
		},
	}
}

// filterProcess speaks version 2 of the protocol in gitattributes(5), "Long Running Filter Process".
// It offers to clean only: without the capability to smudge, Git checks files out as they are stored
// and asks nobody.
type filterProcess struct {
	in  *bufio.Reader
	out *bufio.Writer
}

// maxPacket is the most that a packet may carry.
const maxPacket = 65516

var errFlush = errors.New("a flush packet")

// packet reads one packet. The error is errFlush for a flush packet, io.EOF at the end.
func (p *filterProcess) packet() ([]byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(p.in, head[:]); err != nil {
		return nil, err
	}
	n, err := strconv.ParseUint(string(head[:]), 16, 16)
	switch {
	case err == nil && n == 0:
		return nil, errFlush
	case err != nil || n < 4 || n > maxPacket+4:
		return nil, fmt.Errorf("git sent a packet of length %q", head[:])
	}
	data := make([]byte, n-4)
	if _, err := io.ReadFull(p.in, data); err != nil {
		return nil, unexpected(err)
	}
	return data, nil
}

func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// list reads lines up to a flush packet.
func (p *filterProcess) list() ([]string, error) {
	var lines []string
	for {
		data, err := p.packet()
		switch {
		case errors.Is(err, errFlush):
			return lines, nil
		case err != nil && len(lines) > 0:
			return nil, unexpected(err)
		case err != nil:
			return nil, err
		}
		lines = append(lines, strings.TrimSuffix(string(data), "\n"))
	}
}

// content reads packets up to a flush packet. whole is false if there was more than a manifest may
// have; then it is read and forgotten.
func (p *filterProcess) content() (data []byte, whole bool, err error) {
	whole = true
	for {
		part, err := p.packet()
		switch {
		case errors.Is(err, errFlush):
			return data, whole, nil
		case err != nil:
			return nil, false, unexpected(err)
		case len(data)+len(part) > manifests.MaxFileSize:
			data, whole = nil, false
		case whole:
			data = append(data, part...)
		}
	}
}

func (p *filterProcess) send(data []byte) {
	for len(data) > 0 {
		n := min(len(data), maxPacket)
		fmt.Fprintf(p.out, "%04x", n+4)
		p.out.Write(data[:n])
		data = data[n:]
	}
}

func (p *filterProcess) sendList(lines ...string) {
	for _, line := range lines {
		p.send([]byte(line + "\n"))
	}
	p.out.WriteString("0000")
}

func (p *filterProcess) serve() error {
	hello, err := p.list()
	if err != nil {
		return err
	}
	if len(hello) < 2 || hello[0] != "git-filter-client" || !slices.Contains(hello[1:], "version=2") {
		return usageError("filter-process is started by Git, and not by hand: it is set up with 'leasehold git install'")
	}
	p.sendList("git-filter-server", "version=2")
	if err := p.out.Flush(); err != nil {
		return err
	}
	if _, err := p.list(); err != nil { // what Git can do
		return err
	}
	p.sendList("capability=clean")
	for {
		if err := p.out.Flush(); err != nil {
			return err
		}
		request, err := p.list()
		if errors.Is(err, io.EOF) {
			return nil // Git has no more files
		} else if err != nil {
			return err
		}
		var command, path string
		for _, line := range request {
			switch key, value, _ := strings.Cut(line, "="); key {
			case "command":
				command = value
			case "pathname":
				path = value
			}
		}
		data, whole, err := p.content()
		if err != nil {
			return err
		}
		if !whole || command != "clean" && command != "smudge" {
			p.sendList("status=error") // Git takes the file as it is
			continue
		}
		if command == "clean" && manifests.IsManifest(path) {
			data = manifests.StripStatus(path, data)
		}
		p.sendList("status=success")
		p.send(data)
		p.sendList() // the end of the content
		p.sendList() // and the status has not changed
	}
}
