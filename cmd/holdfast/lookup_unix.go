//go:build unix

package main

import (
	"errors"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

var errNoCommand = errors.New("command not found")

// lookup finds a command as a POSIX shell does: one with a slash is a path, any other is looked for in the directories
// of PATH, of which an empty one is the working directory. exec.LookPath refuses that, and does not tell a file that
// may not be run (126) from one that is not there (127).
func lookup(command, path string) (string, error) {
	if strings.Contains(command, "/") {
		if err := executable(command); err != nil {
			return "", cannotRun(command, err)
		}
		return command, nil
	}
	failure := errNoCommand
	for _, dir := range filepath.SplitList(path) {
		if dir == "" {
			dir = "."
		}
		file := dir + "/" + command
		err := executable(file)
		if err == nil {
			return file, nil
		}
		if errors.Is(err, unix.EACCES) {
			failure = err
		}
	}
	return "", cannotRun(command, failure)
}

// executable reports why a file cannot be run by this process, nil if it can.
func executable(file string) error {
	var st unix.Stat_t
	if err := unix.Stat(file, &st); err != nil {
		if errors.Is(err, unix.ENOTDIR) {
			return unix.ENOENT
		}
		return err
	}
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		return unix.EISDIR
	}
	return unix.Faccessat(unix.AT_FDCWD, file, unix.X_OK, unix.AT_EACCESS)
}
