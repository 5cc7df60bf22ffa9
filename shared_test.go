package holdfast_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastdb/holdfast"
)

func TestReadersShareAndAWriterExcludesThem(t *testing.T) {
	bubble(t, func(w *world) {
		t := w.T
		a, b, c := w.client(nil), w.client(nil), w.client(nil)
		r1, err1 := a.RLock(t.Context(), "x")
		r2, err2 := b.RLock(t.Context(), "x")
		r3, err3 := a.TryRLock(t.Context(), "x")
		if err := errors.Join(err1, err2, err3); err != nil {
			t.Fatal(err)
		}
		if _, err := c.TryLock(t.Context(), "x"); !errors.Is(err, holdfast.ErrHeld) {
			t.Errorf("a writer beside readers: %v", err)
		}
		var written atomic.Bool
		w.Go(func() {
			l := w.lock(c, "x")
			written.Store(true)
			time.Sleep(time.Second)
			w.release(l)
		})
		time.Sleep(time.Second)
		w.Go(func() { // behind the writer, so that it does not starve
			l, err := b.RLock(t.Context(), "x")
			if err != nil {
				t.Error(err)
				return
			}
			if !written.Load() {
				t.Error("a reader overtook a waiting writer")
			}
			w.release(l)
		})
		time.Sleep(time.Second)
		for _, r := range []*holdfast.Lease{r1, r2, r3} {
			if written.Load() {
				t.Error("a writer came beside a reader")
			}
			w.release(r)
		}
		w.wg.Wait()
		w.free("x")
	})
}

func TestManyReadersOfOneProcessAreGrantedTogether(t *testing.T) {
	bubble(t, func(w *world) {
		t := w.T
		a, b := w.client(nil), w.client(nil)
		writer := w.lock(a, "x")
		var inside atomic.Int32
		all := make(chan struct{})
		for range 50 {
			w.Go(func() {
				l, err := b.RLock(t.Context(), "x")
				if err != nil {
					t.Error(err)
					return
				}
				if inside.Add(1) == 50 {
					close(all)
				}
				<-all // only if all hold at once
				w.release(l)
			})
		}
		time.Sleep(time.Second)
		w.release(writer)
		w.wg.Wait()
		w.free("x")
	})
}

func TestASemaphoreNeverGrantsMoreThanItsLimit(t *testing.T) {
	bubble(t, func(w *world) {
		t := w.T
		var inside, most atomic.Int64
		var wg sync.WaitGroup
		for range 3 {
			sem := w.client(nil).Semaphore("smtp", 5)
			for i := range 4 {
				n := 1 + i%3
				wg.Go(func() {
					for range 15 {
						l, err := sem.Acquire(t.Context(), n)
						if err != nil {
							t.Error(err)
							return
						}
						now := inside.Add(int64(n))
						for old := most.Load(); now > old && !most.CompareAndSwap(old, now); old = most.Load() {
						}
						time.Sleep(3 * time.Millisecond)
						inside.Add(int64(-n))
						w.release(l)
					}
				})
			}
		}
		wg.Wait()
		if most.Load() > 5 || most.Load() < 4 {
			t.Errorf("at most %d of 5 permits were out at once", most.Load())
		}
		w.free("smtp")
	})
}

func TestALimitCanBeChangedWithoutAPause(t *testing.T) {
	bubble(t, func(w *world) {
		t := w.T
		c := w.client(nil)
		five, ten := c.Semaphore("s", 5), c.Semaphore("s", 10)
		var held []*holdfast.Lease
		for range 5 {
			l, err := five.TryAcquire(t.Context(), 1)
			if err != nil {
				t.Fatal(err)
			}
			held = append(held, l)
		}
		if _, err := five.TryAcquire(t.Context(), 1); !errors.Is(err, holdfast.ErrHeld) {
			t.Errorf("a sixth of five: %v", err)
		}
		l, err := ten.TryAcquire(t.Context(), 5)
		if err != nil {
			t.Fatalf("five more of ten: %v", err)
		}
		for _, l := range append(held, l) {
			w.release(l)
		}
		w.free("s")
	})
}

func TestReentranceFailsAtOnce(t *testing.T) {
	bubble(t, func(w *world) {
		t := w.T
		c := w.client(nil)
		err := c.Do(t.Context(), "x", func(ctx context.Context) error {
			if _, err := c.Lock(ctx, "x"); !errors.Is(err, holdfast.ErrReentrant) {
				t.Errorf("Lock inside Do: %v", err)
			}
			if _, err := c.TryLock(ctx, "x"); !errors.Is(err, holdfast.ErrReentrant) {
				t.Errorf("TryLock inside Do: %v", err)
			}
			return c.Do(ctx, "y", func(ctx context.Context) error {
				derived, cancel := context.WithCancel(ctx)
				defer cancel()
				if _, err := c.RLock(derived, "x"); !errors.Is(err, holdfast.ErrReentrant) {
					t.Errorf("two deep: %v", err)
				}
				return nil
			})
		})
		if err != nil {
			t.Fatal(err)
		}
		l, err := c.RLock(t.Context(), "r")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Lock(l.Context(), "r"); !errors.Is(err, holdfast.ErrReentrant) {
			t.Errorf("an upgrade: %v", err)
		}
		w.release(l)
		again, err := c.Lock(l.Context(), "r") // released: no longer re-entrant; and its context carries no cancellation
		if !errors.Is(err, context.Canceled) {
			t.Errorf("a lock with the context of a released lease: %v, %v", again, err)
		}
	})
}

func TestDoRunsOnlyWithTheLockAndReleasesHoweverItEnds(t *testing.T) {
	bubble(t, func(w *world) {
		t := w.T
		c, other := w.client(nil), w.client(nil)
		boom := errors.New("boom")
		if err := c.Do(t.Context(), "x", func(context.Context) error { return boom }); !errors.Is(err, boom) || errors.Is(err, holdfast.ErrNotHeld) {
			t.Errorf("the error of fn: %v", err)
		}
		w.free("x")
		func() {
			defer func() {
				if recover() != boom {
					t.Error("the panic did not go on")
				}
			}()
			_ = c.Do(t.Context(), "x", func(context.Context) error { panic(boom) })
		}()
		w.free("x")

		hold := w.lock(other, "x")
		ran, err := c.TryDo(t.Context(), "x", func(context.Context) error { t.Error("ran without the lock"); return nil })
		if ran || err != nil {
			t.Errorf("TryDo of a held name: %v, %v", ran, err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err = c.Do(ctx, "x", func(context.Context) error { t.Error("ran without the lock"); return nil })
		if !errors.Is(err, holdfast.ErrNotHeld) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Do that ran out of time: %v", err)
		}
		w.release(hold)
		time.Sleep(time.Second)
		w.free("x")

		ctx, cancel = context.WithCancel(t.Context())
		err = c.Do(ctx, "x", func(fn context.Context) error {
			cancel()
			<-fn.Done()
			return fn.Err()
		})
		if !errors.Is(err, context.Canceled) || errors.Is(err, holdfast.ErrLost) {
			t.Errorf("Do whose caller gave up: %v", err)
		}
		w.free("x")
	})
}

func TestDoSaysThatTheLeaseWasLostMidway(t *testing.T) {
	bubble(t, func(w *world) {
		t := w.T
		store := newSpy(w.store)
		c := w.clientOf(store, nil)
		odd := errors.New("odd")
		err := c.Do(t.Context(), "x", func(ctx context.Context) error {
			store.hooks(down, nil)
			<-ctx.Done()
			if !errors.Is(context.Cause(ctx), holdfast.ErrLost) {
				t.Errorf("cause: %v", context.Cause(ctx))
			}
			store.hooks(nil, nil)
			return odd
		})
		if !errors.Is(err, odd) || !errors.Is(err, holdfast.ErrLost) || errors.Is(err, holdfast.ErrNotHeld) {
			t.Errorf("got %v", err)
		}
	})
}

func TestALeasesContextCarriesValuesButNotTheCallersCancellation(t *testing.T) {
	bubble(t, func(w *world) {
		t := w.T
		type key struct{}
		c := w.client(nil)
		ctx, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, "v"))
		l, err := c.Lock(ctx, "x")
		if err != nil {
			t.Fatal(err)
		}
		cancel()
		synctest.Wait()
		if l.Context().Err() != nil || l.Context().Value(key{}) != "v" {
			t.Errorf("err %v, value %v", l.Context().Err(), l.Context().Value(key{}))
		}
		w.release(l)
		if cause := context.Cause(l.Context()); !errors.Is(cause, holdfast.ErrReleased) {
			t.Errorf("cause after Release: %v", cause)
		}
	})
}
