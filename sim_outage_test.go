package holdfast

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/holdfastdb/holdfast/internal/faultstore"
)

func TestALockWithAContextThatIsOverMakesNoCall(t *testing.T) {
	onStage(t, faultstore.Plan{}, func(st *stage) {
		p := st.process(0)
		ctx, cancel := context.WithCancel(st.Context())
		cancel()
		if _, err := p.client.Lock(ctx, "a"); !errors.Is(err, context.Canceled) {
			st.Errorf("Lock: %v", err)
		}
		if _, err := p.client.TryLock(ctx, "a"); !errors.Is(err, context.Canceled) {
			st.Errorf("TryLock: %v", err)
		}
		if made, _ := st.net.Calls(); made > 0 {
			st.Errorf("%d calls", made)
		}
	})
}

func TestADatabaseThatRestartsCostsNobodyALease(t *testing.T) {
	plan := faultstore.Plan{Cuts: []faultstore.Cut{{Client: faultstore.Everybody, From: simTTL / 4, To: simTTL / 2, Mode: faultstore.Refused}}}
	onStage(t, plan, func(st *stage) {
		l, g := st.lock(st.process(0), "a")
		other := st.process(1)
		var wg sync.WaitGroup
		wg.Go(func() {
			l, g := st.lock(other, "a")
			st.release(l, g)
		})
		time.Sleep(3 * simTTL)
		if err := l.Err(); err != nil {
			st.Errorf("the holder after the restart: %v", err)
		}
		st.release(l, g)
		wg.Wait()
		st.free("a")
	})
}

func TestAnOutageLongerThanATTLEndsLeasesInTimeAndServesWaitersAfterwards(t *testing.T) {
	for _, mode := range []faultstore.Mode{faultstore.Silent, faultstore.Refused, faultstore.Deaf} {
		t.Run("", func(t *testing.T) {
			plan := faultstore.Plan{Cuts: []faultstore.Cut{{Client: faultstore.Everybody, From: simTTL / 4, To: 5 * simTTL, Mode: mode}}}
			onStage(t, plan, func(st *stage) {
				p, other := st.process(0), st.process(1)
				l, g := st.lock(p, "a")
				var wg sync.WaitGroup
				wg.Go(func() {
					l, g := st.lock(other, "a")
					st.release(l, g)
				})
				<-l.Context().Done()
				if at := st.net.Elapsed(); at > simTTL || !errors.Is(context.Cause(l.Context()), ErrLost) {
					st.Errorf("the lease ended at %v: %v", at, context.Cause(l.Context()))
				}
				st.check.releasing(g)
				began := st.net.Elapsed()
				if err := l.Release(st.Context()); !errors.Is(err, ErrLost) || st.net.Elapsed()-began > simTTL {
					st.Errorf("Release in the outage: %v after %v", err, st.net.Elapsed()-began)
				}
				wg.Wait()
				if at := st.net.Elapsed(); at > 8*simTTL {
					st.Errorf("the waiter was served at %v", at)
				}
				st.free("a")
			})
		})
	}
}

func TestACancelThatRacesTheGrantLeavesNothing(t *testing.T) {
	t.Parallel()
	for after := time.Duration(0); after < 12*time.Millisecond; after += 131 * time.Microsecond {
		playOnStage(t, faultstore.Plan{}, func(st *stage) {
			p, other := st.process(0), st.process(1)
			l, g := st.lock(p, "a")
			ctx, cancel := context.WithCancel(st.Context())
			defer cancel()
			var wg sync.WaitGroup
			wg.Go(func() {
				l, err := other.client.Lock(ctx, "a")
				if err == nil {
					st.release(l, st.check.took(other, "a", l))
				} else if !errors.Is(err, context.Canceled) {
					st.Errorf("Lock: %v", err)
				}
			})
			time.Sleep(100 * time.Millisecond)
			wg.Go(func() { st.release(l, g) })
			time.Sleep(after)
			cancel()
			wg.Wait()
			time.Sleep(simTTL)
			st.free("a")
		})
	}
}

func TestTwoReleasesAtOnceAreOne(t *testing.T) {
	plan := faultstore.Plan{Script: []faultstore.Scripted{{Kind: faultstore.Swap, What: faultstore.LostAfter}}}
	onStage(t, plan, func(st *stage) {
		p := st.process(0)
		l, g := st.lock(p, "a")
		st.check.releasing(g)
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() {
				if err := l.Release(st.Context()); err != nil {
					st.Errorf("Release: %v", err)
				}
			})
		}
		wg.Wait()
		st.free("a")
		again, g := st.lock(p, "a")
		st.release(again, g)
	})
}

func TestAProcessStoppedInItsReleaseFinishesItWithoutTouchingTheNextHolder(t *testing.T) {
	plan := faultstore.Plan{
		Script: []faultstore.Scripted{{Kind: faultstore.Swap, From: 100 * time.Millisecond, There: 10 * time.Millisecond, Back: 10 * time.Millisecond}},
		Stops:  []faultstore.Stop{{From: 115 * time.Millisecond, To: 60 * simTTL}}, // released, the reply is on the way
	}
	onStage(t, plan, func(st *stage) {
		p, other := st.process(0), st.process(1)
		l, g := st.lock(p, "a")
		time.Sleep(100*time.Millisecond - st.net.Elapsed())
		var wg sync.WaitGroup
		wg.Go(func() {
			st.check.releasing(g)
			_ = l.Release(st.Context()) // a stopped process may learn that its session is lost, or that all went well
		})
		time.Sleep(20 * time.Millisecond)
		next, g2 := st.lock(other, "a")
		if at := st.net.Elapsed(); at > 200*time.Millisecond {
			st.Errorf("the hand-over came at %v", at)
		}
		time.Sleep(70*simTTL - st.net.Elapsed())
		if err := next.Err(); err != nil {
			st.Errorf("the next holder: %v", err)
		}
		st.release(next, g2)
		wg.Wait()
		st.free("a")
	})
}
