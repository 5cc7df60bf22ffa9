package holdfast

import (
	"fmt"

	"github.com/holdfastdb/holdfast/driver"
	"github.com/holdfastdb/holdfast/internal/arbiter"
)

// observe takes a record over as the newest one known, and draws every conclusion from it: which waiter holds, which
// lease is lost or broken, which id is gone for good. It is the only place that does. Own changes are recognised by
// lease ids, never by a revision.
func (cl *cell) observe(rec driver.Record, stamp uint64) {
	ops, err := driver.DecodeOps(rec.Inbox)
	if err != nil {
		cl.damaged(err)
		return
	}
	cl.gen++
	if cl.refused && rec.Revision == 0 {
		cl.lost() // refused by a record that is not there: not so fast
	}
	if rec.Revision == 0 || !rec.Free() {
		cl.refused = false
	}
	cl.rec, cl.known, cl.asOf = rec, true, max(cl.asOf, stamp)
	if rec.Revision >= cl.fence {
		cl.fence = 0
	}
	if rec.Revision >= cl.soft {
		cl.soft = 0
	}
	holders := index(rec.Holders)
	queued := index(rec.Tickets)
	for _, op := range ops {
		switch op.Kind {
		case driver.OpEnqueue:
			queued[op.Entry.Lease] = op.Entry
		case driver.OpDrop:
			queued[op.Lease] = driver.Entry{Lease: op.Lease} // not done before a record without the operation
		}
	}
	cl.observeLeases(holders)
	cl.observeDrops(holders, queued)
	cl.observeWaiters(holders, queued)
	ids := cl.ids()
	cl.stray = len(strays(rec.Holders, cl.s.id, ids))+len(strays(rec.Tickets, cl.s.id, ids)) > 0
}

func index(entries []driver.Entry) map[driver.ID]driver.Entry {
	m := make(map[driver.ID]driver.Entry, len(entries))
	for _, e := range entries {
		m[e.Lease] = e
	}
	return m
}

// observeLeases ends leases whose entries were removed, kept without their session, or broken.
func (cl *cell) observeLeases(holders map[driver.ID]driver.Entry) {
	kept := cl.leases[:0]
	for _, l := range cl.leases {
		e, there := holders[l.id]
		switch {
		case !there, e.Session.IsZero():
			cl.lose(l, fmt.Errorf("%w: its entry was removed", ErrLost))
			delete(cl.s.ended, l)
			continue
		case e.Broken:
			cl.lose(l, ErrBroken)
		}
		kept = append(kept, l)
	}
	clear(cl.leases[len(kept):])
	cl.leases = kept
}

// observeDrops settles the ids that are gone: the record is past every request that could bring them back, and past
// their own tokens, and shows them nowhere. A holder that stays session-less for its MinHold counts as gone.
func (cl *cell) observeDrops(holders, queued map[driver.ID]driver.Entry) {
	kept := cl.drops[:0]
	for _, d := range cl.drops {
		e, holds := holders[d.id]
		_, waits := queued[d.id]
		if waits || holds && !e.Session.IsZero() || cl.fence > 0 || cl.rec.Revision < d.token {
			kept = append(kept, d)
			continue
		}
		close(d.done)
	}
	clear(cl.drops[len(kept):])
	cl.drops = kept
}

// observeWaiters grants, and gives a new id to waiters whose old one was in a record and is nowhere now.
func (cl *cell) observeWaiters(holders, queued map[driver.ID]driver.Entry) {
	for _, list := range [][]*waiter{cl.placed, cl.tries} {
		for _, w := range append([]*waiter(nil), list...) {
			e, holds := holders[w.id]
			_, waits := queued[w.id]
			switch {
			case holds:
				cl.accept(w, e)
			case waits:
				w.seen = true
				cl.emitWaiting(w)
			case w.seen:
				cl.renew(w, 0)
			}
		}
	}
}

// accept makes a lease of a waiter's entry among the holders, unless the client may not believe in it any more.
func (cl *cell) accept(w *waiter, e driver.Entry) {
	s, c := cl.s, cl.s.c
	now := c.clock.now()
	switch {
	case !s.open(), s.doubtBy != 0:
		w.seen, cl.postponed = true, true // the end of the doubt, or of the session, comes back to it
		return
	case e.Session.IsZero(), e.Broken,
		w.seed > 0 && e.Rev <= w.seed && now.sub(w.seedAt) >= c.ttl,
		e.Until() > 0 && c.est.high(now)+c.margin.Microseconds() >= e.Until():
		cl.renew(w, e.Rev)
		return
	}
	cl.placed, cl.tries = without(cl.placed, w), without(cl.tries, w)
	l := newLease(cl, w, e)
	cl.leases = append(cl.leases, l)
	if l.until != 0 {
		s.timed[l] = struct{}{}
		signal(s.wake)
	}
	cl.emitGranted(l, now.sub(w.since))
	w.finish(l, nil)
}

// refuse ends a call that does not wait: the record, no older than the call, has no room for it.
func (cl *cell) refuse(w *waiter, d *arbiter.Draft, full bool) {
	cl.tries = without(cl.tries, w)
	if full {
		w.finish(nil, ErrFull)
		return
	}
	held := &HeldError{Name: w.req.name, Waiting: len(d.Tickets())}
	for _, e := range d.Holders() {
		held.Holders = append(held.Holders, cl.s.c.holder(e, cl.s.id))
	}
	if cl.rec.Note != nil {
		held.Note = append([]byte{}, cl.rec.Note.Data...)
	}
	cl.emitRefused(w, held)
	w.finish(nil, held)
}
