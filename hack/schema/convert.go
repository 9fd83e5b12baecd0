package main

import (
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

type converter struct {
	err error
}

func (c *converter) fail(format string, args ...any) {
	if c.err == nil {
		c.err = fmt.Errorf(format, args...)
	}
}

// convert turns a schema of a CRD into a JSON schema. What is not required may be null.
func (c *converter) convert(s *apiextensions.JSONSchemaProps, required bool) object {
	o := object{}
	if s.Description != "" {
		o["description"] = fold(s.Description)
	}
	if m := example.FindStringSubmatch(s.Description); m != nil {
		var v any
		if err := yaml.Unmarshal([]byte(m[1]), &v); err != nil {
			c.fail("example of %q: %v", s.Description, err)
		}
		o["examples"] = []any{v} // what editors offer
	}
	if required {
		o["type"] = s.Type
	} else {
		o["type"] = []string{s.Type, "null"}
	}
	if s.Pattern != "" {
		o["pattern"] = s.Pattern
	}
	set(o, "minLength", s.MinLength)
	set(o, "maxLength", s.MaxLength)
	set(o, "minItems", s.MinItems)
	set(o, "maxItems", s.MaxItems)
	bound(o, "inimum", s.Minimum, s.ExclusiveMinimum)
	bound(o, "aximum", s.Maximum, s.ExclusiveMaximum)
	if s.Format == "int64" {
		if s.Minimum == nil {
			o["minimum"] = int64(math.MinInt64)
		}
		if s.Maximum == nil {
			o["maximum"] = int64(math.MaxInt64)
		}
	}

	switch {
	case s.Type == "object" && s.AdditionalProperties != nil:
		o["additionalProperties"] = c.convert(s.AdditionalProperties.Schema, false)
	case s.Type == "object":
		fields := object{}
		for name, p := range s.Properties {
			fields[name] = c.convert(&p, slices.Contains(s.Required, name))
		}
		o["properties"] = fields
		o["additionalProperties"] = false
		set(o, "required", &s.Required)
	case s.Type == "array":
		o["items"] = c.convert(s.Items.Schema, true)
		if s.XListType != nil && *s.XListType == "map" {
			o["uniqueItems"] = true // the nearest that there is to unique keys
		}
	}
	for _, rule := range s.XValidations {
		said, ok := rules[rule.Rule]
		if !ok {
			c.fail("say in rules what a JSON schema can express of the rule %q", rule.Rule)
		}
		for k, v := range said {
			o[k] = v
		}
	}

	// Nothing that a marker asked for may be lost silently.
	rest := *s
	rest.Description, rest.Type, rest.Pattern = "", "", ""
	rest.MinLength, rest.MaxLength, rest.MinItems, rest.MaxItems = nil, nil, nil, nil
	rest.Minimum, rest.Maximum, rest.ExclusiveMinimum, rest.ExclusiveMaximum = nil, nil, false, false
	rest.Properties, rest.AdditionalProperties, rest.Items, rest.Required = nil, nil, nil, nil
	rest.XValidations, rest.XListType, rest.XListMapKeys = nil, nil, nil
	if rest.Format == "int64" {
		rest.Format = ""
	}
	if text, err := json.Marshal(rest); err != nil || string(text) != "{}" {
		c.fail("cannot convert %s %v", text, err)
	}
	return o
}

// example is how the comment of a field ends.
var example = regexp.MustCompile(`(?s)Example:\s(.*)\.$`)

// fold undoes the line breaks of a comment, which editors show as paragraphs.
func fold(text string) string {
	paragraphs := strings.Split(text, "\n\n")
	for i, p := range paragraphs {
		paragraphs[i] = strings.Join(strings.Fields(p), " ")
	}
	return strings.Join(paragraphs, "\n\n")
}

func set[T any](o object, key string, v *T) {
	if v != nil {
		o[key] = *v
	}
}

// bound writes a bound the way of JSON schema, in which the exclusive ones are numbers of their own.
func bound(o object, inimum string, v *float64, exclusive bool) {
	m, M := "m", "exclusiveM"
	switch {
	case v == nil:
	case exclusive:
		o[M+inimum] = *v
	default:
		o[m+inimum] = *v
	}
}

// describe turns a schema into one that describes everything and refuses nothing: what stands in
// status never decides whether a manifest is accepted.
func describe(s *apiextensions.JSONSchemaProps) object {
	o := object{"readOnly": true}
	if s.Description != "" {
		o["description"] = fold(s.Description)
	}
	if len(s.Properties) > 0 {
		fields := object{}
		for name, p := range s.Properties {
			fields[name] = describe(&p)
		}
		o["properties"] = fields
	}
	if s.Items != nil {
		o["items"] = describe(s.Items.Schema)
	}
	return o
}

// rules say what a JSON schema can express of the rules in the CRD.
var rules = map[string]object{
	// Numbers cannot be added up; without a clock there is a bound.
	`has(self.clock) ? self.clock + self.ttl > self.clock : self.ttl >= 0.000001`: {
		"if":   object{"properties": object{"clock": object{"type": "null"}}},
		"then": object{"properties": object{"ttl": object{"minimum": 0.000001, "examples": []any{30}}}},
	},
	// Values of different fields cannot be compared.
	`!has(self.complete) || !has(self.release) || self.complete.fence != self.release.fence`: nil,
}
