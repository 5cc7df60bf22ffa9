//go:build !linux && !darwin && !windows

package holdsqlite

// fileSystem cannot tell on this system.
func fileSystem(string) (name string, network bool, err error) {
	return "an unknown file system", false, nil
}

// writable cannot tell on this system; SQLite's own error must do.
func writable(string) bool { return true }
