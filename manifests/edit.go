package manifests

import (
	"bytes"
	"errors"
	"fmt"
	"hash/maphash"
	"reflect"
	"slices"
	"sort"
)

// Edit sets one value of a document.
type Edit struct {
	// Path leads to the value, by string keys and int indices. Keys that are missing are made.
	Path []any
	// Value is anything that encoding/json takes; nil deletes the key.
	Value any
}

// EditError is an edit that cannot be made without changing something else. The file is as it was.
type EditError struct {
	Path   string // of the file
	Doc    int    // index in File.Docs
	Line   int
	Field  string
	Detail string
}

func (e *EditError) Error() string {
	return (&Error{Path: e.Path, Line: e.Line, Field: e.Field, Detail: e.Detail}).Error()
}

// ErrOtherBytes is returned where an edit is given other bytes than Decode got.
var ErrOtherBytes = errors.New("the file is not the one that was decoded")

// EditStatus returns data, which must be what Decode got, with other statuses; the key is the
// index in Docs, and nil removes the status. Every other byte stays. A status that says the same
// already is left as it is, however it is written. If a status cannot be written the error is an
// *EditError, and the rest may be tried without it.
func (f *File) EditStatus(data []byte, status map[int]*JobStatus) ([]byte, error) {
	changes := make([]change, 0, len(status))
	for i, s := range status {
		c := change{doc: i, path: []any{"status"}, block: true}
		if s != nil {
			var err error
			if c.value, err = statusNode(s); err != nil {
				return nil, &EditError{Path: f.Path, Doc: i, Field: "status", Detail: err.Error()}
			}
		}
		changes = append(changes, c)
	}
	sort.Slice(changes, func(i, k int) bool { return changes[i].doc < changes[k].doc })
	return f.apply(data, changes)
}

// Set returns data, which must be what Decode got, with values of one document set. Every other
// byte stays.
func (f *File) Set(data []byte, doc int, edits ...Edit) ([]byte, error) {
	for i, e := range edits {
		c := change{doc: doc, path: e.Path}
		if len(e.Path) == 0 {
			return nil, &EditError{Path: f.Path, Doc: doc, Detail: "an edit without a path"}
		}
		if e.Value != nil {
			var err error
			if c.value, err = toNode(e.Value); err != nil {
				return nil, &EditError{Path: f.Path, Doc: doc, Field: pathText(e.Path), Detail: err.Error()}
			}
		}
		next, err := f.apply(data, []change{c})
		if err != nil {
			return nil, err
		}
		if i+1 < len(edits) && !bytes.Equal(next, data) {
			f = Decode(f.Path, next)
		}
		data = next
	}
	return data, nil
}

// change is an edit with its value as nodes; nil deletes.
type change struct {
	doc   int
	path  []any
	value *node
	block bool // write it in block style where that is possible
}

// splice replaces data[lo:hi].
type splice struct {
	lo, hi int
	text   string
}

// origin is where a document was found in its file.
type origin struct {
	span
	nth int // among the objects of our group in the span
}

var seed = maphash.MakeSeed()

func (f *File) fail(c change, detail string) error {
	e := &EditError{Path: f.Path, Doc: c.doc, Field: pathText(c.path), Detail: detail}
	if c.doc >= 0 && c.doc < len(f.Docs) {
		e.Line = f.Docs[c.doc].Line
	}
	return e
}

// apply makes changes, in the order of their documents. It works on the bytes of one YAML document
// at a time, and nothing else in the file is touched or read.
func (f *File) apply(data []byte, changes []change) ([]byte, error) {
	if len(changes) == 0 {
		return data, nil
	}
	if len(data) != f.size || maphash.Bytes(seed, data) != f.sum {
		return nil, ErrOtherBytes
	}
	var out []byte
	pos := 0
	for len(changes) > 0 {
		first := changes[0]
		if first.doc < 0 || first.doc >= len(f.Docs) {
			return nil, f.fail(first, "there is no such document")
		}
		s := f.Docs[first.doc].from.span
		n := 1
		for n < len(changes) && changes[n].doc < len(f.Docs) && f.Docs[changes[n].doc].from.span == s {
			n++
		}
		text, err := f.applyTo(data, s, changes[:n])
		if err != nil {
			return nil, err
		}
		if !bytes.Equal(text, data[s.lo:s.hi]) {
			out = append(out, data[pos:s.lo]...)
			out = append(out, text...)
			pos = s.hi
		}
		changes = changes[n:]
	}
	if pos == 0 {
		return data, nil
	}
	out = append(out, data[pos:]...)
	if len(out) > MaxFileSize {
		return nil, f.fail(change{doc: -1}, fmt.Sprintf("the file would become larger than %d MiB", MaxFileSize>>20))
	}
	return out, nil
}

// applyTo makes the changes of one YAML document and returns its text.
func (f *File) applyTo(data []byte, s span, changes []change) ([]byte, error) {
	before := f.examine(data, s)
	if before.err != nil {
		return nil, f.fail(changes[0], before.err.Error())
	}
	// All at once is quick. Where it does not come out right, each is tried by itself, at other
	// places too.
	changes = slices.DeleteFunc(slices.Clone(changes), func(c change) bool { return before.says(f, c) })
	if len(changes) == 0 {
		return data[s.lo:s.hi], nil
	}
	text, err := f.attempt(before, changes, 0)
	if err == nil {
		return text, nil
	}
	for _, c := range changes {
		var text []byte
		var first error
		for place := range places4 {
			var err error
			if text, err = f.attempt(before, []change{c}, place); err == nil {
				first = nil
				break
			}
			if first == nil {
				first = err
			}
		}
		if first != nil {
			return nil, first
		}
		if before = f.examine(text, span{0, len(text), 1}); before.err != nil {
			return nil, f.fail(c, before.err.Error())
		}
	}
	return before.data[before.lo:before.hi], nil
}

// places4 is the number of places at which a new key may be tried.
const places4 = 4

// view is a YAML document as an edit sees it.
type view struct {
	span
	data   []byte
	docs   []*Doc // path, root and unit only
	units  []*unit
	values []any // one for each unit
	err    error
}

func (f *File) examine(data []byte, s span) *view {
	v := &view{span: s, data: data}
	units, err := parse(f.Path, data, s)
	if err != nil {
		v.err = errors.New(err.Detail)
		return v
	}
	v.units = units
	for _, u := range units {
		docs, _ := u.docs()
		v.docs = append(v.docs, docs...)
		var value any
		if len(docs) > 0 {
			if value, v.err = u.convert(data); v.err != nil {
				return v
			}
		}
		v.values = append(v.values, value)
	}
	return v
}

// target finds a change's document and the value of its unit.
func (v *view) target(f *File, c change) (*Doc, any) {
	nth := f.Docs[c.doc].from.nth
	if nth >= len(v.docs) {
		return nil, nil
	}
	d := v.docs[nth]
	return d, v.values[d.unit.nth]
}

// says tells whether the document has the value already.
func (v *view) says(f *File, c change) bool {
	d, whole := v.target(f, c)
	if d == nil {
		return false
	}
	now, ok := lookup(whole, slices.Concat(d.path, c.path))
	if c.value == nil {
		return !ok
	}
	return ok && reflect.DeepEqual(now, c.value.plainValue())
}

// attempt makes changes and looks at the outcome: unless it differs in these values and in nothing
// else, it is refused.
func (f *File) attempt(before *view, changes []change, place int) ([]byte, error) {
	var splices []splice
	eol := lineBreak(before.data[before.lo:before.hi])
	for _, c := range changes {
		d, _ := before.target(f, c)
		if d == nil {
			return nil, f.fail(c, "there is no such document")
		}
		e := &editor{data: before.data, unit: d.unit, view: before, eol: eol, place: place}
		if err := e.plan(d.root, c.path, c.value, c.block); err != nil {
			return nil, f.fail(c, err.Error())
		}
		splices = append(splices, e.splices...)
	}
	sort.SliceStable(splices, func(i, k int) bool { return splices[i].lo < splices[k].lo })
	var text []byte
	pos := before.lo
	for _, s := range splices {
		if s.lo < pos {
			return nil, f.fail(changes[0], "the edits touch each other")
		}
		text = append(text, before.data[pos:s.lo]...)
		text = append(text, s.text...)
		pos = s.hi
		if pos < s.lo || pos > before.hi { // an anchor without a value: nobody says where it ends
			return nil, f.fail(changes[0], "cannot be set: the end of what is there is not known")
		}
	}
	text = append(text, before.data[pos:before.hi]...)

	if spans := splitFile(text); len(spans) != 1 || spans[0].lo != 0 || spans[0].hi != len(text) {
		return nil, f.fail(changes[0], "cannot be set: the document would fall apart")
	}
	after := f.examine(text, span{0, len(text), 1})
	if after.err != nil {
		return nil, f.fail(changes[0], "cannot be set without breaking the document: "+after.err.Error())
	}
	if len(after.docs) != len(before.docs) || len(after.units) != len(before.units) {
		return nil, f.fail(changes[0], "cannot be set without changing more than this value")
	}
	for _, c := range changes {
		if !after.says(f, c) {
			return nil, f.fail(c, "cannot be set: another part of the document decides this value")
		}
	}
	if !reflect.DeepEqual(before.rest(f, changes), after.rest(f, changes)) {
		return nil, f.fail(changes[0], "cannot be set without changing more than this value; is it shared by an anchor?")
	}
	return text, nil
}

// rest returns the values without those that the changes set. What it has in common with them
// must not be written to.
func (v *view) rest(f *File, changes []change) []any {
	values := slices.Clone(v.values)
	deepest := make([]int, len(values))
	for _, c := range changes {
		d, _ := v.target(f, c)
		u := d.unit.nth
		deepest[u] = max(deepest[u], len(d.path)+len(c.path))
	}
	for i, depth := range deepest {
		values[i] = spine(values[i], depth)
	}
	for _, c := range changes {
		d, _ := v.target(f, c)
		without(values[d.unit.nth], slices.Concat(d.path, c.path), len(d.path))
	}
	return values
}

// spine copies a value down to a depth.
func spine(v any, depth int) any {
	if depth == 0 {
		return v
	}
	switch v := v.(type) {
	case map[string]any:
		c := make(map[string]any, len(v))
		for k, e := range v {
			c[k] = spine(e, depth-1)
		}
		return c
	case []any:
		c := make([]any, len(v))
		for i, e := range v {
			c[i] = spine(e, depth-1)
		}
		return c
	}
	return v
}

func lookup(v any, path []any) (any, bool) {
	for _, p := range path {
		switch p := p.(type) {
		case string:
			m, _ := v.(map[string]any)
			next, ok := m[p]
			if !ok {
				return nil, false
			}
			v = next
		case int:
			l, _ := v.([]any)
			if p < 0 || p >= len(l) {
				return nil, false
			}
			v = l[p]
		default:
			return nil, false
		}
	}
	return v, true
}

// without removes a value, and the mappings around it that are empty then; keep is the number of
// steps that stay.
func without(v any, path []any, keep int) {
	for n := len(path); n > keep; n-- {
		parent, _ := lookup(v, path[:n-1])
		m, ok := parent.(map[string]any)
		key, isKey := path[n-1].(string)
		if ok && isKey {
			if inner, isMap := m[key].(map[string]any); n < len(path) && m[key] != nil && !(isMap && len(inner) == 0) {
				return
			}
			delete(m, key)
		} else if n < len(path) {
			return
		}
	}
}

func pathText(path []any) string {
	f := field{}
	for _, p := range path {
		switch p := p.(type) {
		case string:
			f.path = join(f.path, p)
		case int:
			f.path = f.index(p).path
		}
	}
	return f.path
}

// lineBreak is the file's own.
func lineBreak(data []byte) string {
	if i := bytes.IndexAny(data, "\r\n"); i >= 0 {
		switch {
		case data[i] == '\n':
			return "\n"
		case i+1 < len(data) && data[i+1] == '\n':
			return "\r\n"
		default:
			return "\r"
		}
	}
	return "\n"
}
