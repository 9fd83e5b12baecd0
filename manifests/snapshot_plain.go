//go:build !(linux || darwin || freebsd || windows)

package manifests

import "io/fs"

func addIdentity(fs.FileInfo, *meta) {}
