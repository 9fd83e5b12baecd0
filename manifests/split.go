package manifests

import (
	"bytes"
	"fmt"
	"unicode/utf8"
)

// span is the bytes of one document of a file: data[lo:hi], beginning on line line. Its end marker
// ("...") is not part of it.
type span struct {
	lo, hi, line int
}

var byteOrderMark = []byte("\ufeff")

// splitFile cuts a file where YAML's document markers stand at the beginning of a line. It looks at
// bytes only, so that what cannot be parsed in one document leaves the next alone.
func splitFile(data []byte) []span {
	var spans []span
	pos := 0
	if bytes.HasPrefix(data, byteOrderMark) {
		pos = len(byteOrderMark)
	}
	cur := span{lo: pos, line: 1}
	line := 1
	content := false    // something other than comments and directives was seen
	directives := false // the document has begun with a directive and waits for its marker
	add := func(hi int) {
		cur.hi = hi
		if hi > cur.lo {
			spans = append(spans, cur)
		}
	}
	for pos < len(data) {
		next := lineEnd(data, pos)
		text := data[pos:next]
		switch {
		case isMarker(text, "---"):
			if content || !directives {
				add(pos)
				cur = span{lo: pos, line: line}
			}
			content, directives = true, false
		case isMarker(text, "..."):
			add(pos)
			cur = span{lo: next, line: line + bytes.Count(text, []byte{'\n'})}
			content, directives = false, false
		case content:
		case text[0] == '%':
			directives = true
		default:
			if t := bytes.TrimLeft(text, " \t\r\n"); len(t) > 0 && t[0] != '#' {
				content = true
			}
		}
		line += bytes.Count(text, []byte{'\n'})
		pos = next
	}
	add(len(data))
	return spans
}

// lineEnd returns the offset behind the line break that ends the line at pos. The breaks are those
// of YAML 1.2: LF, CR LF and CR.
func lineEnd(data []byte, pos int) int {
	i := bytes.IndexAny(data[pos:min(len(data), pos+4096)], "\r\n")
	if i < 0 {
		i = bytes.IndexAny(data[pos:], "\r\n")
	}
	if i < 0 {
		return len(data)
	}
	i += pos
	if data[i] == '\r' && i+1 < len(data) && data[i+1] == '\n' {
		i++
	}
	return i + 1
}

func isMarker(line []byte, marker string) bool {
	if !bytes.HasPrefix(line, []byte(marker)) {
		return false
	}
	return len(line) == len(marker) || isBlank(line[len(marker)]) || isBreak(line[len(marker)])
}

func isBlank(c byte) bool { return c == ' ' || c == '\t' }
func isBreak(c byte) bool { return c == '\n' || c == '\r' }

// wrongEncoding tells a file that is not in UTF-8 by its first bytes.
func wrongEncoding(data []byte) string {
	for _, e := range []struct{ start, name string }{
		{"\xff\xfe\x00\x00", "UTF-32"}, {"\x00\x00\xfe\xff", "UTF-32"},
		{"\xff\xfe", "UTF-16"}, {"\xfe\xff", "UTF-16"},
	} {
		if bytes.HasPrefix(data, []byte(e.start)) {
			return e.name
		}
	}
	if len(data) >= 4 {
		switch zero := [4]bool{data[0] == 0, data[1] == 0, data[2] == 0, data[3] == 0}; zero {
		case [4]bool{false, true, true, true}, [4]bool{true, true, true, false}:
			return "UTF-32"
		case [4]bool{false, true, false, true}, [4]bool{true, false, true, false}:
			return "UTF-16"
		}
	}
	return ""
}

// badText returns the offset of the first byte that no YAML may contain, and what is wrong with
// it; -1 if there is none.
func badText(text []byte) (int, string) {
	for i := 0; i < len(text); {
		c := text[i]
		if c < utf8.RuneSelf {
			if c < ' ' && c != '\t' && c != '\n' && c != '\r' || c == 0x7f {
				if c == 0 {
					return i, "contains a NUL byte; a manifest is text"
				}
				return i, fmt.Sprintf("contains the control character U+%04X; write it as \"\\x%02x\" in double quotes", c, c)
			}
			i++
			continue
		}
		r, n := utf8.DecodeRune(text[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			return i, fmt.Sprintf("byte 0x%02x is not UTF-8; save the file as UTF-8", c)
		case r >= 0x80 && r < 0xa0 && r != 0x85, r == 0xfffe, r == 0xffff:
			return i, fmt.Sprintf("contains the character U+%04X; write it as \"\\u%04x\" in double quotes", r, r)
		case r == 0xfeff && (i == 0 || isBreak(text[i-1])):
			return i, "a byte order mark in the middle of the file; remove it"
		}
		i += n
	}
	return -1, ""
}
