package holdsqlite

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfastdb/holdfast/driver"
)

// A connection that went back to its pool inside a transaction would keep every other process from writing.
func TestACallGivenUpAtAnyMomentLeavesNoTransactionOpen(t *testing.T) {
	t.Parallel()
	const rounds = 400
	s := fresh(t)
	outside := raw(t, s.Path())
	run(t, outside, `PRAGMA busy_timeout = 0`)
	outside.SetMaxOpenConns(1)
	run(t, outside, `CREATE TABLE t (a INTEGER)`)
	session := joinAs(t, s, time.Minute)
	names := []string{"a", "b", "c", "d"}
	for round := range rounds {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rand.Int64N(int64(300*time.Microsecond))))
		var err error
		switch seed := time.Now().UnixMicro(); round % 4 {
		case 0:
			_, err = s.Beat(ctx, session.ID, session.Nonce, session.Nonce)
		case 1:
			asks := make([]driver.Ask, len(names))
			for i, name := range names {
				asks[i] = driver.Ask{Name: fmt.Sprint(name, round), Seed: seed, Holder: entry(session.ID)}
			}
			_, err = s.Grab(ctx, asks)
		case 2:
			_, err = s.Grab(ctx, []driver.Ask{{Name: fmt.Sprint("single ", round), Seed: seed, Holder: entry(session.ID)}})
		case 3:
			_, err = s.Reap(ctx, []driver.ID{session.ID}, nil, driver.Caution{})
		}
		cancel()
		if fault := s.Classify(err); err != nil && fault != driver.FaultNotApplied && fault != driver.FaultUnknown {
			t.Fatalf("round %d: %v is %v", round, err, fault)
		}
		// database/sql may still be rolling back in the background; nothing but that may be in the way.
		for tries := 0; ; tries++ {
			if _, err := outside.Exec(`INSERT INTO t VALUES (1)`); err == nil {
				break
			} else if tries == 1000 {
				t.Fatalf("round %d: another process cannot write: %v", round, err)
			}
			time.Sleep(time.Millisecond)
		}
	}
}

func TestTheContextEndsAWaitForAnotherWriter(t *testing.T) {
	t.Parallel()
	s := fresh(t)
	session := joinAs(t, s, time.Minute)
	lease := grant(t, s, "held", session.ID)
	writer, err := accounts(t, s).Begin()
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Rollback()
	if err := insert(writer); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	var group sync.WaitGroup
	for name, call := range map[string]func() error{
		"Beat":  func() error { _, err := s.Beat(ctx, session.ID, session.Nonce, session.Nonce); return err },
		"Leave": func() error { return s.Leave(ctx, session.ID) },
		"Post":  func() error { _, err := s.Post(ctx, "held", []byte("{}\n"), lease.token+100); return err },
		"Swap": func() error {
			_, err := s.Swap(ctx, []driver.Change{{Name: "held", Old: lease.token, New: lease.token + 1, Urgent: true}})
			return err
		},
	} {
		group.Go(func() {
			start := time.Now()
			err := call()
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s = %v, want DeadlineExceeded", name, err)
			}
			if fault := s.Classify(err); fault != driver.FaultNotApplied && fault != driver.FaultUnknown {
				t.Errorf("%s = %v is %v, want not applied or unknown", name, err, fault)
			}
			if took := time.Since(start); took > 10*time.Second {
				t.Errorf("%s came back after %v", name, took)
			}
		})
	}
	// Readers do not wait for a writer.
	if _, err := s.Load(ctx, []driver.Known{{Name: "held"}}); err != nil {
		t.Errorf("Load beside a writer = %v", err)
	}
	group.Wait()
	if err := writer.Rollback(); err != nil {
		t.Fatal(err)
	}
	if r, err := s.Beat(t.Context(), session.ID, session.Nonce, session.Nonce); err != nil || !r.Alive {
		t.Errorf("Beat afterwards = %+v, %v", r, err)
	}
	stillHeld(t, s, lease)
}

func TestEveryConnectionHasItsSettings(t *testing.T) {
	t.Parallel()
	s := fresh(t)
	joinAs(t, s, time.Minute)
	for l, synchronous := range map[*lane]int64{s.beats: 1, s.urgent: 1, s.writes: 1, s.durable: 2, s.reads: 1} {
		for pragma, want := range map[string]any{
			"busy_timeout": int64(0), "journal_mode": "wal", "synchronous": synchronous, "foreign_keys": int64(1),
		} {
			var got any
			if err := l.db.QueryRow("PRAGMA " + pragma).Scan(&got); err != nil || got != want {
				t.Errorf("%s = %v, %v; want %v", pragma, got, err, want)
			}
		}
	}
}

func TestPromisesThatOutliveTheProcessAreWrittenDurably(t *testing.T) {
	t.Parallel()
	session := driver.NewID()
	for name, c := range map[string]struct {
		entry driver.Entry
		want  bool
	}{
		"ordinary":     {driver.Entry{Session: session}, false},
		"max hold":     {driver.Entry{Session: session, MaxHold: time.Hour}, false},
		"min hold":     {driver.Entry{Session: session, MinHold: time.Hour}, true},
		"session-less": {driver.Entry{MaxHold: time.Hour}, true},
	} {
		if got := outlives(c.entry); got != c.want {
			t.Errorf("outlives(%s) = %v, want %v", name, got, c.want)
		}
	}
}

func TestEverythingIsThereAfterARestart(t *testing.T) {
	t.Parallel()
	first := fresh(t)
	session := joinAs(t, first, time.Hour)
	lease := grant(t, first, "held", session.ID)
	if _, err := first.Post(t.Context(), "held", driver.EncodeOps([]driver.Op{{Kind: driver.OpDrop, Lease: driver.NewID()}}), lease.token+10); err != nil {
		t.Fatal(err)
	}
	before, err := first.List(t.Context(), driver.Query{})
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(first.Path() + "-wal"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Close left the WAL behind (%v)", err)
	}
	second := open(t, first.Path())
	after, err := second.List(t.Context(), driver.Query{})
	if err != nil || len(after) != 1 || fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("%+v, %v after the restart; want %+v", after, err, before)
	}
	if r, err := second.Beat(t.Context(), session.ID, session.Nonce, driver.NewID()); err != nil || !r.Alive {
		t.Errorf("Beat after the restart = %+v, %v; want it alive", r, err)
	}
}

func TestPollersDoNotLetTheWALGrow(t *testing.T) {
	t.Parallel()
	s := fresh(t)
	other := open(t, s.Path())
	session := joinAs(t, s, time.Hour)
	var stop atomic.Bool
	var group sync.WaitGroup
	for range 2 {
		group.Go(func() {
			for !stop.Load() {
				if _, err := other.Load(t.Context(), []driver.Known{{Name: "n"}}); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	var last driver.Micros
	for range 4000 {
		seed := max(time.Now().UnixMicro(), last+1)
		if _, err := s.Grab(t.Context(), []driver.Ask{{Name: "n", Seed: seed, Holder: entry(session.ID)}}); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Swap(t.Context(), []driver.Change{{Name: "n", Old: seed, New: seed + 1}}); err != nil {
			t.Fatal(err)
		}
		last = seed + 1
	}
	stop.Store(true)
	group.Wait()
	fi, err := os.Stat(s.Path() + "-wal")
	if err != nil {
		t.Fatal(err)
	}
	// 8,000 changes are 8,000 pages of 4 KiB; SQLite starts over at about 1,000 if no reader is in the way.
	if most := int64(16 << 20); fi.Size() > most {
		t.Errorf("the WAL has %d bytes after 8,000 changes, want at most %d", fi.Size(), most)
	}
	t.Logf("the WAL has %d bytes", fi.Size())
}

func TestTwoPrefixesShareAFileAndNothingElse(t *testing.T) {
	t.Parallel()
	s := fresh(t)
	other, err := Open(s.Path(), &Options{TablePrefix: "other_"})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if err := other.Setup(t.Context()); err != nil {
		t.Fatal(err)
	}
	grant(t, s, "n", joinAs(t, s, time.Minute).ID)
	grant(t, other, "n", joinAs(t, other, time.Minute).ID)
}

func TestClassify(t *testing.T) {
	t.Parallel()
	s := fresh(t)
	// Real errors of SQLite, since its type cannot be made outside its package.
	db := raw(t, s.Path())
	_, sqlError := db.Exec(`SELECT * FROM nothing`)
	_, constraint := db.Exec(`INSERT INTO holdfast_meta (key) VALUES (NULL)`)
	for _, c := range []struct {
		err  error
		want driver.Fault
	}{
		{nil, driver.FaultUnknown},
		{context.Canceled, driver.FaultUnknown},
		{notApplied(context.Canceled), driver.FaultNotApplied},
		{fmt.Errorf("wrapped: %w", notApplied(context.DeadlineExceeded)), driver.FaultNotApplied},
		{notApplied(ErrClosed), driver.FaultPermanent},
		{driver.ErrNotSetUp, driver.FaultPermanent},
		{&driver.DamagedError{Name: "n", Err: errors.New("x")}, driver.FaultPermanent},
		{sqlError, driver.FaultPermanent},
		{constraint, driver.FaultUnknown},
		{errors.New("anything"), driver.FaultUnknown},
	} {
		if got := s.Classify(c.err); got != c.want {
			t.Errorf("Classify(%v) = %v, want %v", c.err, got, c.want)
		}
	}
}

func TestABusyWriterDoesNotStarveAnother(t *testing.T) {
	t.Parallel()
	busy := fresh(t)
	other := open(t, busy.Path())
	var stop atomic.Bool
	var group sync.WaitGroup
	group.Go(func() {
		for !stop.Load() {
			if err := busy.Commit(t.Context()); err != nil {
				t.Error(err)
				return
			}
		}
	})
	for round := range 20 {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		if err := other.Notify(ctx, driver.NewID()); err != nil {
			t.Errorf("round %d: %v", round, err)
		}
		cancel()
	}
	stop.Store(true)
	group.Wait()
}

func TestOnlyPromisesThatOutliveTheProcessTakeTheDurableConnection(t *testing.T) {
	t.Parallel()
	s := fresh(t)
	session := joinAs(t, s, time.Minute)
	lease := grant(t, s, "held", session.ID)
	kept := entry(session.ID)
	kept.MinHold = time.Minute
	s.durable.turn <- struct{}{} // so that who needs it does not come through
	defer func() { <-s.durable.turn }()
	for name, c := range map[string]struct {
		call    func(ctx context.Context) error
		durable bool
	}{
		"ordinary grab": {func(ctx context.Context) error {
			_, err := s.Grab(ctx, []driver.Ask{{Name: "1", Seed: 1, Holder: entry(session.ID)}})
			return err
		}, false},
		"grab with a MinHold": {func(ctx context.Context) error {
			_, err := s.Grab(ctx, []driver.Ask{{Name: "2", Seed: 1, Holder: kept}})
			return err
		}, true},
		"batch with a detached grab": {func(ctx context.Context) error {
			_, err := s.Grab(ctx, []driver.Ask{
				{Name: "3", Seed: 1, Holder: entry(session.ID)}, {Name: "4", Seed: 1, Holder: entry(driver.ID{})},
			})
			return err
		}, true},
		"urgent swap with a note": {func(ctx context.Context) error {
			_, err := s.Swap(ctx, []driver.Change{{Name: "held", Old: lease.token, New: lease.token + 1, Urgent: true, Note: &driver.Note{}}})
			return err
		}, true},
		"swap": {func(ctx context.Context) error {
			_, err := s.Swap(ctx, []driver.Change{{Name: "absent", Old: 1, New: 2}})
			return err
		}, false},
	} {
		limit := time.Minute
		if c.durable {
			limit = 20 * time.Millisecond
		}
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		err := c.call(ctx)
		cancel()
		if waited := err != nil; waited != c.durable || waited && s.Classify(err) != driver.FaultNotApplied {
			t.Errorf("%s: %v; want it to wait for the durable connection: %v", name, err, c.durable)
		}
	}
}
