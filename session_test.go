package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/driver"
)

var errDown = errors.New("the database is down")

func down(string) error { return errDown }

func TestOneBeatServesAllLeasesAndKeepsThem(t *testing.T) {
	bubble(t, func(w *world) {
		t := w.T
		store := newSpy(w.store)
		c := w.clientOf(store, &holdfast.Options{TTL: 3 * time.Second})
		var leases []*holdfast.Lease
		for i := range 1000 {
			leases = append(leases, w.lock(c, fmt.Sprint("n", i)))
		}
		calls, beats := store.count(), store.count("Beat")
		time.Sleep(30 * time.Second)
		if n := store.count() - calls; n != 0 {
			t.Errorf("1,000 held leases made %d calls beside the beats", n)
		}
		if n := store.count("Beat") - beats; n < 29 || n > 31 {
			t.Errorf("%d beats in ten TTLs, want three each", n)
		}
		for _, l := range leases {
			if l.Err() != nil || l.Context().Err() != nil {
				t.Fatal(l.Err())
			}
		}
	})
}

func TestAHolderWithoutTheDatabaseLosesItsLeasesAMarginBeforeTheTTL(t *testing.T) {
	bubble(t, func(w *world) {
		t := w.T
		store := newSpy(w.store)
		ttl := 10 * time.Second
		a, b := w.clientOf(store, &holdfast.Options{TTL: ttl}), w.client(&holdfast.Options{TTL: ttl})
		start := time.Now()
		l := w.lock(a, "x")
		got := make(chan *holdfast.Lease)
		w.Go(func() { got <- w.lock(b, "x") })
		time.Sleep(time.Second)
		store.hooks(down, nil)
		<-l.Context().Done()
		if after := time.Since(start); after > ttl-time.Second {
			t.Errorf("the context ended after %v, later than TTL - margin", after)
		}
		if cause := context.Cause(l.Context()); !errors.Is(cause, holdfast.ErrLost) || !errors.Is(l.Err(), holdfast.ErrLost) {
			t.Errorf("cause %v, err %v, want ErrLost", cause, l.Err())
		}
		next := <-got
		if after := time.Since(start); after < ttl || after > 3*ttl {
			t.Errorf("the next holder came after %v", after)
		}
		if next.Token() <= l.Token() {
			t.Error("the token fell")
		}
		if err := l.Release(t.Context()); !errors.Is(err, holdfast.ErrLost) {
			t.Errorf("release after a loss: %v", err)
		}
		if next.Err() != nil {
			t.Errorf("the release of a lost lease touched the next one: %v", next.Err())
		}
		store.hooks(nil, nil)
		w.release(next)
		l = w.lock(a, "x") // by a new session
		w.release(l)
		w.free("x")
	})
}

func TestOneFailedBeatLosesNothing(t *testing.T) {
	bubble(t, func(w *world) {
		t := w.T
		store := newSpy(w.store)
		c := w.clientOf(store, nil)
		l := w.lock(c, "x")
		var failed atomic.Bool
		store.hooks(func(call string) error {
			if call == "Beat" && !failed.Swap(true) {
				return errDown
			}
			return nil
		}, nil)
		time.Sleep(time.Minute)
		if !failed.Load() || l.Err() != nil {
			t.Errorf("after one failed beat: %v", l.Err())
		}
		w.release(l)
	})
}

func TestARenewalThatHangsDoesNotKeepTheLeaseAlive(t *testing.T) {
	bubble(t, func(w *world) {
		t := w.T
		store := newSpy(w.store)
		c := w.clientOf(store, nil)
		l := w.lock(c, "x")
		block := make(chan struct{})
		store.hooks(func(call string) error {
			if call == "Beat" {
				<-block
			}
			return nil
		}, nil)
		start := time.Now()
		<-l.Context().Done()
		if took := time.Since(start); took > holdfast.DefaultTTL-holdfast.DefaultTTL/10 {
			t.Errorf("ended after %v", took)
		}
		close(block)
	})
}

func TestASessionMarkedDeadEndsEveryLeaseAtTheNextBeat(t *testing.T) {
	bubble(t, func(w *world) {
		t := w.T
		c := w.client(nil)
		l1, l2 := w.lock(c, "x"), w.lock(c, "y")
		session := w.record("x").Holders[0].Session
		if err := w.store.Leave(t.Context(), session); err != nil {
			t.Fatal(err)
		}
		time.Sleep(holdfast.DefaultTTL/3 + time.Second)
		for _, l := range []*holdfast.Lease{l1, l2} {
			if !errors.Is(l.Err(), holdfast.ErrLost) || !errors.Is(context.Cause(l.Context()), holdfast.ErrLost) {
				t.Errorf("%q: %v", l.Name(), l.Err())
			}
		}
		l := w.lock(c, "x") // a new session evicts what the old one left
		if l.Token() <= l1.Token() {
			t.Error("the token fell")
		}
		w.release(l)
		w.release(w.lock(c, "y"))
	})
}

func TestWaitersOfALostSessionQueueAgainOldestFirst(t *testing.T) {
	bubble(t, func(w *world) {
		t := w.T
		var requeued atomic.Int32
		a := w.client(nil)
		b := w.client(&holdfast.Options{Events: &holdfast.Events{Requeued: func(string) { requeued.Add(1) }}})
		hold := w.lock(a, "x")
		order := make(chan int, 5)
		for i := range 5 {
			w.Go(func() {
				l := w.lock(b, "x")
				order <- i
				w.release(l)
			})
			time.Sleep(time.Second)
		}
		if err := w.store.Leave(t.Context(), w.record("x").Tickets[0].Session); err != nil {
			t.Fatal(err)
		}
		time.Sleep(holdfast.DefaultTTL)
		w.release(hold)
		for want := range 5 {
			if got := <-order; got != want {
				t.Errorf("waiter %d came as number %d", got, want)
			}
		}
		synctest.Wait()
		if n := requeued.Load(); n != 5 {
			t.Errorf("%d waiters queued again, want 5", n)
		}
		time.Sleep(time.Second)
		w.free("x")
	})
}

func TestWaitersOutliveADatabaseThatIsDownForLongerThanATTL(t *testing.T) {
	bubble(t, func(w *world) {
		t := w.T
		store := newSpy(w.store)
		a, b := w.client(nil), w.clientOf(store, nil)
		hold := w.lock(a, "x")
		got := make(chan *holdfast.Lease)
		w.Go(func() { got <- w.lock(b, "x") })
		time.Sleep(time.Second)
		store.hooks(down, nil)
		if _, err := b.TryLock(t.Context(), "z"); !errors.Is(err, errDown) {
			t.Errorf("TryLock while the database is down: %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := b.Lock(ctx, "y"); err == nil {
			t.Error("Lock while the database is down succeeded")
		}
		time.Sleep(3 * holdfast.DefaultTTL)
		store.hooks(nil, nil)
		w.release(hold)
		w.release(<-got)
		time.Sleep(time.Minute)
		w.free("x")
		w.free("y")
		w.free("z")
	})
}

func TestTheFirstCallReportsADatabaseThatCannotBeReached(t *testing.T) {
	bubble(t, func(w *world) {
		t := w.T
		store := newSpy(w.store)
		store.hooks(down, nil)
		c := w.clientOf(store, nil)
		if _, err := c.Lock(t.Context(), "x"); !errors.Is(err, errDown) {
			t.Errorf("got %v", err)
		}
		store.hooks(nil, nil)
		w.release(w.lock(c, "x"))
	})
}

func TestASessionIsJoinedOnceHoweverManyStartAtOnce(t *testing.T) {
	bubble(t, func(w *world) {
		t := w.T
		store := newSpy(w.store)
		c := w.clientOf(store, nil)
		ctx, cancel := context.WithCancel(t.Context())
		store.hooks(func(call string) error {
			if call == "Join" {
				time.Sleep(time.Second)
			}
			return nil
		}, nil)
		failed := make(chan error)
		w.Go(func() { _, err := c.Lock(ctx, "first"); failed <- err })
		for i := range 20 {
			w.Go(func() { w.release(w.lock(c, fmt.Sprint(i))) })
		}
		synctest.Wait()
		cancel() // the join is not bound to the caller that began it
		if err := <-failed; !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		w.wg.Wait()
		if n := store.count("Join"); n != 1 {
			t.Errorf("%d joins", n)
		}
	})
}

func TestInspectAndListJoinNoSession(t *testing.T) {
	bubble(t, func(w *world) {
		t := w.T
		store := newSpy(w.store)
		c := w.clientOf(store, nil)
		rec, err := c.Inspect(t.Context(), "x")
		if err != nil || rec.Revision != 0 || rec.Name != "x" {
			t.Errorf("Inspect of an absent name: %+v, %v", rec, err)
		}
		for _, err := range c.List(t.Context(), "") {
			t.Errorf("List: %v", err)
		}
		if store.count("Join")+store.count("Beat") != 0 {
			t.Error("a session was joined")
		}
	})
}

func TestAClonedMachineIsLostAtItsNextBeat(t *testing.T) {
	bubble(t, func(w *world) {
		t := w.T
		c := w.client(nil)
		l := w.lock(c, "x")
		// The clone beats first, with nonces the original does not know: so does a stranger here.
		session := w.record("x").Holders[0].Session
		if r, err := w.store.Beat(t.Context(), session, driver.NewID(), driver.NewID()); err != nil || r.Alive {
			t.Errorf("a foreign nonce was accepted: %+v, %v", r, err)
		}
		time.Sleep(time.Minute)
		if l.Err() != nil {
			t.Errorf("a refused stranger cost the lease: %v", l.Err())
		}
		w.release(l)
	})
}
