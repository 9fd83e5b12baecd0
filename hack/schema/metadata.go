package main

import (
	"errors"
	"fmt"
	"math"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/generated/openapi"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// The patterns of Kubernetes' names, with their lengths as far as a pattern can have them.
const (
	dnsLabel      = `[a-z0-9]([-a-z0-9]*[a-z0-9])?`
	dnsSubdomain  = dnsLabel + `(\.` + dnsLabel + `)*`
	qualifiedName = `([A-Za-z0-9][-A-Za-z0-9_.]{0,61})?[A-Za-z0-9]`
	rfc3339       = `^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}([.,][0-9]+)?(Z|[+-][0-9]{2}:[0-9]{2})$`
)

// objectMeta is metadata as Kubernetes describes and checks it, with a name.
func objectMeta() (object, error) {
	definitions := openapi.GetOpenAPIDefinitions(func(path string) spec.Ref { return spec.MustCreateRef(path) })
	meta, err := inline(definitions, "ObjectMeta", true)
	if err != nil {
		return nil, err
	}
	fields := meta["properties"].(object)
	constrain := func(name string, more object) {
		for k, v := range more {
			fields[name].(object)[k] = v
		}
	}
	fields["name"].(object)["type"] = "string"
	constrain("name", object{"minLength": 1, "maxLength": 253, "pattern": "^" + dnsSubdomain + "$"})
	constrain("namespace", object{"maxLength": 63, "pattern": "^(" + dnsLabel + ")?$"})
	constrain("labels", object{
		"propertyNames": object{"pattern": "^(" + dnsSubdomain + "/)?" + qualifiedName + "$", "not": object{"pattern": "^[^/]{254}"}},
		"additionalProperties": object{
			"type":    []string{"string", "null"},
			"pattern": "^(" + qualifiedName + ")?$",
		},
	})
	anyCaseSubdomain := strings.ReplaceAll(dnsSubdomain, "a-z", "A-Za-z")
	constrain("annotations", object{
		"propertyNames": object{"pattern": "^(" + anyCaseSubdomain + "/)?" + qualifiedName + "$", "not": object{"pattern": "^[^/]{254}"}},
	})
	meta["required"] = []string{"name"}
	return meta, nil
}

// inline converts a definition of the API machinery. Requirements are left out, for nobody writes
// those fields by hand, and the decoder does not ask for them.
func inline(definitions map[string]common.OpenAPIDefinition, name string, required bool) (object, error) {
	for path, d := range definitions {
		if strings.HasSuffix(path, "meta/v1."+name) || strings.HasSuffix(path, "meta.v1."+name) {
			return inlineSchema(definitions, &d.Schema, required)
		}
	}
	return nil, fmt.Errorf("there is no definition of %s", name)
}

func inlineSchema(definitions map[string]common.OpenAPIDefinition, s *spec.Schema, required bool) (object, error) {
	ref := s.Ref.String()
	if len(s.AllOf) == 1 { // a reference with a default beside it
		ref = s.AllOf[0].Ref.String()
	}
	if ref != "" {
		o, err := inline(definitions, ref[strings.LastIndex(ref, ".")+1:], required)
		if err == nil && s.Description != "" {
			o["description"] = s.Description
		}
		return o, err
	}
	o := object{}
	if s.Description != "" {
		o["description"] = s.Description
	}
	if len(s.Type) != 1 {
		return nil, fmt.Errorf("%q has %d types", s.Description, len(s.Type))
	}
	kind := s.Type[0]
	if required {
		o["type"] = kind
	} else {
		o["type"] = []string{kind, "null"}
	}
	var err error
	child := func(s *spec.Schema, required bool) object {
		c, e := inlineSchema(definitions, s, required)
		err = errors.Join(err, e)
		return c
	}
	switch {
	case s.Format == "date-time":
		o["pattern"] = rfc3339
	case s.Format == "int64":
		o["minimum"], o["maximum"] = int64(math.MinInt64), int64(math.MaxInt64)
	case kind == "array":
		o["items"] = child(s.Items.Schema, true)
	case kind == "object" && s.AdditionalProperties != nil:
		o["additionalProperties"] = child(s.AdditionalProperties.Schema, false)
	case kind == "object" && len(s.Properties) > 0:
		fields := object{}
		for name, p := range s.Properties {
			fields[name] = child(&p, false)
		}
		o["properties"], o["additionalProperties"] = fields, false
	case kind == "object": // of any content, and the decoder takes anything
		delete(o, "type")
	}
	return o, err
}
