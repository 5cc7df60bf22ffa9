package drivertest

import (
	"fmt"
	"time"

	"github.com/holdfastdb/holdfast/driver"
)

func reapRules() []rule {
	return []rule{
		{name: "a reap says how long a session has left, at most its TTL", check: func(e *env) { timeLeft(e, false) }},
		{name: "a patient reap gives a session twice its TTL", check: func(e *env) { timeLeft(e, true) }},
		{name: "a reap marks an expired session dead, not before its TTL and not long after", check: func(e *env) {
			expiry(e, 300*time.Millisecond, false)
		}},
		{name: "a patient reap marks a session dead only after twice its TTL", check: func(e *env) {
			expiry(e, 300*time.Millisecond, true)
		}},
		{name: "a reap only asks about the ids it is given", check: func(e *env) {
			asked, other := e.join(e.session(50*time.Millisecond)), e.join(e.session(50*time.Millisecond))
			e.until("the session expired", func() bool { return e.fate(asked.ID, false).Kind == driver.FateDead })
			e.silentFor(other.ID, 50*time.Millisecond)
			if e.row(other.ID).Dead {
				e.t.Fatal("Reap marked a session nobody asked about")
			}
			if !e.beat(other, other.Nonce, driver.NewID()).Alive {
				e.t.Fatal("a session that is late but not marked does not beat")
			}
		}},
		{name: "a missing session has an unknown fate, also if certified", check: func(e *env) {
			a, b := driver.NewID(), driver.NewID()
			for range 2 {
				fates := e.reap([]driver.ID{a}, []driver.ID{b}, false)
				e.same("fates", map[driver.ID]driver.Fate{a: {}, b: {}}, fates)
			}
		}},
		{name: "a certified session is dead at once and for good", check: func(e *env) {
			s, other := e.join(e.session(hour)), e.join(e.session(hour))
			fates := e.reap([]driver.ID{other.ID}, []driver.ID{s.ID}, true)
			if fates[s.ID].Kind != driver.FateDead || fates[other.ID].Kind != driver.FateAlive {
				e.t.Fatalf("fates %+v; want the certified session dead and the other alive", fates)
			}
			e.dead(s, s.Nonce)
			both := e.reap([]driver.ID{other.ID, s.ID}, []driver.ID{s.ID, other.ID}, false)
			if both[s.ID].Kind != driver.FateDead || both[other.ID].Kind != driver.FateDead {
				e.t.Fatalf("fates %+v; want both dead: both are in both lists", both)
			}
			e.dead(other, other.Nonce)
		}},
		{name: "a clock that reads later than it can proves nobody dead", check: func(e *env) {
			s := e.join(e.session(50 * time.Millisecond))
			e.silentFor(s.ID, 50*time.Millisecond)
			if !e.h.SteadyClock {
				for _, care := range []driver.Caution{{Low: 1}, {Known: s.TTL - 1, Stepped: true}} {
					fates, err := e.s.Reap(e.ctx, []driver.ID{s.ID}, nil, care)
					if f := fates[s.ID]; err != nil || f.Kind != driver.FateAlive || f.Left <= 0 || f.Left > s.TTL || f.TTL != s.TTL {
						e.t.Fatalf("fate %+v, %v by a clock that stepped; want alive with a TTL left", f, err)
					}
				}
				if !e.beat(s, s.Nonce, driver.NewID()).Alive {
					e.t.Fatal("a session was marked dead by a clock that stepped")
				}
				e.silentFor(s.ID, 50*time.Millisecond)
			}
			late := driver.Caution{Low: time.Now().Add(hour).UnixMicro(), Known: s.TTL, Stepped: true}
			e.until("the session expired", func() bool {
				fates, err := e.s.Reap(e.ctx, []driver.ID{s.ID}, nil, late)
				if err != nil {
					e.t.Fatalf("Reap: %v", err)
				}
				return fates[s.ID].Kind == driver.FateDead
			})
		}},
		{name: "a reap answers for every id of both lists", check: manyFates},
		{
			name: "a beat in the future is set to now, and the session expires from there",
			check: func(e *env) {
				s := e.join(e.session(time.Second))
				e.db.StepBack(e.t, s.ID, hour)
				f := e.fate(s.ID, false)
				if f.Kind != driver.FateAlive || f.Left <= 0 || f.Left > s.TTL {
					e.t.Fatalf("fate %+v after a step back; want alive with at most %v left", f, s.TTL)
				}
				e.until("the session expired", func() bool { return e.fate(s.ID, false).Kind == driver.FateDead })
				e.dead(s, s.Nonce)

				beating := e.join(e.session(hour))
				e.db.StepBack(e.t, beating.ID, hour)
				if !e.beat(beating, beating.Nonce, driver.NewID()).Alive {
					e.t.Fatal("a session does not beat after a step back")
				}
				if f := e.fate(beating.ID, true); f.Kind != driver.FateAlive || f.Left > 2*beating.TTL {
					e.t.Fatalf("fate %+v of a beating session after a step back", f)
				}
			},
		},
	}
}

func (e *env) reap(ids, certified []driver.ID, patient bool) map[driver.ID]driver.Fate {
	e.t.Helper()
	var care driver.Caution
	if patient {
		care.Known = 1
	}
	fates, err := e.s.Reap(e.ctx, ids, certified, care)
	if err != nil {
		e.t.Fatalf("Reap: %v", err)
	}
	return fates
}

func (e *env) fate(id driver.ID, patient bool) driver.Fate {
	e.t.Helper()
	fates := e.reap([]driver.ID{id}, nil, patient)
	fate, found := fates[id]
	if !found || len(fates) != 1 {
		e.t.Fatalf("Reap of one id answers %+v", fates)
	}
	return fate
}

// spell is how long a session may be silent.
func spell(ttl time.Duration, patient bool) time.Duration {
	if patient {
		return 2 * ttl
	}
	return ttl
}

// timeLeft checks Fate.Left between what the calls of this process bound it by.
func timeLeft(e *env, patient bool) {
	s := e.session(hour)
	sent := time.Now()
	e.join(s)
	whole := spell(s.TTL, patient)
	f := e.fate(s.ID, patient)
	if least := whole - time.Since(sent) - grain; f.Kind != driver.FateAlive || f.Left < least || f.Left > whole {
		e.t.Fatalf("fate %+v; want alive with %v to %v left", f, least, whole)
	}
	e.silentFor(s.ID, 20*grain)
	f = e.fate(s.ID, patient)
	if most := whole - 19*grain; f.Kind != driver.FateAlive || f.Left > most {
		e.t.Fatalf("fate %+v after %v of silence; want alive with at most %v left", f, 20*grain, most)
	}
	sent = time.Now()
	e.beat(s, s.Nonce, driver.NewID())
	f = e.fate(s.ID, patient)
	if least := whole - time.Since(sent) - grain; f.Kind != driver.FateAlive || f.Left < least || f.Left > whole {
		e.t.Fatalf("fate %+v after a beat; want alive with %v to %v left", f, least, whole)
	}
}

// expiry reaps a silent session until it is dead, and checks that it died neither early nor late.
func expiry(e *env, ttl time.Duration, patient bool) {
	s := e.session(ttl)
	whole := spell(ttl, patient)
	sent := time.Now()
	e.join(s)
	joined := time.Now()
	e.until("the session expired", func() bool {
		asked := time.Now()
		f := e.fate(s.ID, patient)
		switch f.Kind {
		case driver.FateAlive:
			if late := asked.Sub(joined); late > whole+grain || f.Left <= 0 || f.Left > whole {
				e.t.Fatalf("fate %+v after at least %v of silence; it may be silent for %v", f, late, whole)
			}
		case driver.FateDead:
			if silent := time.Since(sent); silent < whole-grain {
				e.t.Fatalf("dead after at most %v of silence; it may be silent for %v", silent, whole)
			}
		default:
			e.t.Fatalf("fate %+v of a session that joined", f)
		}
		return f.Kind == driver.FateDead
	})
	e.dead(s, s.Nonce)
}

func manyFates(e *env) {
	const each = 75
	want := map[driver.ID]driver.FateKind{}
	var ids, certified []driver.ID
	joining := make([]driver.Session, 3*each)
	for i := range joining {
		joining[i] = e.session(hour)
	}
	e.race(5, func(i int, store driver.Store) error {
		for j := i; j < len(joining); j += 5 {
			if _, err := store.Join(e.ctx, joining[j]); err != nil {
				return fmt.Errorf("Join: %w", err)
			}
			if j%3 != 1 {
				continue
			}
			if err := store.Leave(e.ctx, joining[j].ID); err != nil {
				return fmt.Errorf("Leave: %w", err)
			}
		}
		return nil
	})
	for i, s := range joining {
		switch i % 3 {
		case 0:
			ids = append(ids, s.ID)
			want[s.ID] = driver.FateAlive
		case 1:
			ids = append(ids, s.ID, driver.NewID())
			want[s.ID], want[ids[len(ids)-1]] = driver.FateDead, driver.FateUnknown
		case 2:
			certified = append(certified, s.ID, driver.NewID())
			want[s.ID], want[certified[len(certified)-1]] = driver.FateDead, driver.FateUnknown
		}
	}
	for range 2 {
		got := map[driver.ID]driver.FateKind{}
		for id, f := range e.reap(ids, certified, false) {
			got[id] = f.Kind
		}
		e.same("fates", want, got)
	}
}
