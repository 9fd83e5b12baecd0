package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	crdvalidation "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	structural "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	metavalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	sigsjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

const (
	crdFile    = "../../manifests/crd/leasehold.dev_jobs.yaml"
	schemaFile = "../../manifests/samples/.leasehold.schema.json"
	tableFile  = "../../manifests/testdata/schema.yaml"
)

type row struct {
	Name    string            `json:"name"`
	Text    string            `json:"text,omitempty"`
	Replace map[string]string `json:"replace,omitempty"`
	JSON    string            `json:"json,omitempty"`
	CRD     string            `json:"crd,omitempty"`
}

// The table of good and bad manifests, by which the decoder is judged too.
func TestTable(t *testing.T) {
	var table struct {
		Base string `json:"base"`
		Good []row  `json:"good"`
		Bad  []row  `json:"bad"`
	}
	if err := yaml.UnmarshalStrict(read(t, tableFile), &table); err != nil {
		t.Fatal(err)
	}
	judges := []struct {
		name   string
		judge  judge
		excuse func(row) string
	}{
		{"json", editor(t), func(r row) string { return r.JSON }},
		{"crd", server(t), func(r row) string { return r.CRD }},
	}
	for _, j := range judges {
		for _, r := range table.Good {
			err := j.judge.file(r.text(table.Base))
			switch {
			case err != nil && j.excuse(r) == "":
				t.Errorf("%s: refuses the good row %q: %v", j.name, r.Name, err)
			case err == nil && j.excuse(r) != "":
				t.Errorf("%s: accepts the good row %q, so it needs no excuse", j.name, r.Name)
			}
		}
		for _, r := range table.Bad {
			err := j.judge.file(r.text(table.Base))
			switch {
			case err == nil && j.excuse(r) == "":
				t.Errorf("%s: accepts the bad row %q", j.name, r.Name)
			case err != nil && j.excuse(r) != "":
				t.Errorf("%s: refuses the bad row %q, so it needs no excuse: %v", j.name, r.Name, err)
			case testing.Verbose():
				t.Logf("%s: %s: %v", j.name, r.Name, err)
			}
		}
	}
}

func (r row) text(base string) string {
	text := r.Text
	if text == "" {
		text = base
	}
	for old, replacement := range r.Replace {
		text = strings.Replace(text, old, replacement, 1)
	}
	return text
}

// The samples are as good to the schemas as they are to the decoder.
func TestSamples(t *testing.T) {
	samples, err := filepath.Glob("../../manifests/samples/*.yaml")
	if err != nil || len(samples) == 0 {
		t.Fatal(samples, err)
	}
	for _, name := range samples {
		for what, j := range map[string]judge{"json": editor(t), "crd": server(t)} {
			if err := j.file(string(read(t, name))); err != nil {
				t.Errorf("%s: %s: %v", what, name, err)
			}
		}
	}
}

// The CRD is one that an API server takes, the cost of its rules included, and the rules stay
// within what a server spends on the largest manifest that it takes in.
func TestCRD(t *testing.T) {
	crd := readCRD(t)
	for _, err := range crdvalidation.ValidateCustomResourceDefinition(context.Background(), crd) {
		t.Error(err)
	}
	const request = 3 << 20
	var b strings.Builder
	b.WriteString(`{"apiVersion":"leasehold.dev/v1alpha1","kind":"Job","metadata":{"name":"a"},"spec":{"ttl":1,"workers":[{"name":"w"}`)
	for i := 0; b.Len() < request; i++ {
		fmt.Fprintf(&b, `,{"name":"%x","complete":{"fence":1,"result":""},"release":{"fence":2}}`, i)
	}
	b.WriteString("]}}")
	if err := server(t).file(b.String()); err != nil {
		t.Error("many reports:", shorten(err))
	}
	b.Reset()
	b.WriteString(`{"apiVersion":"leasehold.dev/v1alpha1","kind":"Job","metadata":{"name":"a"},"spec":{"ttl":1,"workers":[{"name":"w"}`)
	for i := 0; b.Len() < request; i++ {
		fmt.Fprintf(&b, `,{"name":"%x"}`, i)
	}
	b.WriteString("]}}")
	if err := server(t).file(b.String()); err != nil {
		t.Error("many workers:", shorten(err))
	}
}

func shorten(err error) string {
	text := err.Error()
	return text[:min(len(text), 1000)]
}

// judge says what is wrong with one document.
type judge func(doc any) error

var marker = regexp.MustCompile(`(?m)^---( .*)?$`)

// file judges every document of a file.
func (j judge) file(text string) error {
	for _, part := range marker.Split(text, -1) {
		data, err := yaml.YAMLToJSON([]byte(part))
		if err != nil {
			return err
		}
		var doc any
		if err := sigsjson.UnmarshalCaseSensitivePreserveInts(data, &doc); err != nil {
			return err
		}
		if err := j(doc); err != nil {
			return err
		}
	}
	return nil
}

// editor judges as an editor does that has the JSON schema.
func editor(t *testing.T) judge {
	parsed, err := jsonschema.UnmarshalJSON(bytes.NewReader(read(t, schemaFile)))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("schema.json", parsed); err != nil {
		t.Fatal(err)
	}
	schema, err := c.Compile("schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return schema.Validate
}

// server judges as an API server does that has the CRD and is asked to create the objects, by
// kubectl, which wants unknown fields to be errors. It goes the way of customresource_handler.go and
// of the strategy in registry/customresource.
func server(t *testing.T) judge {
	crd := readCRD(t)
	schema := crd.Spec.Validation.OpenAPIV3Schema
	s, err := structural.NewStructural(schema)
	if err != nil {
		t.Fatal(err)
	}
	values, _, err := validation.NewSchemaValidator(schema)
	if err != nil {
		t.Fatal(err)
	}
	rules := cel.NewValidator(s, true, celconfig.PerCallLimit)
	group, kind, version := crd.Spec.Group, crd.Spec.Names.Kind, crd.Spec.Versions[0].Name

	var judge judge
	judge = func(doc any) error {
		o, ok := doc.(map[string]any)
		if !ok {
			return nil // a document of comments
		}
		if items, ok := o["items"].([]any); ok && strings.HasSuffix(fmt.Sprint(o["kind"]), "List") {
			for _, item := range items { // kubectl takes lists apart
				if err := judge(item); err != nil {
					return err
				}
			}
			return nil
		}
		api, _ := o["apiVersion"].(string)
		k, _ := o["kind"].(string)
		switch g, v, _ := strings.Cut(api, "/"); {
		case api == "" || k == "":
			return fmt.Errorf("apiVersion or kind is not set")
		case g != group:
			return nil
		case v != version || k != kind:
			return fmt.Errorf("no matches for kind %q in version %q", k, api)
		}

		// Decoding.
		meta, ok, unknown, err := objectmeta.GetObjectMetaWithOptions(o, objectmeta.ObjectMetaOptions{ReturnUnknownFieldPaths: true})
		if err != nil {
			return err
		}
		if !ok {
			meta = new(metav1.ObjectMeta)
		}
		unknown = append(unknown, pruning.PruneWithOptions(o, s, true, structural.UnknownFieldPathOptions{TrackUnknownFieldPaths: true})...)
		if len(unknown) > 0 {
			return fmt.Errorf("unknown fields %v", unknown)
		}
		defaulting.PruneNonNullableNullsWithoutDefaults(o, s)
		delete(o, "status") // nothing but the status subresource can set it

		// Validation.
		if meta.Namespace == "" {
			meta.Namespace = metav1.NamespaceDefault
		}
		if meta.Name == "" && meta.GenerateName != "" {
			meta.Name = meta.GenerateName + "x7x7x"
		}
		errs := metavalidation.ValidateObjectMeta(meta, true, metavalidation.NameIsDNSSubdomain, field.NewPath("metadata"))
		errs = append(errs, validation.ValidateCustomResource(nil, o, values)...)
		errs = append(errs, listtype.ValidateListSetsAndMaps(nil, s, o)...)
		if len(errs) == 0 {
			errs, _ = rules.Validate(context.Background(), nil, s, o, nil, celconfig.RuntimeCELCostBudget)
		}
		return errs.ToAggregate()
	}
	return judge
}

func readCRD(t *testing.T) *apiextensions.CustomResourceDefinition {
	v1 := new(apiextensionsv1.CustomResourceDefinition)
	if err := yaml.UnmarshalStrict(read(t, crdFile), v1); err != nil {
		t.Fatal(err)
	}
	apiextensionsv1.SetDefaults_CustomResourceDefinition(v1)
	apiextensionsv1.SetDefaults_CustomResourceDefinitionSpec(&v1.Spec)
	crd := new(apiextensions.CustomResourceDefinition)
	if err := apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(v1, crd, nil); err != nil {
		t.Fatal(err)
	}
	crd.Status.StoredVersions = []string{v1.Spec.Versions[0].Name} // as the server sets it
	return crd
}

func read(t *testing.T, name string) []byte {
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
