package openurl

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
)

const driveLetters = runtime.GOOS == "windows"

// Default returns the URL to use when none is given: a SQLite file in the user's own state directory, which it creates
// for the user alone (mode 0700) if it is not there.
//
//	Linux, BSD   $XDG_STATE_HOME/holdfast/holdfast.db, else ~/.local/state/holdfast/holdfast.db
//	macOS        the same if XDG_STATE_HOME is set, else ~/Library/Application Support/holdfast/holdfast.db
//	Windows      %LocalAppData%\holdfast\holdfast.db
//
// getenv looks up environment variables; os.Getenv will do. An environment without HOME (or LocalAppData) is ErrURL: a
// guess, like a file in /tmp, could be another one for each process, or another user's.
func Default(getenv func(string) string) (string, error) {
	file, err := defaultFile(getenv)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return "", fmt.Errorf("create the state directory: %w", err)
	}
	return "sqlite:" + file, nil
}

// DefaultExisting returns the same URL as Default and creates nothing: it is for OpenExisting.
func DefaultExisting(getenv func(string) string) (string, error) {
	file, err := defaultFile(getenv)
	if err != nil {
		return "", err
	}
	return "sqlite:" + file, nil
}

func defaultFile(getenv func(string) string) (string, error) {
	dir, err := stateDir(runtime.GOOS, getenv)
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, "holdfast", "holdfast.db"), nil
}

// stateDir follows the XDG Base Directory Specification 0.8, by which a relative XDG_STATE_HOME is to be ignored.
func stateDir(goos string, getenv func(string) string) (string, error) {
	if goos == "windows" {
		if dir := getenv("LocalAppData"); dir != "" {
			return dir, nil
		}
		return "", fmt.Errorf("%w: none is given, and LocalAppData is not set to put the default file into", ErrURL)
	}
	if dir := getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return dir, nil
	}
	home := getenv("HOME")
	switch {
	case !filepath.IsAbs(home):
		return "", fmt.Errorf("%w: none is given, and HOME is not set to put the default file into", ErrURL)
	case goos == "darwin":
		return filepath.Join(home, "Library", "Application Support"), nil
	}
	return filepath.Join(home, ".local", "state"), nil
}
