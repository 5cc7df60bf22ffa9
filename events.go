package holdfast

import (
	"log/slog"
	"time"

	"github.com/holdfastdb/holdfast/internal/arbiter"
)

// Events are called as things happen to a client. Every field may be nil. They are called one at a time from
// goroutines of the client and must return quickly; no lock is held, and they may call the client's other methods
// except Close. None is called after Close has returned.
type Events struct {
	Granted  func(Grant)                               // a lease began
	Waiting  func(name string)                         // a call found the name taken and queued
	Refused  func(name string, err *HeldError)         // a Try call found the name taken
	HandOver func(name string, to string)              // a release of this client granted another client's ticket, of that label
	Lost     func(name string, token int64, err error) // a lease ended without release; err is ErrLost or ErrBroken
	Released func(name string, token int64, held time.Duration)
	Requeued func(name string)                                  // a waiting call queues again under a new lease id
	Beat     func(margin time.Duration)                         // the session was renewed with so much of its trust window left
	Held     func(name string, token int64, held time.Duration) // each minute that a lease is held
}

// Grant describes a lease that began.
type Grant struct {
	Name   string
	Token  int64
	Waited time.Duration
}

// event remembers to call f once no lock is held. Called with the client's mutex held.
func (c *Client) event(f func()) { c.events = append(c.events, f) }

// note logs once no lock is held. Called with the client's mutex held.
func (c *Client) note(level slog.Level, text string, args ...any) {
	c.event(func() { c.log.Log(c.base, level, text, args...) })
}

// tell calls the events remembered, in a goroutine of its own, one at a time and in order.
func (c *Client) tell() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.events) == 0 || c.telling || c.closed { // Close calls the last ones itself
		return
	}
	c.telling = true
	c.wg.Go(func() {
		c.drain()
		c.mu.Lock()
		c.telling = false
		c.mu.Unlock()
		c.tell()
	})
}

func (c *Client) drain() {
	for {
		c.mu.Lock()
		events := c.events
		c.events = nil
		c.mu.Unlock()
		if len(events) == 0 {
			return
		}
		for _, f := range events {
			f()
		}
	}
}

func (cl *cell) emitGranted(l *Lease, waited time.Duration) {
	if e := cl.s.c.opts.Events; e != nil && e.Granted != nil {
		g := Grant{Name: l.Name(), Token: l.token, Waited: waited}
		cl.s.c.event(func() { e.Granted(g) })
	}
}

func (cl *cell) emitWaiting(w *waiter) {
	if e := cl.s.c.opts.Events; e != nil && e.Waiting != nil && !w.told {
		w.told = true
		cl.s.c.event(func() { e.Waiting(w.req.name) })
	}
}

func (cl *cell) emitRefused(w *waiter, held *HeldError) {
	if e := cl.s.c.opts.Events; e != nil && e.Refused != nil {
		cl.s.c.event(func() { e.Refused(w.req.name, held) })
	}
}

func (cl *cell) emitRequeued(w *waiter) {
	if e := cl.s.c.opts.Events; e != nil && e.Requeued != nil {
		cl.s.c.event(func() { e.Requeued(w.req.name) })
	}
}

func (cl *cell) emitLost(l *Lease, why error) {
	cl.s.c.note(slog.LevelWarn, "lease lost", "name", l.Name(), "token", l.token, "error", why)
	if e := cl.s.c.opts.Events; e != nil && e.Lost != nil {
		cl.s.c.event(func() { e.Lost(l.Name(), l.token, why) })
	}
}

func (cl *cell) emitReleased(l *Lease) {
	if e := cl.s.c.opts.Events; e != nil && e.Released != nil {
		held := cl.s.c.clock.now().sub(l.since)
		cl.s.c.event(func() { e.Released(l.Name(), l.token, held) })
	}
}

// emitHandOvers tells of the tickets of other sessions that a release of this cell granted.
func (cl *cell) emitHandOvers(d *arbiter.Draft) {
	e := cl.s.c.opts.Events
	if e == nil || e.HandOver == nil || len(cl.drops) == 0 {
		return
	}
	for _, g := range d.Granted() {
		if g.Session != cl.s.id {
			name, to := cl.plain(), g.Label
			cl.s.c.event(func() { e.HandOver(name, to) })
		}
	}
}

// tellHeld calls Held for every lease held for a minute or more. Called with the client's mutex held.
func (s *session) tellHeld(now instant) {
	e := s.c.opts.Events
	if e == nil || e.Held == nil {
		return
	}
	for _, cl := range s.cellList() {
		for _, l := range cl.leases {
			if held := now.sub(l.since); held >= time.Minute && l.over.Load() == nil {
				s.c.event(func() { e.Held(l.Name(), l.token, held) })
			}
		}
	}
}
