package manifests

import (
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// field is a value of a document, with the node that places it.
type field struct {
	v    any
	n, k *node // value and key; nil where the place is not known
	path string
}

// at is where to point.
func (f field) at() *node {
	if f.k != nil {
		return f.k
	}
	return f.n
}

// get returns a field of a mapping. Where it is missing, the place is that of the mapping.
func (f field) get(key string) field {
	m, _ := f.v.(map[string]any)
	k, n := f.n.entry(key, 0)
	if k == nil {
		k, n = f.at(), nil
	}
	return field{v: m[key], n: n, k: k, path: join(f.path, key)}
}

func (f field) index(i int) field {
	l, _ := f.v.([]any)
	e := field{k: f.at(), path: f.path + "[" + strconv.Itoa(i) + "]"}
	if i < len(l) {
		e.v = l[i]
	}
	if d := f.n.deref(); d != nil && d.kind == sequenceNode && i < len(d.kids) {
		e.n, e.k = d.kids[i], d.kids[i]
	}
	return e
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	if strings.ContainsAny(key, "./[] ") || key == "" {
		return path + "[" + key + "]"
	}
	return path + "." + key
}

// checker gathers what is wrong with a document.
type checker struct {
	path string
	data []byte
	unit *unit
	errs []*Error
	more int
}

func (c *checker) full() bool { return len(c.errs) >= maxErrors }

func (c *checker) add(n *node, path, detail string) {
	if c.full() {
		c.more++
		return
	}
	off := c.unit.root.off
	if n != nil {
		off = n.off
	}
	line, col := c.unit.locate(c.data, off)
	c.errs = append(c.errs, &Error{Path: c.path, Line: line, Col: col, Field: path, Detail: detail})
}

func (c *checker) invalid(f field, detail string) {
	shown := show(f.v)
	if d := f.n.deref(); (noun(f.v) == "a number" || noun(f.v) == "a boolean") && d != nil && d.kind == scalarNode && d.value != "" {
		shown = shorten(d.value) // as it is written
	}
	c.add(f.at(), f.path, "Invalid value: "+shown+": "+detail)
}

func (c *checker) required(f field, detail string) {
	c.add(f.at(), f.path, "Required value: "+detail)
}

func (c *checker) sorted() []*Error {
	sort.SliceStable(c.errs, func(i, k int) bool {
		a, b := c.errs[i], c.errs[k]
		return a.Line < b.Line || a.Line == b.Line && a.Col < b.Col
	})
	if c.more > 0 {
		last := c.errs[len(c.errs)-1]
		c.errs = append(c.errs, &Error{Path: c.path, Line: last.Line, Detail: fmt.Sprintf("%d more errors", c.more)})
		c.more = 0
	}
	return c.errs
}

// show writes a value as a message names it.
func show(v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case string:
		return strconv.Quote(shorten(v))
	case float64:
		return strconv.FormatFloat(v, 'g', -1, 64)
	case map[string]any:
		return "{…}"
	case []any:
		return "[…]"
	}
	return fmt.Sprint(v)
}

// noun names a value's type as its user would.
func noun(v any) string {
	switch v.(type) {
	case string:
		return "a string"
	case bool:
		return "a boolean"
	case int64, float64:
		return "a number"
	case []any:
		return "a list"
	case map[string]any:
		return "a mapping"
	}
	return "null"
}

// shape is what is known of a struct type: the type of each of its JSON fields.
type shape map[string]reflect.Type

var shapes sync.Map

func shapeOf(t reflect.Type) shape {
	if s, ok := shapes.Load(t); ok {
		return s.(shape)
	}
	s := shape{}
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name != "":
			s[name] = f.Type
		case strings.Contains(options, "inline"):
			for k, v := range shapeOf(f.Type) {
				s[k] = v
			}
		}
	}
	shapes.Store(t, s)
	return s
}

var (
	jobType         = reflect.TypeFor[Job]()
	timeType        = reflect.TypeFor[metav1.Time]()
	unmarshalerType = reflect.TypeFor[json.Unmarshaler]()
)

// conforms checks a value against a Go type: the type of every value, unknown and duplicate
// fields. It reports whether the value itself can be looked at further.
func (c *checker) conforms(t reflect.Type, f field) bool {
	if d := f.n.deref(); d != nil && d.bad != "" {
		if f.path == "" {
			c.add(d, "", d.bad)
		} else {
			c.add(f.at(), f.path, d.bad)
		}
		return false
	}
	if f.v == nil { // null is nothing
		return true
	}
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case t == timeType:
		if s, ok := f.v.(string); !ok {
			return c.wrong(f, "a time such as \"2006-01-02T15:04:05Z\"")
		} else if _, err := time.Parse(time.RFC3339, s); err != nil {
			c.invalid(f, "must be a time such as 2006-01-02T15:04:05Z")
			return false
		}
		return true
	case reflect.PointerTo(t).Implements(unmarshalerType):
		return true
	}
	switch t.Kind() {
	case reflect.Struct:
		return c.structure(t, f)
	case reflect.Map:
		m, ok := f.v.(map[string]any)
		if !ok {
			return c.wrong(f, "a mapping")
		}
		c.entries(f, func(e field) { c.conforms(t.Elem(), e) }, m)
		return true
	case reflect.Slice:
		l, ok := f.v.([]any)
		if !ok {
			return c.wrong(f, "a list")
		}
		for i := range l {
			if e := f.index(i); e.v == nil && (e.n == nil || e.n.deref().bad == "") {
				c.invalid(e, "must be "+nounOf(t.Elem())+", not null")
			} else {
				c.conforms(t.Elem(), e)
			}
		}
		return true
	case reflect.String:
		if _, ok := f.v.(string); !ok {
			return c.wrong(f, "a string")
		}
	case reflect.Bool:
		if _, ok := f.v.(bool); !ok {
			return c.wrong(f, "true or false")
		}
	case reflect.Float64:
		if _, ok := number(f.v); !ok {
			return c.wrong(f, "a number")
		}
	case reflect.Int64, reflect.Int32, reflect.Int:
		return c.integer(f)
	}
	return true
}

func nounOf(t reflect.Type) string {
	switch t.Kind() {
	case reflect.String:
		return "a string"
	case reflect.Struct, reflect.Map:
		return "a mapping"
	}
	return "a value"
}

// wrong reports a value of the wrong type.
func (c *checker) wrong(f field, want string) bool {
	detail := "must be " + want + ", not " + noun(f.v)
	d := f.n.deref()
	_, isText := f.v.(string)
	switch {
	case isText && d != nil && d.style == plainStyle && looksNumeric(d.value):
		detail = "must be " + want + "; this is out of its range"
	case want == "a string" && (noun(f.v) == "a number" || noun(f.v) == "a boolean"):
		detail += "; put it in quotes"
	case isText && d != nil && d.style != plainStyle && (want == "a number" || want == "true or false" || want == "a whole number"):
		detail += "; leave out the quotes"
	}
	c.invalid(f, detail)
	return false
}

// looksNumeric tells 1e999, which is read as a string.
func looksNumeric(s string) bool {
	_, err := strconv.ParseFloat(s, 64)
	return err != nil && strings.Trim(s, "+-.eE0123456789") == "" && strings.ContainsAny(s, "0123456789")
}

func (c *checker) integer(f field) bool {
	switch v := f.v.(type) {
	case int64:
		// 9007199254740993.0 has been rounded on the way.
		if d := f.n.deref(); d != nil && d.kind == scalarNode && (v >= 1<<53 || v <= -1<<53) && strings.ContainsAny(d.value, ".eE") && !strings.HasPrefix(strings.ToLower(d.value), "0x") {
			c.invalid(f, "must be a whole number, written in digits")
			return false
		}
		return true
	case float64:
		switch {
		case math.Abs(v) >= 1<<63:
			c.invalid(f, "must be at most 9223372036854775807")
			return false
		case v != math.Trunc(v):
			c.invalid(f, "must be a whole number")
			return false
		case math.Abs(v) >= 1<<53:
			c.invalid(f, "must be a whole number, written in digits")
			return false
		}
		return true
	}
	return c.wrong(f, "a whole number")
}

func (c *checker) structure(t reflect.Type, f field) bool {
	m, ok := f.v.(map[string]any)
	if !ok {
		return c.wrong(f, "a mapping")
	}
	known := shapeOf(t)
	c.entries(f, func(e field) {
		key := e.path // entries hands down the bare key in struct mode
		e.path = join(f.path, key)
		ft, ok := known[key]
		switch {
		case !ok:
			detail := fmt.Sprintf("unknown field %q", shorten(key))
			if best := closest(key, known); best != "" {
				detail += fmt.Sprintf("; did you mean %q?", best)
			}
			c.add(e.at(), join(f.path, shorten(key)), detail)
		case t == jobType && key == "status":
			// What stands there never matters.
		default:
			c.conforms(ft, e)
		}
	}, m, bareKeys)
	return true
}

type keyMode int

const bareKeys keyMode = 1

// entries visits the entries of a mapping in order, and reports duplicate keys.
func (c *checker) entries(f field, visit func(field), m map[string]any, mode ...keyMode) {
	places := make(map[string][2]*node, len(m))
	var place func(d *node, depth int)
	place = func(d *node, depth int) {
		if d = d.deref(); d == nil || d.kind != mappingNode || depth > 8 {
			return
		}
		own := make(map[string]*node, len(d.kids)/2)
		for i := 0; i+1 < len(d.kids); i += 2 {
			k := d.kids[i].deref()
			if isMerge(d.kids[i]) || k == nil || k.kind != scalarNode {
				continue
			}
			if first := own[k.value]; first != nil && depth == 0 && c.full() {
				c.more++
			} else if first != nil && depth == 0 {
				line, _ := c.unit.locate(c.data, first.off)
				c.add(d.kids[i], join(f.path, shorten(k.value)), fmt.Sprintf("duplicate field %q; it is already in line %d", shorten(k.value), line))
			}
			own[k.value] = d.kids[i]
			if _, ok := places[k.value]; !ok || depth == 0 {
				places[k.value] = [2]*node{d.kids[i], d.kids[i+1]}
			}
		}
		for i := 0; i+1 < len(d.kids); i += 2 {
			if isMerge(d.kids[i]) {
				if d.kids[i+1].kind == sequenceNode {
					for _, one := range d.kids[i+1].kids {
						place(one, depth+1)
					}
				} else {
					place(d.kids[i+1], depth+1)
				}
			}
		}
	}
	place(f.n, 0)
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	for _, k := range keys {
		e := field{v: m[k], k: f.at(), path: join(f.path, k)}
		if len(mode) > 0 {
			e.path = k
		}
		if p, ok := places[k]; ok {
			e.k, e.n = p[0], p[1]
		}
		visit(e)
	}
}

// closest finds the field that was meant.
func closest(key string, known shape) string {
	best, most := "", 3
	for name := range known {
		if strings.EqualFold(name, key) {
			return name
		}
		if d := distance(strings.ToLower(key), strings.ToLower(name), most); d < most && d*2 < len(name) || d == most && name < best {
			best, most = name, d
		}
	}
	return best
}

// distance is the number of letters to change; what is more than most need not be exact.
func distance(a, b string, most int) int {
	if len(a)-len(b) > most || len(b)-len(a) > most || len(a) > 64 {
		return most + 1
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost = 1 + min(diagonal, row[j], row[j+1])
			}
			diagonal, row[j+1] = row[j+1], cost
		}
	}
	return row[len(b)]
}
