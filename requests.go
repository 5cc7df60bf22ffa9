package holdfast

import (
	"context"
	"errors"
	"slices"

	"github.com/holdfastdb/holdfast/driver"
	"github.com/holdfastdb/holdfast/internal/arbiter"
)

// This file has the store calls a cell makes. Each returns a function that makes the call without the client's mutex
// and takes the answer in under it; an answer for a session that has ended is ignored.

// limited makes one store call within its time limit, with a bound on how many run at once.
func (s *session) limited(gate chan struct{}, call func(context.Context)) {
	select {
	case gate <- struct{}{}:
	case <-s.ctx.Done():
		return
	}
	defer func() { <-gate }()
	ctx, cancel := s.c.call(s.ctx)
	defer cancel()
	call(ctx)
}

// answered runs take under the client's mutex unless the session has ended.
func (s *session) answered(take func()) {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	if s.over == nil {
		take()
	}
}

// unknown reports whether a failed write may still take effect.
func (c *Client) unknown(err error) bool {
	switch c.store.Classify(err) {
	case driver.FaultNotApplied, driver.FaultPermanent, driver.FaultDenied:
		return false
	default:
		return true
	}
}

// fenced takes in that a write of unknown outcome is under way: it can apply until the record has reached fence.
func (cl *cell) fenced(err error, fence driver.Micros) {
	if cl.s.c.unknown(err) && !cl.s.c.mutant.noSettling {
		cl.fence = max(cl.fence, fence)
	}
}

func (cl *cell) load() func() {
	s, gen, stamp := cl.s, cl.gen, cl.stamp
	known := driver.Known{Name: cl.name}
	if cl.known && cl.noteKnown {
		known.Revision = cl.rec.Revision
	}
	return func() {
		s.limited(s.c.gate, func(ctx context.Context) {
			recs, err := s.c.store.Load(ctx, []driver.Known{known})
			s.answered(func() { cl.loaded(look{known.Revision, gen, stamp}, recs, err) })
		})
	}
}

// look is what a cell knew when a Load was sent.
type look struct {
	known      driver.Micros
	gen, stamp uint64
}

// loaded takes in what a Load brought. An older Load never replaces a newer record, nor does it clear a demand to look
// again that came while it was in flight.
func (cl *cell) loaded(at look, recs []driver.Record, err error) {
	var damage *driver.DamagedError
	if errors.As(err, &damage) {
		cl.damaged(err)
		return
	}
	if err != nil {
		cl.failed(err)
		return
	}
	cl.failures, cl.lastErr, cl.fresh = 0, nil, true
	overtaken := cl.gen != at.gen && !cl.s.c.mutant.olderLoadWins
	switch {
	case len(recs) == 1 && (!overtaken || recs[0].Revision > cl.rec.Revision):
		cl.noteKnown = true
		cl.observe(recs[0], at.stamp)
	case overtaken:
	case len(recs) == 0 && at.known > 0:
		cl.asOf = max(cl.asOf, at.stamp)
		if cl.postponed {
			cl.postponed = false
			cl.observe(cl.rec, at.stamp)
		}
	default:
		cl.noteKnown = true
		cl.observe(driver.Record{Name: cl.name}, at.stamp)
	}
}

func (cl *cell) grab(w *waiter) func() {
	s, c, now := cl.s, cl.s.c, cl.s.c.clock.now()
	seed := max(c.est.high(now), cl.rec.Revision+1, cl.floor(), cl.soft)
	cl.place(w)
	if w.seed == 0 {
		w.seedAt = now
	}
	w.seed = max(w.seed, seed)
	entry := w.req.entry(w.id, s.id)
	stamp := cl.stamp
	return func() {
		s.limited(c.gate, func(ctx context.Context) {
			taken, err := c.store.Grab(ctx, []driver.Ask{{Name: cl.name, Seed: seed, Holder: entry}})
			s.answered(func() {
				switch {
				case len(taken) == 1 && taken[0]:
					entry.Rev = seed
					cl.noteKnown = false // the Grab left it
					cl.changed(driver.Record{Name: cl.name, Revision: seed, Holders: []driver.Entry{entry}}, stamp)
				case err != nil:
					cl.fenced(err, seed)
					cl.failed(err)
				default:
					cl.notTaken(seed)
				}
			})
		})
	}
}

// notTaken takes in that a Grab was refused. That alone never means that the name is held: look.
func (cl *cell) notTaken(seed driver.Micros) {
	cl.failures, cl.refused = 0, true
	if cl.s.c.repeats {
		cl.soft, cl.softAt = max(cl.soft, seed), cl.s.c.clock.now().add(cl.s.c.ttl/3)
		cl.s.waiting[cl] = struct{}{}
	}
	cl.lookAgain()
}

// grabTombstone creates an absent record at a revision that no request of unknown outcome can pass. Its holder is an id
// nobody waits for; the audit removes it in the next change.
func (cl *cell) grabTombstone() func() {
	s, c := cl.s, cl.s.c
	seed := max(c.est.high(c.clock.now()), cl.floor(), cl.soft)
	entry := driver.Entry{Lease: driver.NewID(), Session: s.id, Weight: driver.All, Limit: driver.All, Rev: seed}
	stamp := cl.stamp
	return func() {
		s.limited(c.urgent, func(ctx context.Context) {
			taken, err := c.store.Grab(ctx, []driver.Ask{{Name: cl.name, Seed: seed, Holder: entry}})
			s.answered(func() {
				switch {
				case len(taken) == 1 && taken[0]:
					cl.changed(driver.Record{Name: cl.name, Revision: seed, Holders: []driver.Entry{entry}}, stamp)
				case err != nil:
					cl.fenced(err, seed)
					cl.failed(err)
				default:
					cl.lookAgain()
				}
			})
		})
	}
}

// floor is the revision a record must have reached so that nothing this cell sent can still apply, and so that it can
// show that what is to be removed is gone; 0 if nothing is open.
func (cl *cell) floor() driver.Micros {
	floor := cl.fence
	for _, d := range cl.drops {
		floor = max(floor, d.token)
	}
	return floor
}

// changed takes in a record this cell has written.
func (cl *cell) changed(rec driver.Record, stamp uint64) {
	cl.losses, cl.failures, cl.lastErr, cl.refused = 0, 0, nil, false
	if rec.Revision > cl.rec.Revision || !cl.known {
		cl.observe(rec, stamp)
	}
}

// change applies the rules to the record known and swaps the result in, if it differs. If it does not, calls that do
// not wait are refused, those that wait are re-checked later.
func (cl *cell) change() func() {
	c, now := cl.s.c, cl.s.c.clock.now()
	d, err := arbiter.Begin(cl.rec, c.est.low(now), max(cl.floor(), cl.soft))
	if err != nil {
		cl.damaged(err)
		return nil
	}
	cl.tidy(d, now)
	note := cl.writeNote(d)
	taken, noRoom := cl.fill(d)
	tried := make([]arbiter.Outcome, len(cl.tries))
	for i, w := range cl.tries {
		tried[i] = d.Try(w.req.entry(w.id, cl.s.id))
	}
	if cl.floor() > cl.rec.Revision {
		d.Raise()
	}
	if cl.rec.Revision > 0 && d.Changed() {
		if ops := cl.toPost(taken); ops != nil {
			return cl.post(ops, taken)
		}
		return cl.swap(d, note, taken)
	}
	if cl.asOf < cl.stamp || len(cl.tries) > 0 && !cl.noteKnown {
		cl.lookAgain()
		return cl.load()
	}
	for i, w := range slices.Clone(cl.tries) {
		if tried[i] != arbiter.Present { // one that is there is a grant postponed in doubt
			cl.refuse(w, d, tried[i] == arbiter.Full)
		}
	}
	for _, w := range noRoom {
		cl.giveUp(w, ErrFull)
	}
	if len(cl.drops) > 0 || cl.fence > 0 {
		cl.observe(cl.rec, cl.asOf) // what came after the record was taken over is settled by it too
	}
	if len(noRoom) > 0 {
		return func() {} // the next one may fare better
	}
	cl.recheckLater(d)
	return nil
}

// tidy takes out of the draft what is over: dead sessions, ended holders, what this cell has to remove, and entries of
// this session that nobody here knows.
func (cl *cell) tidy(d *arbiter.Draft, now instant) {
	c := cl.s.c
	d.Evict(c.deadIn(cl.rec, now), c.judged(cl.rec, now))
	drops := make(map[driver.ID]bool, len(cl.drops))
	for _, x := range cl.drops {
		drops[x.id] = x.cancel
	}
	d.DropAll(drops)
	ids := cl.ids()
	lost := make(map[driver.ID]bool)
	for _, id := range slices.Concat(strays(d.Holders(), cl.s.id, ids), strays(d.Tickets(), cl.s.id, ids)) {
		lost[id] = true
	}
	d.DropAll(lost)
}

func strays(entries []driver.Entry, session driver.ID, ids map[driver.ID]struct{}) []driver.ID {
	var unknown []driver.ID
	for _, e := range entries {
		if _, known := ids[e.Lease]; !known && e.Session == session {
			unknown = append(unknown, e.Lease)
		}
	}
	return unknown
}

// ids returns every lease id this cell knows.
func (cl *cell) ids() map[driver.ID]struct{} {
	ids := make(map[driver.ID]struct{}, len(cl.placed)+len(cl.leases)+len(cl.drops)+len(cl.tries))
	for _, w := range cl.placed {
		ids[w.id] = struct{}{}
	}
	for _, w := range cl.tries {
		ids[w.id] = struct{}{}
	}
	for _, l := range cl.leases {
		ids[l.id] = struct{}{}
	}
	for _, x := range cl.drops {
		ids[x.id] = struct{}{}
	}
	return ids
}

// fill queues waiters until two tickets of this session stand in the queue, and returns those it took from the local
// list. Waiters whose request was sent before but shows nowhere are requested again. It also returns those for whom the
// record has no room; a local one is not among them while another of this cell is in the queue.
func (cl *cell) fill(d *arbiter.Draft) (taken, noRoom []*waiter) {
	for _, w := range cl.placed {
		if d.Request(w.req.entry(w.id, cl.s.id)) == arbiter.Full {
			noRoom = append(noRoom, w)
		}
	}
	queued := 0
	for _, e := range d.Tickets() {
		if e.Session == cl.s.id {
			queued++
		}
	}
	n := 0
	for ; n < len(cl.local) && queued < maxQueued; n++ {
		switch w := cl.local[n]; d.Request(w.req.entry(w.id, cl.s.id)) {
		case arbiter.Queued:
			queued++
		case arbiter.Granted, arbiter.Present:
		default:
			if len(cl.placed) == 0 && n == 0 {
				noRoom = append(noRoom, w)
			}
			return cl.local[:n:n], noRoom
		}
	}
	return cl.local[:n:n], noRoom
}

// writeNote puts the oldest note to be written into the draft.
func (cl *cell) writeNote(d *arbiter.Draft) *noteWrite {
	if len(cl.notes) == 0 {
		return nil
	}
	n := cl.notes[0]
	if !d.SetNote(n.lease.id, n.data) {
		cl.notes = cl.notes[1:]
		n.finish(ErrLost)
		return nil
	}
	return n
}

func (cl *cell) swap(d *arbiter.Draft, note *noteWrite, taken []*waiter) func() {
	s, c, stamp := cl.s, cl.s.c, cl.stamp
	change := d.Change()
	change.Urgent = len(cl.drops) > 0
	loadedFresh := cl.fresh
	cl.fresh = false
	for _, w := range slices.Concat(cl.placed, taken) {
		cl.place(w)
	}
	for _, w := range cl.tries {
		cl.place(w)
	}
	rec := driver.Record{Name: cl.name, Revision: change.New, Holders: change.Holders, Tickets: change.Tickets, Note: cl.rec.Note}
	if change.Note != nil {
		rec.Note = change.Note
	}
	gate := c.gate
	if change.Urgent {
		gate = c.urgent
	}
	return func() {
		s.limited(gate, func(ctx context.Context) {
			done, err := c.store.Swap(ctx, []driver.Change{change})
			s.answered(func() {
				switch {
				case len(done) == 1 && done[0]:
					if note != nil && len(cl.notes) > 0 && cl.notes[0] == note {
						cl.notes = cl.notes[1:]
						note.finish(nil)
					}
					cl.emitHandOvers(d)
					cl.changed(rec, stamp)
				case err != nil:
					cl.fenced(err, change.Old+1)
					cl.failed(err)
					cl.lookAgain()
				default:
					if loadedFresh {
						cl.lost()
					}
					cl.lookAgain()
				}
			})
		})
	}
}
