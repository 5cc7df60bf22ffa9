package holdsqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/holdfastdb/holdfast/driver"
)

// Setup creates the file, puts it into WAL mode and creates the tables, as far as that has not been done. It fails with
// ErrNewerSchema, ErrReadOnly, ErrNotDatabase or another sentence, and then has changed nothing.
func (s *Store) Setup(ctx context.Context) error {
	if s.closed.Load() {
		return notApplied(ErrClosed)
	}
	// Once locks were kept in it, a file that is gone must not be made anew in silence.
	if err := s.sameFile(os.Stat(s.path)); err != nil && !errors.Is(err, os.ErrNotExist) || errors.Is(err, ErrReplaced) {
		return notApplied(err)
	}
	base, err := sqlite.NewConnector(dsn(s.path, true, "immediate"))
	if err != nil {
		return err
	}
	db := sql.OpenDB(base)
	db.SetMaxOpenConns(1)
	err = s.explain(s.setup(ctx, db))
	if err := errors.Join(err, db.Close()); err != nil {
		return err
	}
	return s.sameFile(os.Stat(s.path))
}

func (s *Store) setup(ctx context.Context, db *sql.DB) error {
	// Look first: what is refused here stays untouched, its journal mode too.
	err := untilFree(ctx, func() error {
		var tables int
		if err := db.QueryRowContext(ctx, s.sql(selectTable)).Scan(&tables); err != nil || tables == 0 {
			return err
		}
		return s.checkVersion(ctx, db)
	})
	if err != nil {
		return early(ctx, err)
	}
	var encoding string
	if err := db.QueryRowContext(ctx, "PRAGMA encoding").Scan(&encoding); err != nil {
		return early(ctx, err)
	}
	if encoding != "UTF-8" {
		return notApplied(fmt.Errorf("%w: %s is encoded in %s, but names are compared as UTF-8", ErrPath, s.path, encoding))
	}
	if err := setWAL(ctx, db); err != nil {
		return err
	}
	return untilFree(ctx, func() error {
		tx, err := db.BeginTx(ctx, nil) // immediate
		if err != nil {
			return early(ctx, err)
		}
		defer tx.Rollback() // after a COMMIT there is nothing to roll back
		for _, statement := range []string{createMeta, createRecords, createSessions} {
			if _, err := tx.ExecContext(ctx, s.sql(statement)); err != nil {
				return early(ctx, err)
			}
		}
		if _, err := tx.ExecContext(ctx, s.sql(insertVersion), schemaVersion); err != nil {
			return early(ctx, err)
		}
		if err := s.checkVersion(ctx, tx); err != nil { // another process may have been ahead with a newer one
			return early(ctx, err)
		}
		return tx.Commit()
	})
}

// setWAL puts the file into WAL mode, where readers and the writer do not wait for each other. It does nothing if the
// file is in it, as it stays from then on.
func setWAL(ctx context.Context, db *sql.DB) error {
	var mode string
	err := untilFree(ctx, func() error {
		return db.QueryRowContext(ctx, "PRAGMA journal_mode = WAL").Scan(&mode)
	})
	if err != nil {
		return early(ctx, err)
	}
	if mode != "wal" {
		return notApplied(fmt.Errorf("%w: SQLite cannot put it into WAL mode, it stays in mode %q", ErrPath, mode))
	}
	return nil
}

type querier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// checkVersion refuses tables that are newer than this code.
func (s *Store) checkVersion(ctx context.Context, q querier) error {
	var version int64
	switch err := q.QueryRowContext(ctx, s.sql(selectVersion)).Scan(&version); {
	case errors.Is(err, sql.ErrNoRows):
		return nil // Setup is on its way
	case err != nil:
		return err
	case version > schemaVersion:
		return fmt.Errorf("%w (theirs is schema %d, this one knows %d)", ErrNewerSchema, version, schemaVersion)
	}
	return nil
}

// checkSchema is what the first call does before its work.
func (s *Store) checkSchema(ctx context.Context) error {
	done, err := s.reads.take(ctx)
	if err != nil {
		return err
	}
	defer done()
	db := s.reads.db
	if err := untilFree(ctx, func() error { return s.checkVersion(ctx, db) }); err != nil {
		return early(ctx, s.notSetUp(ctx, db, err))
	}
	if err := setWAL(ctx, db); err != nil { // somebody may have changed the mode while no store was open
		return err
	}
	s.known.Store(true)
	return nil
}

// notSetUp turns the error of a statement whose table is missing into driver.ErrNotSetUp.
func (s *Store) notSetUp(ctx context.Context, db *sql.DB, err error) error {
	if extended, _ := code(err); extended != sqlite3.SQLITE_ERROR {
		return err
	}
	var tables int
	if lookErr := db.QueryRowContext(ctx, s.sql(selectTable)).Scan(&tables); lookErr != nil || tables > 0 {
		return err
	}
	return fmt.Errorf("%w (%s has no table %smeta)", driver.ErrNotSetUp, s.path, s.prefix)
}
