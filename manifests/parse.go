package manifests

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"sort"
	"strconv"
	"strings"
	"unicode/utf8"

	yaml "go.yaml.in/yaml/v3"
	sigsjson "sigs.k8s.io/json"
	sigsyaml "sigs.k8s.io/yaml"
)

// unit is a document that could be parsed.
type unit struct {
	span
	json bool
	root *node
	bad  []*node // what cannot be converted, see sweep
	nth  int     // among the units of its span
	ends []int   // offsets of its line feeds, once they are wanted
}

// locate returns the line of an offset, and the column where the line is of a readable length.
func (u *unit) locate(data []byte, off int) (line, col int) {
	if u.ends == nil {
		u.ends = []int{}
		for i, c := range data[u.lo:u.hi] {
			if c == '\n' {
				u.ends = append(u.ends, u.lo+i)
			}
		}
	}
	line = u.line + sort.SearchInts(u.ends, off)
	const most = 4096
	head := data[max(0, off-most):off]
	if i := bytes.LastIndexByte(head, '\n'); i >= 0 || len(head) < most {
		col = utf8.RuneCount(bytes.TrimPrefix(head[i+1:], byteOrderMark)) + 1
	}
	return line, col
}

// parse parses one document. JSON objects may follow each other without a marker, as kubectl
// accepts them, and make several units.
func parse(path string, data []byte, s span) ([]*unit, *Error) {
	text := data[s.lo:s.hi]
	if from := skipSpace(data[:s.hi], s.lo); from == s.hi || isMarker(data[from:s.hi], "---") && skipSpace(data[:s.hi], from+3) == s.hi {
		return nil, nil
	}
	if marks(text) > maxMarks {
		return nil, errorAt(path, data, s.lo, s.line, s.lo, "", "the document is too large: it consists of too many values")
	}
	if start := bytes.TrimLeft(text, " \t\r\n"); len(start) > 0 && start[0] == '{' && utf8.Valid(text) {
		if units := parseJSON(data, s); units != nil {
			return units, nil
		}
	}
	if i, detail := badText(text); i >= 0 {
		return nil, errorAt(path, data, s.lo, s.line, s.lo+i, "", detail)
	}
	y, err := parseYAML(text)
	p := newPlaces(data, s.lo, s.hi)
	if err != nil {
		return nil, parseError(path, data, s, p, err)
	}
	if y == nil || len(y.Content) == 0 {
		return nil, nil
	}
	u := &unit{span: s, root: fromYAML(y.Content[0], p, map[*yaml.Node]*node{})}
	if u.root.isNull() {
		return nil, nil
	}
	if detail := u.sweep(data); detail != "" {
		return nil, errorAt(path, data, s.lo, s.line, u.root.off, "", detail)
	}
	return []*unit{u}, nil
}

// maxMarks bounds the memory that parsing takes, some 400 bytes for each. A job of 200,000 workers
// stays below.
const maxMarks = 2 << 20

// marks counts the characters that begin or part values, and so bounds their number.
func marks(text []byte) int {
	if len(text) <= maxMarks {
		return 0
	}
	n := 0
	for _, c := range text {
		switch c {
		case ',', ':', '-', '?', '[', '{', '\n', '\r':
			n++
		}
	}
	return n
}

// parseYAML returns nil if there is nothing but comments.
func parseYAML(text []byte) (y *yaml.Node, err error) {
	defer func() {
		if r := recover(); r != nil {
			y, err = nil, fmt.Errorf("yaml: the parser failed: %v", r)
		}
	}()
	dec := yaml.NewDecoder(bytes.NewReader(text))
	var first, second yaml.Node
	if err := dec.Decode(&first); err != nil {
		if errors.Is(err, io.EOF) {
			return nil, nil
		}
		return nil, err
	}
	// U+2028 and the like begin a line for the parser, so that it may see a marker that splitFile
	// did not.
	if err := dec.Decode(&second); err == nil {
		return nil, fmt.Errorf("yaml: line %d: a document marker that does not stand at the beginning of a line", second.Line)
	} else if !errors.Is(err, io.EOF) {
		return nil, err
	}
	return &first, nil
}

var unknownAnchor = regexp.MustCompile(`^unknown anchor '(.*)' referenced$`)

var parserMessage = regexp.MustCompile(`^(?:error converting YAML to JSON: )?(?:yaml: )?(?:unmarshal errors:\s+)?(?:line (\d+): )?((?s:.*))$`)

// parseError places a parser's error, and says what it may come from.
func parseError(path string, data []byte, s span, p *places, err error) *Error {
	line, detail := 1, err.Error()
	if m := parserMessage.FindStringSubmatch(detail); m != nil {
		if n, err := strconv.Atoi(m[1]); err == nil {
			line = n
		}
		detail = strings.TrimSpace(m[2])
	}
	if strings.HasPrefix(detail, "did not find expected") {
		line++ // these count from 0
	}
	off := p.offset(line, 1)
	if line == 1 {
		off = skipSpace(data[:s.hi], s.lo)
	}
	if m := unknownAnchor.FindStringSubmatch(detail); m != nil {
		if i := bytes.Index(data[s.lo:s.hi], []byte("*"+m[1])); i >= 0 {
			off = s.lo + i
		}
	}
	if at, hint := parseHint(data[s.lo:s.hi], off-s.lo); hint != "" {
		off, detail = s.lo+at, hint
	} else {
		detail = "cannot be parsed as YAML: " + detail
	}
	e := errorAt(path, data, s.lo, s.line, off, "", detail)
	e.Col = 0
	return e
}

var (
	conflictMarker = regexp.MustCompile(`(?m)^(<<<<<<<|=======|>>>>>>>)( |\r?$)`)
	template       = regexp.MustCompile(`\{\{-?[^{}\n]*\}\}`)
)

// parseHint looks for what commonly keeps a file from being parsed. at is where the parser gave up.
func parseHint(text []byte, at int) (int, string) {
	if m := conflictMarker.FindIndex(text); m != nil {
		return m[0], fmt.Sprintf("a merge conflict that is not resolved (%s)", text[m[0]:m[0]+7])
	}
	at = max(0, min(at, len(text)))
	for _, m := range template.FindAllIndex(text, 1000) {
		// Templates may also stand in a text where they do no harm.
		from := bytes.LastIndexAny(text[:m[0]], "\r\n") + 1
		if len(bytes.TrimSpace(text[from:m[0]])) == 0 || m[0] >= at-1 && m[0] < lineEnd(text, lineEnd(text, at)) {
			return m[0], "a template that has not been rendered: " + shorten(string(text[m[0]:m[1]]))
		}
	}
	for lines := 0; lines < 2 && at < len(text); lines++ {
		end := lineEnd(text, at)
		if in := text[at : end-len(bytes.TrimLeft(text[at:end], " \t"))]; bytes.IndexByte(in, '\t') >= 0 {
			return at, "a tab cannot indent in YAML; use spaces"
		}
		at = end
	}
	return 0, ""
}

// convert returns the unit's value as generic JSON, in which every integer that fits is an int64.
func (u *unit) convert(data []byte) (v any, err error) {
	defer func() {
		if r := recover(); r != nil {
			v, err = nil, fmt.Errorf("the parser failed: %v", r)
		}
	}()
	text := data[u.lo:u.hi]
	if !u.json {
		if len(u.bad) > 0 {
			text = u.blank(data)
		}
		if text, err = sigsyaml.YAMLToJSON(text); err != nil {
			return nil, err
		}
	}
	err = sigsjson.UnmarshalCaseSensitivePreserveInts(text, &v)
	return v, err
}

// blank returns the unit's text with null for every value that cannot be converted.
func (u *unit) blank(data []byte) []byte {
	var b []byte
	pos := u.lo
	for _, n := range u.bad {
		if n.off < pos {
			continue // inside one that is blanked already
		}
		b = append(b, data[pos:n.off]...)
		if n.anchor != "" {
			b = append(b, '&')
			b = append(b, n.anchor...)
			b = append(b, ' ')
		}
		b = append(b, "null"...)
		pos = n.end(data)
	}
	return append(b, data[pos:u.hi]...)
}

// parseJSON returns nil if the text is not JSON throughout.
func parseJSON(data []byte, s span) []*unit {
	var units []*unit
	j := jsonParser{data: data[:s.hi], pos: s.lo}
	from, line := s.lo, s.line
	for j.space(); j.pos < s.hi; j.space() {
		lo := j.pos
		root := j.value(0)
		if root == nil {
			return nil
		}
		line += bytes.Count(data[from:lo], []byte{'\n'})
		from = lo
		units = append(units, &unit{span: span{lo: lo, hi: j.pos, line: line}, json: true, root: root, nth: len(units)})
	}
	return units
}

// jsonParser makes nodes of JSON, which the YAML parser does not always read: it knows neither
// surrogate pairs nor keys of more than 1,024 characters.
type jsonParser struct {
	data []byte
	pos  int
}

const maxJSONDepth = 1000

func (j *jsonParser) space() {
	for j.pos < len(j.data) && (isBlank(j.data[j.pos]) || isBreak(j.data[j.pos])) {
		j.pos++
	}
}

func (j *jsonParser) next(c byte) bool {
	j.space()
	if j.pos < len(j.data) && j.data[j.pos] == c {
		j.pos++
		return true
	}
	return false
}

func (j *jsonParser) value(depth int) *node {
	j.space()
	if j.pos >= len(j.data) || depth > maxJSONDepth {
		return nil
	}
	n := &node{off: j.pos}
	switch c := j.data[j.pos]; c {
	case '{', '[':
		n.kind, n.style = mappingNode, flowStyle
		closing := byte('}')
		if c == '[' {
			n.kind, closing = sequenceNode, ']'
		}
		j.pos++
		if j.next(closing) {
			return n
		}
		for {
			kid := j.value(depth + 1)
			if kid == nil {
				return nil
			}
			n.kids = append(n.kids, kid)
			if c == '{' {
				if kid.style != doubleStyle || !j.next(':') {
					return nil
				}
				if kid = j.value(depth + 1); kid == nil {
					return nil
				}
				n.kids = append(n.kids, kid)
			}
			if j.next(closing) {
				return n
			}
			if !j.next(',') {
				return nil
			}
		}
	case '"':
		n.style = doubleStyle
		j.pos = quotedEnd(j.data, j.pos, '"')
		if json.Unmarshal(j.data[n.off:j.pos], &n.value) != nil {
			return nil
		}
	default:
		for j.pos < len(j.data) && bytes.IndexByte([]byte(" \t\r\n,]}:{[\""), j.data[j.pos]) < 0 {
			j.pos++
		}
		n.value = string(j.data[n.off:j.pos])
		if !json.Valid(j.data[n.off:j.pos]) {
			return nil
		}
	}
	return n
}
