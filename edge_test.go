package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/driver"
)

// crowd fills the record of a held name with entries that nobody here knows.
func (w *world) crowd(name string, holders, tickets int) {
	w.Helper()
	rec := w.record(name)
	e := rec.Holders[0]
	for len(rec.Holders) < holders {
		e.Lease, e.Session, e.MaxHold = driver.NewID(), driver.ID{}, time.Hour
		rec.Holders = append(rec.Holders, e)
	}
	stranger := driver.Session{ID: driver.NewID(), Nonce: driver.NewID(), TTL: time.Hour}
	if _, err := w.store.Join(w.Context(), stranger); err != nil {
		w.Fatal(err)
	}
	for len(rec.Tickets) < tickets {
		e.Lease, e.Session, e.MaxHold = driver.NewID(), stranger.ID, 0
		rec.Tickets = append(rec.Tickets, e)
	}
	change := driver.Change{Name: name, Old: rec.Revision, New: rec.Revision + 1, Holders: rec.Holders, Tickets: rec.Tickets}
	if done, err := w.store.Swap(w.Context(), []driver.Change{change}); err != nil || !done[0] {
		w.Fatal(done, err)
	}
}

func TestAFullRecordAnswersErrFullToThoseWhoNeedRoomInIt(t *testing.T) {
	bubble(t, func(w *world) {
		t := w.T
		a, b := w.client(nil), w.client(nil)
		reader, err := a.RLock(t.Context(), "readers")
		if err != nil {
			t.Fatal(err)
		}
		w.lock(a, "queue")
		w.crowd("readers", driver.MaxHolders, 0)
		w.crowd("queue", 1, driver.MaxTickets)
		if _, err := b.TryRLock(t.Context(), "readers"); !errors.Is(err, holdfast.ErrFull) {
			t.Errorf("a reader beside 4,096: %v", err)
		}
		if _, err := b.Lock(t.Context(), "queue"); !errors.Is(err, holdfast.ErrFull) {
			t.Errorf("a waiter behind 1,024: %v", err)
		}
		if ran, err := b.TryDo(t.Context(), "queue", func(context.Context) error { return nil }); ran || err != nil {
			t.Errorf("a try that needs no ticket: %v, %v", ran, err)
		}
		w.release(reader)
	})
}

func TestADamagedRecordEndsNotesAndTriesAtOnceAndIsTakenAgainOnceRepaired(t *testing.T) {
	bubble(t, func(w *world) {
		t := w.T
		a, b := w.client(&holdfast.Options{TTL: time.Hour}), w.client(&holdfast.Options{TTL: time.Hour})
		l := w.lock(a, "x")
		sound := w.record("x")
		w.store.Damage("x")
		start := time.Now()
		var damage *driver.DamagedError
		if _, err := b.TryLock(t.Context(), "x"); !errors.As(err, &damage) {
			t.Errorf("TryLock: %v", err)
		}
		if _, err := b.Lock(t.Context(), "x"); !errors.As(err, &damage) {
			t.Errorf("Lock: %v", err)
		}
		if _, err := l.Note(t.Context()); !errors.As(err, &damage) {
			t.Errorf("Note: %v", err)
		}
		repair := driver.Change{Name: "x", Old: sound.Revision, New: sound.Revision + 1}
		if done, err := w.store.Swap(t.Context(), []driver.Change{repair}); err != nil || !done[0] {
			t.Fatal(done, err)
		}
		w.release(w.lock(b, "x"))
		if took := time.Since(start); took > time.Minute {
			t.Errorf("all that took %v", took)
		}
	})
}

func TestWaitersHearThatTheDatabaseRefusesThemForGood(t *testing.T) {
	bubble(t, func(w *world) {
		t := w.T
		a := w.client(nil)
		denied := errors.New("permission denied")
		store := &classifying{spy: newSpy(w.store), fault: map[error]driver.Fault{denied: driver.FaultDenied}}
		b := w.clientOf(store, nil)
		hold := w.lock(a, "x")
		got := make(chan error, 1)
		w.Go(func() { _, err := b.Lock(t.Context(), "x"); got <- err })
		time.Sleep(time.Second)
		store.hooks(func(call string) error {
			if call == "Beat" || call == "Join" {
				return denied
			}
			return nil
		}, nil)
		if err := <-got; !errors.Is(err, denied) {
			t.Errorf("got %v", err)
		}
		w.release(hold)
		store.hooks(nil, nil)
	})
}

// classifying is a spy that says what its own errors mean.
type classifying struct {
	*spy
	fault map[error]driver.Fault
}

func (s *classifying) Classify(err error) driver.Fault {
	for own, fault := range s.fault {
		if errors.Is(err, own) {
			return fault
		}
	}
	return s.spy.Classify(err)
}

func TestALockBetweenTwoSessionsWaitsAndATryFailsWithoutErrLost(t *testing.T) {
	bubble(t, func(w *world) {
		t := w.T
		store := newSpy(w.store)
		c := w.clientOf(store, nil)
		l := w.lock(c, "warm")
		store.hooks(down, nil)
		<-l.Context().Done()
		got := make(chan *holdfast.Lease)
		w.Go(func() { got <- w.lock(c, "x") })
		_, err := c.TryLock(t.Context(), "y")
		if !errors.Is(err, errDown) || errors.Is(err, holdfast.ErrLost) || strings.Contains(err.Error(), "\n") {
			t.Errorf("TryLock: %v", err)
		}
		if ran, err := c.TryDo(t.Context(), "y", func(context.Context) error { return nil }); ran || !errors.Is(err, holdfast.ErrNotHeld) ||
			errors.Is(err, holdfast.ErrLost) || strings.Count(err.Error(), "holdfast:") != 1 {
			t.Errorf("TryDo: %v, %v", ran, err)
		}
		time.Sleep(time.Minute)
		store.hooks(nil, nil)
		w.release(<-got)
		time.Sleep(time.Minute)
		w.free("x")
		w.free("y")
	})
}

func TestALostLeaseSaysWhy(t *testing.T) {
	bubble(t, func(w *world) {
		t := w.T
		store := newSpy(w.store)
		c := w.clientOf(store, nil)
		l := w.lock(c, "x")
		store.hooks(down, nil)
		<-l.Context().Done()
		if err := l.Err(); !errors.Is(err, holdfast.ErrLost) || !errors.Is(err, errDown) {
			t.Errorf("got %v", err)
		}
		store.hooks(nil, nil)
	})
}

func TestCloseEndsInTimeThoughEverySwapHangs(t *testing.T) {
	bubble(t, func(w *world) {
		t := w.T
		store := newSpy(w.store)
		c := w.clientOf(store, nil)
		for i := range 3000 {
			w.lock(c, fmt.Sprint(i))
		}
		hang := make(chan struct{})
		store.hooks(func(call string) error {
			if call == "Swap" {
				select {
				case <-hang:
				case <-time.After(holdfast.DefaultTTL / 3): // the time limit of a call
				}
				return errDown
			}
			return nil
		}, nil)
		start := time.Now()
		c.Close(t.Context())
		if took := time.Since(start); took > holdfast.DefaultTTL {
			t.Errorf("Close took %v", took)
		}
		close(hang)
	})
}

func TestDoSaysThatCloseTookItsLock(t *testing.T) {
	bubble(t, func(w *world) {
		t := w.T
		c, other := w.client(nil), w.client(nil)
		err := c.Do(t.Context(), "x", func(context.Context) error {
			w.Go(func() { c.Close(t.Context()) })
			w.release(w.lock(other, "x"))
			return nil
		})
		if !errors.Is(err, holdfast.ErrLost) || !errors.Is(err, holdfast.ErrClosed) {
			t.Errorf("got %v", err)
		}
	})
}

func TestAContextOfTheCallersOwnMayCallTheClient(t *testing.T) {
	bubble(t, func(w *world) {
		t := w.T
		c := w.client(nil)
		ctx := &inquisitive{Context: t.Context(), ask: func() { _, _ = c.Inspect(context.WithoutCancel(t.Context()), "x") }}
		for range 3 {
			if err := c.Do(ctx, "x", func(ctx context.Context) error {
				return c.Do(ctx, "y", func(context.Context) error { return nil })
			}); err != nil {
				t.Error(err)
			}
		}
		l, err := c.Lock(ctx, "x")
		if err != nil {
			t.Fatal(err)
		}
		_, end, err := l.BeginGuard(ctx)
		if err != nil {
			t.Fatal(err)
		}
		end()
		w.release(l)
	})
}

// inquisitive is a context that calls the client whenever it is asked for a value.
type inquisitive struct {
	context.Context
	ask    func()
	asking atomic.Bool
}

func (x *inquisitive) Value(key any) any {
	if !x.asking.Swap(true) {
		x.ask()
		x.asking.Store(false)
	}
	return x.Context.Value(key)
}

func TestAStoreNeedNotBeComparable(t *testing.T) {
	bubble(t, func(w *world) {
		t := w.T
		c := w.clientOf(struct {
			driver.Store
			_ map[int]int
		}{Store: w.store}, nil)
		l := w.lock(c, "x")
		w.release(w.lock(c, "y"))
		if again, err := c.Lock(l.Context(), "y"); err != nil {
			t.Error(again, err)
		}
	})
}

func TestTwoClosesBothReturnAfterTheLastEvent(t *testing.T) {
	bubble(t, func(w *world) {
		t := w.T
		var closed, late atomic.Bool
		c := w.client(&holdfast.Options{Events: &holdfast.Events{Released: func(string, int64, time.Duration) {
			time.Sleep(time.Second)
			late.Store(closed.Load())
		}}})
		w.lock(c, "x")
		for range 2 {
			w.Go(func() {
				c.Close(t.Context())
				closed.Store(true)
			})
		}
		w.wg.Wait()
		if late.Load() {
			t.Error("an event was called after Close had returned")
		}
	})
}

func TestBreakKeepsToItsWaitWhileTheDatabaseIsBusy(t *testing.T) {
	bubble(t, func(w *world) {
		t := w.T
		busy := errors.New("busy")
		store := &classifying{spy: newSpy(w.store), fault: map[error]driver.Fault{busy: driver.FaultNotApplied}}
		w.lock(w.client(nil), "x")
		c := w.clientOf(store, nil)
		w.release(w.lock(c, "warm"))
		store.hooks(func(call string) error {
			if call == "Swap" {
				return busy
			}
			return nil
		}, nil)
		start := time.Now()
		if _, err := c.Break(t.Context(), "x", &holdfast.BreakOptions{Wait: -1}); !errors.Is(err, busy) && !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		if took := time.Since(start); took > holdfast.DefaultTTL {
			t.Errorf("took %v", took)
		}
		store.hooks(nil, nil)
	})
}

func TestARefusalShowsTheNoteAlsoAfterTheNameWasTakenAnew(t *testing.T) {
	bubble(t, func(w *world) {
		t := w.T
		store := newSpy(w.store)
		c := w.clientOf(store, nil)
		l := w.lock(c, "x")
		if err := l.SetNote(t.Context(), []byte("note")); err != nil {
			t.Fatal(err)
		}
		for round := range 2 {
			_, err := c.TryLock(t.Context(), "x")
			var held *holdfast.HeldError
			if !errors.As(err, &held) || string(held.Note) != "note" {
				t.Errorf("round %d: %v", round, err)
			}
			store.hooks(func(string) error { time.Sleep(10 * time.Millisecond); return nil }, nil)
			next := make(chan *holdfast.Lease, 1)
			w.Go(func() {
				time.Sleep(5 * time.Millisecond) // while the release is in flight
				next <- w.lock(c, "x")
			})
			w.release(l)
			l = <-next
			store.hooks(nil, nil)
		}
		w.release(l)
	})
}
