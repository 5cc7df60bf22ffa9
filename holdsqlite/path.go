package holdsqlite

import (
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
)

// resolve makes a path absolute and follows its symbolic links, so that every process means the same file whatever its
// working directory is. The file need not exist; its directory must.
func resolve(path string) (string, error) {
	switch {
	case path == "":
		return "", fmt.Errorf("%w: it is empty, which SQLite takes for a private temporary file", ErrPath)
	case strings.Contains(path, ":memory:"):
		return "", fmt.Errorf("%w: %q is private to one connection, use package holdmem", ErrPath, path)
	case strings.HasPrefix(strings.ToLower(path), "file:"):
		return "", fmt.Errorf("%w: %q is a URI, pass the plain path of a file", ErrPath, path)
	case strings.ContainsRune(path, 0):
		return "", fmt.Errorf("%w: %q contains a NUL byte", ErrPath, path)
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrPath, err)
	}
	real, err := filepath.EvalSymlinks(abs)
	if errors.Is(err, fs.ErrNotExist) {
		if _, lerr := os.Lstat(abs); lerr == nil {
			return "", fmt.Errorf("%w: %s is a symbolic link to nothing", ErrPath, abs)
		}
		dir, derr := filepath.EvalSymlinks(filepath.Dir(abs))
		if derr != nil {
			return "", fmt.Errorf("%w: its directory is not there: %w", ErrPath, derr)
		}
		return filepath.Join(dir, filepath.Base(abs)), nil
	}
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrPath, err)
	}
	switch fi, err := os.Stat(real); {
	case err != nil:
		return "", fmt.Errorf("%w: %w", ErrPath, err)
	case fi.IsDir():
		return "", fmt.Errorf("%w: %s is a directory", ErrPath, real)
	case !fi.Mode().IsRegular():
		return "", fmt.Errorf("%w: %s is no regular file", ErrPath, real)
	}
	return real, nil
}

// checkLocal refuses directories on network file systems.
func checkLocal(dir string) error {
	name, network, err := fileSystem(dir)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrPath, err)
	}
	if network {
		return fmt.Errorf("%w: %s is on %s", ErrNetworkFile, dir, name)
	}
	return nil
}

// dsn is the URI that opens path, whatever characters it has. Only Setup may create the file.
func dsn(path string, create bool, txlock string) string {
	p := filepath.ToSlash(path)
	if !strings.HasPrefix(p, "/") {
		p = "/" + p // C:/locks.db
	}
	mode := "rw"
	if create {
		mode = "rwc"
	}
	u := url.URL{Scheme: "file", Path: p, RawQuery: "mode=" + mode + "&_txlock=" + txlock}
	return u.String()
}
