package holdfast

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastdb/holdfast/driver"
	"github.com/holdfastdb/holdfast/holdmem"
)

func TestTheEstimateBoundsTheServersClockFromBothSides(t *testing.T) {
	t.Parallel()
	var e estimator
	if e.low(5) != 0 || e.high(5) != 0 {
		t.Error("an estimate without a sample")
	}
	ms := func(n int64) instant { return instant(n * int64(time.Millisecond)) }
	const margin = 100 * time.Millisecond
	// The server reads 1,000,000 µs somewhere between 10 and 30 ms of the local clock.
	if e.add(sample{1_000_000, ms(10), ms(30)}, margin) {
		t.Error("the first sample is no step")
	}
	if low, high := e.low(ms(40)), e.high(ms(40)); low != 1_010_000 || high != 1_030_001 {
		t.Errorf("at 40 ms: %d to %d, want 1010000 to 1030001", low, high)
	}
	// A worse sample does not replace it; a better one does; after a minute any does.
	e.add(sample{1_100_000, ms(50), ms(200)}, margin)
	if e.best.trip() != 20*time.Millisecond {
		t.Errorf("kept a round trip of %v", e.best.trip())
	}
	e.add(sample{1_295_000, ms(300), ms(305)}, margin)
	if e.best.trip() != 5*time.Millisecond {
		t.Errorf("kept a round trip of %v", e.best.trip())
	}
	if e.add(sample{62_000_000, ms(61_000), ms(61_100)}, margin) || e.best.trip() != 100*time.Millisecond {
		t.Errorf("a minute later: round trip %v", e.best.trip())
	}
	// Steps either way are seen, if larger than the margin.
	if !e.add(sample{65_000_000, ms(62_000), ms(62_001)}, margin) || e.best.server != 65_000_000 {
		t.Error("a step forward of two seconds was not seen")
	}
	if e.add(sample{65_950_000, ms(63_000), ms(63_001)}, margin) {
		t.Error("50 ms within the margin count as a step")
	}
	if !e.add(sample{1, ms(64_000), ms(64_001)}, margin) || e.low(ms(64_001)) != 1 {
		t.Error("a step back was not seen")
	}
}

func TestTheRevisionsOfFreeNamesAreRememberedUpToABound(t *testing.T) {
	t.Parallel()
	h := newHints()
	for i := range maxHints + 10 {
		h.put(string(rune('a'+i%26))+time.Duration(i).String(), driver.Micros(i+1))
	}
	if h.order.Len() != maxHints || len(h.at) != maxHints {
		t.Errorf("%d and %d remembered, want %d", h.order.Len(), len(h.at), maxHints)
	}
	h.put("x", 7)
	h.put("x", 8)
	if got := h.take("x"); got != 8 {
		t.Errorf("remembered %d, want 8", got)
	}
	if got := h.take("x"); got != 0 {
		t.Errorf("taken twice: %d", got)
	}
}

// shifted makes the local clocks of a client steerable: suspended is what the local clock gains, wall what the wall
// clock jumps.
func shifted(c *Client) (suspended, wall *atomic.Int64) {
	suspended, wall = new(atomic.Int64), new(atomic.Int64)
	c.clock.suspended = func() time.Duration { return time.Duration(suspended.Load()) }
	c.clock.wall = func() time.Time { return time.Now().Add(time.Duration(suspended.Load() + wall.Load())) }
	return suspended, wall
}

func TestAStoppedHolderFindsItsContextEndedAtItsFirstLook(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := New(holdmem.New(), nil)
		defer func() { _ = c.Close(context.Background()) }()
		suspended, _ := shifted(c)
		for _, look := range []func(l *Lease) error{
			func(l *Lease) error { return l.Err() },
			func(l *Lease) error {
				if l.Context().Err() == nil {
					return nil
				}
				return context.Cause(l.Context())
			},
			func(l *Lease) error {
				select {
				case <-l.Context().Done():
					return context.Cause(l.Context())
				default:
					return nil
				}
			},
			func(l *Lease) error { _, _, err := l.BeginGuard(t.Context()); return err },
			func(l *Lease) error { return l.Release(t.Context()) },
		} {
			l, err := c.Lock(t.Context(), "x")
			if err != nil {
				t.Fatal(err)
			}
			suspended.Add(int64(c.ttl - c.margin)) // no timer has run: the process stood still
			if err := look(l); !errors.Is(err, ErrLost) {
				t.Errorf("the first look says %v", err)
			}
			select {
			case <-l.Context().Done():
			default:
				t.Error("Done is still open after the look")
			}
		}
	})
}

func TestALeaseOfAnEndedSessionAnswersWhateverTheClocksDo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := New(holdmem.New(), nil)
		_, wall := shifted(c)
		l, err := c.Lock(t.Context(), "x")
		if err != nil {
			t.Fatal(err)
		}
		_ = c.Close(context.Background())
		wall.Add(int64(time.Hour))
		if err := l.Err(); !errors.Is(err, ErrReleased) {
			t.Errorf("got %v", err)
		}
	})
}

func TestAWallClockJumpMakesTheWindowDoubtfulUntilABeatIsAcknowledged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &slowBeats{Store: holdmem.New(), delay: make(chan time.Duration, 10)}
		c := New(store, nil)
		defer func() { _ = c.Close(context.Background()) }()
		_, wall := shifted(c)
		l, err := c.Lock(t.Context(), "x")
		if err != nil {
			t.Fatal(err)
		}
		wall.Add(int64(time.Hour))
		store.delay <- c.margin / 2
		start := time.Now()
		if err := l.Err(); err != nil {
			t.Errorf("renewed in time, yet %v", err)
		}
		if waited := time.Since(start); waited != c.margin/2 {
			t.Errorf("Err waited %v, want for the beat", waited)
		}
		wall.Add(-2 * int64(time.Hour))
		store.delay <- 2 * c.margin
		start = time.Now()
		if err := l.Err(); !errors.Is(err, ErrLost) {
			t.Errorf("not renewed within the margin, yet %v", err)
		}
		if waited := time.Since(start); waited > c.margin {
			t.Errorf("Err waited %v, want at most the margin", waited)
		}
	})
}

func TestATryWhoseGrantComesWhileTheClocksContradictWaitsForTheBeat(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &slowBeats{Store: holdmem.New(), delay: make(chan time.Duration, 10)}
		c := New(store, nil)
		defer func() { _ = c.Close(context.Background()) }()
		_, wall := shifted(c)
		warm, err := c.Lock(t.Context(), "warm")
		if err != nil {
			t.Fatal(err)
		}
		store.delay <- c.margin / 2
		wall.Add(int64(time.Hour))
		var wg sync.WaitGroup
		wg.Go(func() { _ = warm.Err() }) // sees the jump
		synctest.Wait()
		l, err := c.TryLock(t.Context(), "x")
		if err != nil || l.Err() != nil {
			t.Fatalf("TryLock: %v", err)
		}
		wg.Wait()
		if err := l.Release(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestAWaitThatFailedLeavesNoCellBehind(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &fullDisk{Store: holdmem.New()}
		a, c := New(store.Store, nil), New(store, nil)
		defer func() { _, _ = a.Close(context.Background()), c.Close(context.Background()) }()
		for i := range 5 {
			name := string(rune('a' + i))
			if _, err := a.Lock(t.Context(), name); err != nil {
				t.Fatal(err)
			}
			if _, err := c.Lock(t.Context(), name); !errors.Is(err, errFullDisk) {
				t.Errorf("%q: %v", name, err)
			}
		}
		time.Sleep(time.Minute)
		c.mu.Lock()
		defer c.mu.Unlock()
		if n := len(c.session.cells); n != 0 {
			t.Errorf("%d cells left", n)
		}
	})
}

var errFullDisk = errors.New("disk full")

// fullDisk is a store on which nothing can be changed any more.
type fullDisk struct{ driver.Store }

func (s *fullDisk) Swap(context.Context, []driver.Change) ([]bool, error) { return nil, errFullDisk }

func (s *fullDisk) Classify(err error) driver.Fault {
	if errors.Is(err, errFullDisk) {
		return driver.FaultPermanent
	}
	return s.Store.Classify(err)
}

type slowBeats struct {
	driver.Store
	delay chan time.Duration
}

func (s *slowBeats) Beat(ctx context.Context, id driver.ID, prev, next driver.Nonce) (driver.BeatReply, error) {
	select {
	case d := <-s.delay:
		time.Sleep(d)
	default:
	}
	return s.Store.Beat(ctx, id, prev, next)
}

func TestAStepOfTheDatabasesClockThatNobodyHasSeenGivesNoSecondHolder(t *testing.T) {
	t.Parallel()
	for _, step := range []time.Duration{time.Second, 10 * time.Second, time.Minute, time.Hour, 48 * time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			store := holdmem.New()
			a, b := New(store, nil), New(store, nil)
			defer func() { _, _ = a.Close(context.Background()), b.Close(context.Background()) }()
			held, err := a.Lock(t.Context(), "x")
			if err != nil {
				t.Fatal(err)
			}
			if _, err := b.Lock(t.Context(), "y"); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute + time.Second)
			store.StepClock(step)
			for range 100 { // from before b's next beat to long after
				if l, err := b.TryLock(t.Context(), "x"); !errors.Is(err, ErrHeld) {
					t.Fatalf("step %v: a second holder: %v, %v; the first says %v", step, l, err, held.Err())
				}
				time.Sleep(a.ttl / 50)
			}
			if err := held.Err(); err != nil {
				t.Errorf("step %v cost the lease: %v", step, err)
			}
		})
	}
}

func TestAClientThatSeesTheDatabasesClockStepNeitherReapsNorJudgesForATTL(t *testing.T) {
	t.Parallel()
	for _, step := range []time.Duration{time.Hour, -time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			store := holdmem.New()
			a, b := New(store, nil), New(store, nil)
			defer func() { _, _ = a.Close(context.Background()), b.Close(context.Background()) }()
			l, err := a.Lock(t.Context(), "x", MaxHold(30*time.Minute))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := b.TryLock(t.Context(), "y"); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute)
			store.StepClock(step)
			time.Sleep(b.ttl/3 + time.Second) // b has beaten since
			b.mu.Lock()
			now := b.clock.now()
			judged, known := b.judged(driver.Record{}, now), now.sub(b.watched)
			b.mu.Unlock()
			if judged != 0 || !b.stepped || known >= b.ttl/2 {
				t.Errorf("step %v: judges until over by %d, knows the clock for %v", step, judged, known)
			}
			if _, err := b.TryLock(t.Context(), "x"); !errors.Is(err, ErrHeld) {
				t.Errorf("step %v: a second holder: %v", step, err)
			}
			if err := l.Err(); step < 0 && err != nil {
				t.Errorf("step %v cost the lease: %v", step, err)
			}
		})
	}
}
