package holdsqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/holdfastdb/holdfast/driver"
	"github.com/holdfastdb/holdfast/holdsqlite"
)

// A store in a file of its own. Setup creates the file.
func ExampleOpen() {
	dir, err := os.MkdirTemp("", "locks")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)

	store, err := holdsqlite.Open(filepath.Join(dir, "locks.db"), &holdsqlite.Options{TablePrefix: "locks_"})
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	if err := store.Setup(context.Background()); err != nil {
		log.Fatal(err)
	}
	fmt.Println(filepath.Base(store.Path()))
	// Output: locks.db
}

// Money moves only while the lease holds, however long this process was paused before.
func ExampleInTx() {
	transfer := func(ctx context.Context, db *sql.DB, lease driver.Lease) error {
		err := holdsqlite.InTx(ctx, db, lease, func(tx *sql.Tx) error {
			if _, err := tx.ExecContext(ctx, `UPDATE accounts SET balance = balance - 10 WHERE id = 1`); err != nil {
				return err
			}
			_, err := tx.ExecContext(ctx, `UPDATE accounts SET balance = balance + 10 WHERE id = 2`)
			return err
		})
		if errors.Is(err, driver.ErrLost) {
			return nil // another holder has taken over and will see to it
		}
		return err
	}
	_ = transfer
}

// Guard is for a transaction that the application begins itself.
func ExampleGuard() {
	pay := func(ctx context.Context, db *sql.DB, lease driver.Lease) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		if err := holdsqlite.Guard(ctx, tx, lease); err != nil { // first of all
			return err
		}
		if _, err := tx.ExecContext(ctx, `UPDATE bills SET paid = 1 WHERE id = 7`); err != nil {
			return err
		}
		return tx.Commit()
	}
	_ = pay
}
