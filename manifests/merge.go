package manifests

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
)

// MergeSpec returns data, which must be what Decode got, with another spec in one document. Where
// the two specs agree every byte stays, and so do the comments there; workers are told apart by
// their names. What cannot be changed by itself, since it is shared by an alias or laid out
// otherwise, is written anew with what is around it.
func (f *File) MergeSpec(data []byte, doc int, spec map[string]any) ([]byte, error) {
	if doc < 0 || doc >= len(f.Docs) {
		return nil, f.fail(change{doc: doc}, "there is no such document")
	}
	if f.Docs[doc].Object == nil {
		return nil, f.fail(change{doc: doc}, "cannot be changed: the document cannot be read")
	}
	want, _ := withoutNulls(spec).(map[string]any)
	if want == nil {
		want = map[string]any{}
	}
	next, err := f.arrangeWorkers(data, doc, want)
	if err == nil && !slices.Equal(next, data) {
		f, data = Decode(f.Path, next), next
	}
	wide := map[string]bool{} // paths that are replaced as a whole
	for {
		now, _ := f.Docs[doc].Object["spec"].(map[string]any)
		if now == nil {
			return f.Set(data, doc, Edit{Path: []any{"spec"}, Value: want})
		}
		edits := differences(nil, []any{"spec"}, now, want, wide)
		if len(edits) == 0 {
			return data, nil
		}
		for _, e := range edits {
			next, err := f.Set(data, doc, e)
			if err == nil && slices.Equal(next, data) {
				err = f.fail(change{doc: doc, path: e.Path}, "cannot be set")
			}
			if errors.As(err, new(*EditError)) {
				path := e.Path
				if e.Value == nil || wide[pathText(path)] {
					path = path[:len(path)-1]
				}
				for len(path) > 1 {
					if _, isKey := path[len(path)-1].(string); isKey && !wide[pathText(path)] {
						break
					}
					path = path[:len(path)-1]
				}
				if wide[pathText(path)] {
					return nil, err
				}
				wide[pathText(path)] = true
				break // the edits that are left may be among what is replaced now
			}
			if err != nil {
				return nil, err
			}
			f, data = Decode(f.Path, next), next
		}
	}
}

// differences lists what has to be set so that now becomes want.
func differences(edits []Edit, path []any, now, want any, wide map[string]bool) []Edit {
	if sameValue(now, want) {
		return edits
	}
	set := func() []Edit { return append(edits, Edit{Path: slices.Clone(path), Value: want}) }
	if wide[pathText(path)] {
		return set()
	}
	switch want := want.(type) {
	case map[string]any:
		now, ok := now.(map[string]any)
		if !ok || len(want) == 0 {
			return set()
		}
		for _, k := range slices.Sorted(maps.Keys(now)) {
			if _, stays := want[k]; !stays && now[k] != nil {
				edits = append(edits, Edit{Path: append(slices.Clone(path), k)})
			}
		}
		for _, k := range slices.Sorted(maps.Keys(want)) {
			edits = differences(edits, append(slices.Clone(path), k), now[k], want[k], wide)
		}
		return edits
	case []any:
		now, ok := now.([]any)
		if !ok || len(now) != len(want) {
			return set()
		}
		for i := range want {
			if _, isMap := want[i].(map[string]any); !isMap {
				if !sameValue(now[i], want[i]) {
					return set()
				}
				continue
			}
			if _, isMap := now[i].(map[string]any); !isMap || len(want[i].(map[string]any)) == 0 {
				return set()
			}
			edits = differences(edits, append(slices.Clone(path), i), now[i], want[i], wide)
		}
		return edits
	}
	return set()
}

// sameValue compares values of JSON: 30 and 30.0 are one, and so are null and nothing.
func sameValue(a, b any) bool {
	switch x := a.(type) {
	case map[string]any:
		y, ok := b.(map[string]any)
		if !ok {
			return false
		}
		for k := range y {
			if _, ok := x[k]; !ok && y[k] != nil {
				return false
			}
		}
		for k := range x {
			if !sameValue(x[k], y[k]) {
				return false
			}
		}
		return true
	case []any:
		y, ok := b.([]any)
		return ok && slices.EqualFunc(x, y, sameValue)
	}
	x, isNumber := number(a)
	y, too := number(b)
	if isNumber && too {
		i, exact := a.(int64)
		k, both := b.(int64)
		if exact && both {
			return i == k
		}
		// An integer that no float can hold is none that a float was meant to be.
		return x == y && (!exact || int64(x) == i) && (!both || int64(y) == k)
	}
	return reflect.DeepEqual(a, b)
}

// withoutNulls copies a value without the keys that are null.
func withoutNulls(v any) any {
	switch v := v.(type) {
	case map[string]any:
		m := make(map[string]any, len(v))
		for k, e := range v {
			if e != nil {
				m[k] = withoutNulls(e)
			}
		}
		return m
	case []any:
		l := make([]any, len(v))
		for i, e := range v {
			l[i] = withoutNulls(e)
		}
		return l
	}
	return v
}

// arrangeWorkers gives the document the workers that want names, in its order. Those that are there
// already keep their text; the values in them are compared later.
func (f *File) arrangeWorkers(data []byte, doc int, want map[string]any) ([]byte, error) {
	now, _ := f.Docs[doc].Object["spec"].(map[string]any)
	have, wanted := workersByName(now["workers"]), workersByName(want["workers"])
	if have == nil || wanted == nil || slices.Equal(have.names, wanted.names) {
		return data, nil
	}
	var order []int
	var fresh []*node
	expected := make([]any, 0, len(wanted.names))
	for i, name := range wanted.names {
		k := slices.Index(have.names, name)
		order = append(order, k)
		if k >= 0 {
			expected = append(expected, have.list[k])
			continue
		}
		n, err := workerNode(wanted.list[i])
		if err != nil {
			return nil, err
		}
		fresh = append(fresh, n)
		expected = append(expected, wanted.list[i])
	}
	v := f.examine(data, f.Docs[doc].from.span)
	nth := f.Docs[doc].from.nth
	if v.err != nil || nth >= len(v.docs) {
		return nil, f.fail(change{doc: doc}, "cannot be changed")
	}
	d := v.docs[nth]
	if d.root.kind == aliasNode {
		return nil, errShared
	}
	seq := d.root.step("spec")
	if seq != nil {
		seq = seq.step("workers")
	}
	e := &editor{data: data, unit: d.unit, view: v, eol: lineBreak(data)}
	if err := e.arrange(seq, order, fresh); err != nil {
		return nil, err
	}
	s := e.splices[0]
	next := slices.Concat(data[:s.lo], []byte(s.text), data[s.hi:])
	after := Decode(f.Path, next)
	if len(after.Docs) != len(f.Docs) || len(after.Errors) != len(f.Errors) || after.Skipped != f.Skipped {
		return nil, f.fail(change{doc: doc}, "cannot be arranged")
	}
	for i, d := range after.Docs {
		object := f.Docs[i].Object
		if i == doc {
			object, now = maps.Clone(object), maps.Clone(now)
			now["workers"] = expected
			object["spec"] = now
		}
		if !sameValue(object, d.Object) {
			return nil, f.fail(change{doc: doc}, "cannot be arranged without changing something else")
		}
	}
	return next, nil
}

type namedWorkers struct {
	names []string
	list  []any
}

// workersByName returns nil if the workers are not a list of mappings with a name each.
func workersByName(v any) *namedWorkers {
	list, _ := v.([]any)
	w := &namedWorkers{list: list}
	for _, item := range list {
		m, _ := item.(map[string]any)
		name, _ := m["name"].(string)
		if name == "" || slices.Contains(w.names, name) {
			return nil
		}
		w.names = append(w.names, name)
	}
	if len(list) == 0 {
		return nil
	}
	return w
}

// workerNode is a worker with its name first.
func workerNode(v any) (*node, error) {
	text, err := json.Marshal(v)
	var w Worker
	if err == nil {
		err = json.Unmarshal(text, &w)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot be written: %w", err)
	}
	return toNode(w)
}
