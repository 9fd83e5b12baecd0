package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// sortBy orders jobs by what a path finds in them: numbers by value, the rest as text, and those
// without the field first. Equal ones stay in order.
func sortBy(views []*jobView, path string) error {
	j, err := parsePath(path)
	if err != nil {
		return usageError("--sort-by: %q: %v", path, err)
	}
	keys := make(map[*jobView]any, len(views))
	found := len(views) == 0
	for _, v := range views {
		vs, err := values(j, v.Object())
		if err != nil {
			return usageError("--sort-by: %q: %v", path, err)
		}
		if len(vs) > 0 {
			keys[v], found = vs[0], true
		}
	}
	if !found {
		return usageError("couldn't find any field with path %q in the list of objects", relaxedPath(path))
	}
	slices.SortStableFunc(views, func(a, b *jobView) int { return compareValues(keys[a], keys[b]) })
	return nil
}

func compareValues(a, b any) int {
	if c := cmp.Compare(rank(a), rank(b)); c != 0 {
		return c
	}
	switch a := a.(type) {
	case nil:
		return 0
	case bool:
		if a == b.(bool) {
			return 0
		} else if b.(bool) {
			return -1
		}
		return 1
	case int64:
		if b, ok := b.(int64); ok { // as a float two large ones would be equal
			return cmp.Compare(a, b)
		}
		return cmp.Compare(float64(a), float64(b.(exact)))
	case exact:
		if b, ok := b.(int64); ok {
			return cmp.Compare(float64(a), float64(b))
		}
		return cmp.Compare(a, b.(exact))
	}
	return naturally(fmt.Sprint(a), fmt.Sprint(b))
}

// rank puts what cannot be compared into an order of its own.
func rank(v any) int {
	switch v.(type) {
	case nil:
		return 0
	case bool:
		return 1
	case int64, exact:
		return 2
	}
	return 3
}

// naturally compares texts, and numbers in them by value: job-2 comes before job-10.
func naturally(a, b string) int {
	for x, y := a, b; x != "" && y != ""; {
		m, n := digits(x), digits(y)
		if m > 0 && n > 0 {
			s, t := strings.TrimLeft(x[:m], "0"), strings.TrimLeft(y[:n], "0")
			if c := cmp.Or(cmp.Compare(len(s), len(t)), strings.Compare(s, t)); c != 0 {
				return c
			}
			x, y = x[m:], y[n:]
			continue
		}
		if x[0] != y[0] {
			return cmp.Compare(x[0], y[0])
		}
		x, y = x[1:], y[1:]
	}
	return cmp.Or(cmp.Compare(len(a), len(b)), strings.Compare(a, b))
}

func digits(s string) int {
	n := 0
	for n < len(s) && s[n] >= '0' && s[n] <= '9' {
		n++
	}
	return n
}
