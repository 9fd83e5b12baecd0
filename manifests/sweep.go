package manifests

import (
	"bytes"
	"fmt"
	"sort"
	"strings"

	sigsyaml "sigs.k8s.io/yaml"
)

// maxExpanded bounds what a document may grow to when its aliases are followed.
const maxExpanded = 64 << 20

// sweep finds the values that sigs.k8s.io/yaml cannot convert to JSON, where it would give up the
// whole document: one of them may stand in status, or in one item of a list. They are marked, and
// convert leaves them out. It returns why the document cannot be read at all, if so.
func (u *unit) sweep(data []byte) string {
	s := sweeper{u: u, data: data, sizes: map[*node]int{}}
	size := s.visit(u.root)
	if s.cycle != "" {
		return fmt.Sprintf("anchor %q contains itself", s.cycle)
	}
	if size > maxExpanded {
		return fmt.Sprintf("its aliases expand to more than %d MiB", maxExpanded>>20)
	}
	sort.SliceStable(u.bad, func(i, k int) bool { return u.bad[i].off < u.bad[k].off })
	return ""
}

type sweeper struct {
	u     *unit
	data  []byte
	sizes map[*node]int // of anchored nodes, expanded; 0 while one is being visited
	cycle string
}

func (s *sweeper) mark(n *node, why string) {
	if n.bad == "" {
		if m := template.Find(s.data[n.off:min(n.off+200, s.u.hi)]); m != nil && bytes.HasPrefix(s.data[n.off:], m) {
			why = "a template that has not been rendered: " + shorten(string(m))
		}
		n.bad = why
		s.u.bad = append(s.u.bad, n)
	}
}

// visit returns the size of a value with all aliases followed.
func (s *sweeper) visit(n *node) int {
	if n.kind == aliasNode {
		size, ok := s.sizes[n.alias]
		if !ok || size == 0 {
			s.cycle = n.value
		}
		if n.alias != nil && n.alias.bad != "" {
			n.bad = n.alias.bad
		}
		return size
	}
	if n.anchor != "" {
		s.sizes[n] = 0
	}
	size := 8 + len(n.value)
	for i, kid := range n.kids {
		size = min(size+s.visit(kid), maxExpanded+1)
		if n.kind == mappingNode && i%2 == 0 {
			if why := badKey(kid); why != "" {
				s.mark(n, why)
			}
		} else if n.kind == mappingNode && isMerge(n.kids[i-1]) && !canMerge(kid) {
			s.mark(n, "<< wants a mapping or a list of mappings")
		}
	}
	if n.kind == scalarNode {
		s.scalar(n)
	}
	if n.anchor != "" {
		s.sizes[n] = size
	}
	return size
}

func (s *sweeper) scalar(n *node) {
	switch {
	case n.tag == "" && n.style == plainStyle && notFinite(n.value):
		s.mark(n, fmt.Sprintf("Invalid value: %s: must be a finite number", n.value))
	case n.tag != "" && n.tag != "!!str":
		text := bytes.TrimSpace(s.data[n.off:n.end(s.data)])
		if i := bytes.IndexByte(text, '!'); i >= 0 { // an anchor may stand before it
			text = text[i:]
		}
		if _, err := sigsyaml.YAMLToJSON(text); err != nil {
			s.mark(n, fmt.Sprintf("Invalid value: %q: does not suit its tag %s", shorten(n.value), n.tag))
		}
	}
}

func notFinite(s string) bool {
	switch strings.TrimLeft(s, "+-") {
	case ".inf", ".Inf", ".INF", ".nan", ".NaN", ".NAN":
		return true
	}
	return false
}

func isMerge(n *node) bool {
	return n.kind == scalarNode && n.value == "<<" && n.style == plainStyle && (n.tag == "" || n.tag == "!!merge")
}

func canMerge(n *node) bool {
	d := n.deref()
	if d == nil || d.kind == mappingNode {
		return d != nil
	}
	if n.kind != sequenceNode {
		return false
	}
	for _, kid := range n.kids {
		if d := kid.deref(); d == nil || d.kind != mappingNode {
			return false
		}
	}
	return true
}

// badKey says why a key cannot be one in JSON.
func badKey(k *node) string {
	d := k.deref()
	switch {
	case d == nil:
		return ""
	case d.kind != scalarNode:
		return "a key must be a text, not a mapping or a list"
	case d.isNull():
		return "a key must not be empty or null"
	case d.tag != "" && d.tag != "!!str":
		return fmt.Sprintf("a key must be a text, not %s", d.tag)
	case d.style == plainStyle && notFinite(d.value):
		return fmt.Sprintf("a key must be a text, not %s", d.value)
	}
	return ""
}
