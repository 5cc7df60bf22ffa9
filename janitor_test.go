package holdfast

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastdb/holdfast/driver"
	"github.com/holdfastdb/holdfast/holdmem"
)

func TestTheJanitorClearsAwayWhatTheDeadLeftUnderNamesNobodyAsksFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := holdmem.New()
		dead, live, keeper := New(store, nil), New(store, nil), New(store, nil)
		defer func() { _, _ = live.Close(context.Background()), keeper.Close(context.Background()) }()
		for _, name := range []string{"held by the dead", "free"} {
			l, err := dead.Lock(t.Context(), name)
			if err != nil {
				t.Fatal(err)
			}
			if name == "free" {
				if err := l.Release(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
		}
		noted, err1 := dead.Lock(t.Context(), "noted")
		held, err2 := keeper.Lock(t.Context(), "held by the living")
		if err := errors.Join(err1, err2); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(noted.SetNote(t.Context(), []byte("stays")), noted.Release(t.Context())); err != nil {
			t.Fatal(err)
		}
		crash(dead)
		if l, err := live.Lock(t.Context(), "own"); err != nil {
			t.Fatal(l, err)
		}
		time.Sleep(60 * time.Hour)
		left := map[string]driver.Record{}
		recs, err := store.List(t.Context(), driver.Query{})
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range recs {
			left[r.Name] = r
		}
		if len(left) != 3 || left["noted"].Note == nil || left["held by the living"].Free() || left["own"].Free() {
			t.Errorf("left after 60 hours: %+v", left)
		}
		rows, err := store.Sessions(t.Context(), []driver.ID{dead.session.id, live.session.id, keeper.session.id})
		if err != nil || len(rows) != 2 {
			t.Errorf("%d sessions left, want the two that live: %v", len(rows), err)
		}
		if err := held.Err(); err != nil {
			t.Error(err)
		}
		again, err := live.Lock(t.Context(), "free") // deleted and created again
		if err != nil || again.Token() <= held.Token() {
			t.Errorf("after pruning: %v, %v", again, err)
		}
	})
}

// crash ends a client as a killed process ends: nothing is released, nobody is told.
func crash(c *Client) {
	c.mu.Lock()
	c.closed = true
	s := c.session
	s.end(ErrClosed)
	c.mu.Unlock()
	c.cancel(ErrClosed)
	c.wg.Wait()
}

func TestAnEntryOfASessionWithoutARowGoesOnlyWhenItIsADayOld(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := holdmem.New()
		c := New(store, nil)
		defer func() { _ = c.Close(context.Background()) }()
		if _, err := c.Lock(t.Context(), "warm"); err != nil {
			t.Fatal(err)
		}
		e := driver.Entry{Lease: driver.NewID(), Session: driver.NewID(), Weight: driver.All, Limit: driver.All}
		if taken, err := store.Grab(t.Context(), []driver.Ask{{Name: "x", Seed: time.Now().UnixMicro(), Holder: e}}); err != nil || !taken[0] {
			t.Fatal(taken, err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 23*time.Hour)
		defer cancel()
		if _, err := c.Lock(ctx, "x"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("within a day: %v", err)
		}
		if _, err := c.Lock(t.Context(), "x"); err != nil {
			t.Error(err)
		}
	})
}

func TestADamagedRecordIsHeldByNobodyAndGrantedToNobody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &damaging{Store: holdmem.New(), names: map[string]bool{"x": true}}
		c := New(store, nil)
		defer func() { _ = c.Close(context.Background()) }()
		var damage *driver.DamagedError
		for range 3 {
			if _, err := c.TryLock(t.Context(), "x"); !errors.As(err, &damage) || damage.Name != "x" {
				t.Errorf("TryLock: %v", err)
			}
			if _, err := c.Lock(t.Context(), "x"); !errors.As(err, &damage) {
				t.Errorf("Lock: %v", err)
			}
		}
		l, err := c.Lock(t.Context(), "y")
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Release(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// damaging is a store in which some records cannot be read, and so not be taken.
type damaging struct {
	driver.Store
	names map[string]bool
}

func (s *damaging) Grab(ctx context.Context, asks []driver.Ask) ([]bool, error) {
	if s.names[asks[0].Name] {
		return []bool{false}, nil
	}
	return s.Store.Grab(ctx, asks)
}

func (s *damaging) Load(ctx context.Context, known []driver.Known) ([]driver.Record, error) {
	var sound []driver.Known
	var errs []error
	for _, k := range known {
		if s.names[k.Name] {
			errs = append(errs, &driver.DamagedError{Name: k.Name, Err: errors.New("bits have rotted")})
		} else {
			sound = append(sound, k)
		}
	}
	recs, err := s.Store.Load(ctx, sound)
	return recs, errors.Join(append(errs, err)...)
}
