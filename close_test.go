package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/driver"
)

func TestCloseReleasesEverythingAndLeavesTheSession(t *testing.T) {
	bubble(t, func(w *world) {
		t := w.T
		store := newSpy(w.store)
		a, b := w.clientOf(store, nil), w.client(nil)
		var leases []*holdfast.Lease
		for i := range 1200 {
			leases = append(leases, w.lock(a, fmt.Sprint("n", i)))
		}
		waiting := make(chan error, 1)
		w.Go(func() {
			l, err := b.Lock(t.Context(), "n7")
			if err == nil {
				err = l.Release(t.Context())
			}
			waiting <- err
		})
		hold := w.lock(b, "y")
		closed := make(chan error, 1)
		w.Go(func() { _, err := a.Lock(t.Context(), "y"); closed <- err })
		time.Sleep(time.Second)
		session := w.record("n0").Holders[0].Session
		before := store.count()
		dead, cancel := context.WithCancel(t.Context())
		cancel()
		if err := a.Close(dead); err != nil {
			t.Error(err)
		}
		if n := store.count() - before; n > 20 {
			t.Errorf("Close of 1,200 leases made %d calls", n)
		}
		if err := <-waiting; err != nil {
			t.Errorf("the waiter of another process: %v", err)
		}
		if err := <-closed; !errors.Is(err, holdfast.ErrClosed) {
			t.Errorf("a waiter of the closed client: %v", err)
		}
		for i, l := range leases {
			w.free(fmt.Sprint("n", i))
			if !errors.Is(l.Err(), holdfast.ErrReleased) {
				t.Fatalf("a lease after Close: %v", l.Err())
			}
		}
		rows, err := w.store.Sessions(t.Context(), []driver.ID{session})
		if err != nil || len(rows) != 1 || !rows[0].Dead {
			t.Errorf("the session after Close: %+v, %v", rows, err)
		}
		if _, err := a.Lock(t.Context(), "z"); !errors.Is(err, holdfast.ErrClosed) {
			t.Errorf("Lock after Close: %v", err)
		}
		if err := leases[0].Release(t.Context()); err != nil {
			t.Errorf("Release after Close: %v", err)
		}
		w.release(hold)
		time.Sleep(time.Second)
		w.free("y")
	})
}

func TestCloseWithoutTheDatabaseEndsInTime(t *testing.T) {
	bubble(t, func(w *world) {
		t := w.T
		store := newSpy(w.store)
		c := w.clientOf(store, nil)
		l := w.lock(c, "x")
		store.hooks(down, nil)
		start := time.Now()
		c.Close(t.Context())
		if took := time.Since(start); took > holdfast.DefaultTTL {
			t.Errorf("Close took %v", took)
		}
		if l.Err() == nil {
			t.Error("a lease outlived its client")
		}
	})
}

func TestCloseOfAClientThatDidNothingIsNothing(t *testing.T) {
	bubble(t, func(w *world) {
		t := w.T
		store := newSpy(w.store)
		c := holdfast.New(store, nil)
		for range 2 {
			if err := c.Close(t.Context()); err != nil {
				t.Error(err)
			}
		}
		if n := store.count() + store.count("Join", "Beat"); n != 0 {
			t.Errorf("%d calls", n)
		}
	})
}

func TestEventsTellTheStoryInOrder(t *testing.T) {
	bubble(t, func(w *world) {
		t := w.T
		var mu sync.Mutex
		var story []string
		var beats atomic.Int32
		tell := func(format string, args ...any) {
			mu.Lock()
			defer mu.Unlock()
			story = append(story, fmt.Sprintf(format, args...))
		}
		a := w.client(&holdfast.Options{Events: &holdfast.Events{
			Granted:  func(g holdfast.Grant) { tell("granted %s", g.Name) },
			Waiting:  func(name string) { tell("waiting %s", name) },
			Refused:  func(name string, err *holdfast.HeldError) { tell("refused %s %d", name, len(err.Holders)) },
			HandOver: func(name, to string) { tell("handed %s to %s", name, to) },
			Lost:     func(name string, _ int64, err error) { tell("lost %s %v", name, errors.Is(err, holdfast.ErrBroken)) },
			Released: func(name string, _ int64, held time.Duration) { tell("released %s %v", name, held >= 0) },
			Beat:     func(time.Duration) { beats.Add(1) },
			Held:     func(name string, _ int64, held time.Duration) { tell("held %s %v", name, held.Round(time.Minute)) },
		}})
		b := w.client(nil)
		l := w.lock(a, "x")
		if _, err := a.TryLock(t.Context(), "x"); err == nil {
			t.Error("held twice")
		}
		w.Go(func() {
			l := w.lock(b, "x", holdfast.Label("b"))
			time.Sleep(time.Second)
			w.release(l)
		})
		time.Sleep(time.Minute + 30*time.Second)
		w.Go(func() { w.release(w.lock(a, "x")) })
		time.Sleep(time.Second)
		w.release(l)
		w.wg.Wait()
		w.lock(a, "y")
		if _, err := b.Break(t.Context(), "y", &holdfast.BreakOptions{Wait: -1}); !errors.Is(err, holdfast.ErrHeld) {
			t.Error(err)
		}
		time.Sleep(time.Minute)
		a.Close(t.Context())
		want := []string{
			"granted x", "refused x 1", "held x 1m0s", "waiting x", "released x true", "handed x to b", "granted x", "released x true",
			"granted y", "lost y true",
		}
		if fmt.Sprint(story) != fmt.Sprint(want) {
			t.Errorf("story %q\n want %q", story, want)
		}
		if beats.Load() < 25 {
			t.Errorf("%d beats", beats.Load())
		}
	})
}
