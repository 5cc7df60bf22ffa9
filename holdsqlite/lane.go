package holdsqlite

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"os"
	"sync"

	"modernc.org/sqlite"

	"github.com/holdfastdb/holdfast/driver"
)

// A lane is one connection with its prepared statements. A call has to have its turn before it touches the connection,
// so that one that gives up in the queue is known not to have been applied.
type lane struct {
	store *Store
	db    *sql.DB
	turn  chan struct{} // holds one value while a call uses the connection
	pen   chan struct{} // the same for all writing lanes of the store; nil for the reading one

	mu    sync.Mutex
	stmts map[string]*sql.Stmt // by statement, guarded by mu; sql.Stmt prepares anew on a new connection
}

func newLane(s *Store, pen chan struct{}, synchronous string) (*lane, error) {
	base, err := sqlite.NewConnector(dsn(s.path, false, "immediate"))
	if err != nil {
		return nil, err
	}
	db := sql.OpenDB(&connector{Connector: base, store: s, synchronous: synchronous})
	db.SetMaxOpenConns(1)
	db.SetMaxIdleConns(1)
	return &lane{store: s, db: db, turn: make(chan struct{}, 1), pen: pen, stmts: map[string]*sql.Stmt{}}, nil
}

// take waits for the connection, and a writer for the pen. SQLite lets one connection write at a time and has the others
// look again and again, in no order; inside one process a queue is cheaper and fair. At most one call a lane stands in
// it, so a beat or a release waits for three other calls at most, as it would have to in SQLite too.
func (l *lane) take(ctx context.Context) (done func(), err error) {
	if err := ctx.Err(); err != nil {
		return nil, notApplied(err)
	}
	if err := acquire(ctx, l.turn); err != nil {
		return nil, err
	}
	if l.store.closed.Load() {
		<-l.turn
		return nil, notApplied(ErrClosed)
	}
	if l.pen == nil {
		return func() { <-l.turn }, nil
	}
	if err := acquire(ctx, l.pen); err != nil {
		<-l.turn
		return nil, err
	}
	return func() { <-l.pen; <-l.turn }, nil
}

func acquire(ctx context.Context, slot chan struct{}) error {
	select {
	case slot <- struct{}{}:
		return nil
	case <-ctx.Done():
		return notApplied(ctx.Err())
	}
}

// prepare returns the statement, prepared. The caller has the turn.
func (l *lane) prepare(ctx context.Context, statement string) (*sql.Stmt, error) {
	l.mu.Lock()
	stmt := l.stmts[statement]
	l.mu.Unlock()
	if stmt != nil {
		return stmt, nil
	}
	err := untilFree(ctx, func() (err error) {
		stmt, err = l.db.PrepareContext(ctx, l.store.sql(statement))
		return err
	})
	if err != nil {
		return nil, early(ctx, l.store.notSetUp(ctx, l.db, err))
	}
	l.mu.Lock()
	l.stmts[statement] = stmt
	l.mu.Unlock()
	return stmt, nil
}

// exec runs one writing statement in autocommit mode.
func (l *lane) exec(ctx context.Context, statement string, args ...any) (changed int64, err error) {
	done, err := l.take(ctx)
	if err != nil {
		return 0, err
	}
	defer done()
	stmt, err := l.prepare(ctx, statement)
	if err != nil {
		return 0, err
	}
	err = untilFree(ctx, func() error {
		res, err := stmt.ExecContext(ctx, args...)
		if err == nil {
			changed, err = res.RowsAffected()
		}
		return err
	})
	return changed, err
}

// query runs one reading statement and hands each row to scan. No read transaction is left open.
func (l *lane) query(ctx context.Context, scan func(*sql.Rows) error, statement string, args ...any) (err error) {
	done, err := l.take(ctx)
	if err != nil {
		return err
	}
	defer done()
	stmt, err := l.prepare(ctx, statement)
	if err != nil {
		return err
	}
	var rows *sql.Rows
	err = untilFree(ctx, func() (err error) {
		rows, err = stmt.QueryContext(ctx, args...)
		return err
	})
	if err != nil {
		return err
	}
	return each(rows, scan)
}

func each(rows *sql.Rows, scan func(*sql.Rows) error) (err error) {
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		if err := scan(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// write runs fn between BEGIN IMMEDIATE and COMMIT. All but an error of the COMMIT itself is certain not to have been
// applied. The connection is never left inside a transaction: database/sql rolls back, or closes what it cannot.
func (l *lane) write(ctx context.Context, fn func(t *transaction) error, statements ...string) error {
	done, err := l.take(ctx)
	if err != nil {
		return err
	}
	defer done()
	t := &transaction{ctx: ctx, stmts: make(map[string]*sql.Stmt, len(statements))}
	for _, st := range statements { // before BEGIN, which takes the lane's only connection
		if t.stmts[st], err = l.prepare(ctx, st); err != nil {
			return err
		}
	}
	err = untilFree(ctx, func() (err error) {
		t.tx, err = l.db.BeginTx(ctx, nil)
		return err
	})
	if err != nil {
		return early(ctx, err)
	}
	defer t.tx.Rollback() // after a COMMIT there is nothing to roll back
	if err := fn(t); err != nil {
		return early(ctx, err)
	}
	if err := t.tx.Commit(); err != nil {
		if _, primary := code(err); primary == 0 { // database/sql refused: COMMIT was not sent
			return early(ctx, err)
		}
		return err
	}
	return nil
}

// transaction is an open BEGIN IMMEDIATE.
type transaction struct {
	ctx   context.Context
	tx    *sql.Tx
	stmts map[string]*sql.Stmt
}

func (t *transaction) exec(statement string, args ...any) (changed int64, err error) {
	res, err := t.tx.StmtContext(t.ctx, t.stmts[statement]).ExecContext(t.ctx, args...)
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}

func (t *transaction) query(scan func(*sql.Rows) error, statement string, args ...any) error {
	rows, err := t.tx.StmtContext(t.ctx, t.stmts[statement]).QueryContext(t.ctx, args...)
	if err != nil {
		return err
	}
	return each(rows, scan)
}

// close waits for the call that has the turn, which its context ends, and closes statements and connection.
func (l *lane) close() error {
	l.turn <- struct{}{}
	defer func() { <-l.turn }()
	l.mu.Lock()
	defer l.mu.Unlock()
	var errs []error
	for _, stmt := range l.stmts {
		errs = append(errs, stmt.Close())
	}
	clear(l.stmts)
	return errors.Join(append(errs, l.db.Close())...)
}

// connector opens the connections of a lane: all alike, of the file that the store began with and no other.
type connector struct {
	sqldriver.Connector
	store       *Store
	synchronous string
}

// Connect opens a connection and sets what must hold on each.
func (c *connector) Connect(ctx context.Context) (sqldriver.Conn, error) {
	before, err := os.Stat(c.store.path)
	if errors.Is(err, os.ErrNotExist) && c.store.file.Load() == nil {
		return nil, fmt.Errorf("%w (%s is not there)", driver.ErrNotSetUp, c.store.path)
	}
	if err := c.store.sameFile(before, err); err != nil {
		return nil, err
	}
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	after, err := os.Stat(c.store.path)
	if err == nil && !os.SameFile(before, after) {
		err = ErrReplaced
	}
	if err == nil {
		err = configure(ctx, conn, c.synchronous)
	}
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

// configure runs the pragmas that every connection needs; none of them waits for a lock.
func configure(ctx context.Context, conn sqldriver.Conn, synchronous string) error {
	exec, ok := conn.(sqldriver.ExecerContext)
	if !ok {
		return errors.New("the SQLite driver has no ExecContext")
	}
	for _, pragma := range []string{
		"PRAGMA busy_timeout = 0", // see untilFree
		"PRAGMA synchronous = " + synchronous,
		"PRAGMA foreign_keys = ON",
	} {
		if _, err := exec.ExecContext(ctx, pragma, nil); err != nil {
			return err
		}
	}
	return nil
}
