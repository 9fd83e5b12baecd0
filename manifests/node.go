package manifests

import (
	"bytes"
	"strings"
	"unicode"
	"unicode/utf8"

	yaml "go.yaml.in/yaml/v3"
)

type kind uint8

const (
	scalarNode kind = iota
	mappingNode
	sequenceNode
	aliasNode
)

type style uint8

const (
	plainStyle style = iota // of a scalar; of a collection: block
	singleStyle
	doubleStyle
	blockStyle // literal and folded scalars
	flowStyle  // of a collection
)

// node is a value with its place in the file. Only places are taken from it: values come from
// sigs.k8s.io/yaml, which reads as kubectl does.
type node struct {
	kind   kind
	style  style
	tag    string // where one is written
	anchor string
	value  string
	off    int     // offset of the first byte, properties (&anchor, !tag) included
	kids   []*node // of a mapping: key, value, key, value, …
	alias  *node
	bad    string // why the value cannot be read, see sweep
}

func (n *node) deref() *node {
	for n != nil && n.kind == aliasNode {
		n = n.alias
	}
	return n
}

// isNull tells null and nothing.
func (n *node) isNull() bool {
	n = n.deref()
	if n == nil {
		return true
	}
	if n.kind != scalarNode || n.style != plainStyle || n.tag != "" && n.tag != "!!null" {
		return false
	}
	switch n.value {
	case "", "~", "null", "Null", "NULL":
		return true
	}
	return false
}

// places translates a parser's line and column to offsets. The parser takes CR, LF, CR LF, NEL,
// U+2028 and U+2029 for line breaks, and counts columns in characters.
type places struct {
	data   []byte
	starts []int // offset at which each of the parser's lines begins
	// Nodes come in the order of the text, so that counting can go on where it was.
	line, col, off int
}

func newPlaces(data []byte, lo, hi int) *places {
	p := &places{data: data[:hi], starts: []int{lo}, line: -1}
	for i := lo; i < hi; i++ {
		switch c := data[i]; {
		case c == '\n':
			p.starts = append(p.starts, i+1)
		case c == '\r':
			if i+1 < hi && data[i+1] == '\n' {
				i++
			}
			p.starts = append(p.starts, i+1)
		case c == 0xc2 && i+1 < hi && data[i+1] == 0x85:
			i++
			p.starts = append(p.starts, i+1)
		case c == 0xe2 && i+2 < hi && data[i+1] == 0x80 && (data[i+2] == 0xa8 || data[i+2] == 0xa9):
			i += 2
			p.starts = append(p.starts, i+1)
		}
	}
	return p
}

// offset of a line and column that both start at 1.
func (p *places) offset(line, col int) int {
	line, col = line-1, col-1
	if line < 0 {
		return p.starts[0]
	}
	if line >= len(p.starts) {
		return len(p.data)
	}
	if line != p.line || col < p.col {
		p.line, p.col, p.off = line, 0, p.starts[line]
	}
	for p.col < col && p.off < len(p.data) {
		if p.data[p.off] < utf8.RuneSelf {
			p.off++
		} else {
			_, n := utf8.DecodeRune(p.data[p.off:])
			p.off += n
		}
		p.col++
	}
	return p.off
}

// fromYAML takes over a parsed document.
func fromYAML(y *yaml.Node, p *places, seen map[*yaml.Node]*node) *node {
	n := &node{value: y.Value, anchor: y.Anchor, off: p.offset(y.Line, y.Column)}
	if y.Style&yaml.TaggedStyle != 0 {
		n.tag = y.Tag
	}
	if y.Anchor != "" {
		seen[y] = n
	}
	switch y.Kind {
	case yaml.AliasNode:
		n.kind, n.alias = aliasNode, seen[y.Alias]
		return n
	case yaml.MappingNode:
		n.kind = mappingNode
	case yaml.SequenceNode:
		n.kind = sequenceNode
	}
	switch {
	case y.Style&yaml.FlowStyle != 0:
		n.style = flowStyle
	case y.Style&yaml.DoubleQuotedStyle != 0:
		n.style = doubleStyle
	case y.Style&yaml.SingleQuotedStyle != 0:
		n.style = singleStyle
	case y.Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0:
		n.style = blockStyle
	}
	if len(y.Content) > 0 {
		n.kids = make([]*node, len(y.Content))
		for i, c := range y.Content {
			n.kids[i] = fromYAML(c, p, seen)
		}
	}
	return n
}

// content returns the offset behind a node's properties.
func (n *node) content(data []byte) int {
	off := n.off
	if n.anchor == "" && n.tag == "" {
		return off
	}
	for i := off; i < len(data); {
		if data[i] != '&' && data[i] != '!' {
			return i
		}
		for i < len(data) && !isBlank(data[i]) && !isBreak(data[i]) {
			i++
		}
		off = i
		i = skipSpace(data, i)
	}
	return off
}

// end returns the offset behind a node's last byte. The parser does not tell it.
func (n *node) end(data []byte) int {
	off := n.off
	switch {
	case n.kind == aliasNode:
		return min(len(data), off+1+len(n.value))
	case n.kind == scalarNode:
		off = n.content(data)
		switch n.style {
		case doubleStyle:
			return quotedEnd(data, off, '"')
		case singleStyle:
			return quotedEnd(data, off, '\'')
		case blockStyle:
			return blockEnd(data, off, n.value)
		}
		return plainEnd(data, off, n.value, n)
	case n.style == flowStyle:
		off = n.content(data)
		pair := off < len(data) && data[off] != '{' && data[off] != '['
		if len(n.kids) > 0 {
			off = n.lastEnd(data)
			if pair { // [a: b] is a mapping without braces
				return off
			}
		} else {
			off++
		}
		for off < len(data) {
			off = skipSpace(data, off)
			if off < len(data) {
				off++
				if c := data[off-1]; c == '}' && n.kind == mappingNode || c == ']' && n.kind == sequenceNode {
					break
				}
			}
		}
		return off
	case len(n.kids) > 0:
		return n.lastEnd(data)
	}
	return off
}

// lastEnd returns the end of a collection's last value; a value that is left out may be placed
// before the end of its key.
func (n *node) lastEnd(data []byte) int {
	last := len(n.kids) - 1
	end := n.kids[last].end(data)
	if n.kind == mappingNode && n.kids[last].off == end {
		end = max(end, n.kids[last-1].end(data))
	}
	return end
}

// skipSpace skips blanks, line breaks and comments.
func skipSpace(data []byte, off int) int {
	for off < len(data) {
		switch c := data[off]; {
		case isBlank(c), isBreak(c):
			off++
		case c == '#' && (off == 0 || isBlank(data[off-1]) || isBreak(data[off-1])):
			for off < len(data) && !isBreak(data[off]) {
				off++
			}
		default:
			if r, n := utf8.DecodeRune(data[off:]); r == 0x85 || r == 0x2028 || r == 0x2029 {
				off += n
				continue
			}
			return off
		}
	}
	return off
}

func quotedEnd(data []byte, off int, quote byte) int {
	for i := off + 1; i < len(data); i++ {
		switch {
		case data[i] == '\\' && quote == '"':
			i++
		case data[i] == quote && quote == '\'' && i+1 < len(data) && data[i+1] == quote:
			i++
		case data[i] == quote:
			return i + 1
		}
	}
	return len(data)
}

// plainEnd follows the text of a plain scalar, in which only white space may differ.
func plainEnd(data []byte, off int, value string, n *node) int {
	if value == "" && (n.anchor != "" || n.tag != "") {
		return off
	}
	for _, r := range value {
		if unicode.IsSpace(r) || r == 0xfeff {
			continue
		}
		for off < len(data) {
			c, size := utf8.DecodeRune(data[off:])
			off += size
			if c == r {
				break
			}
		}
	}
	return off
}

// blockEnd finds the end of a literal or folded scalar whose indicator is at off: the end of its
// last line that is not blank.
func blockEnd(data []byte, off int, value string) int {
	pos := lineEnd(data, off)
	end := off + len(bytes.TrimRight(data[off:pos], " \t\r\n"))
	if i := bytes.IndexByte(data[off:end], '#'); i >= 0 {
		end = off + len(bytes.TrimRight(data[off:off+i], " \t"))
	}
	value = strings.TrimLeft(value, "\n")
	if value == "" {
		return end
	}
	deeper := len(value) - len(strings.TrimLeft(value, " ")) // of the first line than the rest
	indent := -1
	for ; pos < len(data); pos = lineEnd(data, pos) {
		text := bytes.TrimRight(data[pos:lineEnd(data, pos)], "\r\n")
		in := indentOf(text)
		if in == len(text) {
			continue
		}
		if indent < 0 {
			indent = in - deeper
		}
		if in < indent {
			break
		}
		end = pos + len(text)
	}
	return end
}

func indentOf(text []byte) int { return len(text) - len(bytes.TrimLeft(text, " ")) }
