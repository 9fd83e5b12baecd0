package controller

import "golang.org/x/sys/unix"

// remoteKind names the directory's file system if others can change it without this kernel knowing.
func remoteKind(dir string) string {
	var st unix.Statfs_t
	if unix.Statfs(dir, &st) != nil {
		return ""
	}
	switch uint32(st.Type) {
	case unix.NFS_SUPER_MAGIC:
		return "NFS"
	case unix.SMB_SUPER_MAGIC, unix.SMB2_SUPER_MAGIC, unix.CIFS_SUPER_MAGIC:
		return "SMB"
	case unix.V9FS_MAGIC:
		return "9P"
	case unix.CEPH_SUPER_MAGIC:
		return "Ceph"
	case unix.FUSE_SUPER_MAGIC:
		return "FUSE"
	case 0x786f4256:
		return "vboxsf"
	}
	return ""
}
