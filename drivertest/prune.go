package drivertest

import (
	"fmt"
	"time"

	"github.com/holdfastdb/holdfast/driver"
)

const day = 24 * time.Hour

func pruneRules() []rule {
	return []rule{
		{name: "a prune deletes old free records without a note and nothing else", check: func(e *env) {
			entries := []driver.Entry{fullEntry(1)}
			for _, rec := range []driver.Record{
				{Name: "deleted", Revision: t0 - 1}, {Name: "deleted too", Revision: t0 - 1000},
				{Name: "at the bound", Revision: t0}, {Name: "newer", Revision: t0 + 1},
				{Name: "held", Revision: t0 - 1, Holders: entries}, {Name: "queued", Revision: t0 - 1, Tickets: entries},
				{Name: "noted", Revision: t0 - 1, Note: &driver.Note{Data: []byte("x"), Token: t0 - 2}},
				{Name: "noted with nothing", Revision: t0 - 1, Note: &driver.Note{Token: t0 - 2}},
				{Name: "posted", Revision: t0 - 10, Holders: entries},
			} {
				e.put(rec)
			}
			if !e.post("posted", driver.EncodeOps([]driver.Op{drop()}), t0) {
				e.t.Fatal("Post to a held record was refused")
			}
			before := e.list(driver.Query{})
			if n := e.prune(driver.Pruning{Before: t0, Silent: day}); n != 2 {
				e.t.Errorf("Prune says it deleted %d, want 2", n)
			}
			var kept []driver.Record
			for _, rec := range before {
				if rec.Name != "deleted" && rec.Name != "deleted too" {
					kept = append(kept, rec)
				}
			}
			e.same("records after Prune", kept, e.list(driver.Query{}))
			if n := e.prune(driver.Pruning{Before: t0, Silent: day}); n != 0 {
				e.t.Errorf("Prune says it deleted %d, want none", n)
			}
		}},
		{name: "a prune deletes at most as many records as it may, and in the end all", check: func(e *env) {
			for _, c := range []struct{ records, most, want int }{{10, 3, 3}, {driver.MaxBatch + 20, 0, driver.MaxBatch}} {
				all := make([]string, c.records)
				for i := range all {
					all[i] = fmt.Sprintf("%d of %d", i, c.records)
				}
				for start := 0; start < c.records; start += driver.MaxBatch {
					e.freeAll(e.takeAll(all[start:min(start+driver.MaxBatch, c.records)], t0))
				}
				for left := c.records; left > 0; {
					n := e.prune(driver.Pruning{Before: t0 + 1e6, Silent: day, Max: c.most})
					if n < 1 || n > c.want {
						e.t.Fatalf("Prune of %d records with Max %d deleted %d", left, c.most, n)
					}
					left -= n
					e.same("records left", left, len(e.list(driver.Query{})))
				}
			}
		}},
		{name: "a prune never deletes a record that was just taken", check: func(e *env) {
			const n = 12
			for round := range min(e.h.Rounds, 15) {
				all := make([]string, n)
				for i := range all {
					all[i] = fmt.Sprintf("round %d name %d", round, i)
				}
				e.freeAll(e.takeAll(all, t0))
				want := make([]driver.Record, n)
				e.race(n+4, func(i int, s driver.Store) error {
					if i >= n {
						_, err := s.Prune(e.ctx, driver.Pruning{Before: t0 + 1e6, Silent: day})
						return err
					}
					h := holder()
					taken, err := grabOne(e.ctx, s, all[i], t0+2e6, h)
					if err == nil && !taken {
						err = fmt.Errorf("Grab of %q, which is free or deleted, was refused", all[i])
					}
					want[i] = held(all[i], t0+2e6, h)
					return err
				})
				e.sameBatch(want)
			}
		}},
		{name: "a prune marks silent sessions dead and deletes them only later", check: silentSessions},
		{name: "a prune keeps a session that died lately", check: func(e *env) {
			const silent = 300 * time.Millisecond
			s := e.join(e.session(time.Millisecond))
			e.silentFor(s.ID, silent)
			left := time.Now()
			e.leave(s.ID)
			e.prune(driver.Pruning{Silent: silent})
			if gone := len(e.rows(s.ID)) == 0; gone && time.Since(left) < silent-grain {
				e.t.Fatalf("Prune deleted a session dead for less than %v", silent)
			}
		}},
		{name: "a prune deletes at most as many sessions as it may, and in the end all", check: func(e *env) {
			const n, most = 7, 3
			ids := make([]driver.ID, n)
			for i := range ids {
				ids[i] = e.join(e.session(hour)).ID
				e.leave(ids[i])
			}
			left := n
			e.until("all dead sessions were deleted", func() bool {
				deleted := e.prune(driver.Pruning{Silent: time.Millisecond, Max: most})
				left -= deleted
				if got := len(e.rows(ids...)); deleted > most || got != left {
					e.t.Fatalf("Prune with Max %d says it deleted %d; %d sessions are left, want %d", most, deleted, got, left)
				}
				return left == 0
			})
		}},
	}
}

// freeAll makes all those records free, each with its revision + 1000.
func (e *env) freeAll(recs []driver.Record) {
	e.t.Helper()
	changes := make([]driver.Change, len(recs))
	for i, r := range recs {
		changes[i] = driver.Change{Name: r.Name, Old: r.Revision, New: r.Revision + 1000}
	}
	done, err := e.s.Swap(e.ctx, changes)
	if err != nil || len(done) != len(changes) {
		e.t.Fatalf("Swap of %d names: %d answers, %v", len(changes), len(done), err)
	}
	for i, ok := range done {
		if !ok {
			e.t.Fatalf("Swap of %q from its revision was refused", changes[i].Name)
		}
	}
}

func silentSessions(e *env) {
	const silent = 200 * time.Millisecond
	began := time.Now()
	doomed, quiet := e.join(e.session(silent/10)), e.join(e.session(hour))
	lastBeat := time.Now()
	beating := e.join(e.session(silent / 10))
	replaced := false
	prune := func() (n int, took time.Duration) {
		next, beaten := driver.NewID(), time.Now()
		if !e.beat(beating, beating.Nonce, next).Alive {
			if late := time.Since(lastBeat); late < silent-grain {
				e.t.Fatalf("a session was marked dead %v after a beat, want %v of silence", late, silent)
			}
			beating = e.join(e.session(silent / 10)) // this process was too slow to keep it
			next, replaced = beating.Nonce, true
		}
		beating.Nonce, lastBeat = next, beaten
		sent := time.Now()
		n = e.prune(driver.Pruning{Silent: silent})
		return n, time.Since(sent)
	}
	e.until("the silent session was marked dead", func() bool {
		n, took := prune()
		rows := e.rows(doomed.ID)
		if len(rows) == 0 && took < silent-grain {
			e.t.Fatal("Prune deleted a session it had just marked")
		}
		if len(rows) == 1 && n != 0 && !replaced {
			e.t.Fatalf("Prune says it deleted %d, and all sessions are there", n)
		}
		return len(rows) == 0 || rows[0].Dead
	})
	if longest := time.Since(began); longest < silent-grain {
		e.t.Fatalf("dead after at most %v of silence, want %v", longest, silent)
	}
	e.until("the dead session was deleted", func() bool {
		prune()
		return len(e.rows(doomed.ID)) == 0
	})
	e.silentFor(quiet.ID, silent+grain)
	prune()
	if e.row(quiet.ID).Dead {
		e.t.Fatal("a session silent for less than its TTL was marked dead")
	}
}
