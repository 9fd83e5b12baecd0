//go:build !linux

package controller

func remoteKind(string) string { return "" }
