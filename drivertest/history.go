package drivertest

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/holdfastdb/holdfast/driver"
)

func historyRules() []rule {
	return []rule{
		{name: "tokens of a name strictly increase through grabs, releases, prunes and re-creations", check: risingTokens},
		{name: "a random history is answered as the law says", check: func(e *env) {
			seed := rand.Uint64()
			e.t.Logf("random seed %d", seed)
			m := model{env: e, rng: rand.New(rand.NewPCG(seed, 0)), records: map[string]driver.Record{}}
			for range 15 * e.h.Rounds {
				m.step()
			}
			recs := slices.SortedFunc(maps.Values(m.records), func(a, b driver.Record) int {
				return bytes.Compare([]byte(a.Name), []byte(b.Name))
			})
			e.same("all records in the end", recs, e.list(driver.Query{}))
		}},
	}
}

// risingTokens has workers take and release two names, as clients do: seeds follow a clock that all share, and Prune
// deletes only what is older than any grab still on its way. Rounds are that far apart.
func risingTokens(e *env) {
	const workers, turns, apart = 6, 4, 1_000_000
	type held struct {
		taken atomic.Bool
		last  atomic.Int64
	}
	var lock [2]held
	var clock, working atomic.Int64
	for round := range max(4, e.h.Rounds/4) {
		base := t0 + driver.Micros(round)*apart
		clock.Store(base)
		working.Store(workers)
		e.race(workers+1, func(i int, s driver.Store) error {
			if i == workers {
				for ; working.Load() > 0; pause(e.ctx, rand.N(200*time.Microsecond)) {
					if _, err := s.Prune(e.ctx, driver.Pruning{Before: base, Silent: day}); err != nil {
						return err
					}
				}
				return nil
			}
			defer working.Add(-1)
			name, l := fmt.Sprint("lock ", i%2), &lock[i%2]
			for range turns {
				token := clock.Add(1)
				pause(e.ctx, rand.N(500*time.Microsecond)) // requests do not arrive in the order of their seeds
				taken, err := grabOne(e.ctx, s, name, token, holder())
				if err != nil {
					return err
				}
				if !taken {
					continue
				}
				if !l.taken.CompareAndSwap(false, true) {
					return fmt.Errorf("%s was taken with token %d while it was held", name, token)
				}
				if last := l.last.Swap(token); last >= token {
					return fmt.Errorf("%s: token %d after token %d", name, token, last)
				}
				l.taken.Store(false)
				done, err := swapOne(e.ctx, s, driver.Change{Name: name, Old: token, New: clock.Add(1)})
				if err != nil || !done {
					return fmt.Errorf("release of %s with token %d: %v, %v; want done", name, token, done, err)
				}
			}
			return nil
		})
		if lock[0].last.Load() <= base || lock[1].last.Load() <= base {
			e.t.Fatal("a free name was not taken by any of three racing grabs")
		}
	}
}

// model is the law in its plainest form: records in a map. Each step makes one call with values near the edges and
// compares answer and record.
type model struct {
	*env
	rng     *rand.Rand
	records map[string]driver.Record
}

// near answers a revision close to rev, at least 1.
func (m *model) near(rev driver.Micros, from, to int) driver.Micros {
	return max(1, rev+driver.Micros(from+m.rng.IntN(to-from+1)))
}

func (m *model) entries(most int) []driver.Entry {
	var es []driver.Entry
	for range m.rng.IntN(most + 1) {
		es = append(es, fullEntry(m.rng.IntN(50)))
	}
	return es
}

func (m *model) step() {
	m.t.Helper()
	name := []string{"a", "b", "B", "b "}[m.rng.IntN(4)]
	rec, exists := m.records[name]
	rec.Name = name
	base := max(rec.Revision, t0)
	what := ""
	switch m.rng.IntN(10) {
	case 0, 1:
		h, seed := fullEntry(m.rng.IntN(50)), m.near(base, -2, 4)
		want := !exists || rec.Free() && rec.Revision < seed
		what = fmt.Sprintf("Grab %q with seed %d", name, seed)
		m.same(what, want, m.grab(name, seed, h))
		if want {
			note := rec.Note
			rec = held(name, seed, h)
			rec.Note = note
		}
		exists = exists || want
	case 2, 3, 4, 5:
		c := driver.Change{Name: name, Old: base, Tickets: m.entries(1)}
		if m.rng.IntN(4) == 0 {
			c.Old = m.near(base, -1, 1)
		}
		c.New = m.near(c.Old, 1, 3)
		if m.rng.IntN(2) == 0 {
			c.Holders, c.Tickets = m.entries(2), nil
		}
		if name == "b " && m.rng.IntN(8) == 0 { // the others can be pruned at any time
			c.Note = &driver.Note{Data: fmt.Append(nil, c.New), Token: c.New}
		}
		want := exists && rec.Revision == c.Old
		what = fmt.Sprintf("Swap %q from %d to %d", name, c.Old, c.New)
		m.same(what, want, m.swap(c))
		if want {
			rec = driver.Record{Name: name, Revision: c.New, Holders: c.Holders, Tickets: c.Tickets, Note: rec.Note}
			if c.Note != nil {
				rec.Note = c.Note
			}
		}
	case 6, 7, 8:
		ops, before := driver.EncodeOps([]driver.Op{drop()}), m.near(base, -1, 2)
		want := exists && !rec.Free() && rec.Revision < before
		what = fmt.Sprintf("Post to %q before %d", name, before)
		m.same(what, want, m.post(name, ops, before))
		if want {
			rec.Inbox = append(bytes.Clone(rec.Inbox), ops...)
			rec.Revision++
		}
	case 9:
		m.prune(m.near(base, -1, 2))
		return
	}
	if exists {
		m.records[name] = rec
	}
	m.stored("the record after "+what, rec)
}

func (m *model) prune(before driver.Micros) {
	m.t.Helper()
	want := 0
	maps.DeleteFunc(m.records, func(_ string, r driver.Record) bool {
		old := r.Free() && r.Note == nil && r.Revision < before
		if old {
			want++
		}
		return old
	})
	m.same(fmt.Sprintf("deleted by Prune before %d", before), want, m.env.prune(driver.Pruning{Before: before, Silent: day}))
}
