package holdfast_test

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/holdsqlite"
)

// orders opens the application's own pool on the file the locks are in, with a table of its own.
func orders(t *testing.T, path string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	if _, err := db.Exec("CREATE TABLE IF NOT EXISTS orders (id INTEGER PRIMARY KEY, by INTEGER)"); err != nil {
		t.Fatal(err)
	}
	return db
}

func insert(ctx context.Context, token int64) func(tx *sql.Tx) error {
	return func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "INSERT INTO orders (by) VALUES (?)", token)
		return err
	}
}

func count(t *testing.T, db *sql.DB) (n int) {
	t.Helper()
	if err := db.QueryRow("SELECT count(*) FROM orders").Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestAGuardedTransactionCommitsOnlyWhileItsLeaseHolds(t *testing.T) {
	path := filepath.Join(t.TempDir(), "app.db")
	client, other := openClient(t, path), openClient(t, path)
	db := orders(t, path)
	ctx := t.Context()
	lease, err := client.Lock(ctx, "orders")
	if err != nil {
		t.Fatal(err)
	}
	err = holdsqlite.InTx(ctx, db, lease, func(tx *sql.Tx) error {
		if err := lease.Release(ctx); !errors.Is(err, holdfast.ErrGuarded) {
			t.Errorf("Release inside InTx: %v", err)
		}
		return insert(ctx, lease.Token())(tx)
	})
	if err != nil || count(t, db) != 1 {
		t.Fatalf("InTx of a held lease: %v, %d rows", err, count(t, db))
	}
	// Removed behind its back: the lease does not know yet, the guard does.
	if _, err := other.Break(ctx, "orders", &holdfast.BreakOptions{Force: true}); err != nil {
		t.Fatal(err)
	}
	next, err := other.Lock(ctx, "orders")
	if err != nil {
		t.Fatal(err)
	}
	err = holdsqlite.InTx(ctx, db, lease, func(*sql.Tx) error { t.Error("ran without the lock"); return nil })
	if !errors.Is(err, holdfast.ErrLost) || count(t, db) != 1 {
		t.Errorf("InTx of a lease that was taken over: %v, %d rows", err, count(t, db))
	}
	if err := holdsqlite.InTx(ctx, db, next, insert(ctx, next.Token())); err != nil || count(t, db) != 2 {
		t.Errorf("InTx of the next holder: %v, %d rows", err, count(t, db))
	}
	if err := next.Release(ctx); err != nil {
		t.Error(err)
	}
	if err := holdsqlite.InTx(ctx, db, next, func(*sql.Tx) error { t.Error("ran without the lock"); return nil }); !errors.Is(err, holdfast.ErrReleased) {
		t.Errorf("InTx of a released lease: %v", err)
	}
}
