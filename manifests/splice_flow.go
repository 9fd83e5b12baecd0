package manifests

import (
	"errors"
	"strings"
)

// jsonStyle reads the layout of a flow mapping; key is one of its keys.
func (e *editor) jsonStyle(n *node) jsonStyle {
	st := jsonStyle{colon: ": ", comma: ", ", step: "  "}
	if len(n.kids) == 0 {
		return st
	}
	if i := skipSpace(e.data, n.kids[0].end(e.data)); i+1 < len(e.data) && e.data[i] == ':' && !isBlank(e.data[i+1]) && e.unit.json {
		st.colon, st.comma = ":", ","
	}
	last := n.kids[len(n.kids)-2]
	if prefix, blank := e.blank(last.off); blank && last.off > n.off && e.lineStart(last.off) > n.off {
		st.eol, st.prefix = e.eol, prefix
		closing, blank := e.blank(n.end(e.data) - 1)
		if step, ok := strings.CutPrefix(prefix, closing); ok && blank && step != "" {
			st.step = step
		}
	}
	return st
}

func (e *editor) flowText(value *node, st jsonStyle) string {
	if !e.unit.json {
		return flowYAML(value)
	}
	var b strings.Builder
	writeJSON(&b, value, st, st.prefix)
	return b.String()
}

func (e *editor) flowKey(key string, st jsonStyle) string {
	if e.unit.json {
		return jsonText(key) + st.colon
	}
	return yamlText(key) + ": "
}

func (e *editor) insertFlow(n *node, key string, value *node) error {
	off := n.content(e.data)
	st := e.jsonStyle(n)
	text := e.flowKey(key, st) + e.flowText(value, st)
	if off == n.off && len(n.kids) == 2 && off < len(e.data) && e.data[off] != '{' { // [a: b]
		end := n.end(e.data)
		e.splice(off, off, "{")
		e.splice(end, end, ", "+text+"}")
		return nil
	}
	if off >= len(e.data) || e.data[off] != '{' {
		return errors.New("cannot be set: its mapping has no braces")
	}
	if len(n.kids) == 0 {
		e.splice(off+1, off+1, text)
		return nil
	}
	at := n.kids[len(n.kids)-1].end(e.data)
	if st.eol != "" {
		e.splice(at, at, ","+st.eol+st.prefix+text)
	} else {
		e.splice(at, at, st.comma+text)
	}
	return nil
}

func (e *editor) replaceFlow(n *node, k int, value *node) error {
	key, old := n.kids[k], n.kids[k+1]
	st := e.jsonStyle(n)
	if _, own := e.blank(key.off); !own {
		st.eol, st.step = "", ""
	}
	text := e.flowText(value, st)
	end := old.end(e.data)
	if end > old.off {
		e.splice(old.off, end, text)
		return nil
	}
	after := key.end(e.data)
	if i := skipSpace(e.data, after); i < len(e.data) && e.data[i] == ':' {
		e.splice(i+1, i+1, " "+text)
	} else {
		e.splice(after, after, ": "+text)
	}
	return nil
}

func (e *editor) removeFlow(n *node, k int) error {
	key, old := n.kids[k], n.kids[k+1]
	end := old.end(e.data)
	if end == old.off { // nothing is there, and its place is vague
		end = key.end(e.data)
		if i := skipSpace(e.data, end); i < len(e.data) && e.data[i] == ':' {
			end = i + 1
		}
	}
	switch {
	case k+2 < len(n.kids):
		e.splice(key.off, n.kids[k+2].off, "")
	case k > 0:
		e.splice(max(n.kids[k-1].end(e.data), n.kids[k-2].end(e.data)), end, "")
	default:
		if i := skipSpace(e.data, end); i < len(e.data) && e.data[i] == ',' {
			end = i + 1
		}
		e.splice(key.off, end, "")
	}
	return nil
}
