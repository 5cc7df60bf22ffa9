package holdfast

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastdb/holdfast/driver"
	"github.com/holdfastdb/holdfast/holdmem"
	"github.com/holdfastdb/holdfast/internal/faultstore"
)

// stage is a bubble with one database, the ways to it, and processes.
type stage struct {
	*testing.T
	db    *holdmem.Store
	net   *faultstore.Network
	check *simChecker
}

// onStage runs f in virtual time. The histories of leases given to check are checked; at the end nothing may be left.
func onStage(t *testing.T, plan faultstore.Plan, f func(st *stage)) {
	t.Helper()
	t.Parallel()
	playOnStage(t, plan, f)
}

func playOnStage(t *testing.T, plan faultstore.Plan, f func(st *stage)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		st := &stage{T: t, db: holdmem.New(), check: newSimChecker()}
		st.net = faultstore.New(st.db, plan, st.check.committed)
		st.check.stop, st.check.elapsed = func() {}, func() any { return st.net.Elapsed() }
		f(st)
		st.net.Wait()
		if failure := st.check.result(); failure != "" {
			t.Errorf("%s\n%s", st.net.Trace(60), failure)
		}
	})
}

// process starts a client of the network; it is closed at the end.
func (st *stage) process(id int) *simProcess { return st.processOf(id, simTTL) }

func (st *stage) processOf(id int, ttl time.Duration) *simProcess {
	c := New(st.net.Client(id), &Options{TTL: ttl})
	c.rng = rand.New(rand.NewPCG(1, uint64(id)))
	c.clock.suspended = func() time.Duration { return st.net.Suspended(id) }
	c.clock.wall = func() time.Time { return time.Now().Add(st.net.Suspended(id)) }
	p := &simProcess{id: id, client: c, net: st.net}
	st.Cleanup(func() { _ = c.Close(context.Background()) }) // always nil
	return p
}

func (st *stage) lock(p *simProcess, name string) (*Lease, *simGrant) {
	st.Helper()
	l, err := p.client.Lock(st.Context(), name)
	if err != nil {
		st.Fatalf("Lock %q: %v", name, err)
	}
	return l, st.check.took(p, name, l)
}

func (st *stage) release(l *Lease, g *simGrant) {
	st.Helper()
	st.check.releasing(g)
	if err := l.Release(st.Context()); err != nil {
		st.Errorf("Release: %v", err)
	}
}

// free fails unless the record has nothing left in it.
func (st *stage) free(name string) {
	st.Helper()
	recs, err := st.db.Load(st.Context(), []driver.Known{{Name: name}})
	if err != nil {
		st.Fatal(err)
	}
	for _, rec := range recs {
		if !rec.Free() {
			st.Errorf("left behind in %q: holders %v, tickets %v, inbox %q\n%s", name, rec.Holders, rec.Tickets, rec.Inbox, st.net.Trace(60))
		}
	}
}

func TestAGrabThatTakesEffectAfterItsCallerLeftLeavesNoHolder(t *testing.T) {
	for _, late := range []time.Duration{10 * time.Millisecond, simTTL / 2, 3 * simTTL, 20 * simTTL} {
		t.Run(late.String(), func(t *testing.T) {
			onStage(t, faultstore.Plan{Script: []faultstore.Scripted{{Kind: faultstore.Grab, What: faultstore.Late, Hangs: true, Late: late}}}, func(st *stage) {
				p := st.process(0)
				ctx, cancel := context.WithTimeout(st.Context(), 50*time.Millisecond)
				defer cancel()
				if _, err := p.client.Lock(ctx, "a"); !errors.Is(err, context.DeadlineExceeded) {
					st.Errorf("Lock: %v", err)
				}
				st.net.Wait()
				time.Sleep(2 * simTTL)
				st.free("a")
				l, g := st.lock(st.process(1), "a")
				st.release(l, g)
			})
		})
	}
}

func TestAReleaseWhoseReplyIsLostIsReleasedOnceAndHandsOver(t *testing.T) {
	for _, what := range []faultstore.Mishap{faultstore.LostAfter, faultstore.LostBefore, faultstore.Twice, faultstore.Again, faultstore.Late} {
		t.Run("", func(t *testing.T) {
			onStage(t, faultstore.Plan{Script: []faultstore.Scripted{{Kind: faultstore.Swap, What: what, Hangs: true, Late: 2 * simTTL, From: 100 * time.Millisecond}}}, func(st *stage) {
				first, g := st.lock(st.process(0), "a")
				second := st.process(1)
				var wg sync.WaitGroup
				wg.Go(func() {
					l, g := st.lock(second, "a")
					time.Sleep(5 * simTTL)
					if err := l.Err(); err != nil {
						st.Errorf("the next holder: %v", err)
					}
					st.release(l, g)
				})
				time.Sleep(200 * time.Millisecond)
				st.release(first, g)
				st.check.releasing(g)
				if err := first.Release(st.Context()); err != nil {
					st.Errorf("the second Release: %v", err)
				}
				wg.Wait()
				st.free("a")
			})
		})
	}
}

func TestABeatAnsweredAfterTheWindowClosedDoesNotReopenIt(t *testing.T) {
	onStage(t, faultstore.Plan{
		Script: []faultstore.Scripted{{Kind: faultstore.Beat, There: 5 * time.Millisecond, Back: 5 * time.Millisecond}},
		Stops:  []faultstore.Stop{{From: simTTL/3 + 7*time.Millisecond, To: 3 * simTTL}}, // the beat is applied, its reply is on the way
	}, func(st *stage) {
		p := st.process(0)
		l, _ := st.lock(p, "a")
		time.Sleep(3*simTTL + 20*time.Millisecond)
		if err := l.Err(); !errors.Is(err, ErrLost) {
			st.Errorf("Err after the window closed: %v", err)
		}
		if err := l.Release(st.Context()); !errors.Is(err, ErrLost) {
			st.Errorf("Release of a lost lease: %v", err)
		}
		again, g := st.lock(p, "a")
		if again.Token() <= l.Token() {
			st.Errorf("token %d after %d", again.Token(), l.Token())
		}
		st.release(again, g)
	})
}

func TestASessionMarkedDeadEndsEveryLeaseAndRequeuesWaitersOldestFirst(t *testing.T) {
	onStage(t, faultstore.Plan{}, func(st *stage) {
		p, other := st.process(0), st.process(1)
		h1, _ := st.lock(p, "h1")
		h2, _ := st.lock(p, "h2")
		taken, g := st.lock(other, "w")
		var wg sync.WaitGroup
		var mu sync.Mutex
		var order []int
		for i := range 5 {
			wg.Go(func() {
				l, g := st.lock(p, "w")
				mu.Lock()
				order = append(order, i)
				mu.Unlock()
				st.release(l, g)
			})
			time.Sleep(10 * time.Millisecond)
		}
		session := h1.cell.s.id
		st.check.kill(session)
		if err := st.db.Leave(st.Context(), session); err != nil {
			st.Fatal(err)
		}
		time.Sleep(simTTL/3 + 20*time.Millisecond)
		for _, l := range []*Lease{h1, h2} {
			if !errors.Is(l.Err(), ErrLost) || l.Context().Err() == nil || !errors.Is(context.Cause(l.Context()), ErrLost) {
				st.Errorf("a lease of the dead session: %v, %v", l.Err(), l.Context().Err())
			}
		}
		st.release(taken, g)
		wg.Wait()
		for i, n := range order {
			if i != n {
				st.Errorf("served in the order %v", order)
				break
			}
		}
		st.free("w")
	})
}

func TestAnHourOfTheDatabasesClockEitherWayGivesNoSecondHolder(t *testing.T) {
	for _, step := range []time.Duration{time.Hour, -time.Hour} {
		t.Run(step.String(), func(t *testing.T) {
			t.Parallel()
			for at := time.Duration(0); at < simTTL; at += 37 * time.Millisecond {
				playOnStage(t, faultstore.Plan{}, func(st *stage) {
					holder, waiter := st.process(0), st.process(1)
					l, g := st.lock(holder, "a")
					var granted sync.WaitGroup
					granted.Go(func() {
						l2, g2 := st.lock(waiter, "a")
						if l2.Token() <= l.Token() {
							st.Errorf("token %d after %d", l2.Token(), l.Token())
						}
						st.release(l2, g2)
					})
					time.Sleep(2*simTTL + at)
					st.db.StepClock(step)
					for range 50 {
						time.Sleep(simTTL / 10)
						st.check.checkAll()
						if err := l.Err(); err != nil {
							st.Fatalf("the holder, the clock stepped at %v: %v\n%s", at, err, st.net.Trace(60))
						}
					}
					st.release(l, g)
					granted.Wait()
					st.free("a")
				})
			}
		})
	}
}

func TestAHolderStoppedForAMinuteFindsItsContextEndedAndTheNameTaken(t *testing.T) {
	onStage(t, faultstore.Plan{Stops: []faultstore.Stop{{From: simTTL / 2, To: 60 * simTTL}}}, func(st *stage) {
		l, g := st.lock(st.process(0), "a")
		next := make(chan struct{})
		other := st.process(1)
		var wg sync.WaitGroup
		defer wg.Wait()
		wg.Go(func() {
			l2, g2 := st.lock(other, "a")
			close(next)
			st.release(l2, g2)
		})
		<-next
		if waited := st.net.Elapsed(); waited > 7*simTTL/3 { // a client that is new is patient for two TTLs
			st.Errorf("the next holder waited %v for a stopped process", waited)
		}
		time.Sleep(60*simTTL - st.net.Elapsed())
		made, _ := st.net.Calls()
		if l.Context().Err() == nil || !errors.Is(l.Err(), ErrLost) {
			st.Errorf("at the first look: %v, %v", l.Context().Err(), l.Err())
		}
		if now, _ := st.net.Calls(); now > made+2 { // what wakes up beside it may call, the look does not need it
			st.Errorf("the look made %d calls", now-made)
		}
		st.check.releasing(g)
		if err := l.Release(st.Context()); !errors.Is(err, ErrLost) {
			st.Errorf("Release: %v", err)
		}
	})
}

func TestAProcessStoppedBetweenGrantAndReplyDoesNotBelieveInIt(t *testing.T) {
	onStage(t, faultstore.Plan{
		Script: []faultstore.Scripted{{Kind: faultstore.Grab, There: 10 * time.Millisecond, Back: 10 * time.Millisecond}},
		Stops:  []faultstore.Stop{{From: 15 * time.Millisecond, To: 5 * simTTL}},
	}, func(st *stage) {
		p, other := st.process(0), st.process(1)
		var wg sync.WaitGroup
		wg.Go(func() {
			l, g := st.lock(p, "a")
			st.release(l, g)
		})
		time.Sleep(30 * time.Millisecond)
		wg.Go(func() {
			l, g := st.lock(other, "a")
			time.Sleep(10*simTTL - st.net.Elapsed())
			st.release(l, g)
		})
		wg.Wait()
		st.free("a")
	})
}

func TestACallWhoseTimeEndsAtTheInstantOfItsGrantLeavesNothing(t *testing.T) {
	t.Parallel()
	way := func(k faultstore.Kind) faultstore.Scripted {
		return faultstore.Scripted{Kind: k, There: 10 * time.Millisecond, Back: 10 * time.Millisecond}
	}
	for range 50 {
		playOnStage(t, faultstore.Plan{Script: []faultstore.Scripted{way(faultstore.Join), way(faultstore.Grab)}}, func(st *stage) {
			p := st.process(0)
			ctx, cancel := context.WithTimeout(st.Context(), 40*time.Millisecond)
			defer cancel()
			if l, err := p.client.Lock(ctx, "a"); err == nil {
				st.release(l, st.check.took(p, "a", l))
			} else if !errors.Is(err, context.DeadlineExceeded) {
				st.Errorf("Lock: %v", err)
			}
			time.Sleep(simTTL)
			st.free("a")
		})
	}
}
