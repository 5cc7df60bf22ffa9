package holdsqlite

import (
	"path/filepath"

	"golang.org/x/sys/windows"
)

// fileSystem says whether dir is on a network drive or share.
func fileSystem(dir string) (name string, network bool, err error) {
	root, err := windows.UTF16PtrFromString(filepath.VolumeName(dir) + `\`)
	if err != nil {
		return "", false, err
	}
	if windows.GetDriveType(root) == windows.DRIVE_REMOTE {
		return "a network drive", true, nil
	}
	return "a local drive", false, nil
}

// writable is not asked of Windows, where it has no short answer; SQLite's own error must do.
func writable(string) bool { return true }
