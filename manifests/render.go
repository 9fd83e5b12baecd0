package manifests

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode"
)

// A value to be written is held as the nodes of its JSON, which keep the order of a struct's fields.

func toNode(v any) (*node, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	j := jsonParser{data: text}
	n := j.value(0)
	if n == nil {
		return nil, fmt.Errorf("cannot be written: nested too deep")
	}
	return n, nil
}

// statusNode is a status in the order in which it is written, without what is null.
func statusNode(s *JobStatus) (*node, error) {
	n, err := toNode(s)
	if err != nil {
		return nil, err
	}
	if _, list := n.entry("conditions", 0); list != nil {
		for _, c := range list.kids {
			for i := 0; i < len(c.kids); i += 2 {
				if c.kids[i].value == "lastTransitionTime" {
					pair := []*node{c.kids[i], c.kids[i+1]}
					c.kids = append(c.kids[:i], c.kids[i+2:]...)
					if !pair[1].isNull() {
						c.kids = append(c.kids, pair...)
					}
					break
				}
			}
		}
	}
	return n, nil
}

// plainValue is a JSON node as convert returns it.
func (n *node) plainValue() any {
	switch n.kind {
	case mappingNode:
		m := make(map[string]any, len(n.kids)/2)
		for i := 0; i < len(n.kids); i += 2 {
			m[n.kids[i].value] = n.kids[i+1].plainValue()
		}
		return m
	case sequenceNode:
		l := make([]any, len(n.kids))
		for i, kid := range n.kids {
			l[i] = kid.plainValue()
		}
		return l
	}
	if n.style == doubleStyle {
		return n.value
	}
	switch n.value {
	case "null":
		return nil
	case "true":
		return true
	case "false":
		return false
	}
	if i, err := strconv.ParseInt(n.value, 10, 64); err == nil {
		return i
	}
	f, _ := strconv.ParseFloat(n.value, 64)
	if i := int64(f); float64(i) == f && f > -1<<53 && f < 1<<53 {
		return i
	}
	return f
}

// numberText writes a number without an exponent.
func numberText(s string) string {
	if strings.ContainsAny(s, "eE") {
		if f, err := strconv.ParseFloat(s, 64); err == nil {
			return strconv.FormatFloat(f, 'f', -1, 64)
		}
	}
	return s
}

// flowYAML writes a value on one line.
func flowYAML(n *node) string {
	var b strings.Builder
	writeFlow(&b, n)
	return b.String()
}

func writeFlow(b *strings.Builder, n *node) {
	switch n.kind {
	case mappingNode:
		b.WriteByte('{')
		for i := 0; i < len(n.kids); i += 2 {
			if i > 0 {
				b.WriteString(", ")
			}
			b.WriteString(yamlText(n.kids[i].value))
			b.WriteString(": ")
			writeFlow(b, n.kids[i+1])
		}
		b.WriteByte('}')
	case sequenceNode:
		b.WriteByte('[')
		for i, kid := range n.kids {
			if i > 0 {
				b.WriteString(", ")
			}
			writeFlow(b, kid)
		}
		b.WriteByte(']')
	default:
		if n.style == doubleStyle {
			b.WriteString(yamlText(n.value))
		} else {
			b.WriteString(numberText(n.value))
		}
	}
}

// blockYAML writes a mapping as lines at an indent: block style at the top, one line for each
// entry of a list.
func blockYAML(n *node, indent string) []string {
	var lines []string
	for i := 0; i < len(n.kids); i += 2 {
		key, v := indent+yamlText(n.kids[i].value)+":", n.kids[i+1]
		if v.kind == sequenceNode && len(v.kids) > 0 {
			lines = append(lines, key)
			for _, kid := range v.kids {
				lines = append(lines, indent+"- "+flowYAML(kid))
			}
			continue
		}
		lines = append(lines, key+" "+flowYAML(v))
	}
	return lines
}

// yamlText writes a string, quoted where a parser of YAML 1.1 or 1.2 could take it for something
// else.
func yamlText(s string) string {
	if isPlain(s) {
		return s
	}
	var b strings.Builder
	b.Grow(len(s) + 2)
	b.WriteByte('"')
	for _, r := range strings.ToValidUTF8(s, "\ufffd") {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case r == '\r':
			b.WriteString(`\r`)
		case r < ' ' || r >= 0x7f && r < 0xa0:
			fmt.Fprintf(&b, `\x%02x`, r)
		case r == 0x2028 || r == 0x2029 || r == 0xfeff || r == 0xfffe || r == 0xffff || unicode.Is(unicode.Cf, r) && r < 0x10000:
			fmt.Fprintf(&b, `\u%04x`, r)
		case unicode.Is(unicode.Cf, r):
			fmt.Fprintf(&b, `\U%08x`, r)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// isPlain tells what needs no quotes: names, versions, paths and hashes.
func isPlain(s string) bool {
	if s == "" || len(s) > 120 {
		return false
	}
	numeric := true // consists of what numbers are made of
	for i := range len(s) {
		switch c := s[i]; {
		case c >= '0' && c <= '9', c == '.', c == '_', c == '-':
			if i == 0 && (c == '.' || c == '-') {
				return false
			}
		case c == 'e' || c == 'E':
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c == '/':
			numeric = false
		default:
			return false
		}
	}
	if s[0] >= '0' && s[0] <= '9' {
		if numeric || s[0] == '0' && len(s) > 1 && strings.IndexByte("xXoObB", s[1]) >= 0 {
			return false
		}
	} else if s[0] == '_' {
		return false
	}
	switch strings.ToLower(s) {
	case "y", "n", "yes", "no", "on", "off", "true", "false", "null":
		return false
	}
	return true
}

// jsonStyle is how a JSON text is laid out.
type jsonStyle struct {
	colon, comma string // with the space behind them
	eol          string // "" for one line
	prefix, step string // indent of the entry's own line, and of each further level
}

func writeJSON(b *strings.Builder, n *node, st jsonStyle, indent string) {
	open, closing := byte('{'), byte('}')
	switch {
	case n.kind == sequenceNode:
		open, closing = '[', ']'
	case n.kind == scalarNode && n.style == doubleStyle:
		b.WriteString(jsonText(n.value))
		return
	case n.kind == scalarNode:
		b.WriteString(numberText(n.value))
		return
	}
	b.WriteByte(open)
	inner := indent + st.step
	for i := 0; i < len(n.kids); i++ {
		switch {
		case i > 0 && st.eol == "":
			b.WriteString(st.comma)
		case i > 0:
			b.WriteByte(',')
		}
		if st.eol != "" {
			b.WriteString(st.eol)
			b.WriteString(inner)
		}
		if n.kind == mappingNode {
			b.WriteString(jsonText(n.kids[i].value))
			b.WriteString(st.colon)
			i++
		}
		writeJSON(b, n.kids[i], st, inner)
	}
	if st.eol != "" && len(n.kids) > 0 {
		b.WriteString(st.eol)
		b.WriteString(indent)
	}
	b.WriteByte(closing)
}

func jsonText(s string) string {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if enc.Encode(s) != nil {
		return `""`
	}
	return strings.TrimSuffix(b.String(), "\n")
}
