package manifests

import "embed"

// Samples are manifests to begin with, in samples/, and the schema that they name in their first
// lines.
//
//go:embed samples/*.yaml samples/.leasehold.schema.json
var Samples embed.FS
