package manifests

import (
	"bytes"
	"hash/maphash"
	"reflect"
	"slices"
)

// Remove returns data, which must be what Decode got, without one document: its lines, the comments
// among them and its marker. An object in a list goes alone, the last one with its list. Every other
// byte stays. What is returned is empty if nothing but white space and markers would be left.
func (f *File) Remove(data []byte, doc int) ([]byte, error) {
	c := change{doc: doc}
	if !f.same(data) {
		return nil, ErrOtherBytes
	}
	if doc < 0 || doc >= len(f.Docs) {
		return nil, f.fail(c, "there is no such document")
	}
	s := f.Docs[doc].from.span
	v := f.examine(data, s)
	if f.Docs[doc].from.nth >= len(v.docs) {
		return nil, f.fail(c, "cannot be removed: the document cannot be parsed")
	}
	splices, err := f.removals(v, v.docs[f.Docs[doc].from.nth])
	if err != nil {
		return nil, f.fail(c, err.Error())
	}
	for _, cut := range splices {
		next := slices.Concat(data[:cut.lo], []byte(cut.text), data[cut.hi:])
		if !f.lacks(Decode(f.Path, next), doc) {
			continue
		}
		if nothing(next) {
			return nil, nil
		}
		return next, nil
	}
	return nil, f.fail(c, "cannot be removed without changing something else")
}

// same tells whether data is what was decoded.
func (f *File) same(data []byte) bool {
	return len(data) == f.size && maphash.Bytes(seed, data) == f.sum
}

// removals are ways to take a document out, the best one first.
func (f *File) removals(v *view, d *Doc) ([]splice, error) {
	e := &editor{data: v.data, unit: d.unit, view: v, eol: lineBreak(v.data)}
	// The innermost list that is not empty without the object.
	for path := d.path; len(path) > 0; path = path[:len(path)-2] {
		seq := d.unit.root
		for _, p := range path[:len(path)-1] {
			if seq = seq.step(p); seq == nil {
				return nil, errShared
			}
		}
		if n := len(seq.kids); n > 1 {
			i := path[len(path)-1].(int)
			order := make([]int, 0, n-1)
			for k := range n {
				if k != i {
					order = append(order, k)
				}
			}
			err := e.arrange(seq, order, nil)
			return e.splices, err
		}
	}
	if len(v.units) > 1 { // JSON objects in a row
		lo, hi := d.unit.lo, d.unit.hi
		if d.unit.nth+1 < len(v.units) {
			return []splice{{lo, v.units[d.unit.nth+1].lo, ""}}, nil
		}
		return []splice{{v.units[d.unit.nth-1].hi, hi, ""}}, nil
	}
	cut := splice{v.lo, v.hi, ""}
	all := []splice{cut}
	if v.hi < len(v.data) && isMarker(v.data[v.hi:], "...") {
		cut.hi = lineEnd(v.data, v.hi)
		all = slices.Insert(all, 0, cut)
	}
	return all, nil
}

// step goes down one step of a path, but not through an alias or a merged mapping.
func (n *node) step(p any) *node {
	switch p := p.(type) {
	case string:
		if n.kind == mappingNode {
			if k := ownKey(n, p); k >= 0 {
				return n.kids[k+1]
			}
		}
	case int:
		if n.kind == sequenceNode && p >= 0 && p < len(n.kids) {
			return n.kids[p]
		}
	}
	return nil
}

// lacks tells whether g is f without one document, and otherwise the same.
func (f *File) lacks(g *File, doc int) bool {
	if len(g.Docs) != len(f.Docs)-1 || len(g.Errors) != len(f.Errors) || g.Skipped != f.Skipped {
		return false
	}
	for i := range g.Docs {
		k := i
		if i >= doc {
			k++
		}
		if !sameDoc(f.Docs[k], g.Docs[i]) {
			return false
		}
	}
	return true
}

// sameDoc tells whether two documents are the same objects, wherever they stand.
func sameDoc(a, b *Doc) bool {
	return a.ID == b.ID && a.Name == b.Name && len(a.Errors) == len(b.Errors) && reflect.DeepEqual(a.Object, b.Object)
}

// nothing tells whether a file holds only white space and markers.
func nothing(data []byte) bool {
	data = bytes.TrimPrefix(data, byteOrderMark)
	for pos := 0; pos < len(data); {
		next := lineEnd(data, pos)
		line := data[pos:next]
		if isMarker(line, "---") || isMarker(line, "...") {
			line = line[3:]
		}
		if len(bytes.TrimSpace(line)) > 0 {
			return false
		}
		pos = next
	}
	return true
}
