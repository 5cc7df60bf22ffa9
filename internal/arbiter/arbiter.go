// Package arbiter holds the rules of a record: who may hold a name, who is next, and which token a grant gets. It is
// pure: no I/O, no clock, no randomness. The client loads a record, applies these rules to a [Draft] of it, and asks
// the store to swap the result in.
//
// One counted rule covers exclusive, shared and permit requests. A request has a weight and a limit: exclusive is
// (All, All), shared (1, All), n permits of k are (n, k). It is granted if and only if no ticket is ahead of it and the
// weights of the holders plus its own stay within its own limit. Tickets are served strictly first come, first served:
// nothing overtakes the head, so writers and large requests do not starve behind small ones.
package arbiter

import (
	"fmt"
	"slices"

	"github.com/holdfastdb/holdfast/driver"
)

// Outcome says what became of a request.
type Outcome uint8

// The outcomes of a request. Whether a queued one was granted in the same change is known once Change was called.
const (
	Refused Outcome = iota // something is ahead of it or it does not fit; the record is unchanged
	Granted                // it holds
	Queued                 // its ticket stands in the queue
	Full                   // the record has no room for another entry; it is unchanged
	Present                // its lease id stands in the record already; it is unchanged
)

// Draft is a record being changed. It is judged folded: the operations in its inbox are applied first. The zero value
// is not usable; a Draft is not safe for concurrent use.
type Draft struct {
	rec     driver.Record // as loaded
	now     driver.Micros // low estimate of the database's clock
	base    driver.Micros // revision of the change, if nothing is granted
	next    driver.Micros // token of the next grant
	holders []driver.Entry
	tickets []driver.Entry
	sum     int64                  // weights of holders; 4,096 times All does not fit in 32 bits
	ids     map[driver.ID]struct{} // of all entries; nil until asked for, and after a removal
	note    *driver.Note
	changed bool
}

// Begin opens a draft of rec with its inbox folded. now is the low estimate of the database's clock; floor is the
// revision the change must reach at least, so that requests with fences up to it can never apply; 0 for none. It fails
// if the inbox cannot be read: then nothing may be concluded from the record.
func Begin(rec driver.Record, now, floor driver.Micros) (*Draft, error) {
	ops, err := driver.DecodeOps(rec.Inbox)
	if err != nil {
		return nil, &driver.DamagedError{Name: rec.Name, Err: err}
	}
	d := &Draft{rec: rec, now: now, base: max(rec.Revision+1, now, floor)}
	d.next = d.base
	d.holders = append(d.holders, rec.Holders...)
	d.tickets = append(d.tickets, rec.Tickets...)
	for _, e := range d.holders {
		d.sum += e.Weight
	}
	for _, op := range ops {
		d.changed = true // the inbox empties, whatever the operation does
		switch op.Kind {
		case driver.OpEnqueue:
			d.Request(op.Entry)
		case driver.OpDrop:
			d.Drop(op.Lease, op.Cancel)
		}
	}
	return d, nil
}

// Check reports in one sentence why a request can never be granted, or nil. An ungrantable head would block its name
// for ever.
func Check(weight, limit int64) error {
	switch {
	case weight < 1:
		return fmt.Errorf("a weight of %d is below 1", weight)
	case limit > driver.All:
		return fmt.Errorf("a limit of %d is above the most, %d", limit, driver.All)
	case weight > limit:
		return fmt.Errorf("%d permits of %d can never be granted", weight, limit)
	}
	return nil
}

// Request queues e behind every ticket. It is granted in the same change if its turn comes at once.
func (d *Draft) Request(e driver.Entry) Outcome {
	if d.has(e.Lease) {
		return Present
	}
	if Check(e.Weight, e.Limit) != nil {
		return Refused
	}
	d.grant()
	if len(d.tickets) >= driver.MaxTickets {
		return Full
	}
	e.Rev, e.Broken = d.base, false
	d.tickets, d.ids[e.Lease] = append(d.tickets, e), struct{}{}
	d.changed = true
	if d.grant(); len(d.tickets) == 0 || d.tickets[len(d.tickets)-1].Lease != e.Lease {
		return Granted
	}
	return Queued
}

// Try grants e now or changes nothing.
func (d *Draft) Try(e driver.Entry) Outcome {
	if d.has(e.Lease) {
		return Present
	}
	d.grant()
	switch {
	case Check(e.Weight, e.Limit) != nil, len(d.tickets) > 0, d.sum+e.Weight > e.Limit:
		return Refused
	case len(d.holders) >= driver.MaxHolders:
		return Full
	}
	d.tickets, d.ids[e.Lease] = append(d.tickets, e), struct{}{}
	d.grant()
	return Granted
}

// Drop takes the lease out, be it a holder or a ticket: release and cancel are one operation. A holder whose MinHold is
// not over stays, session-less, until it is; cancel says that nobody was ever told of the grant, so that MinHold does
// not apply. A lease that is not there changes nothing, and a repeated Drop gives the same record.
func (d *Draft) Drop(lease driver.ID, cancel bool) { d.DropAll(map[driver.ID]bool{lease: cancel}) }

// DropAll is Drop of every lease in the map, whose values say cancel, in one pass.
func (d *Draft) DropAll(leases map[driver.ID]bool) {
	if len(leases) == 0 {
		return
	}
	var holders, tickets []driver.Entry
	changed := false
	for _, e := range d.tickets {
		if _, drop := leases[e.Lease]; drop {
			changed = true
			continue
		}
		tickets = append(tickets, e)
	}
	for _, e := range d.holders {
		if cancel, drop := leases[e.Lease]; drop {
			kept, stays := remains(e, d.now)
			if cancel || !stays {
				d.sum -= e.Weight
				changed = true
				continue
			}
			changed = changed || kept != e
			e = kept
		}
		holders = append(holders, e)
	}
	if changed {
		d.holders, d.tickets, d.ids, d.changed = holders, tickets, nil, true
	}
}

// remains returns what is left of a holder that ends at now: nothing, or a session-less entry until its MinHold is over.
func remains(e driver.Entry, now driver.Micros) (kept driver.Entry, stays bool) {
	if keep := e.Keep(); keep == 0 || keep <= now {
		return driver.Entry{}, false
	}
	e.Session, e.Broken = driver.ID{}, false
	if e.MaxHold == 0 || e.MaxHold > e.MinHold {
		e.MaxHold = e.MinHold
	}
	return e, true
}

// replace puts e in the place of holder i. Like a removal it makes a new slice, so that what Holders, Tickets and Change
// returned before stays as it was.
func (d *Draft) replace(i int, e driver.Entry) {
	d.holders = slices.Clone(d.holders)
	d.holders[i] = e
	d.changed = true
}

// Evict takes out what has ended: holders and tickets of dead sessions, and holders whose until is past. A dead holder's
// MinHold is respected, unless this very draft granted it and so nobody was told. judged is the instant by which until
// and MinHold are judged over: the low estimate of the database's clock, or an earlier one if the clock is in doubt; 0
// judges none over.
func (d *Draft) Evict(dead func(session driver.ID) bool, judged driver.Micros) {
	var holders, tickets []driver.Entry
	changed := false
	for _, e := range d.holders {
		until := e.Until()
		switch {
		case until > 0 && until <= judged:
			d.sum -= e.Weight
			changed = true
			continue
		case !e.Session.IsZero() && dead(e.Session):
			changed = true
			kept, stays := remains(e, judged)
			if !stays || e.Rev >= d.base {
				d.sum -= e.Weight
				continue
			}
			e = kept
		}
		holders = append(holders, e)
	}
	for _, e := range d.tickets {
		if dead(e.Session) {
			changed = true
			continue
		}
		tickets = append(tickets, e)
	}
	if changed {
		d.holders, d.tickets, d.ids, d.changed = holders, tickets, nil, true
	}
}

// MarkBroken asks the holder of lease to give way; the entry stays. It reports whether it is there.
func (d *Draft) MarkBroken(lease driver.ID) bool {
	d.grant()
	for i, e := range d.holders {
		if e.Lease == lease {
			if !e.Broken {
				e.Broken = true
				d.replace(i, e)
			}
			return true
		}
	}
	return false
}

// SetNote sets the note in the name of lease, if that holds, and reports whether it does.
func (d *Draft) SetNote(lease driver.ID, data []byte) bool {
	d.grant()
	for _, e := range d.holders {
		if e.Lease == lease && !e.Session.IsZero() {
			d.note = &driver.Note{Data: data, Token: e.Rev}
			d.changed = true
			return true
		}
	}
	return false
}

// grant serves tickets from the head until one does not fit. The i-th grant of a change gets token base + i.
func (d *Draft) grant() {
	for len(d.tickets) > 0 && len(d.holders) < driver.MaxHolders {
		e := d.tickets[0]
		if d.sum+e.Weight > e.Limit {
			return
		}
		e.Rev, e.Broken = d.next, false
		d.next++
		d.sum += e.Weight
		d.tickets = d.tickets[1:]
		d.holders = append(d.holders, e)
		d.changed = true
	}
}

func (d *Draft) has(lease driver.ID) bool {
	if d.ids == nil {
		d.ids = make(map[driver.ID]struct{}, len(d.holders)+len(d.tickets))
		for _, list := range [][]driver.Entry{d.holders, d.tickets} {
			for _, e := range list {
				d.ids[e.Lease] = struct{}{}
			}
		}
	}
	_, there := d.ids[lease]
	return there
}

// Raise makes the change reach at least floor even if nothing else changes.
func (d *Draft) Raise() { d.changed = true }

// Holders returns who holds, grants of this draft included. The caller must not change it.
func (d *Draft) Holders() []driver.Entry { d.grant(); return d.holders }

// Tickets returns who waits, the head first. The caller must not change it.
func (d *Draft) Tickets() []driver.Entry { d.grant(); return d.tickets }

// Granted returns the grants of this draft in the order of their tokens.
func (d *Draft) Granted() []driver.Entry {
	d.grant()
	var granted []driver.Entry
	for _, e := range d.holders {
		if e.Rev >= d.base { // every older token is at most the old revision
			granted = append(granted, e)
		}
	}
	return granted
}

// Changed reports whether the record folded, evicted, granted and otherwise drafted differs from the one stored.
func (d *Draft) Changed() bool { d.grant(); return d.changed }

// Change returns the whole new state for Swap. Its revision is the last token granted, or the base of the change.
func (d *Draft) Change() driver.Change {
	d.grant()
	return driver.Change{
		Name: d.rec.Name, Old: d.rec.Revision, New: max(d.base, d.next-1),
		Holders: d.holders, Tickets: d.tickets, Note: d.note,
	}
}
