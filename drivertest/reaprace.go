package drivertest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfastdb/holdfast/driver"
)

func reapRaceRules() []rule {
	return []rule{
		{name: "a reap never marks a session that beats", check: func(e *env) {
			// A machine too slow to beat within the TTL gives no verdict; then the TTL is doubled.
			for ttl := time.Second; ttl <= 16*time.Second; ttl *= 2 {
				if beatsWhileReaped(e, ttl) {
					return
				}
			}
			e.t.Fatal("the machine is too slow: no session of at most 16 s could be kept beating")
		}},
		{name: "racing beats and reaps agree on who is alive", check: beatsAgainstReaps},
	}
}

// errSlow ends a race without a verdict: this process did not get to beat in time.
var errSlow = errors.New("the session was not beaten in time")

// beatsWhileReaped keeps a session beating for two TTLs while others reap it. It answers false if some beat came too
// late to judge the store by.
func beatsWhileReaped(e *env, ttl time.Duration) bool {
	s := e.session(ttl)
	var lastSent atomic.Pointer[time.Time] // when the last acknowledged beat was sent
	// judge answers an error for a death that was not due: the mark was set before now, the beat stamped after it was sent.
	judge := func(what string) error {
		if silent := time.Since(*lastSent.Load()); silent < ttl-grain {
			return fmt.Errorf("%s %v after a beat was sent, the TTL is %v", what, silent, ttl)
		}
		return errSlow
	}
	sent := time.Now()
	lastSent.Store(&sent)
	e.join(s)
	var over atomic.Bool
	errs := make([]error, 9)
	stores := e.handles(4)
	var wg sync.WaitGroup
	wg.Go(func() {
		defer over.Store(true)
		prev := s.Nonce
		for began := time.Now(); time.Since(began) < 2*ttl && !over.Load(); pause(e.ctx, ttl/10) {
			sent, next := time.Now(), driver.NewID()
			reply, err := stores[0].Beat(e.ctx, s.ID, prev, next)
			switch {
			case err != nil:
				errs[0] = err
				return
			case !reply.Alive:
				errs[0] = judge("a beat was refused")
				return
			}
			lastSent.Store(&sent)
			prev = next
		}
	})
	for i := 1; i < len(errs); i++ {
		wg.Go(func() {
			for ; !over.Load() && errs[i] == nil; pause(e.ctx, time.Millisecond) {
				fates, err := stores[i%len(stores)].Reap(e.ctx, []driver.ID{s.ID}, nil, driver.Caution{})
				f := fates[s.ID]
				switch {
				case err != nil:
					errs[i] = err
				case f.Kind == driver.FateDead:
					errs[i] = judge("a session was marked dead")
				case f.Kind != driver.FateAlive || f.Left <= 0 || f.Left > ttl:
					errs[i] = fmt.Errorf("fate %+v of a session that beats; want alive with at most %v left", f, ttl)
				}
			}
			if errs[i] != nil {
				over.Store(true)
			}
		})
	}
	wg.Wait()
	slow := false
	for _, err := range errs {
		if err != nil && !errors.Is(err, errSlow) {
			e.t.Fatal(err)
		}
		slow = slow || err != nil
	}
	return !slow
}

// beatsAgainstReaps has sessions beat about as often as they expire, and afterwards compares all that was answered.
func beatsAgainstReaps(e *env) {
	const ttl, sessions, reapers = 100 * time.Millisecond, 16, 4
	type life struct {
		driver.Session
		sent    []time.Time // of the beats that were alive
		refused bool
	}
	lives := make([]life, sessions)
	ids := make([]driver.ID, sessions)
	deaths := make([][sessions]time.Time, reapers) // when the first answer of death came
	for i := range lives {
		lives[i].Session = e.session(ttl)
		lives[i].sent = []time.Time{time.Now()}
		ids[i] = e.join(lives[i].Session).ID
	}
	var beating atomic.Int64
	beating.Store(sessions)
	e.race(sessions+reapers, func(i int, store driver.Store) error {
		if i >= sessions {
			for ; beating.Load() > 0; pause(e.ctx, time.Millisecond) {
				fates, err := store.Reap(e.ctx, ids, nil, driver.Caution{})
				if err != nil {
					return err
				}
				for j, id := range ids {
					if at := &deaths[i-sessions][j]; fates[id].Kind == driver.FateDead && at.IsZero() {
						*at = time.Now()
					}
				}
			}
			return nil
		}
		defer beating.Add(-1)
		l := &lives[i]
		prev := l.Nonce
		for range 20 {
			pause(e.ctx, rand.N(ttl*5/4))
			sent, next := time.Now(), driver.NewID()
			reply, err := store.Beat(e.ctx, l.ID, prev, next)
			if err != nil || !reply.Alive {
				l.refused = err == nil
				return err
			}
			l.sent = append(l.sent, sent)
			prev = next
		}
		return nil
	})
	for i, l := range lives {
		if l.refused && e.fate(l.ID, false).Kind != driver.FateDead {
			e.t.Errorf("session %d: a beat was refused and the session is not dead", i)
		}
		for r := range deaths {
			died := deaths[r][i]
			for _, sent := range l.sent {
				if age := died.Sub(sent); !died.IsZero() && age < ttl-grain {
					e.t.Errorf("session %d: reaped dead %v after a beat that was alive was sent (less than 0: before it)", i, age)
				}
			}
		}
	}
}
