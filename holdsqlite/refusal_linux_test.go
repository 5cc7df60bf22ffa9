package holdsqlite

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfastdb/holdfast/driver"
)

func TestNetworkFileSystemsAreToldByTheirMagicNumber(t *testing.T) {
	t.Parallel()
	for magic, want := range map[uint32]string{
		unix.NFS_SUPER_MAGIC: "NFS", unix.SMB_SUPER_MAGIC: "SMB", unix.CIFS_SUPER_MAGIC: "CIFS",
		unix.SMB2_SUPER_MAGIC: "SMB2", unix.FUSE_SUPER_MAGIC: "FUSE", unix.V9FS_MAGIC: "9P",
		unix.AFS_SUPER_MAGIC: "AFS", unix.AFS_FS_MAGIC: "AFS", unix.CODA_SUPER_MAGIC: "Coda",
		unix.CEPH_SUPER_MAGIC: "Ceph", unix.OCFS2_SUPER_MAGIC: "OCFS2", unix.NCP_SUPER_MAGIC: "NCP",
	} {
		if name, network := networkMagic(magic); !network || name != want {
			t.Errorf("networkMagic(%#x) = %q, %v; want %q, true", magic, name, network, want)
		}
	}
	for _, magic := range []uint32{
		unix.EXT4_SUPER_MAGIC, unix.XFS_SUPER_MAGIC, unix.BTRFS_SUPER_MAGIC, unix.TMPFS_MAGIC, unix.OVERLAYFS_SUPER_MAGIC,
		unix.F2FS_SUPER_MAGIC, unix.RAMFS_MAGIC, unix.MSDOS_SUPER_MAGIC, 0x2fc12fc1, // the last is ZFS
	} {
		if name, network := networkMagic(magic); network {
			t.Errorf("networkMagic(%#x) = %q, true; want a local file system", magic, name)
		}
	}
}

// TestChildFillsItsDisk is no test by itself: the next one runs it in a namespace where it may mount.
func TestChildFillsItsDisk(t *testing.T) {
	dir := os.Getenv("HOLDSQLITE_TEST_DISK")
	if dir == "" {
		return
	}
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil { // nobody else sees the disk
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Fatal(err)
	}
	s := open(t, filepath.Join(dir, "locks.db"))
	if err := s.Setup(t.Context()); err != nil {
		t.Fatal(err)
	}
	filler := filepath.Join(dir, "filler")
	fill := func() {
		if err := os.WriteFile(filler, bytes.Repeat([]byte{1}, 2<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
			t.Fatalf("filling the disk: %v", err)
		}
	}
	empty := func() {
		if err := os.Remove(filler); err != nil {
			t.Fatal(err)
		}
	}
	checkFull(t, s, fill, empty, func(session driver.Session) {
		if _, err := s.Beat(t.Context(), session.ID, session.Nonce, session.Nonce); !errors.Is(err, ErrDiskFull) {
			t.Errorf("Beat = %v, want ErrDiskFull", err)
		}
	})
}

func TestAFullDiskRefusesWithoutLossAndHeals(t *testing.T) {
	t.Parallel()
	cmd := again(t, "TestChildFillsItsDisk", "HOLDSQLITE_TEST_DISK="+t.TempDir())
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	if os.Getuid() != 0 { // become root in a namespace of its own
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestChildMayNotWrite is no test by itself: the next one runs it as a user without rights.
func TestChildMayNotWrite(t *testing.T) {
	path := os.Getenv("HOLDSQLITE_TEST_READONLY")
	if path == "" {
		return
	}
	s := open(t, path)
	for name, call := range map[string]func() error{
		"Setup": func() error { return s.Setup(t.Context()) },
		"Join": func() error {
			_, err := s.Join(t.Context(), driver.Session{ID: driver.NewID(), TTL: time.Minute})
			return err
		},
		"Grab": func() error {
			_, err := s.Grab(t.Context(), []driver.Ask{{Name: "held", Seed: time.Now().UnixMicro(), Holder: entry(driver.NewID())}})
			return err
		},
	} {
		if err := call(); !errors.Is(err, ErrReadOnly) || s.Classify(err) != driver.FaultPermanent {
			t.Errorf("%s = %v (%v), want ErrReadOnly, permanent", name, err, s.Classify(err))
		}
	}
}

func TestAReadOnlyFileOrDirectoryIsRefused(t *testing.T) {
	t.Parallel()
	for name, mode := range map[string]struct{ file, dir os.FileMode }{
		"file": {0o444, 0o777}, "directory": {0o666, 0o555}, "both": {0o444, 0o555},
	} {
		base := t.TempDir()
		dir := filepath.Join(base, "dir")
		if err := errors.Join(os.Chmod(filepath.Dir(base), 0o755), os.Mkdir(dir, 0o700)); err != nil {
			t.Fatal(err)
		}
		s, err := Open(filepath.Join(dir, "locks.db"), nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(s.Setup(t.Context()), s.Close(), os.Chmod(s.Path(), mode.file), os.Chmod(dir, mode.dir)); err != nil {
			t.Fatal(err)
		}
		cmd := again(t, "TestChildMayNotWrite", "HOLDSQLITE_TEST_READONLY="+s.Path())
		if os.Getuid() == 0 { // root may write everywhere
			cmd.Path = "/proc/self/exe" // the directory of the test binary may be closed to others
			cmd.Dir = base
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s read-only: %v\n%s", name, err, strings.TrimSpace(string(out)))
		}
		if err := os.Chmod(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
}
