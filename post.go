package holdfast

import (
	"context"
	"math"
	"slices"

	"github.com/holdfastdb/holdfast/driver"
)

// Posting: compare-and-set alone starves a client whose round trips are longer than those of its rivals. An enqueue
// that lost three of them, a drop that lost one, is appended to the inbox of the record, where the next change of
// anybody applies it.
const (
	enqueueLosses = 3
	dropLosses    = 1
)

// toPost returns the operations to post instead of swapping, nil if it is to be swapped: drops, and the next waiters. At
// most one post of this cell is unfolded at a time; a record that shows one is swapped, so that it gets folded.
func (cl *cell) toPost(taken []*waiter) []driver.Op {
	enqueues := len(taken) > 0
	for _, w := range cl.placed {
		enqueues = enqueues || !w.seen
	}
	if cl.rec.Free() || len(cl.rec.Inbox) > driver.MaxInboxBytes/2 || cl.fence > cl.rec.Revision || cl.posted() {
		return nil
	}
	if !(enqueues && cl.losses >= enqueueLosses) && !(len(cl.drops) > 0 && cl.losses >= dropLosses) {
		return nil
	}
	var ops []driver.Op
	for _, d := range cl.drops {
		ops = append(ops, driver.Op{Kind: driver.OpDrop, Lease: d.id, Cancel: d.cancel})
	}
	for _, w := range cl.placed {
		if !w.seen {
			ops = append(ops, driver.Op{Kind: driver.OpEnqueue, Entry: w.req.entry(w.id, cl.s.id)})
		}
	}
	for _, w := range taken[:min(len(taken), maxQueued)] {
		ops = append(ops, driver.Op{Kind: driver.OpEnqueue, Entry: w.req.entry(w.id, cl.s.id)})
	}
	return ops
}

// posted reports whether an operation of this cell stands in the inbox.
func (cl *cell) posted() bool {
	ops, err := driver.DecodeOps(cl.rec.Inbox)
	if err != nil {
		return true
	}
	ids := cl.ids()
	for _, op := range ops {
		_, dropped := ids[op.Lease]
		if dropped || op.Entry.Session == cl.s.id {
			return true
		}
	}
	return false
}

// post appends to the inbox. An operation is not done when Post answers: the cell goes on looking and swapping until a
// record without it proves it folded. The fence bounds how late the post can apply.
func (cl *cell) post(ops []driver.Op, taken []*waiter) func() {
	s, c := cl.s, cl.s.c
	before := max(c.est.high(c.clock.now())+(c.ttl/3).Microseconds(), cl.rec.Revision+1024)
	if c.mutant.noPostFence {
		before = math.MaxInt64
	}
	for _, w := range slices.Concat(cl.placed, taken[:min(len(taken), maxQueued)]) {
		cl.place(w)
	}
	gate := c.gate
	if len(cl.drops) > 0 {
		gate = c.urgent
	}
	return func() {
		s.limited(gate, func(ctx context.Context) {
			posted, err := c.store.Post(ctx, cl.name, driver.EncodeOps(ops), before)
			s.answered(func() {
				switch {
				case err != nil:
					if !c.mutant.noPostFence {
						cl.fenced(err, before)
					}
					cl.failed(err)
				case posted:
					cl.losses = 0
					if c.repeats {
						cl.fence = max(cl.fence, before)
					}
				default:
					cl.lost()
				}
				cl.lookAgain()
			})
		})
	}
}
