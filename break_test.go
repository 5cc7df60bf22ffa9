package holdfast_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/holdfastdb/holdfast"
)

func TestABrokenHolderGivesWayBeforeAnybodyElseIsGranted(t *testing.T) {
	bubble(t, func(w *world) {
		t := w.T
		a, b, op := w.client(&holdfast.Options{Label: "node a"}), w.client(nil), w.client(nil)
		working := make(chan struct{})
		stopped := false
		w.Go(func() {
			err := a.Do(t.Context(), "x", func(ctx context.Context) error {
				close(working)
				<-ctx.Done()
				if !errors.Is(context.Cause(ctx), holdfast.ErrBroken) {
					t.Errorf("cause: %v", context.Cause(ctx))
				}
				time.Sleep(3 * time.Second) // it takes its time
				stopped = true
				return nil
			})
			if !errors.Is(err, holdfast.ErrBroken) || !errors.Is(err, holdfast.ErrLost) {
				t.Errorf("Do of a broken lease: %v", err)
			}
		})
		<-working
		w.Go(func() {
			l := w.lock(b, "x")
			if !stopped {
				t.Error("granted before the broken holder was gone")
			}
			w.release(l)
		})
		gone, err := op.Break(t.Context(), "x", nil)
		if err != nil || len(gone) != 1 || gone[0].Label != "node a" {
			t.Errorf("Break: %+v, %v", gone, err)
		}
		w.wg.Wait()
		w.free("x")
	})
}

func TestABrokenLeaseThatNobodyReleasesGoesATTLLater(t *testing.T) {
	bubble(t, func(w *world) {
		t := w.T
		a, op := w.client(nil), w.client(nil)
		l := w.lock(a, "x")
		start := time.Now()
		gone, err := op.Break(t.Context(), "x", nil)
		if err != nil || len(gone) != 1 {
			t.Errorf("Break: %+v, %v", gone, err)
		}
		if took := time.Since(start); took < holdfast.DefaultTTL || took > 2*holdfast.DefaultTTL {
			t.Errorf("gone after %v", took)
		}
		if !errors.Is(l.Err(), holdfast.ErrBroken) || !errors.Is(l.Release(t.Context()), holdfast.ErrBroken) {
			t.Errorf("err %v", l.Err())
		}
		w.free("x")
	})
}

func TestBreakWaitsByTheTTLOfTheHolder(t *testing.T) {
	bubble(t, func(w *world) {
		t := w.T
		slow := w.client(&holdfast.Options{TTL: 10 * time.Minute}) // hears of it within 200 s
		w.Go(func() {
			_ = slow.Do(t.Context(), "x", func(ctx context.Context) error { <-ctx.Done(); return nil })
		})
		time.Sleep(time.Second)
		if gone, err := w.client(nil).Break(t.Context(), "x", nil); err != nil || len(gone) != 1 {
			t.Errorf("Break: %+v, %v", gone, err)
		}
	})
}

func TestBreakSaysWhenAHolderDidNotGiveWay(t *testing.T) {
	bubble(t, func(w *world) {
		t := w.T
		a, op := w.client(nil), w.client(nil)
		l := w.lock(a, "x")
		for _, wait := range []time.Duration{time.Second, -1} {
			gone, err := op.Break(t.Context(), "x", &holdfast.BreakOptions{Wait: wait})
			if !errors.Is(err, holdfast.ErrHeld) || len(gone) != 0 {
				t.Errorf("wait %v: %+v, %v", wait, gone, err)
			}
		}
		time.Sleep(holdfast.DefaultTTL / 3)
		if !errors.Is(l.Err(), holdfast.ErrBroken) {
			t.Errorf("the holder heard nothing: %v", l.Err())
		}
		_ = l.Release(t.Context())
		w.free("x")
		if gone, err := op.Break(t.Context(), "x", nil); err != nil || len(gone) != 0 {
			t.Errorf("Break of a free name: %+v, %v", gone, err)
		}
	})
}

func TestABreakOfADeadHolderFreesTheNameAfterItsTTL(t *testing.T) {
	bubble(t, func(w *world) {
		t := w.T
		store := newSpy(w.store)
		a, op := w.clientOf(store, nil), w.client(nil)
		w.lock(a, "x")
		store.hooks(down, nil)
		gone, err := op.Break(t.Context(), "x", &holdfast.BreakOptions{Wait: time.Hour})
		if err != nil || len(gone) != 1 {
			t.Errorf("Break: %+v, %v", gone, err)
		}
		w.free("x")
		store.hooks(nil, nil)
	})
}

func TestAForcedBreakRemovesAtOnceAndTheHolderLearnsOfIt(t *testing.T) {
	bubble(t, func(w *world) {
		t := w.T
		a, b, op := w.client(nil), w.client(nil), w.client(nil)
		l, other := w.lock(a, "x"), w.lock(a, "y")
		gone, err := op.Break(t.Context(), "x", &holdfast.BreakOptions{Force: true, Lease: l.ID()})
		if err != nil || len(gone) != 1 {
			t.Fatalf("Break: %+v, %v", gone, err)
		}
		next, err := b.TryLock(t.Context(), "x")
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(holdfast.DefaultTTL/3 + time.Second)
		if !errors.Is(l.Err(), holdfast.ErrLost) {
			t.Errorf("the holder removed by force: %v", l.Err())
		}
		if err := l.Release(t.Context()); !errors.Is(err, holdfast.ErrLost) {
			t.Errorf("its release: %v", err)
		}
		if next.Err() != nil || other.Err() != nil {
			t.Errorf("others were touched: %v, %v", next.Err(), other.Err())
		}
		w.release(next)
		w.release(other)
		w.free("x")
	})
}

func TestABreakOfOneReaderLeavesTheOthers(t *testing.T) {
	bubble(t, func(w *world) {
		t := w.T
		a, op := w.client(nil), w.client(nil)
		r1, _ := a.RLock(t.Context(), "x")
		r2, _ := a.RLock(t.Context(), "x")
		w.Go(func() {
			<-r1.Context().Done()
			_ = r1.Release(t.Context())
		})
		if gone, err := op.Break(t.Context(), "x", &holdfast.BreakOptions{Lease: r1.ID()}); err != nil || len(gone) != 1 {
			t.Errorf("Break: %+v, %v", gone, err)
		}
		if r2.Err() != nil {
			t.Errorf("the other reader: %v", r2.Err())
		}
		w.release(r2)
		w.free("x")
	})
}
