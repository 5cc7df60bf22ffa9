package drivertest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfastdb/holdfast/driver"
)

func raceRules() []rule {
	return []rule{
		{name: "of 40 racing grabs of an absent record exactly one is taken", check: func(e *env) {
			for round := range e.h.Rounds {
				e.oneWinner(fmt.Sprint("absent ", round), t0, 40)
			}
		}},
		{name: "of 40 racing grabs of a free record exactly one is taken", check: func(e *env) {
			seed := t0
			for range e.h.Rounds {
				rec := e.oneWinner("free", seed, 40)
				e.release("free", rec.Revision)
				seed = rec.Revision + 2
			}
		}},
		{name: "of racing batches of grabs in any order each name is taken exactly once", check: batchRace},
		{name: "of 20 racing swaps from one revision exactly one is done", check: func(e *env) {
			rev := e.take("swapped", t0).Revision
			for range e.h.Rounds {
				changes := make([]driver.Change, 20)
				done := make([]bool, len(changes))
				for i := range changes {
					changes[i] = driver.Change{Name: "swapped", Old: rev, New: rev + 1, Holders: []driver.Entry{fullEntry(i)}}
				}
				e.race(len(changes), func(i int, s driver.Store) (err error) {
					done[i], err = swapOne(e.ctx, s, changes[i])
					return err
				})
				c := changes[e.onlyOne("swaps", done)]
				rev++
				e.stored("the record after the race", driver.Record{Name: "swapped", Revision: rev, Holders: c.Holders})
			}
		}},
		{name: "no post is lost while swaps run", check: postsAndSwaps},
		{name: "racing posts raise the revision one by one and keep every operation", check: func(e *env) {
			rec := e.take("posted", t0)
			n := min(e.h.Rounds, 40)
			ops := make([]driver.Op, n)
			for i := range ops {
				ops[i] = drop()
			}
			e.race(n, func(i int, s driver.Store) error {
				posted, err := s.Post(e.ctx, "posted", driver.EncodeOps(ops[i:i+1]), t0+1e6)
				if err == nil && !posted {
					err = fmt.Errorf("Post %d to a held record was refused", i)
				}
				return err
			})
			got := e.load("posted")
			if want := rec.Revision + driver.Micros(n); got.Revision != want {
				e.t.Errorf("revision %d after %d posts, want %d", got.Revision, n, want)
			}
			inbox, err := driver.DecodeOps(got.Inbox)
			if err != nil {
				e.t.Fatal(err)
			}
			found := map[driver.ID]int{}
			for _, op := range inbox {
				found[op.Lease]++
			}
			for _, op := range ops {
				if found[op.Lease] != 1 {
					e.t.Errorf("lease %s stands %d times in the inbox, want once", op.Lease, found[op.Lease])
				}
			}
		}},
	}
}

// onlyOne answers which of the racers won, and ends the rule if that is not exactly one.
func (e *env) onlyOne(what string, won []bool) int {
	e.t.Helper()
	winner, winners := -1, 0
	for i, w := range won {
		if w {
			winner, winners = i, winners+1
		}
	}
	if winners != 1 {
		e.t.Fatalf("%d of %d racing %s won, want exactly one", winners, len(won), what)
	}
	return winner
}

// oneWinner lets n clients grab a name with seeds from seed on, so that every one of them may win, and answers the
// record as the winner must have left it.
func (e *env) oneWinner(name string, seed driver.Micros, n int) driver.Record {
	e.t.Helper()
	holders := make([]driver.Entry, n)
	taken := make([]bool, n)
	for i := range holders {
		holders[i] = holder()
	}
	e.race(n, func(i int, s driver.Store) (err error) {
		taken[i], err = grabOne(e.ctx, s, name, seed+driver.Micros(i), holders[i])
		return err
	})
	i := e.onlyOne("grabs", taken)
	rec := held(name, seed+driver.Micros(i), holders[i])
	e.stored("the record after the race", rec)
	return rec
}

func batchRace(e *env) {
	for round := range min(e.h.Rounds, 15) {
		const clients, size = 8, 20
		asks := make([][]driver.Ask, clients)
		taken := make([][]bool, clients)
		for c := range asks {
			for _, i := range rand.Perm(size) {
				name := fmt.Sprintf("round %d name %d", round, i)
				asks[c] = append(asks[c], driver.Ask{Name: name, Seed: t0 + driver.Micros(c), Holder: holder()})
			}
		}
		e.race(clients, func(c int, s driver.Store) (err error) {
			taken[c], err = s.Grab(e.ctx, asks[c])
			return err
		})
		winners := map[string]driver.Record{}
		for c := range asks {
			for i, won := range taken[c] {
				if a := asks[c][i]; won {
					if _, twice := winners[a.Name]; twice {
						e.t.Fatalf("%q was taken twice", a.Name)
					}
					winners[a.Name] = held(a.Name, a.Seed, a.Holder)
				}
			}
		}
		if len(winners) != size {
			e.t.Fatalf("%d of %d names were taken", len(winners), size)
		}
		for _, rec := range winners {
			e.stored("a record after the race", rec)
		}
	}
}

// postsAndSwaps lets posters append while swappers fold what they loaded, and only that. Every acknowledged operation
// must have been folded or stand in the inbox, those of one poster in their order.
func postsAndSwaps(e *env) {
	const posters, swappers = 8, 2
	each := max(4, e.h.Rounds/2)
	rec := e.take("posted", t0)
	posted := make([][]driver.ID, posters)
	folded := make([][]driver.ID, swappers) // by each swapper, in its order
	revs := make([][]driver.Micros, swappers)
	var posting atomic.Int64
	posting.Store(posters)
	e.race(posters+swappers, func(i int, s driver.Store) (err error) {
		if i >= posters {
			for posting.Load() > 0 && err == nil {
				err = foldOnce(e.ctx, s, rec, &folded[i-posters], &revs[i-posters])
			}
			return err
		}
		defer posting.Add(-1)
		for range each {
			pause(e.ctx, rand.N(500*time.Microsecond))
			op := drop()
			ok, err := s.Post(e.ctx, "posted", driver.EncodeOps([]driver.Op{op}), t0+1e12)
			if err != nil || !ok {
				return fmt.Errorf("Post to a held record: %v, %v; want it accepted", ok, err)
			}
			posted[i] = append(posted[i], op.Lease)
		}
		return nil
	})
	if err := foldOnce(e.ctx, e.s, rec, &folded[0], &revs[0]); err != nil {
		e.t.Fatal(err)
	}
	order := map[driver.ID]driver.Micros{} // the revision from which an operation was folded, and its place in the inbox
	for i := range folded {
		for j, lease := range folded[i] {
			if _, twice := order[lease]; !twice {
				order[lease] = revs[i][j]
			}
		}
	}
	for i := range posted {
		last := driver.Micros(0)
		for j, lease := range posted[i] {
			at, found := order[lease]
			switch {
			case !found:
				e.t.Errorf("operation %d of poster %d was acknowledged and is gone", j, i)
			case at <= last:
				e.t.Errorf("operation %d of poster %d stands before the one posted earlier", j, i)
			}
			last = at
		}
	}
}

// foldOnce loads the record and swaps it with what it saw. Of each operation it notes a number that grows with the
// revision and the place in the inbox.
func foldOnce(ctx context.Context, s driver.Store, rec driver.Record, leases *[]driver.ID, at *[]driver.Micros) error {
	seen, err := loadOne(ctx, s, rec.Name)
	if err != nil {
		return err
	}
	ops, err := driver.DecodeOps(seen.Inbox)
	if err != nil {
		return err
	}
	pause(ctx, rand.N(200*time.Microsecond)) // for posts between the load and the swap
	c := driver.Change{Name: rec.Name, Old: seen.Revision, New: seen.Revision + 1, Holders: rec.Holders}
	done, err := swapOne(ctx, s, c)
	if err != nil || !done {
		return err
	}
	for i, op := range ops {
		*leases = append(*leases, op.Lease)
		*at = append(*at, (seen.Revision-t0)*100_000+driver.Micros(i)+1)
	}
	return nil
}

func setupRules() []rule {
	return []rule{
		{name: "30 clients at once on first use all set up and join and exactly one takes the name", bare: true, check: firstUse},
		{name: "setup may be called again and changes nothing that is in use", check: func(e *env) {
			rec, session := e.take("kept", t0), e.join(e.session(hour))
			for _, s := range e.handles(3) {
				if err := s.Setup(e.ctx); err != nil {
					e.t.Fatalf("Setup again: %v", err)
				}
			}
			e.stored("the record after Setup", rec)
			if !e.beat(session, session.Nonce, driver.NewID()).Alive {
				e.t.Fatal("the session did not survive Setup")
			}
		}},
		{name: "joining without setup works or says Setup", bare: true, check: func(e *env) {
			if _, err := e.s.Join(e.ctx, e.session(hour)); err != nil {
				if fault := e.s.Classify(err); !says(err, "Setup") || fault != driver.FaultPermanent {
					e.t.Fatalf("Join without Setup: %v (%v); want an error that says Setup, permanent", err, fault)
				}
			}
		}},
	}
}

// firstUse has 30 fresh handles set up one fresh database at once; Setup itself may not fail even for a race.
func firstUse(e *env) {
	const clients = 30
	for range min(e.h.Rounds, 3) {
		fresh := open(e.t, e.h)
		stores := fresh.handles(clients)
		taken := make([]bool, clients)
		var ready sync.WaitGroup
		ready.Add(clients)
		fresh.race(clients, func(i int, _ driver.Store) (err error) {
			ready.Done()
			ready.Wait()
			s := stores[i]
			if err := s.Setup(e.ctx); err != nil {
				return fmt.Errorf("Setup at once with others: %w", err)
			}
			if _, err := s.Join(e.ctx, e.session(hour)); err != nil {
				return fmt.Errorf("Join after Setup: %w", err)
			}
			taken[i], err = grabOne(e.ctx, s, "first", t0+driver.Micros(i), holder())
			return err
		})
		e.onlyOne("first grabs", taken)
	}
}
