package main

// These imports hold the requirements in go.mod until the code that needs them is here. This file goes
// away with the last of them.

import (
	_ "github.com/anishathalye/porcupine"
	_ "github.com/fsnotify/fsnotify"
	_ "github.com/google/go-cmp/cmp"
	_ "github.com/rogpeppe/go-internal/testscript"
	_ "github.com/spf13/cobra"
	_ "github.com/spf13/pflag"
	_ "go.yaml.in/yaml/v3"
	_ "golang.org/x/sync/errgroup"
	_ "golang.org/x/sys/unix"
	_ "golang.org/x/term"
	_ "k8s.io/apimachinery/pkg/apis/meta/v1"
	_ "k8s.io/apimachinery/pkg/labels"
	_ "k8s.io/apimachinery/pkg/util/validation/field"
	_ "k8s.io/cli-runtime/pkg/printers"
	_ "k8s.io/client-go/util/workqueue"
	_ "modernc.org/sqlite"
	_ "pgregory.net/rapid"
	_ "sigs.k8s.io/json"
	_ "sigs.k8s.io/yaml"
)
