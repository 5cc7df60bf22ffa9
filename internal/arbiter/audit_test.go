package arbiter_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/holdfastdb/holdfast/driver"
	"github.com/holdfastdb/holdfast/internal/arbiter"
)

// audit judges one step by the promises alone: it does not know how the arbiter works, only what must be true of a
// record before and after a change.
func audit(s step) error {
	return errors.Join(s.auditRevisions(), s.auditGrants(), s.auditOrder(), s.auditEntries())
}

// auditHistory judges a record's whole life.
func auditHistory(steps []step) error {
	tokens := map[driver.Micros]driver.ID{}
	last := driver.Micros(0)
	for i, s := range steps {
		if err := audit(s); err != nil {
			return fmt.Errorf("step %d: %w", i, err)
		}
		for _, e := range s.grants() {
			if lease, taken := tokens[e.Rev]; taken && lease != e.Lease {
				return fmt.Errorf("step %d: token %d of %s was given to %s before", i, e.Rev, short(e.Lease), short(lease))
			}
			if e.Rev <= last {
				return fmt.Errorf("step %d: token %d after token %d", i, e.Rev, last)
			}
			tokens[e.Rev], last = e.Lease, e.Rev
		}
	}
	return nil
}

func byLease(es []driver.Entry) map[driver.ID]driver.Entry {
	m := make(map[driver.ID]driver.Entry, len(es))
	for _, e := range es {
		m[e.Lease] = e
	}
	return m
}

// grants returns the holders that were none before, in the order they stand.
func (s step) grants() []driver.Entry {
	old := byLease(s.before.Holders)
	var es []driver.Entry
	for _, e := range s.after.Holders {
		if was, held := old[e.Lease]; !held || was.Rev != e.Rev {
			es = append(es, e)
		}
	}
	return es
}

func (s step) auditRevisions() error {
	c := s.after
	switch {
	case c.Old != s.before.Revision || c.Name != s.before.Name:
		return fmt.Errorf("the change is of %q at %d, not of %q at %d", c.Name, c.Old, s.before.Name, s.before.Revision)
	case c.New <= s.before.Revision:
		return fmt.Errorf("the revision does not grow: %d after %d", c.New, s.before.Revision)
	case c.New < s.floor || c.New < s.now:
		return fmt.Errorf("revision %d is below the floor %d or the clock %d", c.New, s.floor, s.now)
	}
	for _, e := range slices.Concat(c.Holders, c.Tickets) {
		if e.Rev > c.New {
			return fmt.Errorf("entry %s at %d is ahead of the revision %d", short(e.Lease), e.Rev, c.New)
		}
	}
	return nil
}

// auditGrants checks each grant against what holds at that moment, and that no grantable head waits.
func (s step) auditGrants() error {
	sum := int64(0)
	for _, e := range s.after.Holders {
		sum += e.Weight
	}
	if len(s.after.Tickets) > 0 && len(s.after.Holders) < driver.MaxHolders {
		if head := s.after.Tickets[0]; sum+head.Weight <= head.Limit {
			return fmt.Errorf("the head %s fits and waits", short(head.Lease))
		}
	}
	if len(s.after.Holders) > driver.MaxHolders || len(s.after.Tickets) > driver.MaxTickets {
		return fmt.Errorf("over a cap: %d holders, %d tickets", len(s.after.Holders), len(s.after.Tickets))
	}
	last := max(s.before.Revision, s.floor-1, s.now-1)
	grants := s.grants()
	for _, g := range grants {
		if g.Rev <= last {
			return fmt.Errorf("token %d of %s does not exceed %d", g.Rev, short(g.Lease), last)
		}
		last = g.Rev
	}
	for _, g := range slices.Backward(grants) { // sum is what holds when g is the newest
		if sum > g.Limit {
			return fmt.Errorf("over-granted: %s holds with a sum of %d of its %d", short(g.Lease), sum, g.Limit)
		}
		sum -= g.Weight
	}
	return nil
}

// auditOrder checks that tickets keep their order and that none was granted past one that stood ahead of it.
func (s step) auditOrder() error {
	var queue []driver.ID
	known := map[driver.ID]driver.Entry{}
	for _, e := range s.before.Tickets {
		queue, known[e.Lease] = append(queue, e.Lease), e
	}
	for _, e := range s.before.Holders {
		known[e.Lease] = e
	}
	for i, a := range s.all {
		switch a.do {
		case "request", "try":
			if _, is := known[a.entry.Lease]; !is && s.accepted(i) {
				queue, known[a.entry.Lease] = append(queue, a.entry.Lease), a.entry
			}
		case "drop", "cancel":
			delete(known, a.lease)
		case "evict":
			maps.DeleteFunc(known, func(_ driver.ID, e driver.Entry) bool {
				return a.dead[e.Session] || e.Until() > 0 && e.Until() <= a.judged && slices.Contains(s.before.Holders, e)
			})
		}
		queue = slices.DeleteFunc(queue, func(id driver.ID) bool { _, is := known[id]; return !is })
	}
	place := make(map[driver.ID]int, len(queue))
	for i, lease := range queue {
		place[lease] = i
	}
	first, last := len(queue), -1
	for _, t := range s.after.Tickets {
		i, known := place[t.Lease]
		switch {
		case !known:
			return fmt.Errorf("ticket %s came from nowhere", short(t.Lease))
		case i <= last:
			return fmt.Errorf("ticket %s changed its place", short(t.Lease))
		}
		first, last = min(first, i), i
	}
	for _, g := range s.grants() {
		if g.Session.IsZero() && !known[g.Lease].Session.IsZero() {
			continue // granted, dropped and kept for its MinHold in this change: asking again did not move it
		}
		if i, known := place[g.Lease]; known && i > first {
			return fmt.Errorf("%s overtook the head %s", short(g.Lease), short(queue[first]))
		}
	}
	return nil
}

// ending is what the acts of a step allow to happen to an entry.
type ending struct{ dropped, cancelled, broken, session, over bool }

func (s step) ending(e driver.Entry) (x ending) {
	for _, a := range s.all {
		switch a.do {
		case "drop":
			x.dropped = x.dropped || a.lease == e.Lease
		case "cancel":
			x.cancelled = x.cancelled || a.lease == e.Lease
		case "break":
			x.broken = x.broken || a.lease == e.Lease
		case "evict":
			x.session = x.session || a.dead[e.Session]
			x.over = x.over || e.Until() > 0 && e.Until() <= a.judged
			x.over = x.over || x.session && e.Keep() <= a.judged
		}
	}
	return x
}

// auditEntries checks that each entry is there once, unless it was ended, and what became of it.
func (s step) auditEntries() error {
	seen := map[driver.ID]driver.Entry{}
	for _, e := range slices.Concat(s.after.Holders, s.after.Tickets) {
		if _, twice := seen[e.Lease]; twice {
			return fmt.Errorf("%s stands twice", short(e.Lease))
		}
		seen[e.Lease] = e
	}
	holding := byLease(s.after.Holders)
	known := byLease(s.before.Tickets)
	for _, old := range s.before.Holders {
		known[old.Lease] = old
		if err := s.auditHolder(old, holding); err != nil {
			return err
		}
	}
	for _, old := range s.before.Tickets {
		if x := s.ending(old); x == (ending{broken: x.broken}) && seen[old.Lease] == (driver.Entry{}) {
			return fmt.Errorf("ticket %s is lost", short(old.Lease))
		}
	}
	for i, a := range s.all {
		if a.do != "request" && a.do != "try" {
			continue
		}
		if _, is := known[a.entry.Lease]; !is {
			known[a.entry.Lease] = a.entry
		}
		if i < len(s.inbox) || !s.accepted(i) {
			continue
		}
		if x := s.ending(a.entry); x == (ending{broken: x.broken, over: x.over}) && seen[a.entry.Lease] == (driver.Entry{}) {
			return fmt.Errorf("request %s was accepted and is lost", short(a.entry.Lease))
		}
	}
	for lease, e := range seen {
		old, is := known[lease]
		switch {
		case !is:
			return fmt.Errorf("%s came from nowhere", short(lease))
		case e.Weight != old.Weight || e.Limit != old.Limit || e.MinHold != old.MinHold || e.Label != old.Label,
			e.Session != old.Session && !e.Session.IsZero() && s.again(lease) == 0:
			return fmt.Errorf("%s became %+v", short(lease), e)
		}
	}
	return nil
}

// auditHolder checks the end of a holder: an entry whose MinHold is not over outlives its release and its session, as
// long as it was to be kept and no longer.
func (s step) auditHolder(old driver.Entry, after map[driver.ID]driver.Entry) error {
	x := s.ending(old)
	now, there := after[old.Lease]
	if x.broken {
		now.Broken = old.Broken
	}
	switch {
	case there && now.Rev != old.Rev: // ended and asked again in this step
		return nil
	case x.cancelled || x.over:
		if there && s.again(old.Lease) == 0 {
			return fmt.Errorf("holder %s was cancelled or is over, and stays", short(old.Lease))
		}
		return nil
	case !x.dropped && !x.session:
		if !there || now != old {
			return fmt.Errorf("holder %s was touched or lost: %+v", short(old.Lease), now)
		}
		return nil
	case x.dropped && old.Keep() <= s.now:
		if there && s.again(old.Lease) == 0 {
			return fmt.Errorf("released holder %s stays", short(old.Lease))
		}
		return nil
	case x.dropped || old.Keep() > 0:
		if x.session && !x.dropped && there && now.Session == old.Session {
			return fmt.Errorf("dead holder %s stays", short(old.Lease))
		}
		if !there || now.Keep() != old.Keep() || now.Until() != old.Keep() || !now.Session.IsZero() {
			return fmt.Errorf("holder %s was to be kept until %d: %+v", short(old.Lease), old.Keep(), now)
		}
	}
	return nil
}

// accepted reports whether request i took a place; of a posted one nobody is told.
func (s step) accepted(i int) bool {
	if i -= len(s.inbox); i >= 0 {
		return s.outcomes[i] == arbiter.Granted || s.outcomes[i] == arbiter.Queued
	}
	return true
}

// again counts the requests of a lease in this step.
func (s step) again(lease driver.ID) (n int) {
	for _, a := range s.all {
		if (a.do == "request" || a.do == "try") && a.entry.Lease == lease {
			n++
		}
	}
	return n
}
