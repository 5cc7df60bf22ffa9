package holdsqlite

import (
	"golang.org/x/sys/unix"
)

// fileSystem names the file system of dir and says whether it is one whose locks or shared memory may not reach all
// its users. FUSE counts: nobody can tell what is behind it, and sshfs, virtiofs and the desktop container mounts are.
func fileSystem(dir string) (name string, network bool, err error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return "", false, err
	}
	name, network = networkMagic(uint32(st.Type))
	return name, network, nil
}

// networkMagic judges the magic number of statfs(2), from linux/magic.h and the file systems' own sources.
func networkMagic(magic uint32) (name string, network bool) {
	switch magic {
	case 0x6969:
		return "NFS", true
	case 0x517b:
		return "SMB", true
	case 0xff534d42:
		return "CIFS", true
	case 0xfe534d42:
		return "SMB2", true
	case 0x65735546:
		return "FUSE", true
	case 0x01021997:
		return "9P", true
	case 0x5346414f, 0x6b414653:
		return "AFS", true
	case 0x73757245:
		return "Coda", true
	case 0x00c36400:
		return "Ceph", true
	case 0x0bd00bd0:
		return "Lustre", true
	case 0x47504653:
		return "GPFS", true
	case 0x7461636f:
		return "OCFS2", true
	case 0x01161970:
		return "GFS2", true
	case 0x564c:
		return "NCP", true
	case 0xaad7aaea:
		return "PanFS", true
	case 0x786f4256:
		return "a VirtualBox shared folder", true
	case 0xbacbacbc:
		return "a VMware shared folder", true
	case 0x19830326:
		return "BeeGFS", true
	}
	return "a local file system", false
}

// writable reports whether this process may create files in dir.
func writable(dir string) bool { return unix.Access(dir, unix.W_OK) == nil }
