package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"leasehold.dev/leasehold/manifests"
)

func newExplainCommand(g *globals) *cobra.Command {
	recursive, api := false, manifests.APIVersion
	cmd := &cobra.Command{
		Use:   "explain job[.FIELD...]",
		Short: "Explain the fields of a manifest",
		Long: `Tells what a field of a Job manifest is for, its type and its bounds, and which fields it has. A
path of fields is written with dots.`,
		Example: `  # What a manifest consists of
  leasehold explain job

  # What a worker reports when it is done
  leasehold explain job.spec.workers.complete

  # All fields at one glance
  leasehold explain job --recursive`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usageError("name one field, as in job or job.spec.ttl")
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			if api != manifests.APIVersion {
				return usageError("--api-version: there is only %s", manifests.APIVersion)
			}
			return explain(g, args[0], recursive)
		},
		ValidArgsFunction: completePath,
	}
	cmd.Flags().BoolVar(&recursive, "recursive", false, "print the fields of fields too, without their descriptions")
	cmd.Flags().StringVar(&api, "api-version", api, "the API `version` to explain")
	return cmd
}

// schemaNode is what explain reads of a schema, be it of a CRD or a JSON schema.
type schemaNode struct {
	Description          string                 `json:"description"`
	Type                 schemaType             `json:"type"`
	Enum                 []any                  `json:"enum"`
	Properties           map[string]*schemaNode `json:"properties"`
	Required             []string               `json:"required"`
	Items                *schemaNode            `json:"items"`
	AdditionalProperties schemaRest             `json:"additionalProperties"`
}

// schemaType is a type, or a list of one and null.
type schemaType string

func (t *schemaType) UnmarshalJSON(text []byte) error {
	var list []string
	if json.Unmarshal(text, &list) == nil {
		for _, name := range list {
			if name != "null" {
				*t = schemaType(name)
			}
		}
		return nil
	}
	return json.Unmarshal(text, (*string)(t))
}

// schemaRest is the schema of fields without a name of their own, or a boolean.
type schemaRest struct{ *schemaNode }

func (r *schemaRest) UnmarshalJSON(text []byte) error {
	if bytes.HasPrefix(text, []byte("{")) {
		return json.Unmarshal(text, &r.schemaNode)
	}
	return nil
}

// jobSchema is the schema of the CRD, with metadata as the JSON schema has it.
func jobSchema() (*schemaNode, error) {
	var crd struct {
		Spec struct {
			Versions []struct {
				Schema struct {
					OpenAPIV3Schema *schemaNode `json:"openAPIV3Schema"`
				} `json:"schema"`
			} `json:"versions"`
		} `json:"spec"`
	}
	if err := yaml.Unmarshal(manifests.CRD, &crd); err != nil {
		return nil, err
	}
	var editors struct {
		Definitions map[string]*schemaNode `json:"definitions"`
	}
	if err := json.Unmarshal(manifests.JSONSchema, &editors); err != nil {
		return nil, err
	}
	root := crd.Spec.Versions[0].Schema.OpenAPIV3Schema
	root.Properties["metadata"] = editors.Definitions["ObjectMeta"]
	root.Properties["apiVersion"].Enum, root.Properties["kind"].Enum = []any{manifests.APIVersion}, []any{manifests.Kind}
	root.Required = append(root.Required, "apiVersion", "kind", "metadata")
	return root, nil
}

// typeName is the type as kubectl shows it.
func (n *schemaNode) typeName() string {
	switch {
	case n.Items != nil:
		return "[]" + n.Items.typeName()
	case n.AdditionalProperties.schemaNode != nil:
		return "map[string]" + n.AdditionalProperties.typeName()
	case n.Type == "object" || n.Type == "":
		return "Object"
	}
	return string(n.Type)
}

// fields are those of the node, or of what the list or map consists of.
func (n *schemaNode) fields() *schemaNode {
	for n.Items != nil || n.AdditionalProperties.schemaNode != nil {
		if n.Items != nil {
			n = n.Items
		} else {
			n = n.AdditionalProperties.schemaNode
		}
	}
	return n
}

func (n *schemaNode) names() []string { return slices.Sorted(maps.Keys(n.Properties)) }

// splitPath parts the resource from the path of fields. An index, as in the errors that validate
// prints, says nothing about a field.
func splitPath(arg string) (fields []string, err error) {
	arg = strings.TrimSuffix(arg, ".") // which the shell's completion may leave
	for _, resource := range []string{"jobs." + manifests.Group, "job." + manifests.Group, "jobs", "job", "lhj"} {
		if len(arg) < len(resource) || !strings.EqualFold(arg[:len(resource)], resource) {
			continue
		}
		if rest := arg[len(resource):]; rest == "" {
			return nil, nil
		} else if rest[0] == '.' {
			return strings.Split(index.ReplaceAllString(rest[1:], ""), "."), nil
		}
	}
	resource, _, _ := strings.Cut(arg, ".")
	return nil, usageError("there is no resource type %q to explain; there is job, as in job.spec", resource)
}

var index = regexp.MustCompile(`\[[0-9]*\]`)

func explain(g *globals, arg string, recursive bool) error {
	path, err := splitPath(arg)
	if err != nil {
		return err
	}
	root, err := jobSchema()
	if err != nil {
		return err
	}
	node, required := root, false
	for i, name := range path {
		parent := node.fields()
		next, ok := parent.Properties[name]
		if !ok {
			where := strings.Join(append([]string{"job"}, path[:i]...), ".")
			if len(parent.Properties) == 0 {
				return fmt.Errorf("field %q does not exist: %s has no fields", name, where)
			}
			return fmt.Errorf("field %q does not exist: %s has %s", name, where, strings.Join(parent.names(), ", "))
		}
		node, required = next, slices.Contains(parent.Required, name)
	}

	var b strings.Builder
	fmt.Fprintf(&b, "GROUP:      %s\nKIND:       %s\nVERSION:    %s\n\n", manifests.Group, manifests.Kind, manifests.Version)
	if len(path) > 0 {
		fmt.Fprintf(&b, "FIELD: %s <%s>%s\n\n", path[len(path)-1], node.typeName(), mark(required))
	}
	b.WriteString("DESCRIPTION:\n")
	describeNode(&b, node, "    ")
	fields := node.fields()
	if fields != node && fields.Description != "" {
		b.WriteString("\n")
		wrap(&b, fields.Description, "    ")
	}
	if len(fields.Properties) > 0 {
		b.WriteString("\nFIELDS:\n")
		listFields(&b, fields, "  ", recursive)
	}
	_, err = fmt.Fprint(g.Out, b.String())
	return err
}

func mark(required bool) string {
	if required {
		return " -required-"
	}
	return ""
}

func describeNode(b *strings.Builder, n *schemaNode, indent string) {
	if n.Description == "" {
		b.WriteString(indent + "<no description>\n")
	} else {
		wrap(b, n.Description, indent)
	}
	if len(n.Enum) > 0 {
		values := make([]string, len(n.Enum))
		for i, v := range n.Enum {
			values[i] = fmt.Sprint(v)
		}
		wrap(b, "enum: "+strings.Join(values, ", "), indent)
	}
}

func listFields(b *strings.Builder, n *schemaNode, indent string, recursive bool) {
	for i, name := range n.names() {
		f := n.Properties[name]
		if i > 0 && !recursive {
			b.WriteString("\n")
		}
		fmt.Fprintf(b, "%s%s\t<%s>%s\n", indent, name, f.typeName(), mark(slices.Contains(n.Required, name)))
		if recursive {
			listFields(b, f.fields(), indent+"  ", true)
		} else {
			describeNode(b, f, indent+"  ")
		}
	}
}

// wrap fills lines of at most 80 characters. Paragraphs stay apart.
func wrap(b *strings.Builder, text, indent string) {
	for i, paragraph := range strings.Split(strings.TrimSpace(text), "\n\n") {
		if i > 0 {
			b.WriteString("\n")
		}
		line := indent
		for _, word := range strings.Fields(paragraph) {
			if len(line) > len(indent) && len([]rune(line))+1+len([]rune(word)) > 80 {
				b.WriteString(line + "\n")
				line = indent
			}
			if len(line) > len(indent) {
				line += " "
			}
			line += word
		}
		b.WriteString(line + "\n")
	}
}

// completePath completes the next field of a path.
func completePath(_ *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	const stop = cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	last := strings.LastIndexByte(typed, '.')
	if last < 0 {
		return complete([]string{"job", "jobs"}, nil, typed), stop
	}
	path, err := splitPath(typed[:last])
	if err != nil {
		return nil, stop
	}
	node, err := jobSchema()
	if err != nil {
		return nil, stop
	}
	for _, name := range path {
		if node = node.fields().Properties[name]; node == nil {
			return nil, stop
		}
	}
	var all []string
	for _, name := range node.fields().names() {
		all = append(all, typed[:last+1]+name)
	}
	return complete(all, nil, typed), stop
}
