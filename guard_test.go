package holdfast_test

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

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

// openTTL is openClient with a TTL of its own.
func openTTL(t *testing.T, path string, ttl time.Duration) *holdfast.Client {
	t.Helper()
	store, err := holdsqlite.Open(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	client := holdfast.New(store, &holdfast.Options{TTL: ttl})
	if err := client.Setup(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = errors.Join(client.Close(context.Background()), store.Close()) })
	return client
}

func TestGuardedTransactionsOneAfterTheOtherLeaveTheBeatsTheirTurn(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "app.db")
	a, b := openTTL(t, path, 3*time.Second), openTTL(t, path, 3*time.Second)
	db := orders(t, path)
	mine, err1 := a.Lock(t.Context(), "orders")
	other, err2 := b.Lock(t.Context(), "other")
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(6 * time.Second); time.Now().Before(end); {
		err := holdsqlite.InTx(t.Context(), db, mine, func(tx *sql.Tx) error {
			busy := time.NewTimer(300 * time.Millisecond) // work
			<-busy.C
			return insert(t.Context(), mine.Token())(tx)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(mine.Err(), other.Err()); err != nil {
		t.Errorf("lost: %v", err)
	}
}

func TestAGuardedTransactionIsAsShortAsTheShortestTTLOfTheFileAsks(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "app.db")
	long, short := openTTL(t, path, time.Hour), openTTL(t, path, 3*time.Second)
	db := orders(t, path)
	mine, err1 := long.Lock(t.Context(), "orders")
	other, err2 := short.Lock(t.Context(), "other")
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	err := holdsqlite.InTx(t.Context(), db, mine, func(tx *sql.Tx) error {
		for ctx := t.Context(); ; {
			if err := insert(ctx, mine.Token())(tx); err != nil {
				return err
			}
		}
	})
	if !errors.Is(err, context.DeadlineExceeded) || count(t, db) != 0 {
		t.Errorf("InTx without end: %v, %d rows", err, count(t, db))
	}
	if err := errors.Join(mine.Err(), other.Err()); err != nil {
		t.Errorf("lost: %v", err)
	}
}

func TestALeaseInAFileThatWasReplacedEndsAtTheNextBeat(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "locks.db")
	client := openTTL(t, path, 15*time.Second)
	lease, err := client.Lock(t.Context(), "x")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	removed := time.Now()
	<-lease.Context().Done()
	if err := lease.Err(); !errors.Is(err, holdfast.ErrLost) || !errors.Is(err, holdsqlite.ErrReplaced) {
		t.Errorf("after %v: %v", time.Since(removed), err)
	}
}
