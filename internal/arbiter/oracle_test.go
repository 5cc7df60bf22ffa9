package arbiter_test

import (
	"fmt"
	"math/big"
	"slices"

	"github.com/holdfastdb/holdfast/driver"
	"github.com/holdfastdb/holdfast/internal/arbiter"
)

// act is one operation of a change, or one posted operation.
type act struct {
	do     string       // request, try, drop, cancel, break, evict, raise
	entry  driver.Entry // request, try
	lease  driver.ID    // drop, cancel, break
	judged driver.Micros
	dead   map[driver.ID]bool // evict
}

func (a act) String() string {
	switch a.do {
	case "request", "try":
		return fmt.Sprintf("%s %s (%d of %d)", a.do, short(a.entry.Lease), a.entry.Weight, a.entry.Limit)
	case "evict":
		return fmt.Sprintf("evict %d sessions, judged at %d", len(a.dead), a.judged)
	case "raise":
		return a.do
	}
	return a.do + " " + short(a.lease)
}

func short(id driver.ID) string { return fmt.Sprintf("%x", id[14:]) }

// step is one change of a record's life: what was loaded, what was done, what is to be swapped in.
type step struct {
	before   driver.Record
	now      driver.Micros
	floor    driver.Micros
	acts     []act
	inbox    []act             // what the loaded inbox holds; run reads it if it is nil
	all      []act             // the inbox, then the acts
	outcomes []arbiter.Outcome // of the acts; Refused for those that answer nothing
	after    driver.Change
	changed  bool
}

// run applies the step's acts to a draft of the arbiter and fills in what came of it.
func (s *step) run() error {
	if s.inbox == nil {
		s.inbox = posted(s.before.Inbox)
	}
	s.all = slices.Concat(s.inbox, s.acts)
	d, err := arbiter.Begin(s.before, s.now, s.floor)
	if err != nil {
		return err
	}
	for _, a := range s.acts {
		var o arbiter.Outcome
		switch a.do {
		case "request":
			o = d.Request(a.entry)
		case "try":
			o = d.Try(a.entry)
		case "drop", "cancel":
			d.Drop(a.lease, a.do == "cancel")
		case "break":
			d.MarkBroken(a.lease)
		case "evict":
			d.Evict(func(id driver.ID) bool { return a.dead[id] }, a.judged)
		case "raise":
			d.Raise()
		}
		s.outcomes = append(s.outcomes, o)
	}
	s.after = d.Change()
	s.changed = d.Changed()
	return nil
}

// posted reads an inbox as acts.
func posted(inbox []byte) []act {
	ops, err := driver.DecodeOps(inbox)
	if err != nil {
		panic(err)
	}
	var acts []act
	for _, op := range ops {
		switch {
		case op.Kind == driver.OpEnqueue:
			acts = append(acts, act{do: "request", entry: op.Entry})
		case op.Cancel:
			acts = append(acts, act{do: "cancel", lease: op.Lease})
		default:
			acts = append(acts, act{do: "drop", lease: op.Lease})
		}
	}
	return acts
}

// row is a holder or a ticket as the reference model keeps it: with absolute times, and no running sums.
type row struct {
	entry       driver.Entry
	holds       bool
	keep, until driver.Micros
}

// ledger is the reference model of a record: the rules of DESIGN.md section 2 in the slow and obvious way.
type ledger struct {
	rows    []row // holders and tickets in one list, in the order they queued
	base    driver.Micros
	now     driver.Micros
	granted driver.Micros // grants so far
}

// expect says what the step must lead to.
func expect(s step) *ledger {
	l := &ledger{base: max(s.before.Revision+1, s.now, s.floor), now: s.now}
	for _, e := range s.before.Holders {
		l.rows = append(l.rows, l.holder(e))
	}
	for _, e := range s.before.Tickets {
		l.rows = append(l.rows, row{entry: e})
	}
	for _, a := range s.all {
		l.apply(a)
	}
	l.settle()
	return l
}

func (l *ledger) holder(e driver.Entry) row {
	r := row{entry: e, holds: true}
	minHold, maxHold := e.MinHold.Microseconds(), e.MaxHold.Microseconds()
	if maxHold > 0 {
		r.until = e.Rev + maxHold
	}
	if minHold > 0 {
		r.keep = e.Rev + minHold
		if r.until > 0 && r.until < r.keep {
			r.keep = r.until
		}
	}
	return r
}

func (l *ledger) count(holds bool) (n int) {
	for _, r := range l.rows {
		if r.holds == holds {
			n++
		}
	}
	return n
}

// fits sums up all holders anew, in numbers that cannot overflow.
func (l *ledger) fits(e driver.Entry) bool {
	sum := big.NewInt(e.Weight)
	for _, r := range l.rows {
		if r.holds {
			sum.Add(sum, big.NewInt(r.entry.Weight))
		}
	}
	return sum.Cmp(big.NewInt(e.Limit)) <= 0
}

// settle grants from the head of the queue while it fits.
func (l *ledger) settle() {
	for {
		head := slices.IndexFunc(l.rows, func(r row) bool { return !r.holds })
		if head < 0 || !l.fits(l.rows[head].entry) || l.count(true) >= driver.MaxHolders {
			return
		}
		e := l.rows[head].entry
		e.Rev, e.Broken = l.base+l.granted, false
		l.granted++
		l.rows[head] = l.holder(e)
	}
}

func (l *ledger) find(lease driver.ID) int {
	return slices.IndexFunc(l.rows, func(r row) bool { return r.entry.Lease == lease })
}

// apply does one act. Room freed by it is given away when somebody looks who holds, at the end at the latest.
func (l *ledger) apply(a act) {
	switch a.do {
	case "request", "try":
		if l.find(a.entry.Lease) >= 0 || arbiter.Check(a.entry.Weight, a.entry.Limit) != nil {
			return
		}
		l.settle()
		e := a.entry
		e.Rev, e.Broken = l.base, false
		if l.count(false) >= driver.MaxTickets {
			return
		}
		if a.do == "try" && (l.count(false) > 0 || !l.fits(e) || l.count(true) >= driver.MaxHolders) {
			return
		}
		l.rows = append(l.rows, row{entry: e})
		l.settle()
	case "drop", "cancel":
		if i := l.find(a.lease); i >= 0 {
			l.end(i, l.now, a.do == "cancel")
		}
	case "break":
		l.settle()
		if i := l.find(a.lease); i >= 0 && l.rows[i].holds {
			l.rows[i].entry.Broken = true
		}
	case "evict":
		for i := len(l.rows) - 1; i >= 0; i-- {
			r := l.rows[i]
			switch {
			case r.holds && r.until > 0 && r.until <= a.judged:
				l.end(i, a.judged, true)
			case a.dead[r.entry.Session]:
				l.end(i, a.judged, r.entry.Rev >= l.base) // nobody was told of a grant of this very change
			}
		}
	}
}

func (l *ledger) end(i int, now driver.Micros, cancel bool) {
	if r := &l.rows[i]; r.holds && !cancel && r.keep > now {
		r.entry.Session, r.entry.Broken = driver.ID{}, false
		r.until = r.keep
		return
	}
	l.rows = slices.Delete(l.rows, i, i+1)
}

// compare says how the change differs from the expected one.
func (l *ledger) compare(c driver.Change) error {
	if want := max(l.base, l.base+l.granted-1); c.New != want {
		return fmt.Errorf("revision %d, want %d", c.New, want)
	}
	var holders, tickets []row
	for _, r := range l.rows {
		if r.holds {
			holders = append(holders, r)
		} else {
			tickets = append(tickets, r)
		}
	}
	if len(c.Holders) != len(holders) || len(c.Tickets) != len(tickets) {
		return fmt.Errorf("%d holders and %d tickets, want %d and %d", len(c.Holders), len(c.Tickets), len(holders), len(tickets))
	}
	for i, e := range c.Holders {
		want := holders[i]
		if e.Until() != want.until || e.Keep() != want.keep {
			return fmt.Errorf("holder %s with keep %d and until %d, want %d and %d", short(e.Lease), e.Keep(), e.Until(), want.keep, want.until)
		}
		if want.entry.MaxHold = e.MaxHold; e != want.entry { // how a kept entry spells its until is its own affair
			return fmt.Errorf("holder %d is %+v, want %+v", i, e, want.entry)
		}
	}
	for i, e := range c.Tickets {
		if e != tickets[i].entry {
			return fmt.Errorf("ticket %d is %+v, want %+v", i, e, tickets[i].entry)
		}
	}
	return nil
}
