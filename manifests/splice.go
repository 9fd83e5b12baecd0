package manifests

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// editor plans the splices of one change.
type editor struct {
	data    []byte
	unit    *unit
	view    *view
	eol     string
	place   int // 0, or the number of the place to try for a new key
	splices []splice
}

var errShared = errors.New("cannot be set: its value is shared by an alias")

func (e *editor) splice(lo, hi int, text string) {
	e.splices = append(e.splices, splice{lo, hi, text})
}

// plan finds what to replace so that the value at a path below n becomes value.
func (e *editor) plan(n *node, path []any, value *node, block bool) error {
	root := n
	for i, p := range path {
		last := i == len(path)-1
		if n.kind == aliasNode {
			return errShared
		}
		switch p := p.(type) {
		case int:
			if n.kind != sequenceNode || p < 0 || p >= len(n.kids) {
				return errors.New("cannot be set: there is no such item")
			}
			if last {
				return errors.New("cannot be set: an item as a whole")
			}
			n = n.kids[p]
		case string:
			if n.kind != mappingNode {
				return errors.New("cannot be set: what it belongs to is not a mapping")
			}
			k := ownKey(n, p)
			switch {
			case k < 0 && value == nil:
				if n.get(p) != nil {
					return errors.New("cannot be removed: it is merged from elsewhere")
				}
				return nil
			case k < 0:
				return e.insert(n, p, nest(path[i+1:], value), block, n == root && len(path) == 1)
			case !last && n.kids[k+1].isNull() && n.kids[k+1].kind == scalarNode:
				if value == nil {
					return nil
				}
				return e.replace(n, k, nest(path[i+1:], value), false)
			case last && value != nil:
				return e.replace(n, k, value, block)
			case last:
				if len(n.kids) == 2 && i > 0 {
					return e.plan(root, path[:i], &node{kind: mappingNode, style: flowStyle}, false)
				}
				for k := range n.kids { // a duplicate would take its place
					if c := n.kids[k].deref(); k%2 == 0 && c != nil && c.kind == scalarNode && c.value == p && !isMerge(c) {
						if err := e.remove(n, k); err != nil {
							return err
						}
					}
				}
				return nil
			}
			n = n.kids[k+1]
		default:
			return errors.New("cannot be set: a path is made of keys and indices")
		}
	}
	return nil
}

// nest wraps a value in the mappings that a path wants.
func nest(path []any, value *node) *node {
	for i := len(path) - 1; i >= 0; i-- {
		key, _ := path[i].(string)
		value = &node{kind: mappingNode, style: flowStyle, kids: []*node{{style: doubleStyle, value: key}, value}}
	}
	return value
}

// ownKey returns the index of a key in kids, of the last one if there are several, since that is
// the one that counts.
func ownKey(n *node, key string) int {
	for i := len(n.kids) - 2; i >= 0; i -= 2 {
		if k := n.kids[i].deref(); k != nil && k.kind == scalarNode && k.value == key && !isMerge(k) {
			return i
		}
	}
	return -1
}

// free makes sure that no alias elsewhere wants an anchor in what is about to go.
func (e *editor) free(old *node) error {
	anchors := map[*node]bool{}
	var gather func(n *node)
	gather = func(n *node) {
		if n.anchor != "" {
			anchors[n] = true
		}
		for _, kid := range n.kids {
			gather(kid)
		}
	}
	if gather(old); len(anchors) == 0 {
		return nil
	}
	var used func(n *node) error
	used = func(n *node) error {
		switch {
		case n == old:
			return nil
		case n.kind == aliasNode && anchors[n.alias]:
			return fmt.Errorf("cannot be set: it holds the anchor &%s, which is used elsewhere", n.value)
		}
		for _, kid := range n.kids {
			if err := used(kid); err != nil {
				return err
			}
		}
		return nil
	}
	return used(e.unit.root)
}

func (e *editor) lineStart(off int) int {
	for off > 0 && !isBreak(e.data[off-1]) {
		off--
	}
	return off
}

// lineStop returns the offset of the line break at or behind off, or the end of the document.
func (e *editor) lineStop(off int) int {
	for off < e.unit.hi && !isBreak(e.data[off]) {
		off++
	}
	return off
}

// blank returns the white space before off in its line, and whether nothing else stands there.
func (e *editor) blank(off int) (string, bool) {
	from := off
	for from > e.view.lo && isBlank(e.data[from-1]) {
		from--
	}
	start := from == e.view.lo || isBreak(e.data[from-1]) || from == len(byteOrderMark) && bytes.HasPrefix(e.data, byteOrderMark)
	return string(e.data[from:off]), start
}

// keyStart returns where the entry of a key begins: before the ? of an explicit key.
func (e *editor) keyStart(off int) int {
	s, _ := e.blank(off)
	if at := off - len(s) - 1; at >= e.view.lo && e.data[at] == '?' {
		return at
	}
	return off
}

// indent returns the white space that brings a new key under the key at off.
func (e *editor) indent(off int) string {
	off = e.keyStart(off)
	if s, ok := e.blank(off); ok {
		return s
	}
	return strings.Repeat(" ", utf8.RuneCount(e.data[max(e.lineStart(off), e.view.lo):off]))
}

// tail returns the comment that follows off in its line, with the space before it.
func (e *editor) tail(off int) (comment string, ok bool) {
	rest := string(e.data[off:e.lineStop(off)])
	text := strings.TrimLeft(rest, " \t")
	switch {
	case text == "":
		return "", true
	case text[0] == '#' && len(text) < len(rest):
		return strings.TrimRight(rest, " \t"), true
	}
	return "", false
}

// comments returns the end of the comment lines that follow the line ending at stop and are
// indented by at least least columns.
func (e *editor) comments(stop, least int) int {
	for stop < e.unit.hi {
		from := min(lineEnd(e.data, stop), e.unit.hi)
		next := e.lineStop(from)
		text := e.data[from:next]
		in := indentOf(text)
		if in < least || in == len(text) || text[in] != '#' {
			break
		}
		stop = next
	}
	return stop
}

// entry writes "key: value" for a block mapping.
func (e *editor) entry(key string, value *node, block bool, indent string) string {
	if block && value.kind == mappingNode && len(value.kids) > 0 {
		return yamlText(key) + ":" + e.eol + strings.Join(blockYAML(value, indent+"  "), e.eol)
	}
	return yamlText(key) + ": " + flowYAML(value)
}

// insert adds a key to a mapping. top tells a key of the object itself.
func (e *editor) insert(n *node, key string, value *node, block, top bool) error {
	if n.style == flowStyle {
		return e.insertFlow(n, key, value)
	}
	first, lastKey, lastValue := n.kids[0], n.kids[len(n.kids)-2], n.kids[len(n.kids)-1]
	indent := e.indent(first.off)
	text := e.entry(key, value, block, indent)
	place := e.place
	if key == "clock" && !top {
		place = (place + 3) % places4 // it reads best as the first of its spec
	}
	whole := n == e.unit.root
	switch place {
	case 0: // behind the last line of the document, item or mapping
		stop := e.lineStop(lastValue.end(e.data))
		if whole {
			stop = e.unit.lo + len(bytes.TrimRight(e.data[e.unit.lo:e.unit.hi], " \t\r\n"))
			stop = e.lineStop(stop)
		} else if top {
			stop = e.comments(stop, len(indent))
		} else { // what is indented deeper is about the last value
			stop = e.comments(stop, len(indent)+1)
		}
		e.line(stop, indent+text)
	case 1: // behind blank lines that may belong to the last value
		if !whole {
			return errors.New("cannot be set: no place for it")
		}
		if hi := e.unit.hi; hi > 0 && isBreak(e.data[hi-1]) {
			e.splice(hi, hi, indent+text+e.eol)
		} else {
			e.line(hi, indent+text)
		}
	case 2: // before the last key
		at := e.keyStart(lastKey.off)
		e.splice(at, at, text+e.eol+indent)
	case 3: // before the first
		at := e.keyStart(first.off)
		e.splice(at, at, text+e.eol+indent)
	}
	return nil
}

// line puts lines behind the one whose break, if it has one, is at stop.
func (e *editor) line(stop int, text string) {
	if stop < e.unit.hi {
		at := min(lineEnd(e.data, stop), e.unit.hi)
		e.splice(at, at, text+e.eol)
	} else {
		e.splice(stop, stop, e.eol+text)
	}
}

// replace gives a key that is there another value.
func (e *editor) replace(n *node, k int, value *node, block bool) error {
	key, old := n.kids[k], n.kids[k+1]
	if err := e.free(old); err != nil {
		return err
	}
	if n.style == flowStyle {
		return e.replaceFlow(n, k, value)
	}
	colon := skipSpace(e.data, key.end(e.data))
	if colon >= e.unit.hi || e.data[colon] != ':' {
		return errors.New("cannot be set: its key has no colon")
	}
	colon++
	end := max(old.end(e.data), colon)
	stop := e.lineStop(colon)
	sameLine := old.off <= stop
	_, endsClean := e.tail(end)
	if !endsClean {
		return errors.New("cannot be set: something follows its value in the same line")
	}
	if block && value.kind == mappingNode && len(value.kids) > 0 {
		comment, _ := e.keyComment(old, colon, end)
		stop := e.comments(e.lineStop(end), len(e.indent(key.off))+1)
		lines := blockYAML(value, e.indent(key.off)+"  ")
		e.splice(colon, stop, comment+e.eol+strings.Join(lines, e.eol))
		return nil
	}
	text := flowYAML(value)
	multiline := old.kind != scalarNode && old.kind != aliasNode && old.style != flowStyle || old.style == blockStyle
	switch {
	case old.kind == scalarNode && old.end(e.data) == old.off: // nothing there
		e.splice(colon, colon, " "+text)
	case multiline || !sameLine:
		comment, _ := e.keyComment(old, colon, end)
		e.splice(colon, end, " "+text+comment)
	default:
		e.splice(old.off, end, text)
	}
	return nil
}

// keyComment is the comment on the line of a key, or on the last line of a value that begins there.
func (e *editor) keyComment(old *node, colon, end int) (comment string, own bool) {
	if old.off > e.lineStop(colon) {
		c, _ := e.tail(colon)
		return c, true
	}
	if content := old.content(e.data); content > e.lineStop(colon) || content != old.off && (old.kind == mappingNode || old.kind == sequenceNode) && old.style != flowStyle {
		i := bytes.IndexByte(e.data[colon:e.lineStop(colon)], '#') // behind &anchor or !tag
		if i > 0 {
			return strings.TrimRight(" "+string(e.data[colon+i:e.lineStop(colon)]), " \t"), true
		}
		return "", true
	}
	if old.style == blockStyle {
		if i := bytes.Index(e.data[colon:e.lineStop(colon)], []byte(" #")); i > 0 {
			return strings.TrimRight(string(e.data[colon+i:e.lineStop(colon)]), " \t"), true
		}
		return "", true
	}
	c, _ := e.tail(end)
	return c, false
}

// remove deletes a key; the comment on its line stays.
func (e *editor) remove(n *node, k int) error {
	key, old := n.kids[k], n.kids[k+1]
	if err := e.free(old); err != nil {
		return err
	}
	if n.style == flowStyle {
		return e.removeFlow(n, k)
	}
	colon := skipSpace(e.data, key.end(e.data))
	if colon >= e.unit.hi || e.data[colon] != ':' {
		return errors.New("cannot be removed: its key has no colon")
	}
	colon++
	end := max(old.end(e.data), colon)
	if _, clean := e.tail(end); !clean {
		return errors.New("cannot be removed: something follows its value in the same line")
	}
	comment, _ := e.keyComment(old, colon, end)
	stop := e.comments(e.lineStop(end), len(e.indent(key.off))+1)
	start := e.keyStart(key.off)
	prefix, blank := e.blank(start)
	switch {
	case !blank && k+2 < len(n.kids): // "- status: {}": the next key moves up
		e.splice(start, e.keyStart(n.kids[k+2].off), "")
	case !blank:
		return errors.New("cannot be removed: it is the only key")
	case comment != "":
		e.splice(start, stop, strings.TrimLeft(comment, " \t"))
	case stop < e.unit.hi:
		e.splice(start-len(prefix), lineEnd(e.data, stop), "")
	default: // the last line has no break, and the line before it shall have none either
		lo := start - len(prefix)
		for i := 0; i < 2 && lo > e.unit.lo && isBreak(e.data[lo-1]); i++ {
			lo--
			if e.data[lo] == '\n' && lo > e.unit.lo && e.data[lo-1] == '\r' {
				continue
			}
			break
		}
		e.splice(lo, stop, "")
	}
	return nil
}
