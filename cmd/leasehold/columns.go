package main

import (
	"fmt"
	"io"
	"os"
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/printers"
	"k8s.io/client-go/util/jsonpath"
)

// none stands in a cell that has nothing to show.
const none = "<none>"

// fileOr returns the argument of an output format, or what is in the file that it names.
func fileOr(arg, kind string) (string, error) {
	if arg == "" {
		return "", usageError("-o %s: a value is missing, as in -o %[1]s=…", kind)
	}
	if !strings.HasSuffix(kind, "-file") {
		return arg, nil
	}
	data, err := os.ReadFile(arg)
	return string(data), err
}

// relaxedPath lets the braces and the first dot of a JSONPath be left out.
func relaxedPath(path string) string {
	if strings.Contains(path, "{") {
		return path
	}
	if !strings.HasPrefix(path, ".") && !strings.HasPrefix(path, "[") && !strings.HasPrefix(path, "$") {
		path = "." + path
	}
	return "{" + path + "}"
}

// parsePath reads the JSONPath of one field.
func parsePath(path string) (*jsonpath.JSONPath, error) {
	j := jsonpath.New("path").AllowMissingKeys(true)
	if err := j.Parse(relaxedPath(strings.TrimSpace(path))); err != nil {
		return nil, err
	}
	return j, nil
}

// values are what a path finds in an object.
func values(path *jsonpath.JSONPath, u *unstructured.Unstructured) ([]any, error) {
	results, err := path.FindResults(u.Object)
	if err != nil {
		return nil, err
	}
	var all []any
	for _, r := range results {
		for _, v := range r {
			for v.Kind() == reflect.Interface && !v.IsNil() {
				v = v.Elem()
			}
			if v.IsValid() && v.CanInterface() && v.Interface() != nil {
				all = append(all, v.Interface())
			}
		}
	}
	return all, nil
}

// columns prints chosen fields of objects, one object a row.
type columns struct {
	heads   []string
	paths   []*jsonpath.JSONPath
	headers bool // still to be printed
}

// newColumns reads HEAD:PATH,… or, from a file, a line of heads and a line of paths.
func newColumns(kind, arg string, headers bool) (*columns, error) {
	text, err := fileOr(arg, kind)
	if err != nil {
		return nil, err
	}
	c := &columns{headers: headers}
	var paths []string
	if kind == "custom-columns-file" {
		lines := strings.Split(strings.TrimSpace(text), "\n")
		if len(lines) != 2 {
			return nil, usageError("%s: expected two lines, one of column heads and one of paths", arg)
		}
		c.heads, paths = strings.Fields(lines[0]), strings.Fields(lines[1])
		if len(c.heads) != len(paths) {
			return nil, usageError("%s: there are %d column heads and %d paths", arg, len(c.heads), len(paths))
		}
	} else {
		for _, column := range splitColumns(text) {
			head, path, ok := strings.Cut(column, ":")
			if !ok || head == "" || path == "" {
				return nil, usageError("-o custom-columns: %q: must be HEAD:PATH, as in NAME:.metadata.name,FENCE:.status.fence", column)
			}
			c.heads, paths = append(c.heads, head), append(paths, path)
		}
	}
	for _, p := range paths {
		j, err := parsePath(p)
		if err != nil {
			return nil, usageError("-o %s: %q: %v", kind, p, err)
		}
		c.paths = append(c.paths, j)
	}
	return c, nil
}

// splitColumns splits at commas that are not within brackets, braces or parentheses.
func splitColumns(text string) []string {
	depth := 0
	return strings.FieldsFunc(text, func(r rune) bool {
		switch r {
		case '[', '{', '(':
			depth++
		case ']', '}', ')':
			depth--
		}
		return r == ',' && depth == 0
	})
}

// PrintObj implements printers.ResourcePrinter.
func (c *columns) PrintObj(obj runtime.Object, w io.Writer) error {
	tw := printers.GetNewTabWriter(w)
	if c.headers {
		c.headers = false
		fmt.Fprintln(tw, strings.Join(c.heads, "\t"))
	}
	err := eachObject(obj, func(u *unstructured.Unstructured) error {
		cells := make([]string, len(c.paths))
		for i, path := range c.paths {
			found, err := values(path, u)
			if err != nil {
				return err
			}
			for j, v := range found {
				if j > 0 {
					cells[i] += ","
				}
				cells[i] += fmt.Sprint(v)
			}
			if cells[i] = plain(cells[i]); len(found) == 0 {
				cells[i] = none
			}
		}
		_, err := fmt.Fprintln(tw, strings.Join(cells, "\t"))
		return err
	})
	if err != nil {
		return err
	}
	return tw.Flush()
}
