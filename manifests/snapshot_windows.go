package manifests

import (
	"io/fs"
	"syscall"
)

// addIdentity adds the creation time, which tells a file from one that took its name.
func addIdentity(fi fs.FileInfo, m *meta) {
	if sys, ok := fi.Sys().(*syscall.Win32FileAttributeData); ok {
		m.Ctime = sys.CreationTime.Nanoseconds()
	}
}
