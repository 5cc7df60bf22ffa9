package drivertest

import (
	"bytes"

	"github.com/holdfastdb/holdfast/driver"
)

func lateRules() []rule {
	return []rule{
		{name: "the same grab again is refused, also after the release", check: func(e *env) {
			h := holder()
			e.grab("again", t0, h)
			for range 3 {
				if e.grab("again", t0, h) {
					e.t.Fatal("a grab that ran again counts as taken by the later call")
				}
				e.stored("the record after the same grab again", held("again", t0, h))
			}
			rev := e.release("again", t0)
			if e.grab("again", t0, h) {
				e.t.Fatal("a grab that ran again after the release took the name back")
			}
			e.stored("the record after a late grab", driver.Record{Name: "again", Revision: rev})
		}},
		{name: "a late grab is refused once the record has passed its seed", check: func(e *env) {
			rec := e.take("late", t0+100)
			e.grab("late", t0+50, holder())
			e.stored("the record after a late grab", rec)
			e.release("late", t0+100)
			if e.grab("late", t0+50, holder()) || e.grab("late", t0+101, holder()) {
				e.t.Fatal("a grab with a seed the record has passed took it")
			}
			e.stored("the record after late grabs", driver.Record{Name: "late", Revision: t0 + 101})
		}},
		{name: "the same swap again is refused and so is a late one", check: func(e *env) {
			rec := e.take("again", t0)
			first := driver.Change{Name: "again", Old: t0, New: t0 + 10, Holders: rec.Holders, Tickets: []driver.Entry{fullEntry(1)}}
			second := driver.Change{Name: "again", Old: t0 + 10, New: t0 + 20, Holders: rec.Holders}
			if !e.swap(first) || e.swap(first) {
				e.t.Fatal("want the swap done the first time, refused the second")
			}
			e.stored("the record after the same swap again",
				driver.Record{Name: "again", Revision: t0 + 10, Holders: rec.Holders, Tickets: first.Tickets})
			if !e.swap(second) || e.swap(first) || e.swap(second) {
				e.t.Fatal("want the second swap done once, the first one refused after it")
			}
			rec.Revision = t0 + 20
			e.stored("the record after late swaps", rec)
		}},
		{name: "a swap delivered late does not undo a post", check: func(e *env) {
			rec := e.take("posted", t0)
			ops := driver.EncodeOps([]driver.Op{drop()})
			e.post("posted", ops, t0+10)
			if e.swap(driver.Change{Name: "posted", Old: t0, New: t0 + 5}) {
				e.t.Fatal("a change from before the post applied")
			}
			rec.Revision, rec.Inbox = t0+1, ops
			e.stored("the record after a late swap", rec)
		}},
		{name: "the same post again is appended again below its fence and never past it", check: func(e *env) {
			rec := e.take("again", t0)
			ops := driver.EncodeOps([]driver.Op{drop()})
			if !e.post("again", ops, t0+2) || !e.post("again", ops, t0+2) {
				e.t.Fatal("a post below its fence was refused")
			}
			if e.post("again", ops, t0+2) {
				e.t.Fatal("a post was accepted at its fence")
			}
			rec.Revision, rec.Inbox = t0+2, bytes.Repeat(ops, 2)
			e.stored("the record after the same post twice", rec)
		}},
		{name: "a late post does not reach the next holder past its fence", check: func(e *env) {
			e.take("next", t0)
			rev := e.release("next", t0)
			ops := driver.EncodeOps([]driver.Op{drop()})
			if e.post("next", ops, t0+50) {
				e.t.Fatal("a late post was accepted by a free record")
			}
			e.stored("the record after a late post", driver.Record{Name: "next", Revision: rev})
			rec := e.take("next", t0+50)
			if e.post("next", ops, t0+50) {
				e.t.Fatal("a late post was accepted at its fence")
			}
			e.stored("the record of the next holder", rec)
		}},
		{name: "a late beat from before the chain moved on is refused and changes nothing", check: func(e *env) {
			s := e.join(e.session(hour))
			n1, n2 := driver.NewID(), driver.NewID()
			if !e.beat(s, s.Nonce, n1).Alive || !e.beat(s, n1, n2).Alive {
				e.t.Fatal("a beat is not alive")
			}
			e.silentFor(s.ID, 10*grain)
			if e.beat(s, s.Nonce, n1).Alive {
				e.t.Fatal("a late beat is alive")
			}
			if got := e.row(s.ID).Silent; got < 9*grain {
				e.t.Fatalf("silent for %v after a late beat, at least %v before it", got, 10*grain)
			}
			if !e.beat(s, n1, n2).Alive || !e.beat(s, n2, driver.NewID()).Alive {
				e.t.Fatal("the chain is broken after a late beat")
			}
		}},
		{name: "a late beat or notify does not revive a session that left", check: func(e *env) {
			s := e.join(e.session(hour))
			n1 := driver.NewID()
			e.beat(s, s.Nonce, n1)
			e.leave(s.ID)
			if e.beat(s, s.Nonce, n1).Alive {
				e.t.Fatal("the last beat, repeated after Leave, is alive")
			}
			e.notify(s.ID)
			e.dead(s, n1)
		}},
	}
}
