package holdsqlite

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfastdb/holdfast/driver"
)

// fakeLease is a lease as the client would hand it over.
type fakeLease struct {
	store driver.Store
	name  string
	id    driver.ID
	token driver.Micros
	begin func(ctx context.Context) (context.Context, func(), error)
}

func (l *fakeLease) StoredName() string   { return l.name }
func (l *fakeLease) ID() driver.ID        { return l.id }
func (l *fakeLease) Token() driver.Micros { return l.token }
func (l *fakeLease) Store() driver.Store  { return l.store }
func (l *fakeLease) BeginGuard(ctx context.Context) (context.Context, func(), error) {
	if l.begin != nil {
		return l.begin(ctx)
	}
	return ctx, func() {}, nil
}

// joinAs joins a session with the TTL.
func joinAs(t testing.TB, s *Store, ttl time.Duration) driver.Session {
	t.Helper()
	n := driver.Session{ID: driver.NewID(), Nonce: driver.NewID(), TTL: ttl, Local: driver.Here()}
	if _, err := s.Join(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	return n
}

// grant grabs a name for the session.
func grant(t testing.TB, s *Store, name string, session driver.ID) *fakeLease {
	t.Helper()
	h, seed := entry(session), time.Now().UnixMicro()
	taken, err := s.Grab(t.Context(), []driver.Ask{{Name: name, Seed: seed, Holder: h}})
	if err != nil || !taken[0] {
		t.Fatal(taken, err)
	}
	return &fakeLease{store: s, name: name, id: h.Lease, token: seed}
}

// takeOver replaces the lease by one of another session, as an eviction does.
func takeOver(ctx context.Context, s *Store, l *fakeLease, session driver.ID) (*fakeLease, error) {
	next := &fakeLease{store: s, name: l.name, id: driver.NewID(), token: l.token + 1}
	h := entry(session)
	h.Lease, h.Rev = next.id, next.token
	done, err := s.Swap(ctx, []driver.Change{{Name: l.name, Old: l.token, New: next.token, Holders: []driver.Entry{h}}})
	if err == nil && !done[0] {
		err = errors.New("the take-over did not apply")
	}
	return next, err
}

// accounts gives the application's pool on the store's file, with a table of its own.
func accounts(t testing.TB, s *Store) *sql.DB {
	t.Helper()
	db := raw(t, s.Path())
	run(t, db, `CREATE TABLE IF NOT EXISTS accounts (id INTEGER PRIMARY KEY, owner INTEGER NOT NULL)`)
	return db
}

func rowsOf(t testing.TB, db *sql.DB) (n int) {
	t.Helper()
	if err := db.QueryRow(`SELECT count(*) FROM accounts`).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func insert(tx *sql.Tx) error {
	_, err := tx.Exec(`INSERT INTO accounts (owner) VALUES (1)`)
	return err
}

func TestInTxCommitsWhileTheLeaseHolds(t *testing.T) {
	t.Parallel()
	s := fresh(t)
	db, lease := accounts(t, s), grant(t, s, "alarms", joinAs(t, s, time.Minute).ID)
	for range 3 {
		if err := InTx(t.Context(), db, lease, insert); err != nil {
			t.Fatal(err)
		}
	}
	if got := rowsOf(t, db); got != 3 {
		t.Errorf("%d rows, want 3", got)
	}
	records, err := s.Load(t.Context(), []driver.Known{{Name: "alarms"}})
	if err != nil || len(records) != 1 || records[0].Revision != lease.token {
		t.Errorf("%+v, %v after guarding; want the revision unchanged", records, err)
	}
}

func TestInTxNeverRunsForALeaseThatIsOver(t *testing.T) {
	t.Parallel()
	s := fresh(t)
	db := accounts(t, s)
	me, other := joinAs(t, s, time.Minute), joinAs(t, s, time.Minute)
	for name, end := range map[string]func(l *fakeLease) error{
		"taken over": func(l *fakeLease) error { _, err := takeOver(t.Context(), s, l, other.ID); return err },
		"released": func(l *fakeLease) error {
			_, err := s.Swap(t.Context(), []driver.Change{{Name: l.name, Old: l.token, New: l.token + 1}})
			return err
		},
		"never granted": func(l *fakeLease) error { l.id = driver.NewID(); return nil },
		"another token": func(l *fakeLease) error { l.token--; return nil },
		"absent record": func(l *fakeLease) error { l.name = "absent"; return nil },
		"kept without a session": func(l *fakeLease) error {
			h := entry(driver.ID{})
			h.Lease, h.Rev, h.MaxHold = l.id, l.token, time.Hour
			_, err := s.Swap(t.Context(), []driver.Change{{Name: l.name, Old: l.token, New: l.token + 1, Holders: []driver.Entry{h}}})
			return err
		},
		"queued only": func(l *fakeLease) error {
			e := entry(me.ID)
			e.Lease, e.Rev = l.id, l.token
			_, err := s.Swap(t.Context(), []driver.Change{{Name: l.name, Old: l.token, New: l.token + 1, Tickets: []driver.Entry{e}}})
			return err
		},
		"session dead": func(l *fakeLease) error {
			dead := joinAs(t, s, time.Minute)
			*l = *grant(t, s, "of a dead session", dead.ID)
			return s.Leave(t.Context(), dead.ID)
		},
		"lost in the client": func(l *fakeLease) error {
			l.begin = func(context.Context) (context.Context, func(), error) { return nil, nil, driver.ErrLost }
			return nil
		},
	} {
		lease := grant(t, s, name, me.ID)
		if err := end(lease); err != nil {
			t.Fatal(name, err)
		}
		err := InTx(t.Context(), db, lease, func(tx *sql.Tx) error {
			t.Errorf("%s: fn ran", name)
			return insert(tx)
		})
		if !errors.Is(err, driver.ErrLost) {
			t.Errorf("%s: InTx = %v, want ErrLost", name, err)
		}
	}
	if got := rowsOf(t, db); got != 0 {
		t.Errorf("%d rows, want none", got)
	}
}

func TestATakeOverWaitsForTheGuardedCommit(t *testing.T) {
	t.Parallel()
	s := fresh(t)
	db, me, other := accounts(t, s), joinAs(t, s, time.Minute), joinAs(t, s, time.Minute)
	lease := grant(t, s, "alarms", me.ID)
	var committed atomic.Bool
	var group sync.WaitGroup
	err := InTx(t.Context(), db, lease, func(tx *sql.Tx) error {
		started := make(chan struct{})
		group.Go(func() {
			close(started)
			if _, err := takeOver(t.Context(), s, lease, other.ID); err != nil {
				t.Error(err)
			}
			if !committed.Load() && rowsOf(t, db) == 0 {
				t.Error("the take-over did not wait for the commit")
			}
		})
		<-started
		time.Sleep(50 * time.Millisecond) // gives the take-over time to be wrong
		return insert(tx)
	})
	committed.Store(true)
	group.Wait()
	if err != nil {
		t.Fatal(err)
	}
	if err := InTx(t.Context(), db, lease, insert); !errors.Is(err, driver.ErrLost) {
		t.Errorf("InTx after the take-over = %v, want ErrLost", err)
	}
	if got := rowsOf(t, db); got != 1 {
		t.Errorf("%d rows, want 1", got)
	}
}

func TestNothingOfAFailedGuardedTransactionStays(t *testing.T) {
	t.Parallel()
	s := fresh(t)
	db, lease := accounts(t, s), grant(t, s, "alarms", joinAs(t, s, time.Minute).ID)
	fail := errors.New("fn fails")
	if err := InTx(t.Context(), db, lease, func(tx *sql.Tx) error { return errors.Join(insert(tx), fail) }); !errors.Is(err, fail) {
		t.Errorf("InTx = %v, want fn's error", err)
	}
	func() {
		defer func() {
			if got := recover(); got != "fn panics" {
				t.Errorf("recovered %v, want fn's panic", got)
			}
		}()
		_ = InTx(t.Context(), db, lease, func(tx *sql.Tx) error { _ = insert(tx); panic("fn panics") })
	}()
	over := errors.New("over")
	ctx, cancel := context.WithCancelCause(t.Context())
	err := InTx(ctx, db, lease, func(tx *sql.Tx) error { err := insert(tx); cancel(over); return err })
	if !errors.Is(err, over) {
		t.Errorf("InTx = %v, want the context's cause", err)
	}
	if got := rowsOf(t, db); got != 0 {
		t.Errorf("%d rows, want none", got)
	}
	if err := InTx(t.Context(), db, lease, insert); err != nil {
		t.Errorf("InTx afterwards = %v", err)
	}
}

func TestAGuardedTransactionIsRolledBackAfterAThirdOfTheTTL(t *testing.T) {
	t.Parallel()
	s := fresh(t)
	db, lease := accounts(t, s), grant(t, s, "alarms", joinAs(t, s, time.Second).ID)
	err := InTx(t.Context(), db, lease, func(tx *sql.Tx) error {
		if err := insert(tx); err != nil {
			return err
		}
		for { // until it has been rolled back
			if err := tx.QueryRow(`SELECT 1`).Scan(new(int)); err != nil {
				return nil
			}
			time.Sleep(time.Millisecond)
		}
	})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("InTx = %v, want DeadlineExceeded", err)
	}
	if got := rowsOf(t, db); got != 0 {
		t.Errorf("%d rows, want none", got)
	}
}

func TestGuardRefusesALeaseOfElsewhere(t *testing.T) {
	t.Parallel()
	s, other := fresh(t), fresh(t)
	session := joinAs(t, s, time.Minute)
	lease := grant(t, s, "alarms", session.ID)
	never := func(*sql.Tx) error { t.Error("fn ran"); return nil }

	if err := InTx(t.Context(), accounts(t, other), lease, never); !errors.Is(err, ErrPath) {
		t.Errorf("InTx on another file = %v, want ErrPath", err)
	}
	memory, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		t.Fatal(err)
	}
	defer memory.Close()
	if err := InTx(t.Context(), memory, lease, never); !errors.Is(err, ErrPath) {
		t.Errorf("InTx in memory = %v, want ErrPath", err)
	}
	foreign := *lease
	foreign.store = struct{ driver.Store }{s}
	if err := InTx(t.Context(), accounts(t, s), &foreign, never); err == nil || errors.Is(err, driver.ErrLost) {
		t.Errorf("InTx with the lease of another store = %v, want an error that is not ErrLost", err)
	}
}

func TestInTxWaitsForOtherWritersWithoutABusyTimeout(t *testing.T) {
	t.Parallel()
	s := fresh(t)
	accounts(t, s)
	lease := grant(t, s, "alarms", joinAs(t, s, time.Minute).ID)
	db, err := sql.Open("sqlite", s.Path())
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	writer, err := raw(t, s.Path()).Begin()
	if err != nil {
		t.Fatal(err)
	}
	if err := insert(writer); err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	group.Go(func() {
		time.Sleep(30 * time.Millisecond)
		if err := writer.Commit(); err != nil {
			t.Error(err)
		}
	})
	if err := InTx(t.Context(), db, lease, insert); err != nil {
		t.Errorf("InTx = %v", err)
	}
	group.Wait()
}

func TestGuardAfterAReadOfAnOlderSnapshotIsBusy(t *testing.T) {
	t.Parallel()
	s := fresh(t)
	db, lease := accounts(t, s), grant(t, s, "alarms", joinAs(t, s, time.Minute).ID)
	tx, err := db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	if err := tx.QueryRow(`SELECT count(*) FROM accounts`).Scan(new(int)); err != nil {
		t.Fatal(err)
	}
	if err := s.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := Guard(t.Context(), tx, lease); err == nil {
		t.Error("Guard succeeded on a snapshot older than another write")
	} else if extended, _ := code(err); extended != 517 {
		t.Errorf("Guard = %v, want SQLITE_BUSY_SNAPSHOT", err)
	}
}

// Two handles take one name from each other while both write under guard. A write that comes after the next owner's
// take-over would leave its row behind with an owner that is no longer the last.
func TestNoGuardedWriteComesAfterATakeOver(t *testing.T) {
	t.Parallel()
	const rounds = 150
	path := filepath.Join(t.TempDir(), "locks.db")
	first, second := open(t, path), open(t, path)
	if err := first.Setup(t.Context()); err != nil {
		t.Fatal(err)
	}
	session := joinAs(t, first, time.Minute)
	db := accounts(t, first)
	lease := grant(t, first, "alarms", session.ID)
	written, refused := 0, 0
	for round := range rounds {
		var err, overErr error
		var next *fakeLease
		var seen int // of this round's row, at the moment the take-over had been committed
		var group sync.WaitGroup
		group.Go(func() {
			err = InTx(t.Context(), db, lease, func(tx *sql.Tx) error {
				_, err := tx.Exec(`INSERT INTO accounts (id, owner) VALUES (?, 1)`, round+1)
				return err
			})
		})
		group.Go(func() {
			if next, overErr = takeOver(t.Context(), second, lease, session.ID); overErr == nil {
				overErr = db.QueryRow(`SELECT count(*) FROM accounts WHERE id = ` + strconv.Itoa(round+1)).Scan(&seen)
			}
		})
		group.Wait()
		if overErr != nil {
			t.Fatal(overErr)
		}
		switch {
		case err == nil && seen == 1:
			written++
		case errors.Is(err, driver.ErrLost) && seen == 0:
			refused++
		default:
			t.Fatalf("round %d: InTx = %v, and %d rows when the take-over was done", round, err, seen)
		}
		lease = next
	}
	if got := rowsOf(t, db); got != written {
		t.Errorf("%d rows, want %d", got, written)
	}
	t.Logf("%d transactions came before the take-over, %d after", written, refused)
}
