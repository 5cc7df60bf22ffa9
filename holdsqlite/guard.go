package holdsqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"time"

	sqlite3 "modernc.org/sqlite/lib"

	"github.com/holdfastdb/holdfast/driver"
)

// InTx runs fn in a transaction on the application's data that is committed only if lease still holds its name. It is
// atomic: whoever takes the name over has to write the lock's record, and that write comes either before the
// transaction, which then fails with driver.ErrLost and leaves nothing behind, or after its commit.
//
// db is the application's pool on the file of the lease's store, opened with the driver "sqlite" of modernc.org/sqlite.
// It needs no busy timeout: InTx itself waits for other writers, and begins anew when one was quicker; fn runs at most
// once. A busy timeout, if there is one, cannot be interrupted, so InTx may outlast its context by that much.
//
// SQLite has one writer at a time: while fn runs, all other writes of the file wait, the heartbeats of every process
// too. So keep it short; after a third of the shortest TTL of the sessions that live the transaction is rolled back
// and InTx fails with context.DeadlineExceeded. Statements that fn gives a context of its own are interrupted only at
// the end of that one. Releasing the lease inside fn answers holdfast.ErrGuarded; locking anything in the same file
// would wait for the transaction itself.
//
// It returns fn's error as it is, driver.ErrLost (wrapped) if the lease was lost, holdfast.ErrReleased (wrapped) if
// it was released, the context's error, or SQLite's. The transaction is rolled back unless the error is nil; a panic
// of fn rolls back and goes on. If the error is one of COMMIT itself (an I/O error), the outcome is unknown.
func InTx(ctx context.Context, db *sql.DB, lease driver.Lease, fn func(tx *sql.Tx) error) error {
	guarded, end, err := lease.BeginGuard(ctx)
	if err != nil {
		return fmt.Errorf("holdsqlite: guarded transaction on %q: %w", lease.StoredName(), err)
	}
	defer end()
	guarded, cancel := context.WithCancelCause(guarded)
	defer cancel(nil)

	if s, ok := lease.Store().(*Store); ok {
		done, err := s.queueUp(guarded)
		if err != nil {
			return fmt.Errorf("holdsqlite: guarded transaction on %q: %w", lease.StoredName(), context.Cause(guarded))
		}
		defer done()
	}
	tx, ttl, err := beginGuarded(guarded, db, lease)
	if err != nil {
		return reason(guarded, err)
	}
	defer tx.Rollback() // after a COMMIT there is nothing to roll back
	limit := ttl / 3
	timer := time.AfterFunc(limit, func() {
		cancel(fmt.Errorf("holdsqlite: guarded transaction on %q: not done after %v, a third of the shortest TTL on the file: %w",
			lease.StoredName(), limit, context.DeadlineExceeded))
	})
	defer timer.Stop()
	if err := fn(tx); err != nil {
		if guarded.Err() != nil {
			return errors.Join(err, context.Cause(guarded)) // it rolled back under fn's hands; say why
		}
		return err
	}
	if err := tx.Commit(); err != nil {
		return reason(guarded, err)
	}
	return nil
}

// queueUp takes the place of a writer of this process, in which the beats of its own sessions stand too, and after a long
// guarded transaction leaves the file free for long enough that those of other processes, which look every few
// milliseconds, get their turn: else one such transaction after the other would cost everybody their leases.
func (s *Store) queueUp(ctx context.Context) (done func(), err error) {
	if rest := time.Duration(s.guarded.Load()) + 2*longestPause - time.Since(s.opened); rest > 0 && s.guarded.Load() > 0 {
		pause := time.NewTimer(rest)
		defer pause.Stop()
		select {
		case <-pause.C:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if err := acquire(ctx, s.writes.pen); err != nil {
		return nil, err
	}
	began := time.Since(s.opened)
	return func() {
		if now := time.Since(s.opened); now-began > longestPause {
			s.guarded.Store(int64(now))
		}
		<-s.writes.pen
	}, nil
}

// reason is err, or why ctx ended if it has: database/sql only says that the transaction is over.
func reason(ctx context.Context, err error) error {
	if ctx.Err() == nil || errors.Is(err, driver.ErrLost) {
		return err
	}
	if _, primary := code(err); primary != 0 && primary != sqlite3.SQLITE_INTERRUPT && primary != sqlite3.SQLITE_BUSY {
		return err
	}
	return context.Cause(ctx)
}

// beginGuarded begins and guards. It tries again while another writer has the lock (the application's pool may have no
// busy timeout) or, SQLITE_BUSY_SNAPSHOT, was quicker; ctx, which ends with the lease, is the bound.
func beginGuarded(ctx context.Context, db *sql.DB, lease driver.Lease) (tx *sql.Tx, ttl time.Duration, err error) {
	err = untilFree(ctx, func() error {
		if tx, err = db.BeginTx(ctx, nil); err != nil {
			return err
		}
		if ttl, err = guardTx(ctx, tx, lease); err != nil {
			return errors.Join(err, rollback(tx))
		}
		return nil
	})
	return tx, ttl, err
}

func rollback(tx *sql.Tx) error {
	if err := tx.Rollback(); !errors.Is(err, sql.ErrTxDone) {
		return err
	}
	return nil
}

// Guard makes a transaction conditional on lease, for those who cannot use InTx. It must be the first statement of a
// transaction that was begun after the grant, on a connection with a busy timeout, and the transaction has to end
// before the session's beats are late: all writes of the file wait for it. Guard fails with driver.ErrLost (wrapped) if
// lease does not hold its name any more; then, and after any other error, roll back. SQLITE_BUSY_SNAPSHOT (517) means
// that it was not the first statement, or another writer was quicker: roll back and begin anew.
func Guard(ctx context.Context, tx *sql.Tx, lease driver.Lease) error {
	_, err := guardTx(ctx, tx, lease)
	return err
}

// guardTx guards and says how long every session that lives on the file lives without a beat: the shortest of their TTLs,
// for all their beats wait for the transaction.
func guardTx(ctx context.Context, tx *sql.Tx, lease driver.Lease) (ttl time.Duration, err error) {
	name := lease.StoredName()
	fail := func(err error) (time.Duration, error) { return 0, fmt.Errorf("holdsqlite: guard %q: %w", name, err) }
	s, ok := lease.Store().(*Store)
	if !ok {
		return fail(fmt.Errorf("the lease was taken through a %T, not through this package", lease.Store()))
	}
	if err := s.sameDatabase(ctx, tx); err != nil {
		return fail(err)
	}
	res, err := tx.ExecContext(ctx, s.sql(guard), name)
	if err != nil {
		return fail(err)
	}
	if n, err := res.RowsAffected(); err != nil || n == 0 {
		return fail(errors.Join(driver.ErrLost, err))
	}
	var state []byte
	if err := tx.QueryRowContext(ctx, s.sql(guardState), name).Scan(&state); err != nil {
		return fail(err)
	}
	holders, _, err := driver.DecodeState(state)
	if err != nil {
		return fail(&driver.DamagedError{Name: name, Err: err})
	}
	for _, h := range holders {
		// A session-less entry of this lease is what is left of it after its release: a name kept, not held.
		if h.Lease != lease.ID() || h.Rev != lease.Token() || h.Session.IsZero() {
			continue
		}
		// A session marked dead has lost its leases, even those that nobody took over yet.
		var us int64
		now := s.now()
		switch err := tx.QueryRowContext(ctx, s.sql(guardTTL), h.Session.String(), now.clock, now.us).Scan(&us); {
		case errors.Is(err, sql.ErrNoRows):
			return fail(driver.ErrLost)
		case err != nil:
			return fail(err)
		}
		return time.Duration(us) * time.Microsecond, nil
	}
	return fail(driver.ErrLost)
}

// sameDatabase refuses a transaction on another file than the store's: there, the guard would guard nothing.
func (s *Store) sameDatabase(ctx context.Context, tx *sql.Tx) error {
	var file sql.NullString
	if err := tx.QueryRowContext(ctx, databaseFile).Scan(&file); err != nil {
		return err
	}
	ours, err := os.Stat(s.path)
	if err := s.sameFile(ours, err); err != nil {
		return err
	}
	theirs, err := os.Stat(file.String)
	if file.String == "" || err != nil || !os.SameFile(ours, theirs) {
		return fmt.Errorf("%w: the transaction is on the file %q, the lease is in %q", ErrPath, file.String, s.path)
	}
	return nil
}
