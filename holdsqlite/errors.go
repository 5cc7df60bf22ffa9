package holdsqlite

import (
	"context"
	"errors"
	"fmt"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/holdfastdb/holdfast/driver"
)

// What a caller can do something about. All of them leave file and locks as they were.
var (
	ErrPath        = errors.New("the path cannot hold locks")
	ErrNetworkFile = errors.New("the file is on a network file system, where SQLite's locks do not hold")
	ErrNewerSchema = errors.New("the tables were made by a newer version of Holdfast: upgrade this program")
	ErrReplaced    = errors.New("the file was deleted or replaced while in use: its locks are gone, open it anew")
	ErrReadOnly    = errors.New("the file or its directory is read-only: locks need to write both")
	ErrDiskFull    = errors.New("no room left to write: the disk or the file's size limit is full")
	ErrNotDatabase = errors.New("the file is no SQLite database, or a damaged one")
	ErrClosed      = errors.New("the store is closed")
)

// errJoined refuses a Join; the client makes up another id.
var errJoined = errors.New("a session of that id is there already: another one, or a dead one")

// notAppliedError marks an error that came before anything could be written, or after everything was rolled back.
type notAppliedError struct{ err error }

func (e *notAppliedError) Error() string { return e.err.Error() }
func (e *notAppliedError) Unwrap() error { return e.err }

func notApplied(err error) error {
	if err == nil {
		return nil
	}
	return &notAppliedError{err}
}

// code is the SQLite result code in err, extended and primary; 0, 0 if there is none.
func code(err error) (extended, primary int) {
	var e *sqlite.Error
	if !errors.As(err, &e) {
		return 0, 0
	}
	return e.Code(), e.Code() & 0xff
}

// explain puts the sentence for it before an error of SQLite.
func (s *Store) explain(err error) error {
	if err == nil {
		return nil
	}
	var sentence error
	switch extended, primary := code(err); {
	case extended == sqlite3.SQLITE_READONLY_DBMOVED:
		sentence = ErrReplaced
	case primary == sqlite3.SQLITE_READONLY:
		sentence = ErrReadOnly
	case primary == sqlite3.SQLITE_CANTOPEN && !writable(s.dir):
		sentence = ErrReadOnly // it could not create the -wal or -shm file
	case primary == sqlite3.SQLITE_FULL:
		sentence = ErrDiskFull
	case primary == sqlite3.SQLITE_NOTADB, primary == sqlite3.SQLITE_CORRUPT:
		sentence = ErrNotDatabase
	default:
		return err
	}
	if errors.Is(err, sentence) {
		return err
	}
	return fmt.Errorf("%w (%s: %w)", sentence, s.path, err)
}

// Classify says what an error of this store means.
func (s *Store) Classify(err error) driver.Fault {
	for _, permanent := range []error{
		driver.ErrNotSetUp, ErrPath, ErrNetworkFile, ErrNewerSchema, ErrReplaced, ErrReadOnly, ErrDiskFull,
		ErrNotDatabase, ErrClosed, errJoined,
	} {
		if errors.Is(err, permanent) {
			return driver.FaultPermanent
		}
	}
	var damaged *driver.DamagedError
	if errors.As(err, &damaged) {
		return driver.FaultPermanent
	}
	switch _, primary := code(err); primary {
	case sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH:
		return driver.FaultDenied
	case sqlite3.SQLITE_READONLY, sqlite3.SQLITE_FULL, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT,
		sqlite3.SQLITE_ERROR: // a statement that this file cannot run: other tables under our names
		return driver.FaultPermanent
	case sqlite3.SQLITE_CANTOPEN: // may heal: out of file descriptors
		return driver.FaultUnavailable
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL:
		// The write lock was never had: all writes are BEGIN IMMEDIATE or one statement, and in WAL mode a COMMIT
		// needs no lock that its BEGIN has not taken.
		return driver.FaultNotApplied
	}
	var before *notAppliedError
	if errors.As(err, &before) {
		return driver.FaultNotApplied
	}
	return driver.FaultUnknown
}

// early makes the error of something that came before any write: the reason is ctx's if ctx is over.
func early(ctx context.Context, err error) error {
	if cause := ctx.Err(); cause != nil {
		err = cause
	}
	return notApplied(err)
}
