package holdfast

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/holdfastdb/holdfast/driver"
	"github.com/holdfastdb/holdfast/internal/arbiter"
)

const (
	day          = 24 * time.Hour
	janitorEvery = time.Hour
)

// janitor cleans up, about every hour, what processes that died left under names nobody asks for any more.
func (s *session) janitor() {
	c := s.c
	for {
		c.mu.Lock()
		pause := c.jitter(janitorEvery)
		c.mu.Unlock()
		c.sleep(s.ctx, pause)
		if s.ctx.Err() != nil {
			return
		}
		if err := c.clean(s.ctx); err != nil {
			c.log.Warn("clean-up failed; it is tried again in an hour", "error", err)
		}
	}
}

// clean takes dead entries out of up to 1,000 records that nobody has changed for a day, then deletes free records and
// dead sessions a day old.
func (c *Client) clean(ctx context.Context) error {
	c.mu.Lock()
	before := c.est.low(c.clock.now()) - day.Microseconds()
	inDoubt := c.clock.now().sub(c.watched) < c.ttl
	c.mu.Unlock()
	if inDoubt || before <= 0 {
		return nil
	}
	call, cancel := c.call(ctx)
	recs, err := c.store.List(call, driver.Query{Busy: true, Before: before, Max: driver.PageSize})
	cancel()
	if err != nil && damagedNames(err) == nil {
		return err
	}
	if err := c.sweep(ctx, recs); err != nil {
		return err
	}
	call, cancel = c.call(ctx)
	defer cancel()
	_, err = c.store.Prune(call, driver.Pruning{Before: before, Silent: day, Max: driver.MaxBatch})
	return err
}

// sweep reaps the sessions that stand in the records, and swaps those that change by it. A lost race is nothing: who won
// has swept.
func (c *Client) sweep(ctx context.Context, recs []driver.Record) error {
	for batch := range slices.Chunk(recs, driver.MaxBatch) {
		if err := c.learnFates(ctx, batch); err != nil {
			return err
		}
		var changes []driver.Change
		c.mu.Lock()
		now := c.clock.now()
		for _, rec := range batch {
			d, err := arbiter.Begin(rec, c.est.low(now), 0)
			if err != nil {
				c.note(slog.LevelError, "a record is damaged", "name", rec.Name, "error", err)
				continue
			}
			d.Evict(c.deadIn(rec, now), c.judged(rec, now))
			if d.Changed() {
				changes = append(changes, d.Change())
			}
		}
		c.mu.Unlock()
		if len(changes) == 0 {
			continue
		}
		call, cancel := c.call(ctx)
		_, err := c.store.Swap(call, changes)
		cancel()
		if err != nil {
			return err
		}
	}
	return nil
}

// learnFates asks for the fates of the sessions in the records that are unknown or have run out.
func (c *Client) learnFates(ctx context.Context, recs []driver.Record) error {
	c.mu.Lock()
	now := c.clock.now()
	self := driver.ID{}
	if c.session != nil {
		self = c.session.id
	}
	var ids []driver.ID
	asked := map[driver.ID]bool{{}: true, self: true}
	for _, rec := range recs {
		for _, e := range slices.Concat(rec.Holders, rec.Tickets) {
			f := c.fates[e.Session]
			if !asked[e.Session] && (f == nil || !f.dead && now >= f.until) {
				ids = append(ids, e.Session)
			}
			asked[e.Session] = true
		}
	}
	c.mu.Unlock()
	for few := range slices.Chunk(ids, driver.MaxBatch/2) {
		call, cancel := c.call(ctx)
		err := c.reap(call, few, nil)
		cancel()
		if err != nil {
			return err
		}
	}
	return nil
}
