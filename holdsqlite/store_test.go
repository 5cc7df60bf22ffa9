package holdsqlite

import (
	"database/sql"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfastdb/holdfast/driver"
	"github.com/holdfastdb/holdfast/drivertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// open opens a store that is closed at the end of the test.
func open(t testing.TB, path string) *Store {
	t.Helper()
	s, err := Open(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return s
}

// fresh opens a store on a new file and sets it up.
func fresh(t testing.TB) *Store {
	t.Helper()
	s := open(t, filepath.Join(t.TempDir(), "locks.db"))
	if err := s.Setup(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

// raw opens the file as an application would, with the driver's defaults but for the busy timeout.
func raw(t testing.TB, path string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", path+"?_pragma=busy_timeout(10000)")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func run(t testing.TB, db *sql.DB, statement string, args ...any) {
	t.Helper()
	if _, err := db.Exec(statement, args...); err != nil {
		t.Fatal(err)
	}
}

func TestStoreKeepsTheLaw(t *testing.T) {
	drivertest.Run(t, drivertest.Harness{SteadyClock: true, Open: func(t *testing.T) drivertest.Database {
		path := filepath.Join(t.TempDir(), "locks.db")
		return drivertest.Database{
			Store: func(t *testing.T) driver.Store { return open(t, path) },
			Damage: func(t *testing.T, name string) {
				run(t, raw(t, path), `UPDATE holdfast_records SET state = '{"holders":[{"lease":"cut off' WHERE name = ?`, name)
			},
			StepBack: func(t *testing.T, id driver.ID, by time.Duration) {
				run(t, raw(t, path), `UPDATE holdfast_sessions SET beat_us = beat_us + ?2, beat_wall_us = beat_wall_us + ?2
WHERE id = ?1`, id.String(), by.Microseconds())
			},
		}
	}})
}
