package main

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/printers"
	sigsjson "sigs.k8s.io/json"

	"leasehold.dev/leasehold/manifests"
)

// exact is a number with a fraction that is printed without an exponent.
type exact float64

func (e exact) String() string               { return number(float64(e)) }
func (e exact) MarshalJSON() ([]byte, error) { return []byte(e.String()), nil }

// mapValues returns a copy of a JSON value in which each scalar is what f makes of it.
func mapValues(v any, f func(any) any) any {
	switch v := v.(type) {
	case map[string]any:
		m := make(map[string]any, len(v))
		for k, e := range v {
			m[k] = mapValues(e, f)
		}
		return m
	case []any:
		l := make([]any, len(v))
		for i, e := range v {
			l[i] = mapValues(e, f)
		}
		return l
	}
	return f(v)
}

// exactly turns a float into an integer, where it is one, or into an exact.
func exactly(v any) any {
	f, ok := v.(float64)
	switch {
	case !ok:
		return v
	case f == math.Trunc(f) && math.Abs(f) < 1<<63:
		return int64(f)
	}
	return exact(f)
}

// Object is the job as kubectl would show it: the document, with the status that holds now.
func (v *jobView) Object() *unstructured.Unstructured {
	obj, _ := mapValues(v.Doc.Object, exactly).(map[string]any)
	if obj == nil {
		obj = map[string]any{}
	}
	if obj["kind"] == nil {
		obj["kind"] = manifests.Kind
	}
	if obj["apiVersion"] == nil {
		obj["apiVersion"] = manifests.APIVersion
	}
	if _, ok := obj["metadata"].(map[string]any); !ok {
		obj["metadata"] = map[string]any{"name": v.Doc.Name}
	}
	delete(obj, "status")
	if s := v.Status(); s != nil {
		obj["status"] = toObject(s)
	}
	return &unstructured.Unstructured{Object: obj}
}

// toObject turns a value into a JSON object.
func toObject(v any) map[string]any {
	text, err := json.Marshal(v)
	var m map[string]any
	if err == nil {
		err = sigsjson.UnmarshalCaseSensitivePreserveInts(text, &m)
	}
	if err != nil {
		return map[string]any{"error": err.Error()}
	}
	return mapValues(m, exactly).(map[string]any)
}

// list is several objects in one, as kubectl prints them.
func list(items []*unstructured.Unstructured) *unstructured.Unstructured {
	all := make([]any, len(items))
	for i, u := range items {
		all[i] = u.Object
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "List", "metadata": map[string]any{"resourceVersion": ""}, "items": all,
	}}
}

// objectPrinter returns the printer of an output format that prints whole objects.
func objectPrinter(format string) (printers.ResourcePrinter, error) {
	kind, arg, _ := strings.Cut(format, "=")
	switch kind {
	case "yaml":
		return exactYAML(&printers.YAMLPrinter{}), nil
	case "json":
		return &printers.JSONPrinter{}, nil
	case "name":
		return nameList(&printers.NamePrinter{}), nil
	case "jsonpath", "jsonpath-file":
		template, err := fileOr(arg, kind)
		if err != nil {
			return nil, err
		}
		p, err := printers.NewJSONPathPrinter(relaxedPath(template))
		if err != nil {
			return nil, usageError("-o %s: %v", kind, err)
		}
		p.AllowMissingKeys(true)
		return p, nil
	case "go-template", "go-template-file":
		template, err := fileOr(arg, kind)
		if err != nil {
			return nil, err
		}
		p, err := printers.NewGoTemplatePrinter([]byte(template))
		if err != nil {
			return nil, usageError("-o %s: %v", kind, err)
		}
		p.AllowMissingKeys(true)
		return p, nil
	}
	return nil, usageError("unable to match a printer suitable for the output format %q, allowed formats are: %s", format, formats)
}

const formats = "wide, yaml, json, name, jsonpath=, jsonpath-file=, custom-columns=, custom-columns-file=, go-template=, go-template-file="

// exactYAML keeps numbers free of exponents, which the YAML printer gives to large ones with a
// fraction: they pass through it as words that stand for them.
func exactYAML(p printers.ResourcePrinter) printers.ResourcePrinter {
	return printers.ResourcePrinterFunc(func(obj runtime.Object, w io.Writer) error {
		u, ok := obj.(*unstructured.Unstructured)
		if !ok {
			return p.PrintObj(obj, w)
		}
		word := "exact" + rand.Text()
		var pairs []string
		withWords := mapValues(u.Object, func(v any) any {
			if e, ok := v.(exact); ok {
				name := fmt.Sprintf("%s-%d-", word, len(pairs))
				pairs = append(pairs, name, e.String())
				return name
			}
			return v
		})
		var b bytes.Buffer
		if err := p.PrintObj(&unstructured.Unstructured{Object: withWords.(map[string]any)}, &b); err != nil {
			return err
		}
		_, err := strings.NewReplacer(pairs...).WriteString(w, b.String())
		return err
	})
}

// nameList prints the names in a list one by one.
func nameList(p printers.ResourcePrinter) printers.ResourcePrinter {
	return printers.ResourcePrinterFunc(func(obj runtime.Object, w io.Writer) error {
		return eachObject(obj, func(u *unstructured.Unstructured) error { return p.PrintObj(u, w) })
	})
}

// eachObject calls f for an object, or for each one in a list.
func eachObject(obj runtime.Object, f func(*unstructured.Unstructured) error) error {
	u := obj.(*unstructured.Unstructured)
	if u.GetKind() != "List" {
		return f(u)
	}
	items, _ := u.Object["items"].([]any)
	for _, item := range items {
		if err := f(&unstructured.Unstructured{Object: item.(map[string]any)}); err != nil {
			return err
		}
	}
	return nil
}

// Status is the status in the file, brought up to what the store says.
func (v *jobView) Status() *manifests.JobStatus {
	switch {
	case v.Twin != "" && v.Doc.Status != nil: // it stands for no job
		return &manifests.JobStatus{Conditions: v.Doc.Status.Conditions}
	case v.Row == nil || !v.Row.Exists || !v.Stored:
		return v.Doc.Status
	}
	r := v.Row
	s := &manifests.JobStatus{}
	if v.Doc.Status != nil {
		*s = *v.Doc.Status
		s.Conditions = append([]manifests.Condition(nil), s.Conditions...)
	}
	current := s.SpecHash == r.SpecHash && s.Owner == r.Owner && s.Fence != nil && *s.Fence == r.Fence && s.Done != nil && *s.Done == r.Done
	attempts, observed := r.Attempts, r.Observed
	s.Owner, s.Fence, s.Done, s.Result, s.Attempts, s.ObservedClock = r.Owner, &r.Fence, &r.Done, r.Result, &attempts, &observed
	s.SpecHash, s.Until = r.SpecHash, nil
	if r.Owner != "" {
		s.Until = &r.Until
	}
	if s.Store == "" {
		s.Store = r.Stamp.String()
	}
	if p := r.Restore; p != nil { // as the controller shows it
		done, result := true, p.Result
		s.Owner, s.Done, s.Result = p.Owner, &done, &result
		return s
	}
	if !current { // a status that has not been written yet, or cannot be
		v.setCondition(s, manifests.ConditionLeased, v.State == stateLeased, "Claimed", v.State)
		v.setCondition(s, manifests.ConditionComplete, r.Done, "Completed", "NotComplete")
		if v.State == stateFailed {
			v.setCondition(s, manifests.ConditionFailed, true, "MaxAttempts", "")
		}
	}
	return s
}

// setCondition writes over a condition in a status that is behind.
func (v *jobView) setCondition(s *manifests.JobStatus, kind string, holds bool, yes, no string) {
	c := manifests.Condition{Type: kind, Status: metav1.ConditionFalse, Reason: no, Message: v.standing()}
	if holds {
		c.Status, c.Reason = metav1.ConditionTrue, yes
	}
	for _, k := range v.Row.Conditions {
		if k.Type == kind {
			c.LastTransitionTime = clockTime(k.Since)
		}
	}
	for i := range s.Conditions {
		if s.Conditions[i].Type == kind {
			s.Conditions[i] = c
			return
		}
	}
	s.Conditions = append(s.Conditions, c)
}
