package main

import (
	"context"
	"fmt"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/registry/customresource/tableconvertor"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	sigsjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// What `kubectl get` prints in the columns of the CRD, the ones of -o wide included.
func TestColumns(t *testing.T) {
	crd := new(apiextensionsv1.CustomResourceDefinition)
	if err := yaml.Unmarshal(read(t, crdFile), crd); err != nil {
		t.Fatal(err)
	}
	convertor, err := tableconvertor.New(crd.Spec.Versions[0].AdditionalPrinterColumns)
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		`{"metadata": {"name": "a"}, "spec": {"clock": 130.5, "ttl": 30},
		  "status": {"owner": "w", "fence": 2, "until": 160.5, "done": true, "attempts": 2, "result": "r"}}`: "[a w 2 160 true <nil> 130.5 30 2 r]",
		// A float of that size would be printed with an exponent.
		`{"metadata": {"name": "b"}, "spec": {"ttl": 0.5}, "status": {"owner": "w", "fence": 1, "until": 1764600000.123, "done": false}}`: "[b w 1 1764600000 false <nil> <nil> 0.5 <nil> <nil>]",
		`{"metadata": {"name": "c"}, "spec": {"ttl": 1}}`: "[c <nil> <nil> <nil> <nil> <nil> <nil> 1 <nil> <nil>]",
	} {
		o := new(unstructured.Unstructured)
		if err := sigsjson.UnmarshalCaseSensitivePreserveInts([]byte(text), &o.Object); err != nil {
			t.Fatal(err)
		}
		table, err := convertor.ConvertToTable(context.Background(), o, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(table.Rows[0].Cells); got != want {
			t.Errorf("got %v, want %v", got, want)
		}
	}
}
