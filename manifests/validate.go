package manifests

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// maxAnnotations is Kubernetes' limit on the annotations of an object, in bytes.
const maxAnnotations = 256 << 10

// object checks a whole document.
func (c *checker) object(f field) {
	if d := f.n.deref(); d != nil && d.bad != "" {
		c.add(d, "", d.bad)
		return
	}
	if !c.typeMeta(f) {
		return // of an unknown kind nothing more can be said
	}
	if !c.conforms(jobType, f) {
		return
	}
	c.metadata(f)
	c.spec(f)
}

func (c *checker) typeMeta(f field) bool {
	known := true
	api, kind := f.get("apiVersion"), f.get("kind")
	switch {
	case api.v == nil:
		c.required(api, "must be "+APIVersion)
	case api.v != APIVersion:
		if _, ok := api.v.(string); ok {
			known = false
			c.add(api.at(), api.path, fmt.Sprintf("Unsupported value: %s: must be %s", show(api.v), APIVersion))
		}
	}
	switch {
	case kind.v == nil:
		c.required(kind, "must be "+Kind)
	case kind.v != Kind:
		if _, ok := kind.v.(string); ok {
			known = false
			c.add(kind.at(), kind.path, fmt.Sprintf("Unsupported value: %s: must be %s", show(kind.v), Kind))
		}
	}
	return known
}

func (c *checker) metadata(f field) {
	meta := f.get("metadata")
	if meta.v == nil {
		if !meta.missing() {
			return
		}
		meta.path = "metadata.name"
		c.required(meta, "a name that is unique in its namespace")
		return
	}
	if _, ok := meta.v.(map[string]any); !ok {
		return
	}
	switch name := meta.get("name"); v := name.v.(type) {
	case nil:
		if generate := meta.get("generateName"); generate.v != nil && generate.v != "" {
			name.k = generate.k
			c.required(name, "a file names its job; `leasehold create -f` makes a name from generateName")
		} else if name.missing() {
			c.required(name, "a name that is unique in its namespace")
		}
	case string:
		if v == "" {
			c.required(name, "a name that is unique in its namespace")
		} else {
			c.messages(name, validation.IsDNS1123Subdomain(v))
		}
	}
	if ns := meta.get("namespace"); ns.v != nil && ns.v != "" {
		if v, ok := ns.v.(string); ok {
			c.messages(ns, validation.IsDNS1123Label(v))
		}
	}
	c.pairs(meta.get("labels"), func(key, value field) {
		c.messages(key, validation.IsQualifiedName(key.v.(string)))
		if v, ok := value.v.(string); ok {
			c.messages(value, validation.IsValidLabelValue(v))
		}
	})
	size := 0
	annotations := meta.get("annotations")
	c.pairs(annotations, func(key, value field) {
		c.messages(key, validation.IsQualifiedName(strings.ToLower(key.v.(string))))
		v, _ := value.v.(string)
		size += len(key.v.(string)) + len(v)
	})
	if size > maxAnnotations {
		c.add(annotations.at(), annotations.path, fmt.Sprintf("Too long: may not be more than %d bytes", maxAnnotations))
	}
}

// messages reports what apimachinery's validation says.
func (c *checker) messages(f field, all []string) {
	if s, ok := f.v.(string); ok && len(all) > 0 && template.MatchString(s) {
		all = []string{"a template that has not been rendered"}
	}
	for _, m := range all {
		c.invalid(f, m)
	}
}

// pairs visits the entries of a string map.
func (c *checker) pairs(f field, visit func(key, value field)) {
	m, ok := f.v.(map[string]any)
	if !ok {
		return
	}
	quiet := &checker{path: c.path, data: c.data, unit: c.unit} // duplicates have been told
	quiet.entries(f, func(value field) {
		visit(field{v: value.path, n: value.k, k: value.k, path: f.path}, field{v: value.v, n: value.n, k: value.k, path: join(f.path, value.path)})
	}, m, bareKeys)
}

func (c *checker) spec(f field) {
	spec := f.get("spec")
	if spec.v == nil {
		if spec.missing() {
			c.required(spec, "wants at least ttl and workers")
		}
		return
	}
	if _, ok := spec.v.(map[string]any); !ok {
		return
	}
	clockField, ttlField := spec.get("clock"), spec.get("ttl")
	clock, hasClock := number(clockField.v)
	if hasClock && (clock < 0 || clock >= MaxClock) {
		c.invalid(clockField, fmt.Sprintf("must be at least 0 and less than %d", int64(MaxClock)))
		hasClock = false
	}
	ttl, hasTTL := number(ttlField.v)
	switch {
	case ttlField.missing():
		c.required(ttlField, "the length of a lease, greater than 0, in the unit of the clock")
	case !hasTTL:
	case ttl <= 0:
		c.invalid(ttlField, "must be greater than 0")
	case hasClock && !(clock+ttl > clock), ttl < 1e-6 && !hasClock:
		c.invalid(ttlField, "is too small: added to the clock it makes no difference")
	}
	if attempts := spec.get("maxAttempts"); attempts.v != nil {
		if n, ok := number(attempts.v); ok && n < 1 {
			c.invalid(attempts, "must be at least 1")
		}
	}
	c.workers(spec.get("workers"))
}

// missing tells what is not there from what could not be read.
func (f field) missing() bool {
	if f.v != nil {
		return false
	}
	d := f.n.deref()
	return d == nil || d.bad == ""
}

func (c *checker) workers(workers field) {
	list, ok := workers.v.([]any)
	if !ok || len(list) == 0 {
		if workers.missing() || ok {
			c.required(workers, "at least one worker")
		}
		return
	}
	seen := make(map[string]int, len(list))
	for i := range list {
		w := workers.index(i)
		if _, ok := w.v.(map[string]any); !ok {
			continue
		}
		name := w.get("name")
		if v, ok := name.v.(string); ok && v != "" {
			c.messages(name, validation.IsDNS1123Subdomain(v))
			if first, dup := seen[v]; dup {
				c.add(name.at(), name.path, fmt.Sprintf("Duplicate value: %q: workers[%d] has that name", shorten(v), first))
			} else {
				seen[v] = i
			}
		} else if ok || name.missing() {
			c.required(name, "the worker's name")
		}
		c.reports(w)
	}
}

func (c *checker) reports(w field) {
	complete, release, renew := w.get("complete"), w.get("release"), w.get("renew")
	completed, hasComplete := c.fence(complete)
	if m, ok := complete.v.(map[string]any); ok && m["result"] == nil {
		if result := complete.get("result"); result.missing() {
			c.required(result, "the job's result, which may be \"\"")
		}
	}
	released, hasRelease := c.fence(release)
	if hasComplete && hasRelease && completed == released {
		f := release.get("fence")
		c.invalid(f, "contradicts complete, which has the same fence; keep one of them")
	}
	c.fence(renew)
	if m, ok := renew.v.(map[string]any); ok && m["time"] == nil {
		if time := renew.get("time"); time.missing() {
			c.required(time, "a number that is greater with every heartbeat")
		}
	}
}

// fence checks the fence of a report.
func (c *checker) fence(report field) (int64, bool) {
	if _, ok := report.v.(map[string]any); !ok {
		return 0, false
	}
	f := report.get("fence")
	if f.missing() {
		c.required(f, "the fence of the lease that this report is about")
		return 0, false
	}
	n, ok := number(f.v)
	if ok && n < 1 {
		c.invalid(f, "must be at least 1")
		return 0, false
	}
	if v, exact := f.v.(int64); exact {
		return v, true
	}
	return int64(n), ok && n < 1<<53
}
