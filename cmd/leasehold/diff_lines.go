package main

import (
	"fmt"
	"slices"
	"strings"
)

// hunk says that lines a[a0:a1] have become b[b0:b1].
type hunk struct{ a0, a1, b0, b1 int }

// splitLines keeps the line breaks.
func splitLines(s string) []string {
	lines := strings.SplitAfter(s, "\n")
	if lines[len(lines)-1] == "" {
		lines = lines[:len(lines)-1]
	}
	return lines
}

// diffLines finds how a became b, by Myers' algorithm.
func diffLines(a, b []string) []hunk {
	lo := 0
	for lo < len(a) && lo < len(b) && a[lo] == b[lo] {
		lo++
	}
	ha, hb := len(a), len(b)
	for ha > lo && hb > lo && a[ha-1] == b[hb-1] {
		ha, hb = ha-1, hb-1
	}
	if lo == ha && lo == hb {
		return nil
	}
	const most = 2000 // edits; beyond that it is all one change
	x, y := a[lo:ha], b[lo:hb]
	limit := min(len(x)+len(y), most)
	mid := limit + 1
	v := make([]int, 2*mid+1)
	var trail [][]int
	found := false
	for d := 0; d <= limit && !found; d++ {
		trail = append(trail, slices.Clone(v))
		for k := -d; k <= d; k += 2 {
			var i int
			if k != -d && (k == d || v[mid+k-1] >= v[mid+k+1]) {
				i = v[mid+k-1] + 1 // right
			} else {
				i = v[mid+k+1]
			}
			j := i - k
			for i < len(x) && j < len(y) && x[i] == y[j] {
				i, j = i+1, j+1
			}
			v[mid+k] = i
			if i >= len(x) && j >= len(y) {
				found = true
				break
			}
		}
	}
	if !found {
		return []hunk{{lo, ha, lo, hb}}
	}
	// Back along the trail; matches are what is left.
	i, j := len(x), len(y)
	var hunks []hunk
	for d := len(trail) - 1; d > 0; d-- {
		v, k := trail[d], i-j
		prev := k - 1
		if k == -d || k != d && v[mid+k-1] < v[mid+k+1] {
			prev = k + 1
		}
		pi := v[mid+prev]
		pj := pi - prev
		for i > pi && j > pj {
			i, j = i-1, j-1
		}
		hunks = append(hunks, hunk{lo + pi, lo + i, lo + pj, lo + j})
		i, j = pi, pj
	}
	slices.Reverse(hunks)
	return joinHunks(hunks)
}

// joinHunks makes one of hunks that touch.
func joinHunks(hunks []hunk) (joined []hunk) {
	for _, h := range hunks {
		if n := len(joined); n > 0 && joined[n-1].a1 == h.a0 && joined[n-1].b1 == h.b0 {
			joined[n-1].a1, joined[n-1].b1 = h.a1, h.b1
			continue
		}
		joined = append(joined, h)
	}
	return joined
}

// unified is a unified diff with three lines of context.
func unified(from, to, before, after string) string {
	const context = 3
	a, b := splitLines(before), splitLines(after)
	hunks := diffLines(a, b)
	if len(hunks) == 0 {
		return ""
	}
	var out strings.Builder
	fmt.Fprintf(&out, "--- %s\n+++ %s\n", from, to)
	line := func(mark byte, text string) {
		out.WriteByte(mark)
		if body, ok := strings.CutSuffix(text, "\n"); ok {
			out.WriteString(body + "\n")
		} else {
			out.WriteString(text + "\n\\ No newline at end of file\n")
		}
	}
	for len(hunks) > 0 {
		n := 1
		for n < len(hunks) && hunks[n].a0-hunks[n-1].a1 <= 2*context {
			n++
		}
		first, last := hunks[0], hunks[n-1]
		lead := min(context, first.a0)
		trail := min(context, len(a)-last.a1)
		fmt.Fprintf(&out, "@@ -%s +%s @@\n", lineRange(first.a0-lead, last.a1+trail), lineRange(first.b0-lead, last.b1+trail))
		at := first.a0 - lead
		for _, h := range hunks[:n] {
			for ; at < h.a0; at++ {
				line(' ', a[at])
			}
			for ; at < h.a1; at++ {
				line('-', a[at])
			}
			for _, text := range b[h.b0:h.b1] {
				line('+', text)
			}
		}
		for ; at < last.a1+trail; at++ {
			line(' ', a[at])
		}
		hunks = hunks[n:]
	}
	return out.String()
}

func lineRange(lo, hi int) string {
	switch hi - lo {
	case 0:
		return fmt.Sprintf("%d,0", lo)
	case 1:
		return fmt.Sprint(lo + 1)
	}
	return fmt.Sprintf("%d,%d", lo+1, hi-lo)
}

// mergeLines makes in theirs the changes that lead from base to mine. It is false where both have
// changed the same lines, or lines that touch, in different ways.
func mergeLines(base, mine, theirs string) (string, bool) {
	o := splitLines(base)
	m, t := diffLines(o, splitLines(mine)), diffLines(o, splitLines(theirs))
	a, b := splitLines(mine), splitLines(theirs)
	var out strings.Builder
	at := 0
	put := func(lines []string) {
		for _, l := range lines {
			out.WriteString(l)
		}
	}
	for len(m) > 0 || len(t) > 0 {
		var h hunk
		lines := b
		switch {
		case len(m) > 0 && len(t) > 0 && m[0].a0 <= t[0].a1 && t[0].a0 <= m[0].a1:
			if m[0].a0 != t[0].a0 || m[0].a1 != t[0].a1 || !slices.Equal(a[m[0].b0:m[0].b1], b[t[0].b0:t[0].b1]) {
				return "", false
			}
			h, m, t = t[0], m[1:], t[1:]
		case len(t) == 0 || len(m) > 0 && m[0].a0 < t[0].a0:
			h, lines, m = m[0], a, m[1:]
		default:
			h, t = t[0], t[1:]
		}
		put(o[at:h.a0])
		put(lines[h.b0:h.b1])
		at = h.a1
	}
	put(o[at:])
	return out.String(), true
}
