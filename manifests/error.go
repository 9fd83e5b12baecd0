package manifests

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
)

// MaxFileSize is the size of the largest file that is decoded.
const MaxFileSize = 16 << 20

// maxErrors bounds what is told about one document; a file with 100,000 mistakes is told briefly.
const maxErrors = 100

// Error is a problem in a file. Line and Col start at 1 and are 0 where nothing is known; lines
// are counted as an editor does, and columns count characters.
type Error struct {
	Path      string
	Line, Col int
	Field     string // field path, such as spec.workers[0].name; may be empty
	Detail    string // what is wrong and what would be right
}

// Error returns one line, such as "jobs/a.yaml:7: spec.ttl: Invalid value: -5: must be greater than 0".
func (e *Error) Error() string {
	var b strings.Builder
	if e.Path != "" {
		b.WriteString(oneLine(e.Path))
		if e.Line > 0 {
			b.WriteByte(':')
			b.WriteString(strconv.Itoa(e.Line))
		}
		b.WriteString(": ")
	} else if e.Line > 0 {
		fmt.Fprintf(&b, "line %d: ", e.Line)
	}
	if e.Field != "" {
		b.WriteString(oneLine(e.Field))
		b.WriteString(": ")
	}
	b.WriteString(oneLine(e.Detail))
	return b.String()
}

// oneLine keeps a message from breaking a log or a terminal.
func oneLine(s string) string {
	clean := true
	for _, r := range s {
		if r < ' ' || r == 0x7f || r == 0x85 || r == 0x2028 || r == 0x2029 {
			clean = false
			break
		}
	}
	if clean {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		switch {
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case r < ' ' || r == 0x7f || r == 0x85 || r == 0x2028 || r == 0x2029:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// errorAt places an error at a byte offset. from is an offset at the beginning of line fromLine,
// so that counting starts there.
func errorAt(path string, data []byte, from, fromLine, off int, field, detail string) *Error {
	off = max(from, min(off, len(data)))
	head := data[from:off]
	start := bytes.LastIndexByte(head, '\n') + 1
	return &Error{
		Path:   path,
		Line:   fromLine + bytes.Count(head, []byte{'\n'}),
		Col:    len([]rune(string(head[start:]))) + 1,
		Field:  field,
		Detail: detail,
	}
}

// shorten keeps a value in a message readable.
func shorten(s string) string {
	const most = 80
	if len(s) <= most {
		return s
	}
	r := []rune(s)
	if len(r) <= most {
		return s
	}
	return string(r[:most]) + "…"
}
