//go:build !unix

package main

import "io/fs"

func groupOf(fs.FileInfo) (gid int, ok bool) { return 0, false }

// checkState would refuse a state directory that somebody else could have put there.
func checkState(dir, state string) error { return nil }
