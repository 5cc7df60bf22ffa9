package holdfast

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/holdfastdb/holdfast/driver"
	"github.com/holdfastdb/holdfast/internal/arbiter"
)

// errPending says that a release was not confirmed within its time limit. It goes on in the background.
var errPending = errors.New("not confirmed in time; it goes on in the background, and ends with the session at the latest")

// release gives the entry back and waits until a record proves it gone. ctx bounds nothing.
func (l *Lease) release(ctx context.Context) error {
	l.look()
	s := l.cell.s
	c := s.c
	c.mu.Lock()
	if l.guards > 0 {
		c.mu.Unlock()
		return ErrGuarded
	}
	if l.finish(ErrReleased) {
		l.cell.emitReleased(l)
	}
	why := *l.over.Load()
	if s.over == nil && l.drop == nil && slices.Contains(l.cell.leases, l) {
		l.cell.giveBack(l, false)
	}
	drop, over := l.drop, s.ctx.Done()
	c.mu.Unlock()
	c.tell()
	if errors.Is(why, ErrReleased) {
		why = nil
	}
	if drop == nil {
		return why
	}
	limit := time.NewTimer(c.ttl)
	defer limit.Stop()
	select {
	case <-drop.done:
		return why
	case <-over:
	case <-limit.C:
		if why == nil {
			why = errPending
		}
		return why
	}
	select {
	case <-drop.done: // both were ready
		return why
	default:
	}
	if why == nil {
		why = context.Cause(s.ctx)
	}
	return why
}

func (l *Lease) setNote(ctx context.Context, data []byte) error {
	if err := l.Err(); err != nil {
		return err
	}
	s := l.cell.s
	c := s.c
	n := &noteWrite{lease: l, data: slices.Clone(data), done: make(chan struct{})}
	c.mu.Lock()
	switch over := l.over.Load(); {
	case over != nil:
		c.mu.Unlock()
		return *over
	case l.guards > 0:
		c.mu.Unlock()
		return ErrGuarded
	}
	l.cell.notes = append(l.cell.notes, n)
	l.cell.kick()
	c.mu.Unlock()
	select {
	case <-n.done:
		return n.err
	case <-ctx.Done():
		c.mu.Lock()
		l.cell.notes = without(l.cell.notes, n)
		c.mu.Unlock()
		return ctx.Err()
	}
}

// shut is Close.
func (c *Client) shut(ctx context.Context) error {
	c.mu.Lock()
	first := !c.closed
	c.closed = true
	s := c.session
	if first {
		for _, w := range c.orphans {
			w.finish(nil, ErrClosed)
		}
		c.orphans = nil
		if s != nil && s.over == nil {
			s.giveUpAll()
		}
	}
	c.mu.Unlock()
	if first {
		if s != nil {
			s.releaseAll(ctx)
			c.mu.Lock()
			live := s.over == nil
			if live {
				s.end(ErrClosed)
			}
			c.mu.Unlock()
			if live {
				s.leave()
			}
		}
		c.cancel(ErrClosed)
	}
	if !first {
		<-c.shutdown
		return nil
	}
	c.wg.Wait()
	c.drain()
	close(c.shutdown)
	return nil
}

// giveUpAll fails every waiting call and starts the release of every lease. Called with the client's mutex held.
func (s *session) giveUpAll() {
	for _, cl := range s.cellList() {
		busy := cl.running
		cl.running = true // no engine for now: releaseAll goes first, in batches
		for _, w := range slices.Concat(cl.placed, cl.local, cl.tries) {
			cl.giveUp(w, ErrClosed)
		}
		for _, l := range slices.Clone(cl.leases) {
			if l.finish(ErrReleased) {
				cl.emitReleased(l)
			}
			cl.giveBack(l, false)
		}
		cl.running = busy
	}
}

// releaseAll removes what has to be removed: known records in batches, those with tickets first, the rest by the
// engines of the cells. It takes a third of the TTL at most.
func (s *session) releaseAll(ctx context.Context) {
	c := s.c
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.ttl/3)
	defer cancel()
	c.mu.Lock()
	var cells []*cell
	var drops []*drop
	for _, cl := range s.cellList() {
		drops = append(drops, cl.drops...)
		if !cl.running && cl.known && cl.rec.Revision > 0 && len(cl.drops) > 0 {
			cl.running = true
			cells = append(cells, cl)
		} else {
			cl.kick()
		}
	}
	c.mu.Unlock()
	slices.SortStableFunc(cells, func(a, b *cell) int { return len(b.rec.Tickets) - len(a.rec.Tickets) })
	for batch := range slices.Chunk(cells, driver.MaxBatch) {
		if ctx.Err() == nil {
			s.releaseBatch(ctx, batch)
		}
	}
	c.mu.Lock()
	for _, cl := range cells { // not before: they would stand in the way of the batches
		cl.running = false
		cl.kick()
	}
	c.mu.Unlock()
	for _, d := range drops {
		select {
		case <-d.done:
		case <-ctx.Done():
			return
		case <-s.ctx.Done():
			return
		}
	}
}

func (s *session) releaseBatch(ctx context.Context, batch []*cell) {
	c := s.c
	c.mu.Lock()
	now := c.clock.now()
	var changes []driver.Change
	var stamps []uint64
	var swapped []*cell
	for _, cl := range batch {
		d, err := arbiter.Begin(cl.rec, c.est.low(now), max(cl.floor(), cl.soft))
		if err == nil {
			cl.tidy(d, now)
			change := d.Change()
			change.Urgent = true
			changes, stamps, swapped = append(changes, change), append(stamps, cl.stamp), append(swapped, cl)
		}
	}
	c.mu.Unlock()
	var done []bool
	var err error
	s.limited(c.urgent, func(call context.Context) {
		call, cancel := context.WithCancel(call)
		defer cancel()
		defer context.AfterFunc(ctx, cancel)()
		done, err = c.store.Swap(call, changes)
	})
	s.answered(func() {
		for i, cl := range swapped {
			switch change := changes[i]; {
			case i < len(done) && done[i]:
				cl.changed(driver.Record{Name: cl.name, Revision: change.New, Holders: change.Holders, Tickets: change.Tickets}, stamps[i])
			case err != nil:
				cl.fenced(err, change.Old+1)
				cl.lookAgain()
			default:
				cl.lookAgain()
			}
		}
	})
}
