package manifests

import "embed"

// Samples are manifests to begin with, in samples/.
//
//go:embed samples/*.yaml
var Samples embed.FS
