package main

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// lines draws texts that have much in common.
func lines(t *rapid.T, name string) string {
	return strings.Join(rapid.SliceOfN(rapid.SampledFrom([]string{"a\n", "b\n", "c\n", "d\n", "\n"}), 0, 12).Draw(t, name), "")
}

// The hunks lead from one text to the other, and what lies between them is the same in both.
func TestDiffLines(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := splitLines(lines(t, "a")), splitLines(lines(t, "b"))
		var got []string
		at, bt := 0, 0
		for _, h := range diffLines(a, b) {
			if h.a0 < at || h.b0 < bt || !slices.Equal(a[at:h.a0], b[bt:h.b0]) {
				t.Fatalf("%q %q: %+v", a, b, h)
			}
			got = append(append(got, a[at:h.a0]...), b[h.b0:h.b1]...)
			at, bt = h.a1, h.b1
		}
		if got = append(got, a[at:]...); !slices.Equal(got, b) {
			t.Fatalf("%q %q: %q", a, b, got)
		}
	})
}

// Where only one side has changed the other's text is the result; where both have, each change is in
// it, or it is a conflict.
func TestMergeLines(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		base, mine := lines(t, "base"), lines(t, "mine")
		for _, c := range [][3]string{{base, mine, base}, {base, base, mine}, {base, mine, mine}} {
			if got, ok := mergeLines(c[0], c[1], c[2]); !ok || got != mine {
				t.Fatalf("%q: %q %v", c, got, ok)
			}
		}
	})
	for _, c := range []struct {
		base, mine, theirs, want string
		ok                       bool
	}{
		{"a\nb\nc\nd\n", "A\nb\nc\nd\n", "a\nb\nc\nD\n", "A\nb\nc\nD\n", true},
		{"a\nb\nc\n", "a\nB\nc\n", "a\nX\nc\n", "", false},
		{"a\nb\nc\n", "a\nB\nc\n", "a\nb\nC\n", "", false}, // they touch
		{"a\nb\nc\n", "a\nc\n", "a\nb\nc\nd\n", "a\nc\nd\n", true},
		{"a\n", "a\nx\n", "a\ny\n", "", false},
		{"a", "a\n", "a", "a\n", true},
	} {
		if got, ok := mergeLines(c.base, c.mine, c.theirs); got != c.want || ok != c.ok {
			t.Errorf("%q %q %q: %q %v", c.base, c.mine, c.theirs, got, ok)
		}
	}
}
