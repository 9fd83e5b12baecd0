package manifests

import (
	"encoding/json"
	"fmt"
	"hash/maphash"
	"math"
	"sort"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	sigsjson "sigs.k8s.io/json"
)

// File is a decoded manifest file.
type File struct {
	Path string
	// Docs are the objects of our group in order, those in lists included.
	Docs []*Doc
	// Errors are what belongs to none of Docs: one for each document that cannot be parsed.
	Errors []*Error
	// Skipped counts the documents of other API groups.
	Skipped int

	size int // of what was decoded, and its hash: edits want the same bytes
	sum  uint64
}

// Doc is an object of our group.
type Doc struct {
	// ID is the job's id, its name or namespace/name, if it can be read, whether the document is
	// accepted or not.
	ID              string
	Name, Namespace string
	// Job is there if the document is accepted. Its status is not filled in.
	Job *Job
	// Errors say why the document is not accepted, in the order of its lines.
	Errors []*Error
	// Status is what stands in the file, whether the document is accepted or not; nil if that is
	// nothing, null or {}. Fields that do not decode are left out.
	Status *JobStatus
	// Clock is spec.clock where it can be read and is valid, whether the document is accepted or not.
	Clock *float64
	// Object is the object as it stands in the file, where that can be parsed: for showing it.
	Object map[string]any
	// Line is the document's first line, its comments not counted.
	Line int

	from origin
	path []any // of the object in its document: empty, or items, 3
	root *node // while it is being decoded or edited
	unit *unit
}

// Decode decodes a manifest file. It never fails as a whole.
func Decode(path string, data []byte) *File {
	f := &File{Path: path, size: len(data), sum: maphash.Bytes(seed, data)}
	if len(data) > MaxFileSize {
		f.Errors = append(f.Errors, &Error{Path: path, Detail: fmt.Sprintf("the file is larger than %d MiB", MaxFileSize>>20)})
		return f
	}
	if enc := wrongEncoding(data); enc != "" {
		f.Errors = append(f.Errors, &Error{Path: path, Line: 1, Detail: "the file is " + enc + "; save it as UTF-8"})
		return f
	}
	for _, s := range splitFile(data) {
		if len(f.Docs) >= maxDocs {
			f.addError(&Error{Path: path, Line: s.line, Detail: fmt.Sprintf("more than %d objects in one file; what follows is left out", maxDocs)})
			break
		}
		units, err := parse(path, data, s)
		if err != nil {
			f.addError(err)
		}
		nth := len(f.Docs)
		for _, u := range units {
			if len(f.Docs) >= maxDocs {
				break
			}
			f.decodeUnit(data, u)
		}
		for i, d := range f.Docs[nth:] {
			d.from = origin{span: s, nth: i}
		}
	}
	for _, d := range f.Docs {
		d.root, d.unit = nil, nil
	}
	return f
}

func (f *File) addError(e *Error) {
	switch {
	case len(f.Errors) < maxErrors:
		f.Errors = append(f.Errors, e)
	case len(f.Errors) == maxErrors:
		f.Errors = append(f.Errors, &Error{Path: f.Path, Line: e.Line, Detail: "there are more errors in the file"})
	}
}

func (f *File) decodeUnit(data []byte, u *unit) {
	docs, skipped := u.docs()
	if len(docs) > maxDocs {
		f.addError(&Error{Path: f.Path, Line: u.line, Detail: fmt.Sprintf("more than %d objects in one document", maxDocs)})
		return
	}
	if len(docs) == 0 {
		// Such a mapping has no keys that an object could have.
		if text, ok := braces(data[u.lo:u.hi], u.root); ok {
			f.addError(errorAt(f.Path, data, u.lo, u.line, u.root.off, "", "a template that has not been rendered: "+shorten(text)))
			return
		}
	}
	f.Skipped += skipped
	if len(docs) == 0 {
		return
	}
	whole, err := u.convert(data)
	for _, d := range docs {
		f.Docs = append(f.Docs, d)
		d.Line, _ = u.locate(data, d.root.off)
		if err != nil {
			d.Name, d.Namespace = d.root.text("metadata", "name"), d.root.text("metadata", "namespace")
			d.setID()
			d.Errors = []*Error{parseError(f.Path, data, u.span, newPlaces(data, u.lo, u.hi), err)}
			continue
		}
		d.decode(f.Path, data, whole)
	}
}

// braces tells a document that is nothing but {{ … }}, which YAML reads as a mapping whose key is a
// mapping.
func braces(text []byte, root *node) (string, bool) {
	if root == nil || root.kind != mappingNode || root.style != flowStyle || len(root.kids) == 0 || root.kids[0].kind != mappingNode {
		return "", false
	}
	m := template.Find(text)
	return string(m), m != nil
}

// maxDocs bounds what aliases in a list can grow to.
const maxDocs = 100_000

// docs finds the objects of our group in a document.
func (u *unit) docs() (docs []*Doc, skipped int) {
	var collect func(n *node, path []any)
	collect = func(n *node, path []any) {
		api, kind := n.text("apiVersion"), n.text("kind")
		if items := n.get("items").deref(); strings.HasSuffix(kind, "List") && items != nil && items.kind == sequenceNode && len(path) < 32 {
			for i, item := range items.kids {
				if len(docs) > maxDocs {
					break
				}
				collect(item, append(path[:len(path):len(path)], "items", i))
			}
			return
		}
		if !isOurs(n, api, kind) {
			skipped++
			return
		}
		docs = append(docs, &Doc{path: path, root: n, unit: u})
	}
	collect(u.root, nil)
	return docs, skipped
}

// isOurs tells our objects, and what must have been meant as one.
func isOurs(n *node, api, kind string) bool {
	if d := n.deref(); d == nil || d.kind != mappingNode {
		return false
	}
	if api == "" && n.get("apiVersion").isNull() {
		// A key in the wrong case is told as such later.
		for i := 0; i+1 < len(n.deref().kids); i += 2 {
			if k := n.deref().kids[i]; k.kind == scalarNode && strings.EqualFold(k.value, "apiVersion") && inGroup(n.deref().kids[i+1].text()) {
				return true
			}
		}
		return strings.EqualFold(kind, Kind)
	}
	return inGroup(api)
}

func inGroup(apiVersion string) bool {
	group, _, _ := strings.Cut(strings.ToLower(strings.TrimSpace(apiVersion)), "/")
	return strings.TrimSpace(group) == Group
}

// get returns the value of a key, nil if there is none. Merged mappings count.
func (n *node) get(key string) *node {
	_, v := n.entry(key, 0)
	return v
}

func (n *node) entry(key string, depth int) (k, v *node) {
	d := n.deref()
	if d == nil || d.kind != mappingNode || depth > 8 {
		return nil, nil
	}
	for i := len(d.kids) - 2; i >= 0; i -= 2 { // the last one counts
		if c := d.kids[i].deref(); c != nil && c.kind == scalarNode && c.value == key && !isMerge(c) {
			return d.kids[i], d.kids[i+1]
		}
	}
	for i := len(d.kids) - 2; i >= 0; i -= 2 {
		if !isMerge(d.kids[i]) {
			continue
		}
		from := []*node{d.kids[i+1]}
		if d.kids[i+1].kind == sequenceNode {
			from = d.kids[i+1].kids
		}
		for _, m := range from {
			if k, v := m.entry(key, depth+1); k != nil {
				return k, v
			}
		}
	}
	return nil, nil
}

// text returns the text of the scalar at a path of keys, "" if there is none.
func (n *node) text(path ...string) string {
	for _, key := range path {
		n = n.get(key)
	}
	if d := n.deref(); d != nil && d.kind == scalarNode && !d.isNull() {
		return d.value
	}
	return ""
}

func (d *Doc) setID() {
	if len(validation.IsDNS1123Subdomain(d.Name)) > 0 ||
		d.Namespace != "" && len(validation.IsDNS1123Label(d.Namespace)) > 0 {
		return
	}
	d.ID = JobID(d.Namespace, d.Name)
}

// JobID returns the id of a job in the store.
func JobID(namespace, name string) string {
	if namespace == "" || namespace == "default" {
		return name
	}
	return namespace + "/" + name
}

// decode fills in the document from the value of the whole unit.
func (d *Doc) decode(path string, data []byte, whole any) {
	v := whole
	for _, p := range d.path {
		switch p := p.(type) {
		case string:
			m, _ := v.(map[string]any)
			v = m[p]
		case int:
			l, _ := v.([]any)
			v = nil
			if p < len(l) {
				v = l[p]
			}
		}
	}
	obj, _ := v.(map[string]any)
	d.Object = obj
	meta, _ := obj["metadata"].(map[string]any)
	d.Name, _ = meta["name"].(string)
	namespace, isText := meta["namespace"].(string)
	d.Namespace = namespace
	if kind, ok := obj["kind"].(string); (!ok || strings.EqualFold(kind, Kind)) && (isText || meta["namespace"] == nil) {
		d.setID()
	}
	d.Status = lenientStatus(obj["status"])
	spec, _ := obj["spec"].(map[string]any)
	if clock, ok := number(spec["clock"]); ok && clock >= 0 && clock < MaxClock {
		clock = positiveZero(clock)
		d.Clock = &clock
	}

	c := &checker{path: path, data: data, unit: d.unit}
	c.object(field{v: v, n: d.root})
	if d.Errors = c.sorted(); len(d.Errors) > 0 {
		return
	}
	rest := make(map[string]any, len(obj))
	for k, v := range obj {
		if k != "status" {
			rest[k] = v
		}
	}
	job := new(Job)
	text, err := json.Marshal(rest)
	if err == nil {
		var strict []error
		if strict, err = sigsjson.UnmarshalStrict(text, job); err == nil && len(strict) > 0 {
			err = strict[0]
		}
	}
	if err != nil { // something that the checks above do not know
		c.add(d.root, "", err.Error())
		d.Errors = c.sorted()
		return
	}
	if job.Spec.Clock != nil {
		*job.Spec.Clock = positiveZero(*job.Spec.Clock)
	}
	for i := range job.Spec.Workers {
		if r := job.Spec.Workers[i].Renew; r != nil {
			r.Time = positiveZero(r.Time)
		}
	}
	d.Job = job
}

// number returns a finite number.
func number(v any) (float64, bool) {
	switch v := v.(type) {
	case int64:
		return float64(v), true
	case float64:
		return v, !math.IsNaN(v) && !math.IsInf(v, 0)
	}
	return 0, false
}

// positiveZero turns -0 into 0, which is written and hashed differently.
func positiveZero(f float64) float64 {
	if f == 0 {
		return 0
	}
	return f
}

// lenientStatus reads what can be read.
func lenientStatus(v any) *JobStatus {
	m, _ := v.(map[string]any)
	if len(m) == 0 {
		return nil
	}
	s := new(JobStatus)
	if lenient(m, s) { // as nearly always
		return s
	}
	s = new(JobStatus)
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	for _, k := range keys {
		switch k {
		case "conditions":
			s.Conditions = lenientList[Condition](m[k])
		case "workers":
			s.Workers = lenientList[WorkerStatus](m[k])
		default:
			next := *s
			if lenient(map[string]any{k: m[k]}, &next) {
				*s = next
			}
		}
	}
	return s
}

func lenientList[T any](v any) []T {
	list, _ := v.([]any)
	var all []T
	for _, v := range list {
		var one T
		if m, ok := v.(map[string]any); ok && lenient(m, &one) {
			all = append(all, one)
		}
	}
	return all
}

func lenient(v map[string]any, into any) bool {
	text, err := json.Marshal(v)
	return err == nil && sigsjson.UnmarshalCaseSensitivePreserveInts(text, into) == nil
}
