package holdfast

import (
	"context"
	"slices"
	"time"

	"github.com/holdfastdb/holdfast/driver"
)

// maxFates bounds what a client remembers of other sessions.
const maxFates = 8192

// fate is what is known of another session. Dead is for ever; alive is good until the session may be reaped.
type fate struct {
	dead    bool
	missing bool            // no row: says nothing, unless the entry is a day old
	until   instant         // ask no more before
	ttl     time.Duration   // of the session, if it was alive; 0: not known
	row     *driver.Session // its immutable fields, once read
	gone    bool            // its process, on this machine, is proven to be gone
}

// unknownFates returns the sessions in the record whose fate has to be asked for: those unknown or run out, and those
// whose process is proven to be gone. Called with the client's mutex held.
func (cl *cell) unknownFates() (ids, certified []driver.ID) {
	c, now := cl.s.c, cl.s.c.clock.now()
	if len(cl.placed)+len(cl.local)+len(cl.tries) == 0 {
		return nil, nil
	}
	for _, id := range cl.sessions() {
		switch f := c.fates[id]; {
		case f == nil:
			ids = append(ids, id)
		case f.dead:
		case f.gone:
			certified = append(certified, id)
		case now >= f.until:
			ids = append(ids, id)
		}
	}
	return firstFew(ids), firstFew(certified)
}

func firstFew(ids []driver.ID) []driver.ID { return ids[:min(len(ids), driver.MaxBatch/2)] }

// sessions returns the other sessions in the record, inbox included, each once, in the order they stand.
func (cl *cell) sessions() []driver.ID {
	var ids []driver.ID
	seen := map[driver.ID]bool{{}: true, cl.s.id: true}
	add := func(e driver.Entry) {
		if !seen[e.Session] {
			seen[e.Session] = true
			ids = append(ids, e.Session)
		}
	}
	for _, e := range cl.rec.Holders {
		add(e)
	}
	for _, e := range cl.rec.Tickets {
		add(e)
	}
	ops, err := driver.DecodeOps(cl.rec.Inbox)
	if err != nil {
		return nil // observe has refused such a record
	}
	for _, op := range ops {
		if op.Kind == driver.OpEnqueue {
			add(op.Entry)
		}
	}
	return ids
}

func (cl *cell) reap(ids, certified []driver.ID) func() {
	s := cl.s
	return func() {
		s.limited(s.c.gate, func(ctx context.Context) {
			err := s.c.reap(ctx, ids, certified)
			s.answered(func() {
				if err != nil {
					cl.failed(err)
				}
			})
		})
	}
}

// reap asks the store for the fates of sessions and remembers them. On a store of one machine it first looks whether
// their processes are gone.
func (c *Client) reap(ctx context.Context, ids, certified []driver.ID) error {
	if c.processes {
		gone, err := c.identify(ctx, ids)
		if err != nil {
			return err
		}
		certified = append(certified, gone...)
		ids = slices.DeleteFunc(slices.Clone(ids), func(id driver.ID) bool { return slices.Contains(gone, id) })
	}
	c.mu.Lock()
	now := c.clock.now()
	care := driver.Caution{Known: max(1, now.sub(c.watched)), Stepped: c.stepped, Low: c.est.low(now)}
	c.mu.Unlock()
	fates, err := c.store.Reap(ctx, ids, certified, care)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	now = c.clock.now()
	for _, id := range slices.Concat(ids, certified) {
		f := c.fate(id)
		switch answer := fates[id]; answer.Kind {
		case driver.FateDead:
			f.dead, f.missing = true, false
		case driver.FateAlive:
			f.missing, f.gone, f.ttl, f.until = false, false, answer.TTL, now.add(answer.Left+time.Millisecond)
		default:
			f.missing, f.gone, f.until = true, false, now.add(c.ttl/3)
		}
	}
	return nil
}

// fate returns the memory of a session. Called with the client's mutex held.
func (c *Client) fate(id driver.ID) *fate {
	f := c.fates[id]
	if f == nil {
		if len(c.fates) >= maxFates {
			clear(c.fates)
		}
		f = &fate{}
		c.fates[id] = f
	}
	return f
}

// identify reads the rows of sessions not read yet, and returns those whose processes are gone.
func (c *Client) identify(ctx context.Context, ids []driver.ID) (gone []driver.ID, err error) {
	c.mu.Lock()
	unread := slices.DeleteFunc(slices.Clone(ids), func(id driver.ID) bool {
		f := c.fates[id]
		return f != nil && f.row != nil
	})
	c.mu.Unlock()
	rows, err := c.store.Sessions(ctx, unread)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	for i := range rows {
		c.fate(rows[i].ID).row = &rows[i]
	}
	c.mu.Unlock()
	return c.goneProcesses(ids), nil
}

// goneProcesses returns those of ids whose processes, of this machine, are proven to be gone.
func (c *Client) goneProcesses(ids []driver.ID) []driver.ID {
	rows := make([]*driver.Session, 0, len(ids))
	c.mu.Lock()
	for _, id := range ids {
		if f := c.fates[id]; f != nil && f.row != nil && !f.dead {
			rows = append(rows, f.row)
		}
	}
	c.mu.Unlock()
	var gone []driver.ID
	for _, row := range rows {
		if row.Local.Gone() {
			gone = append(gone, row.ID)
		}
	}
	return gone
}

// deadIn returns a function that tells which sessions of a record are dead. A missing row counts as dead only if the
// session's entry is a day old: rows outlive their sessions by a day. Called with the client's mutex held.
func (c *Client) deadIn(rec driver.Record, now instant) func(driver.ID) bool {
	dayAgo := c.est.low(now) - day.Microseconds()
	old := make(map[driver.ID]bool)
	for _, list := range [][]driver.Entry{rec.Holders, rec.Tickets} {
		for _, e := range list {
			old[e.Session] = old[e.Session] || e.Rev < dayAgo
		}
	}
	return func(id driver.ID) bool {
		f := c.fates[id]
		return f != nil && (f.dead || f.missing && (old[id] || c.mutant.missingIsDead))
	}
}

// judged is the instant of the database's clock by which until and MinHold of others in a record are judged over: the low
// estimate; a TTL earlier while the clock is known for less than that; none within a TTL of a step. The TTL is the
// longest of the holders that an until can mislead: they see the step at their own next beat. Called with the client's
// mutex held.
func (c *Client) judged(rec driver.Record, now instant) driver.Micros {
	ttl := c.ttl
	for _, e := range rec.Holders {
		if e.MaxHold > 0 && !e.Session.IsZero() {
			if f := c.fates[e.Session]; f != nil && f.ttl > 0 {
				ttl = max(ttl, f.ttl)
			} else if c.session == nil || e.Session != c.session.id {
				ttl = MaxTTL
			}
		}
	}
	switch known := now.sub(c.watched); {
	case known >= ttl:
		return c.est.low(now)
	case c.stepped:
		return 0
	default:
		return c.est.low(now) - ttl.Microseconds()
	}
}
