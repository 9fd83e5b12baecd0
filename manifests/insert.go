package manifests

import (
	"bytes"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// Text returns a document as a file of its own, without its status. own says that these are its own
// bytes, comments included; what stands in a list or in JSON is written anew, without comments.
func (f *File) Text(data []byte, doc int) (text []byte, own bool) {
	if body, ok := f.body(data, doc); ok {
		text := data[body.lo:body.hi]
		g := Decode(f.Path, text)
		if len(g.Docs) == 1 && len(g.Errors) == 0 {
			if bare, err := g.EditStatus(text, map[int]*JobStatus{0: nil}); err == nil {
				text = bare
			}
			return text, true
		}
	}
	return Render(f.Docs[doc]), false
}

// body is the span of a document that stands alone in its part of the file, without the line of its
// marker.
func (f *File) body(data []byte, doc int) (span, bool) {
	if doc < 0 || doc >= len(f.Docs) || !f.same(data) {
		return span{}, false
	}
	s := f.Docs[doc].from.span
	v := f.examine(data, s)
	if len(v.units) != 1 || v.units[0].json || len(v.docs) != 1 || len(v.docs[0].path) > 0 {
		return span{}, false
	}
	if isMarker(data[s.lo:s.hi], "---") {
		next := lineEnd(data[:s.hi], s.lo)
		rest := bytes.TrimSpace(data[s.lo+3 : next])
		if len(rest) > 0 && rest[0] != '#' {
			return span{}, false
		}
		s.lo = next
	}
	return s, data[s.lo] != '%'
}

// SetText returns data, which must be what Decode got, with another text in the place of a document,
// which Text has called its own. The status stays, and so does every byte of the other documents.
func (f *File) SetText(data []byte, doc int, text []byte) ([]byte, error) {
	c := change{doc: doc}
	body, ok := f.body(data, doc)
	if !ok {
		return nil, f.fail(c, "its text cannot be replaced")
	}
	g := Decode(f.Path, text)
	if len(g.Docs) != 1 || len(g.Errors) > 0 || g.Skipped > 0 || len(splitFile(text)) != 1 {
		return nil, f.fail(c, "must be replaced by exactly one document")
	}
	if body.hi < len(data) && len(text) > 0 && !isBreak(text[len(text)-1]) {
		text = append(bytes.Clone(text), lineBreak(data)...)
	}
	var ways [][]byte
	before := f.Docs[doc]
	if before.Object["status"] == nil {
		ways = append(ways, text)
	} else {
		if tail := f.statusText(data[body.lo:body.hi]); tail != nil {
			way := bytes.Clone(text)
			if len(way) > 0 && !isBreak(way[len(way)-1]) {
				way = append(way, lineBreak(data)...)
			}
			ways = append(ways, append(way, tail...))
		}
		if way, err := g.EditStatus(text, map[int]*JobStatus{0: before.Status}); err == nil {
			ways = append(ways, way)
		}
	}
	for _, way := range ways {
		next := slices.Concat(data[:body.lo], way, data[body.hi:])
		after := Decode(f.Path, next)
		if len(after.Docs) != len(f.Docs) || len(after.Errors) != len(f.Errors) || after.Skipped != f.Skipped {
			continue
		}
		good := true
		for i, d := range after.Docs {
			if i == doc {
				good = good && reflect.DeepEqual(withoutStatus(d), withoutStatus(g.Docs[0])) && reflect.DeepEqual(d.Status, before.Status)
			} else {
				good = good && sameDoc(f.Docs[i], d)
			}
		}
		if good {
			return next, nil
		}
	}
	return nil, f.fail(c, "cannot be replaced without changing something else")
}

func withoutStatus(d *Doc) map[string]any {
	o := maps.Clone(d.Object)
	delete(o, "status")
	return o
}

// statusText returns the lines of a status at the end of a document.
func (f *File) statusText(body []byte) []byte {
	bare, err := Decode(f.Path, body).EditStatus(body, map[int]*JobStatus{0: nil})
	if err != nil {
		return nil
	}
	n := 0
	for n < len(bare) && bare[n] == body[n] {
		n++
	}
	for n > 0 && !isBreak(body[n-1]) {
		n--
	}
	if len(bytes.TrimSpace(bare[n:])) > 0 {
		return nil
	}
	return body[n:]
}

// Render writes an object as YAML in block style, without its status.
func Render(d *Doc) []byte {
	object := withoutStatus(d)
	top := &node{kind: mappingNode}
	add := func(n *node, key string, v any) {
		value, err := toNode(v)
		if err == nil {
			n.kids = append(n.kids, &node{style: doubleStyle, value: key}, value)
		}
	}
	for _, key := range inOrder(object, "apiVersion", "kind", "metadata", "spec") {
		v := object[key]
		if meta, ok := v.(map[string]any); ok && key == "metadata" {
			n := &node{kind: mappingNode}
			for _, k := range inOrder(meta, "name", "generateName", "namespace", "labels", "annotations") {
				add(n, k, meta[k])
			}
			top.kids = append(top.kids, &node{style: doubleStyle, value: key}, n)
			continue
		}
		if key == "spec" && d.Job != nil {
			v = d.Job.Spec
		}
		add(top, key, v)
	}
	return []byte(strings.Join(renderBlock(top, ""), "\n") + "\n")
}

// inOrder returns the keys of a mapping, some of them first.
func inOrder(m map[string]any, first ...string) []string {
	var keys []string
	for _, k := range first {
		if _, ok := m[k]; ok {
			keys = append(keys, k)
		}
	}
	for _, k := range slices.Sorted(maps.Keys(m)) {
		if !slices.Contains(first, k) {
			keys = append(keys, k)
		}
	}
	return keys
}

// renderBlock writes a value as lines.
func renderBlock(n *node, indent string) (lines []string) {
	switch {
	case n.kind == mappingNode && len(n.kids) > 0:
		for i := 0; i < len(n.kids); i += 2 {
			key, v := indent+yamlText(n.kids[i].value)+":", n.kids[i+1]
			switch {
			case len(v.kids) == 0:
				lines = append(lines, key+" "+flowYAML(v))
			case v.kind == sequenceNode:
				lines = append(append(lines, key), renderBlock(v, indent)...)
			default:
				lines = append(append(lines, key), renderBlock(v, indent+"  ")...)
			}
		}
	case n.kind == sequenceNode && len(n.kids) > 0:
		for _, kid := range n.kids {
			inner := renderBlock(kid, indent+"  ")
			inner[0] = indent + "- " + inner[0][len(indent)+2:]
			lines = append(lines, inner...)
		}
	default:
		lines = []string{indent + flowYAML(n)}
	}
	return lines
}
