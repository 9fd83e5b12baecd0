package main

import (
	"fmt"
	"regexp"
	"strings"

	"k8s.io/client-go/util/jsonpath"

	"leasehold.dev/leasehold/manifests"
)

// aim is what one --for says.
type aim struct {
	kind  string // condition, jsonpath, delete or create
	name  string // of the condition, or the path
	value string
	any   bool // any value will do
	path  *jsonpath.JSONPath
}

func parseAim(text string) (aim, error) {
	kind, rest, _ := strings.Cut(text, "=")
	switch strings.ToLower(kind) {
	case "delete", "create":
		if rest == "" {
			return aim{kind: strings.ToLower(kind)}, nil
		}
	case "condition":
		name, value, ok := strings.Cut(rest, "=")
		if name == "" {
			break
		}
		if !ok {
			value = "True"
		}
		return aim{kind: "condition", name: name, value: value}, nil
	case "jsonpath":
		a := aim{kind: "jsonpath"}
		a.name, a.value, a.any = splitPathValue(rest)
		if a.name == "" || a.value == "" && !a.any {
			return a, usageError("--for: %q: must be jsonpath=PATH=VALUE, or jsonpath=PATH for any value", text)
		}
		var err error
		if a.path, err = parsePath(a.name); err != nil {
			return a, usageError("--for: %q: %v", text, err)
		}
		return a, nil
	}
	return aim{}, usageError("--for: Unsupported value: %q: must be condition=TYPE[=STATUS], jsonpath=PATH[=VALUE], delete or create", text)
}

// splitPathValue finds the equals sign that is not part of the path: one within braces, brackets or
// quotes is.
func splitPathValue(text string) (path, value string, any bool) {
	depth, quote := 0, rune(0)
	for i, r := range text {
		switch {
		case quote != 0:
			if r == quote {
				quote = 0
			}
		case r == '\'' || r == '"':
			quote = r
		case strings.ContainsRune("{[(", r):
			depth++
		case strings.ContainsRune("}])", r):
			depth--
		case r == '=' && depth <= 0:
			path, value = text[:i], text[i+1:]
			if n := len(value); n > 1 && (value[0] == '"' || value[0] == '\'') && value[n-1] == value[0] {
				value = value[1 : n-1]
			}
			return path, value, false
		}
	}
	return text, "", true
}

// look reports whether a job has got there and, if it no longer can, why.
func (a aim) look(v *jobView, gone bool) (met bool, never string) {
	switch {
	case a.kind == "delete":
		return v == nil && gone, ""
	case v == nil:
		if gone && a.kind != "create" {
			return false, "its manifest is gone"
		}
		return false, ""
	case a.kind == "create":
		return true, ""
	case a.kind == "condition":
		return a.condition(v)
	}
	return a.jsonpath(v)
}

func (a aim) condition(v *jobView) (met bool, never string) {
	if strings.EqualFold(a.name, manifests.ConditionAccepted) {
		// The document says it itself.
		accepted := map[bool]string{true: "True", false: "False"}[v.Doc.Job != nil]
		return strings.EqualFold(a.value, accepted) && (v.Doc.Job == nil || v.Fresh()), ""
	}
	if !v.Fresh() {
		return false, a.neverCondition(v)
	}
	value := ""
	for _, c := range v.Status().Conditions {
		if strings.EqualFold(c.Type, a.name) {
			value = string(c.Status)
		}
	}
	if strings.EqualFold(value, a.value) || value == "" && strings.EqualFold(a.value, "False") && a.absent() {
		return true, ""
	}
	return false, a.neverCondition(v)
}

// absent reports whether the condition is one that is left out while it is false.
func (a aim) absent() bool {
	switch strings.ToLower(a.name) {
	case "failed", "clockregressed", "restoreneeded":
		return true
	}
	return false
}

// neverCondition says why the job can no longer get there. Nothing undoes a completion, whatever
// the spec; a failed job needs another spec first.
func (a aim) neverCondition(v *jobView) string {
	yes := strings.EqualFold(a.value, "True")
	name := strings.ToLower(a.name)
	done := v.State == stateComplete || v.Row != nil && v.Row.Done
	switch {
	case done && (name == "complete" && !yes || name == "leased" && yes || name == "failed" && yes || name == "restoreneeded" && yes):
		return fmt.Sprintf("it is complete: %s", v.standing())
	case v.Fresh() && v.State == stateFailed && yes && (name == "complete" || name == "leased"):
		return fmt.Sprintf("it has failed: %s", v.standing())
	}
	return ""
}

// frozen are the fields of status that a completion fixes for good.
var frozen = regexp.MustCompile(`^\{?\s*\$?\.?status\.(owner|fence|until|done|result|attempts)\s*\}?$`)

func (a aim) jsonpath(v *jobView) (met bool, never string) {
	status := strings.Contains(a.name, "status")
	if status && !v.Fresh() && !(v.Hash == "" && strings.Contains(a.name, "conditions")) {
		return false, ""
	}
	found, err := values(a.path, v.Object())
	if err == nil && len(found) > 0 {
		if a.any {
			return true, ""
		}
		if len(found) == 1 && fmt.Sprint(found[0]) == a.value {
			return true, ""
		}
	}
	match := frozen.FindStringSubmatch(strings.TrimSpace(a.name))
	if match == nil {
		return false, ""
	}
	switch {
	case v.State == stateComplete:
		return false, fmt.Sprintf("it is complete: %s", v.standing())
	case v.State == stateFailed && (match[1] == "result" || match[1] == "done" && a.value != "false"):
		return false, fmt.Sprintf("it has failed: %s", v.standing())
	}
	return false, ""
}
