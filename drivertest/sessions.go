package drivertest

import (
	"fmt"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/holdfastdb/holdfast/driver"
)

const (
	hour = time.Hour // the TTL of a session that is not to expire

	// grain is how far two readings of clocks of the same rate may differ by rounding: stores may keep milliseconds.
	grain = 10 * time.Millisecond
)

func sessionRules() []rule {
	return []rule{
		{name: "a join and a beat answer the clock of the database in microseconds", check: func(e *env) {
			s := e.session(hour)
			now, err := e.s.Join(e.ctx, s)
			e.same("error of Join", nil, err)
			reply := e.beat(s, s.Nonce, driver.NewID())
			for _, got := range []driver.Micros{now, reply.Now} {
				if off := time.Since(time.UnixMicro(got)); off.Abs() > time.Hour {
					e.t.Errorf("the clock answered is %v off", off)
				}
			}
		}},
		{name: "a join that runs twice counts as joined and does not renew the beat", check: func(e *env) {
			s := e.join(e.session(hour))
			e.silentFor(s.ID, 10*grain)
			now, err := e.s.Join(e.ctx, s)
			if off := time.Since(time.UnixMicro(now)); err != nil || off.Abs() > time.Hour {
				e.t.Fatalf("the same Join again: %v off, %v; want the clock", off, err)
			}
			if got := e.row(s.ID).Silent; got < 9*grain {
				e.t.Fatalf("silent for %v after Join ran twice, at least %v before it", got, 10*grain)
			}
			if !e.beat(s, s.Nonce, driver.NewID()).Alive {
				e.t.Fatal("the session does not beat after Join ran twice")
			}
		}},
		{name: "a join of an id that is there with another nonce is an error", check: func(e *env) {
			s := e.join(e.session(hour))
			for _, other := range []driver.Nonce{driver.NewID(), {}} {
				thief := e.session(2 * hour)
				thief.ID, thief.Nonce = s.ID, other
				e.refusedJoin("Join with a foreign nonce", thief)
			}
			e.sameSession(s, e.row(s.ID))
			next := driver.NewID()
			if !e.beat(s, s.Nonce, next).Alive {
				e.t.Fatal("the session does not beat after a foreign Join")
			}
			e.refusedJoin("Join after a beat had moved the nonce on", s)
			if !e.beat(s, next, driver.NewID()).Alive {
				e.t.Fatal("the session does not beat after a late Join")
			}
		}},
		{name: "a join of a dead id is an error and does not revive it", check: func(e *env) {
			s := e.join(e.session(hour))
			e.leave(s.ID)
			e.refusedJoin("Join of a dead id", s)
			e.dead(s, s.Nonce)
		}},
		{name: "a beat moves the nonce on, and the same beat again is alive", check: func(e *env) {
			s := e.join(e.session(hour))
			prev := s.Nonce
			for range 5 {
				next := driver.NewID()
				for _, what := range []string{"a beat", "the same beat again", "the same beat a third time"} {
					if !e.beat(s, prev, next).Alive {
						e.t.Fatalf("%s is not alive", what)
					}
				}
				if e.beat(s, driver.NewID(), driver.NewID()).Alive {
					e.t.Fatal("a beat with unknown nonces is alive")
				}
				prev = next
			}
		}},
		{name: "a beat with a foreign nonce is refused and changes nothing", check: func(e *env) {
			s := e.join(e.session(hour))
			mine := driver.NewID()
			e.beat(s, s.Nonce, mine)
			e.silentFor(s.ID, 10*grain)
			for _, prev := range []driver.Nonce{s.Nonce, driver.NewID(), {}} {
				if e.beat(s, prev, driver.NewID()).Alive {
					e.t.Fatal("a beat with a foreign nonce is alive")
				}
			}
			if got := e.row(s.ID).Silent; got < 9*grain {
				e.t.Fatalf("silent for %v after foreign beats, at least %v before them", got, 10*grain)
			}
			if !e.beat(s, mine, driver.NewID()).Alive {
				e.t.Fatal("the session's own beat is refused after foreign ones")
			}
		}},
		{name: "a beat is stamped by the clock of the database", check: func(e *env) {
			s := e.join(e.session(hour))
			e.silentFor(s.ID, 20*grain)
			sent := time.Now()
			e.beat(s, s.Nonce, driver.NewID())
			got := e.row(s.ID).Silent
			if most := time.Since(sent) + grain; got > most {
				e.t.Fatalf("silent for %v after a beat that was sent %v ago", got, most)
			}
		}},
		{name: "of 10 racing beats from one nonce exactly one is alive", check: func(e *env) {
			s := e.join(e.session(hour))
			prev := s.Nonce
			for range min(e.h.Rounds, 20) {
				next := make([]driver.Nonce, 10)
				won := make([]bool, len(next))
				e.race(len(next), func(i int, store driver.Store) error {
					next[i] = driver.NewID()
					reply, err := store.Beat(e.ctx, s.ID, prev, next[i])
					won[i] = reply.Alive
					return err
				})
				prev = next[e.onlyOne("beats", won)]
			}
		}},
		{name: "a beat of an unknown id is not alive and creates nothing", check: func(e *env) {
			s := e.session(hour)
			if e.beat(s, s.Nonce, driver.NewID()).Alive {
				e.t.Fatal("a session that never joined is alive")
			}
			if rows := e.rows(s.ID); len(rows) != 0 {
				e.t.Fatalf("a beat created the session %+v", rows[0])
			}
		}},
		{name: "a leave is final, may be repeated, and needs no row", check: func(e *env) {
			s, other := e.join(e.session(hour)), e.join(e.session(hour))
			e.leave(s.ID)
			e.dead(s, s.Nonce)
			e.leave(s.ID)
			e.leave(driver.NewID())
			e.dead(s, s.Nonce)
			if !e.beat(other, other.Nonce, driver.NewID()).Alive {
				e.t.Fatal("another session left too")
			}
		}},
		{name: "a notify raises the notice by one and needs no row", check: func(e *env) {
			s, other := e.join(e.session(hour)), e.join(e.session(hour))
			prev, next := s.Nonce, driver.NewID()
			before := e.beat(s, prev, next).Notice
			for i := range int64(5) {
				e.notify(s.ID)
				for range 2 { // a beat reads the counter, it does not reset it
					prev, next = next, driver.NewID()
					if got := e.beat(s, prev, next).Notice; got != before+i+1 {
						e.t.Fatalf("notice %d after %d notifications from %d", got, i+1, before)
					}
				}
			}
			e.notify(driver.NewID())
			if got := e.beat(other, other.Nonce, driver.NewID()).Notice; got != 0 {
				e.t.Fatalf("notice %d of a session that was never notified", got)
			}
			e.leave(other.ID)
			e.notify(other.ID)
		}},
		{name: "10 racing notifies are all counted", check: func(e *env) {
			s := e.join(e.session(hour))
			before := e.beat(s, s.Nonce, s.Nonce).Notice
			e.race(10, func(_ int, store driver.Store) error { return store.Notify(e.ctx, s.ID) })
			if got := e.beat(s, s.Nonce, s.Nonce).Notice; got != before+10 {
				e.t.Fatalf("notice %d after 10 notifications from %d", got, before)
			}
		}},
		{name: "sessions are read with every field, in the order of the question", check: func(e *env) {
			label := "Büro \U0001F512 \"x\" \\ "
			full := driver.Session{
				ID: driver.NewID(), Nonce: driver.NewID(), TTL: 90*time.Minute + time.Microsecond,
				Label: label + strings.Repeat("l", driver.MaxLabelBytes-len(label)),
				Host:  "knoten-ä.example.org", PID: 4194304, Program: "/opt/Überwachung/alarme --all",
				Local: driver.Local{
					Boot: "5d1c…", PIDNS: "pid:[4026531836]", TimeNS: "time:[4026531834]", PID: 17, Started: 1<<53 + 1,
				},
			}
			bare := driver.Session{ID: driver.NewID(), Nonce: driver.NewID(), TTL: time.Second}
			gone := e.session(hour)
			for _, s := range []driver.Session{full, bare, gone} {
				e.join(s)
			}
			e.leave(gone.ID)
			gone.Dead = true
			e.beat(full, full.Nonce, driver.NewID())
			rows := e.rows(gone.ID, driver.NewID(), full.ID, bare.ID)
			if len(rows) != 3 {
				e.t.Fatalf("%d sessions, want 3 of the 4 asked for", len(rows))
			}
			for i, want := range []driver.Session{gone, full, bare} {
				e.sameSession(want, rows[i])
				if rows[i].Silent < 0 {
					e.t.Fatalf("silent for %v", rows[i].Silent)
				}
			}
		}},
	}
}

// says reports whether the error's text has the word.
func says(err error, word string) bool { return strings.Contains(err.Error(), word) }

// session makes a session that has not joined.
func (e *env) session(ttl time.Duration) driver.Session {
	return driver.Session{
		ID: driver.NewID(), Nonce: driver.NewID(), TTL: ttl,
		Label: "drivertest", Host: "host", PID: 1, Program: "program",
	}
}

func (e *env) join(s driver.Session) driver.Session {
	e.t.Helper()
	if _, err := e.s.Join(e.ctx, s); err != nil {
		e.t.Fatalf("Join: %v", err)
	}
	return s
}

// refusedJoin joins and wants an error of the kind that nobody tries again.
func (e *env) refusedJoin(what string, s driver.Session) {
	e.t.Helper()
	_, err := e.s.Join(e.ctx, s)
	if err == nil {
		e.t.Fatalf("%s was accepted", what)
	}
	if got := e.s.Classify(err); got != driver.FaultPermanent {
		e.t.Fatalf("%s: %v is classified %q, want %q: trying again cannot help", what, err, got, driver.FaultPermanent)
	}
}

func (e *env) beat(s driver.Session, prev, next driver.Nonce) driver.BeatReply {
	e.t.Helper()
	reply, err := e.s.Beat(e.ctx, s.ID, prev, next)
	if err != nil {
		e.t.Fatalf("Beat: %v", err)
	}
	return reply
}

func (e *env) leave(id driver.ID) {
	e.t.Helper()
	if err := e.s.Leave(e.ctx, id); err != nil {
		e.t.Fatalf("Leave: %v", err)
	}
}

func (e *env) notify(id driver.ID) {
	e.t.Helper()
	if err := e.s.Notify(e.ctx, id); err != nil {
		e.t.Fatalf("Notify: %v", err)
	}
}

func (e *env) rows(ids ...driver.ID) []driver.Session {
	e.t.Helper()
	rows, err := e.s.Sessions(e.ctx, ids)
	if err != nil {
		e.t.Fatalf("Sessions: %v", err)
	}
	return rows
}

func (e *env) row(id driver.ID) driver.Session {
	e.t.Helper()
	rows := e.rows(id)
	if len(rows) != 1 {
		e.t.Fatalf("Sessions of one id that joined answers %d", len(rows))
	}
	return rows[0]
}

// silentFor waits until the store says that the session was silent for d.
func (e *env) silentFor(id driver.ID, d time.Duration) {
	e.t.Helper()
	e.until(fmt.Sprintf("the session was silent for %v", d), func() bool { return e.row(id).Silent >= d })
}

// dead checks that the session is dead in every respect; nonce is the last one the store had.
func (e *env) dead(s driver.Session, nonce driver.Nonce) {
	e.t.Helper()
	if !e.row(s.ID).Dead {
		e.t.Fatal("Sessions does not show a dead session as dead")
	}
	for _, next := range []driver.Nonce{driver.NewID(), nonce} {
		if e.beat(s, nonce, next).Alive {
			e.t.Fatal("a dead session beats")
		}
	}
	for _, patient := range []bool{false, true} {
		if f := e.fate(s.ID, patient); f.Kind != driver.FateDead {
			e.t.Fatalf("the fate of a dead session is %+v (patient: %v)", f, patient)
		}
	}
}

// sameSession compares what Join wrote and whether it is dead. The nonce is left out: who reads rows need not see it.
func (e *env) sameSession(want, got driver.Session) {
	e.t.Helper()
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(driver.Session{}, "Nonce", "Silent")); diff != "" {
		e.t.Fatalf("session (-want +got):\n%s", diff)
	}
}
