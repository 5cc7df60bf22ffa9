package arbiter_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/holdfastdb/holdfast/driver"
)

// requests draws the requests of a history: many leases of a few sessions, one kind or several per name.
func requests(t *rapid.T) []driver.Entry {
	const all = driver.All
	kinds := [][2]int64{{all, all}, {1, all}, {1, 2}, {2, 2}, {2, 3}, {1, 5}, {5, 10}, {10, 10}, {all - 1, all}}
	kinds = rapid.SliceOfNDistinct(rapid.SampledFrom(kinds), 1, 4, rapid.ID[[2]int64]).Draw(t, "kinds")
	hold := rapid.SampledFrom([]driver.Micros{0, 0, 0, 1, 700, 5000})
	es := make([]driver.Entry, rapid.IntRange(2, 40).Draw(t, "leases"))
	for i := range es {
		kind := rapid.SampledFrom(kinds).Draw(t, "kind")
		es[i] = holding(want(i+1, rapid.IntRange(1, 5).Draw(t, "session"), kind[0], kind[1]), hold.Draw(t, "min hold"), hold.Draw(t, "max hold"))
		es[i].Label = rapid.SampledFrom([]string{"", "node-1"}).Draw(t, "label")
	}
	return es
}

// history draws the life of a record: changes of several acts, posts between them, clients whose estimates of the
// clock differ, sessions that die, fences to pass.
func history(t *rapid.T) []step {
	entries := requests(t)
	some := rapid.SampledFrom(entries)
	rec := driver.Record{Name: "n", Revision: rapid.Int64Range(0, 2000).Draw(t, "revision")}
	clock := driver.Micros(1000)
	dead := map[driver.ID]bool{}
	var steps []step
	for range rapid.IntRange(1, 40).Draw(t, "steps") {
		clock += rapid.Int64Range(0, 400).Draw(t, "passes")
		switch rapid.IntRange(0, 9).Draw(t, "event") {
		case 0:
			dead[session(rapid.IntRange(1, 5).Draw(t, "dies"))] = true
		case 1, 2, 3:
			if !rec.Free() {
				e := some.Draw(t, "posted")
				op := rapid.SampledFrom([]driver.Op{
					{Kind: driver.OpEnqueue, Entry: e}, {Kind: driver.OpDrop, Lease: e.Lease}, {Kind: driver.OpDrop, Lease: e.Lease, Cancel: true},
				}).Draw(t, "op")
				rec.Inbox = slices.Concat(rec.Inbox, driver.EncodeOps([]driver.Op{op}))
				rec.Revision++
			}
			continue
		}
		s := step{before: rec, now: clock - rapid.Int64Range(0, 300).Draw(t, "behind")}
		if rapid.IntRange(0, 3).Draw(t, "fence") == 0 {
			s.floor = rec.Revision + rapid.Int64Range(-5, 50).Draw(t, "floor")
		}
		for range rapid.IntRange(0, 5).Draw(t, "acts") {
			e := some.Draw(t, "lease")
			a := act{do: rapid.SampledFrom([]string{"request", "request", "try", "drop", "drop", "cancel", "break", "evict"}).Draw(t, "do"), entry: e, lease: e.Lease}
			if a.do == "evict" {
				a.dead, a.judged = dead, rapid.SampledFrom([]driver.Micros{0, s.now, s.now}).Draw(t, "judged")
			}
			s.acts = append(s.acts, a)
		}
		if err := s.check(); err != nil {
			t.Fatalf("step %d: %v\n%v\n%+v\nbecame\n%+v", len(steps), err, s.all, s.before, s.after)
		}
		s.acts = slices.Clone(s.acts)
		for i := range s.acts { // later deaths do not change this step
			if s.acts[i].do == "evict" {
				s.acts[i].dead = copied(dead)
			}
		}
		s.all = slices.Concat(s.inbox, s.acts)
		steps = append(steps, s)
		if s.changed && rapid.IntRange(0, 4).Draw(t, "lost") > 0 { // a lost compare-and-set leaves the record as it was
			rec = s.swapped()
		} else {
			steps = steps[:len(steps)-1]
		}
	}
	return steps
}

func copied(m map[driver.ID]bool) map[driver.ID]bool {
	c := map[driver.ID]bool{}
	for id := range m {
		c[id] = true
	}
	return c
}

func TestRandomHistoriesKeepThePromises(t *testing.T) {
	t.Parallel()
	for range 5 {
		rapid.Check(t, func(t *rapid.T) {
			if err := auditHistory(history(t)); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestTheAuditSeesABrokenPromise alters correct histories by hand, each in the way of one broken rule.
func TestTheAuditSeesABrokenPromise(t *testing.T) {
	t.Parallel()
	const all = driver.All
	life := func(t *testing.T) []step {
		t.Helper()
		var steps []step
		rec := driver.Record{Name: "n", Revision: 1}
		kept := holding(want(1, 1, 2, 3), 5000, 0)
		for i, acts := range [][]act{
			{{do: "request", entry: kept}},                                                                    // 0: holds
			{{do: "request", entry: want(2, 2, 1, 3)}},                                                        // 1: holds too
			{{do: "request", entry: want(3, 3, 3, 3)}},                                                        // 2: waits
			{{do: "request", entry: want(4, 2, 1, all)}},                                                      // 3: waits behind
			{{do: "drop", lease: lease(1)}},                                                                   // 4: kept
			{{do: "cancel", lease: lease(2)}},                                                                 // 5: gone, no room yet
			{{do: "evict", dead: map[driver.ID]bool{}, judged: 9000}},                                         // 6: kept is over, 3 and no more
			{{do: "evict", dead: map[driver.ID]bool{session(3): true}, judged: 9000}, {do: "raise"}},          // 7: 3 gone, 4 holds
			{{do: "drop", lease: lease(4)}, {do: "request", entry: want(5, 1, all, all)}},                     // 8: handed over
			{{do: "cancel", lease: lease(5)}, {do: "try", entry: want(6, 1, 1, 1)}, {do: "raise", judged: 0}}, // 9
		} {
			s := step{before: rec, now: driver.Micros(1000 * (i + 1)), acts: acts, floor: rec.Revision + 10}
			if err := s.check(); err != nil {
				t.Fatalf("step %d: %v", i, err)
			}
			steps, rec = append(steps, s), s.swapped()
		}
		if err := auditHistory(steps); err != nil {
			t.Fatal(err)
		}
		return steps
	}
	for _, wrong := range []struct {
		name, complaint string
		at              int
		alter           func(before driver.Record, c *driver.Change)
	}{
		{"a grant beyond its limit", "over-granted", 2, func(_ driver.Record, c *driver.Change) {
			c.Holders, c.Tickets = append(c.Holders, c.Tickets[0]), nil
		}},
		{"an overtaking", "overtook the head", 3, func(_ driver.Record, c *driver.Change) {
			c.Tickets[1].Rev = c.New
			c.Holders, c.Tickets = append(c.Holders, c.Tickets[1]), c.Tickets[:1]
		}},
		{"a queue in another order", "changed its place", 3, func(_ driver.Record, c *driver.Change) {
			slices.Reverse(c.Tickets)
		}},
		{"a head that fits and waits", "fits and waits", 7, func(_ driver.Record, c *driver.Change) {
			c.Tickets, c.Holders = c.Holders, nil
		}},
		{"a repeated token", "does not exceed", 1, func(_ driver.Record, c *driver.Change) {
			c.Holders[1].Rev = c.Holders[0].Rev
		}},
		{"a token ahead of the revision", "ahead of the revision", 1, func(_ driver.Record, c *driver.Change) {
			c.Holders[1].Rev = c.New + 1
		}},
		{"a revision that stands still", "does not grow", 5, func(before driver.Record, c *driver.Change) {
			c.New = before.Revision
		}},
		{"a fence not passed", "below the floor", 5, func(before driver.Record, c *driver.Change) {
			c.New = before.Revision + 1
		}},
		{"a lost ticket", "is lost", 5, func(_ driver.Record, c *driver.Change) {
			c.Tickets = c.Tickets[1:]
		}},
		{"a lost request", "accepted and is lost", 2, func(_ driver.Record, c *driver.Change) {
			c.Tickets = nil
		}},
		{"a lost holder", "touched or lost", 3, func(_ driver.Record, c *driver.Change) {
			c.Holders = c.Holders[:1]
		}},
		{"an entry that stands twice", "stands twice", 2, func(_ driver.Record, c *driver.Change) {
			c.Tickets = append(c.Tickets, c.Tickets[0])
		}},
		{"an entry from nowhere", "came from nowhere", 2, func(_ driver.Record, c *driver.Change) {
			c.Tickets = append(c.Tickets, want(9, 1, all, all))
		}},
		{"a MinHold cut off", "to be kept until", 4, func(_ driver.Record, c *driver.Change) {
			c.Holders = c.Holders[1:]
		}},
		{"a MinHold drawn out", "to be kept until", 4, func(_ driver.Record, c *driver.Change) {
			c.Holders[0].MaxHold *= 2
		}},
		{"a released entry with a session", "to be kept until", 4, func(_ driver.Record, c *driver.Change) {
			c.Holders[0].Session = session(1)
		}},
		{"a cancelled holder that stays", "cancelled or is over, and stays", 5, func(before driver.Record, c *driver.Change) {
			c.Holders = before.Holders
		}},
		{"an entry past its until", "cancelled or is over, and stays", 6, func(before driver.Record, c *driver.Change) {
			c.Holders, c.Tickets = before.Holders, before.Tickets
		}},
		{"a dead holder that stays", "cancelled or is over, and stays", 7, func(before driver.Record, c *driver.Change) {
			c.Holders, c.Tickets = before.Holders, before.Tickets
		}},
		{"a changed weight", "became", 2, func(_ driver.Record, c *driver.Change) {
			c.Tickets[0].Weight = 2
		}},
	} {
		t.Run(wrong.name, func(t *testing.T) {
			t.Parallel()
			steps := life(t)[:wrong.at+1]
			last := &steps[wrong.at]
			last.after.Holders, last.after.Tickets = slices.Clone(last.after.Holders), slices.Clone(last.after.Tickets)
			wrong.alter(last.before, &last.after)
			if err := auditHistory(steps); err == nil || !strings.Contains(err.Error(), wrong.complaint) {
				t.Errorf("the audit says %v, want a complaint: %s", err, wrong.complaint)
			}
		})
	}
	t.Run("a token given twice in the life of a record", func(t *testing.T) {
		t.Parallel()
		steps := life(t)
		again := steps[0]
		again.after.Holders = slices.Clone(again.after.Holders)
		if err := auditHistory(append(steps, again)); err == nil || !strings.Contains(fmt.Sprint(err), "after token") {
			t.Errorf("the audit says %v, want a complaint", err)
		}
	})
}
