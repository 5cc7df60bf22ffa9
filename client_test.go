package holdfast_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/holdmem"
)

func TestLockReleaseLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := holdmem.New()
		a := holdfast.New(store, nil)
		b := holdfast.New(store, nil)
		la, err := a.Lock(t.Context(), "x")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := b.TryLock(t.Context(), "x"); !errors.Is(err, holdfast.ErrHeld) {
			t.Fatalf("TryLock of a held name: %v", err)
		}
		got := make(chan int64)
		go func() {
			lb, err := b.Lock(t.Context(), "x")
			if err != nil {
				t.Error(err)
			}
			got <- lb.Token()
			lb.Release(t.Context())
			close(got)
		}()
		time.Sleep(20 * time.Second)
		if la.Err() != nil {
			t.Fatal(la.Err())
		}
		if err := la.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		if tok := <-got; tok <= la.Token() {
			t.Fatal("token fell")
		}
		<-got
		a.Close(context.Background())
		b.Close(context.Background())
	})
}
