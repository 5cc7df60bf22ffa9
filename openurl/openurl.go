// Package openurl opens the store that a URL names. It is the only package that knows all backends: a program that
// imports it links them all, one that knows its database imports that backend alone.
package openurl

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"strings"

	"github.com/holdfastdb/holdfast/driver"
	"github.com/holdfastdb/holdfast/holdmem"
	"github.com/holdfastdb/holdfast/holdsqlite"
)

// ErrURL says that a URL names no store this version can open. Nothing was opened or created.
var ErrURL = errors.New("no usable database URL")

// ErrNoDatabase says that OpenExisting found nothing where the URL points: no file, or one without Holdfast's tables.
var ErrNoDatabase = errors.New("there is no database")

// Open opens the store that url names, and calls its Setup, which creates what the store needs. Call done when the
// store's clients are closed. If Open fails, nothing is left open; the error is ErrURL if the URL itself is at fault.
// An error never contains the URL, which may hold a password, but may contain the path of a file. ctx bounds Setup.
//
//	sqlite:PATH   one SQLite file, for the processes of one machine; sqlite:///PATH is the same for an absolute path.
//	              PATH is taken literally, without %-escapes, and one with a ? is refused; its directory must exist.
//	mem:          the memory of this process, empty at each Open: for trying things out, it excludes nobody else
//
// mongodb://, mysql:// and postgres:// are not in this version.
func Open(ctx context.Context, url string) (store driver.Store, done func() error, err error) {
	return open(url, false, func(store driver.Store) error {
		err := store.Setup(ctx)
		if at := place(store); err != nil && !strings.Contains(err.Error(), at) { // SQLite does not always say which file
			err = fmt.Errorf("%s: %w", at, err)
		}
		return err
	})
}

// OpenExisting opens the store that url names as Open does, but creates nothing: it is for those who look. The error is
// ErrNoDatabase if nothing is there. It reads from the database once, which ctx bounds. What mem: names is always there,
// and empty.
func OpenExisting(ctx context.Context, url string) (store driver.Store, done func() error, err error) {
	return open(url, true, func(store driver.Store) error {
		_, err := store.Load(ctx, []driver.Known{{Name: "holdfast"}}) // any name will do
		if errors.Is(err, driver.ErrNotSetUp) {
			err = fmt.Errorf("%w at %s: it has no tables of Holdfast", ErrNoDatabase, place(store))
		}
		return err
	})
}

// place is where a store keeps its locks, as far as that may be told; empty if it may not.
func place(store driver.Store) string {
	if s, ok := store.(*holdsqlite.Store); ok {
		return s.Path()
	}
	return ""
}

// open opens a store and closes it again if it is not ready.
func open(url string, existing bool, ready func(driver.Store) error) (store driver.Store, done func() error, err error) {
	scheme, rest, found := strings.Cut(url, ":")
	if !found || !regexp.MustCompile(`^[A-Za-z][A-Za-z0-9+.-]*$`).MatchString(scheme) {
		return nil, nil, fmt.Errorf("%w: it must begin with sqlite: or mem:, as in sqlite:/var/lib/app/locks.db", ErrURL)
	}
	switch strings.ToLower(scheme) {
	case "sqlite":
		store, done, err = openSQLite(rest, existing)
	case "mem":
		if rest != "" {
			return nil, nil, fmt.Errorf("%w: nothing may follow mem:", ErrURL)
		}
		store, done = holdmem.New(), func() error { return nil }
	case "mongodb", "mongodb+srv", "mysql", "mariadb", "postgres", "postgresql":
		return nil, nil, fmt.Errorf("%w: %s: is not in this version, which knows sqlite: and mem:", ErrURL, scheme)
	default:
		return nil, nil, fmt.Errorf("%w: the scheme %q is unknown, use sqlite: or mem:", ErrURL, scheme)
	}
	if err != nil {
		return nil, nil, err
	}
	if err := ready(store); err != nil {
		return nil, nil, errors.Join(err, done())
	}
	return store, done, nil
}

func openSQLite(path string, existing bool) (driver.Store, func() error, error) {
	switch {
	case path == "":
		return nil, nil, fmt.Errorf("%w: a path must follow sqlite:", ErrURL)
	case strings.HasPrefix(path, "//") && !strings.HasPrefix(path, "///"):
		return nil, nil, fmt.Errorf("%w: after sqlite:// must follow an absolute path, as in sqlite:///var/lib/app/locks.db", ErrURL)
	case strings.Contains(path, "?"):
		return nil, nil, fmt.Errorf("%w: sqlite: takes a path alone, without ? and options", ErrURL)
	}
	if rest, found := strings.CutPrefix(path, "//"); found {
		path = localPath(rest)
	}
	if _, err := os.Stat(path); existing && errors.Is(err, fs.ErrNotExist) {
		return nil, nil, fmt.Errorf("%w at %s", ErrNoDatabase, path)
	}
	s, err := holdsqlite.Open(path, nil)
	if err != nil {
		return nil, nil, err
	}
	return s, s.Close, nil
}

// localPath turns the path of a URL into one of the system: /C:/dir is C:/dir on Windows.
func localPath(path string) string {
	if driveLetters && len(path) > 2 && path[0] == '/' && path[2] == ':' {
		return path[1:]
	}
	return path
}
