package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastdb/holdfast"
)

func TestAnUncontendedAcquireAndReleaseAreOneCallEach(t *testing.T) {
	bubble(t, func(w *world) {
		t := w.T
		store := newSpy(w.store)
		c := w.clientOf(store, nil)
		for round, name := range []string{"never seen", "never seen", "other"} {
			before := store.count()
			l := w.lock(c, name)
			if got := store.count() - before; got != 1 {
				t.Errorf("round %d: acquire made %d calls, want 1", round, got)
			}
			w.release(l)
			if got := store.count() - before; got != 2 {
				t.Errorf("round %d: acquire and release made %d calls, want 2", round, got)
			}
			w.free(name)
		}
		if store.count("Grab") != 3 || store.count("Swap") != 3 || store.count("Join") != 1 {
			t.Errorf("calls: %v", store.counts)
		}
	})
}

func TestAWaiterGetsTheLockWithALargerTokenWhenItIsReleased(t *testing.T) {
	bubble(t, func(w *world) {
		t := w.T
		a, b := w.client(nil), w.client(nil)
		first := w.lock(a, "x")
		second := make(chan *holdfast.Lease)
		w.Go(func() {
			l, err := b.Lock(t.Context(), "x")
			if err != nil {
				t.Error(err)
			}
			second <- l
		})
		time.Sleep(time.Minute) // several TTLs
		if err := first.Err(); err != nil {
			t.Fatalf("a renewed lease ended: %v", err)
		}
		released := time.Now()
		w.release(first)
		l := <-second
		if waited := time.Since(released); waited > 100*time.Millisecond {
			t.Errorf("the hand-over took %v", waited)
		}
		if l.Token() <= first.Token() {
			t.Errorf("token %d after %d", l.Token(), first.Token())
		}
		w.release(l)
		w.free("x")
	})
}

func TestTryLockOfAHeldNameSaysWhoHoldsIt(t *testing.T) {
	bubble(t, func(w *world) {
		t := w.T
		a, b := w.client(&holdfast.Options{Label: "node a"}), w.client(nil)
		l := w.lock(a, "x", holdfast.Label("import"))
		if err := l.SetNote(t.Context(), []byte("row 17")); err != nil {
			t.Fatal(err)
		}
		_, err := b.TryLock(t.Context(), "x")
		var held *holdfast.HeldError
		if !errors.As(err, &held) || !errors.Is(err, holdfast.ErrHeld) {
			t.Fatalf("got %v, want a *HeldError", err)
		}
		if len(held.Holders) != 1 || held.Holders[0].Label != "import" || held.Holders[0].Token != l.Token() || held.Holders[0].Here {
			t.Errorf("holders: %+v", held.Holders)
		}
		if string(held.Note) != "row 17" || held.Name != "x" || held.Waiting != 0 {
			t.Errorf("held: %+v", held)
		}
		if age := time.Since(held.Holders[0].Since); age < -time.Millisecond || age > time.Minute {
			t.Errorf("held since %v ago", age)
		}
		_, err = a.TryLock(t.Context(), "x")
		if !errors.As(err, &held) || !held.Holders[0].Here {
			t.Errorf("by this process: %v", err)
		}
		w.release(l)
		l, err = b.TryLock(t.Context(), "x")
		if err != nil {
			t.Fatal(err)
		}
		w.release(l)
		w.free("x")
	})
}

func TestAnErrorWritesNoControlCharactersOfAnothersLabel(t *testing.T) {
	bubble(t, func(w *world) {
		t := w.T
		l := w.lock(w.client(nil), "x", holdfast.Label("a\x1b[2Jb\n"))
		_, err := w.client(nil).TryLock(t.Context(), "x")
		if text := err.Error(); strings.ContainsAny(text, "\x1b\n") || !strings.Contains(text, `"a\x1b[2Jb\n"`) {
			t.Errorf("%q", text)
		}
		w.release(l)
	})
}

func TestTryLockDoesNotOvertakeThoseWhoWait(t *testing.T) {
	bubble(t, func(w *world) {
		t := w.T
		a, b, c := w.client(nil), w.client(nil), w.client(nil)
		reader, err := a.RLock(t.Context(), "x")
		if err != nil {
			t.Fatal(err)
		}
		got := make(chan *holdfast.Lease, 1)
		w.Go(func() { got <- w.lock(b, "x") })
		synctest.Wait()
		time.Sleep(time.Second)
		var held *holdfast.HeldError
		if _, err := c.TryRLock(t.Context(), "x"); !errors.As(err, &held) || held.Waiting != 1 {
			t.Errorf("TryRLock beside a reader but behind a writer: %v", err)
		}
		w.release(reader)
		w.release(<-got)
		w.free("x")
	})
}

func TestLockIsFairBetweenProcessesAndFIFOInsideEach(t *testing.T) {
	bubble(t, func(w *world) {
		t := w.T
		a, b := w.client(nil), w.client(nil)
		hold := w.lock(a, "x")
		var mu sync.Mutex
		var order []string
		var wg sync.WaitGroup
		for i := range 6 {
			for who, c := range map[string]*holdfast.Client{"a": a, "b": b} {
				wg.Go(func() {
					l := w.lock(c, "x")
					mu.Lock()
					order = append(order, fmt.Sprint(who, i))
					mu.Unlock()
					w.release(l)
				})
			}
			time.Sleep(time.Second) // so that they stand in the order of their numbers
		}
		w.release(hold)
		wg.Wait()
		next := map[byte]int{}
		for i, got := range order {
			if want := fmt.Sprint(string(got[0]), next[got[0]]); got != want {
				t.Fatalf("order %v: %q came before %q", order, got, want)
			}
			next[got[0]]++
			if ahead := next['a'] - next['b']; i > 2 && i < 10 && (ahead < -2 || ahead > 2) {
				t.Errorf("order %v: unfair at %d", order, i)
			}
		}
		w.free("x")
	})
}

func TestAThousandWaitersCostTheDatabaseWhatOneDoes(t *testing.T) {
	bubble(t, func(w *world) {
		t := w.T
		a := w.client(nil)
		cost := func(waiters int) int {
			hold := w.lock(a, "x")
			store := newSpy(w.store)
			b := w.clientOf(store, nil)
			ctx, cancel := context.WithCancel(t.Context())
			var wg sync.WaitGroup
			for range waiters {
				wg.Go(func() {
					if _, err := b.Lock(ctx, "x"); !errors.Is(err, context.Canceled) {
						t.Errorf("a cancelled wait: %v", err)
					}
				})
			}
			time.Sleep(10 * time.Second)
			n := store.count()
			if tickets := len(w.record("x").Tickets); tickets > 2 {
				t.Errorf("%d tickets of one process stand in the record", tickets)
			}
			cancel()
			wg.Wait()
			w.release(hold)
			time.Sleep(time.Second)
			w.free("x")
			return n
		}
		one, thousand := cost(1), cost(1000)
		if thousand > one*5/4+10 {
			t.Errorf("1,000 waiters made %d calls in 10 s, one made %d", thousand, one)
		}
	})
}

func TestMutualExclusionUnderContention(t *testing.T) {
	bubble(t, func(w *world) {
		t := w.T
		var inside, violations, runs atomic.Int32
		var wg sync.WaitGroup
		for range 4 {
			c := w.client(nil)
			for range 4 {
				wg.Go(func() {
					for range 20 {
						err := c.Do(t.Context(), "x", func(ctx context.Context) error {
							if inside.Add(1) != 1 {
								violations.Add(1)
							}
							time.Sleep(time.Millisecond)
							inside.Add(-1)
							runs.Add(1)
							return nil
						})
						if err != nil {
							t.Error(err)
						}
					}
				})
			}
		}
		wg.Wait()
		if violations.Load() != 0 || runs.Load() != 320 {
			t.Errorf("%d violations in %d runs", violations.Load(), runs.Load())
		}
		w.free("x")
	})
}

func TestACancelledWaitLeavesNothingBehindWheneverItHappens(t *testing.T) {
	bubble(t, func(w *world) {
		t := w.T
		a, b := w.client(nil), w.client(nil)
		for i := range 300 { // around the instant of the grant
			hold := w.lock(a, "x")
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			done := make(chan error, 1)
			w.Go(func() {
				l, err := b.Lock(ctx, "x")
				if err == nil {
					err = l.Release(ctx)
				}
				done <- err
			})
			time.Sleep(time.Second - 60*time.Millisecond + time.Duration(i)*400*time.Microsecond)
			w.release(hold)
			err := <-done
			cancel()
			if err != nil && !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("%d: %v", i, err)
			}
			time.Sleep(time.Second)
			w.free("x")
		}
	})
}

func TestATryWithADeadContextSendsNothing(t *testing.T) {
	bubble(t, func(w *world) {
		t := w.T
		store := newSpy(w.store)
		c := w.clientOf(store, nil)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := c.TryLock(ctx, "x"); !errors.Is(err, context.Canceled) {
			t.Errorf("TryLock: %v", err)
		}
		if _, err := c.Lock(ctx, "x"); !errors.Is(err, context.Canceled) {
			t.Errorf("Lock: %v", err)
		}
		if n := store.count() + store.count("Join"); n != 0 {
			t.Errorf("%d calls", n)
		}
	})
}
