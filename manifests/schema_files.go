package manifests

import _ "embed"

// CRD is the CustomResourceDefinition of Job, as YAML. It is made from the types of this package.
//
//go:embed crd/leasehold.dev_jobs.yaml
var CRD []byte

// SchemaFile is the name of the file that holds JSONSchema beside the samples. It begins with a
// dot, so that it is no manifest.
const SchemaFile = ".leasehold.schema.json"

// JSONSchema is the JSON schema (draft 7) of a document in a manifest file, for editors. It is made
// from CRD.
//
//go:embed samples/.leasehold.schema.json
var JSONSchema []byte
