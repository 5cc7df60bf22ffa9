package holdfast

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/holdfastdb/holdfast/driver"
	"github.com/holdfastdb/holdfast/internal/arbiter"
)

// BreakOptions say whom to break and how.
type BreakOptions struct {
	Lease driver.ID     // only this lease; zero: every holder of the name
	Wait  time.Duration // how long to wait for the holders to give way; 0: two of the longest TTL among them; negative: not at all
	Force bool          // remove the entries at once, without waiting for anybody
}

// Break asks the holders of a name to give way, and waits until they have. A holder's context ends with cause ErrBroken;
// its entry goes when it releases, at the latest a TTL later, and nobody else is granted before. Break returns the
// holders that are gone; if some are not when the wait is over, or ctx ends, it returns those that are, beside an error
// (ErrHeld if the wait is over). A name that nobody holds is no error. opts may be nil.
//
// With Force the entries are removed at once, and the next in the queue is granted although the old holder may still be
// at work: that is unsafe unless all the work is done in guarded transactions or checks the token.
func (c *Client) Break(ctx context.Context, name string, opts *BreakOptions) (gone []Holder, err error) {
	var o BreakOptions
	if opts != nil {
		o = *opts
	}
	r := c.request(name, driver.All, driver.All, nil)
	if err = c.usable(); err == nil {
		err = badName(r.stored)
	}
	if err == nil {
		_, err = c.joined(ctx)
	}
	var asked []Holder
	if err == nil {
		limit, cancel := context.WithTimeout(ctx, max(o.Wait, c.ttl/3)) // marking alone does not take longer
		asked, err = c.mark(limit, r.stored, o)
		cancel()
	}
	if err == nil && o.Force {
		return asked, nil
	}
	if err == nil && o.Wait == 0 {
		o.Wait, err = c.twoTTLs(ctx, asked)
	}
	if err == nil {
		gone, err = c.awaitBroken(ctx, r.stored, asked, o.Wait)
	}
	if err != nil {
		return gone, fmt.Errorf("holdfast: break %q: %w", name, err)
	}
	return gone, nil
}

// twoTTLs is how long a holder may take: it hears of the break at its next beat, and has a TTL from there.
func (c *Client) twoTTLs(ctx context.Context, holders []Holder) (time.Duration, error) {
	var ids []driver.ID
	for _, h := range holders {
		ids = append(ids, h.Session)
	}
	rows, err := c.rows(ctx, ids)
	longest := c.ttl
	for _, row := range rows {
		longest = max(longest, row.TTL)
	}
	return 2 * longest, err
}

// mark marks the entries broken, or removes them, in one change, and gives their sessions notice.
func (c *Client) mark(ctx context.Context, stored string, o BreakOptions) ([]Holder, error) {
	for losses := 0; ; losses++ {
		rec, err := c.loadOne(ctx, stored)
		if err != nil {
			return nil, err
		}
		view, err := c.view(ctx, rec)
		if err != nil {
			return nil, err
		}
		asked := slices.DeleteFunc(view.Holders, func(h Holder) bool { return !o.Lease.IsZero() && h.Lease != o.Lease })
		if len(asked) == 0 {
			return nil, nil
		}
		c.mu.Lock()
		d, err := arbiter.Begin(rec, c.est.low(c.clock.now()), 0)
		c.mu.Unlock()
		if err != nil {
			return nil, err
		}
		for _, h := range asked {
			if o.Force {
				d.Drop(h.Lease, true)
			} else {
				d.MarkBroken(h.Lease)
			}
		}
		done := !d.Changed() // marked before
		if !done {
			call, cancel := c.call(ctx)
			var answer []bool
			answer, err = c.store.Swap(call, []driver.Change{d.Change()})
			cancel()
			done = len(answer) == 1 && answer[0]
		}
		if err != nil && c.unknown(err) {
			return nil, errors.Join(err, c.giveNotice(ctx, asked)) // it may be marked
		}
		if done {
			return asked, c.giveNotice(ctx, asked)
		}
		if ctx.Err() != nil || err != nil && c.hopeless(err) {
			return nil, cmp.Or(err, ctx.Err())
		}
		c.mu.Lock()
		pause := c.jitter(time.Duration(min(losses+1, 50)) * 200 * time.Microsecond)
		c.mu.Unlock()
		c.sleep(ctx, pause)
	}
}

func (c *Client) giveNotice(ctx context.Context, holders []Holder) error {
	told := map[driver.ID]bool{{}: true}
	for _, h := range holders {
		if told[h.Session] {
			continue
		}
		told[h.Session] = true
		call, cancel := c.call(ctx)
		err := c.store.Notify(call, h.Session)
		cancel()
		if err != nil {
			return err
		}
	}
	return nil
}

// awaitBroken looks until none of the entries is there any more. Dead holders are taken out by whoever waits for the
// name, and here.
func (c *Client) awaitBroken(ctx context.Context, stored string, asked []Holder, wait time.Duration) (gone []Holder, err error) {
	limit := c.clock.now().add(wait)
	left := asked
	for interval := 5 * time.Millisecond; len(left) > 0; interval = min(2*interval, 250*time.Millisecond) {
		rec, err := c.loadOne(ctx, stored)
		if err != nil {
			return gone, err
		}
		there := index(rec.Holders)
		still := left[:0:0]
		for _, h := range left {
			if _, holds := there[h.Lease]; holds {
				still = append(still, h)
			} else {
				gone = append(gone, h)
			}
		}
		left = still
		if len(left) == 0 {
			break
		}
		if c.clock.now() >= limit {
			return gone, fmt.Errorf("%w: %d of its holders did not give way in %v", ErrHeld, len(left), max(wait, 0))
		}
		if err := c.sweep(ctx, []driver.Record{rec}); err != nil {
			return gone, err
		}
		c.sleep(ctx, interval)
		if ctx.Err() != nil {
			return gone, ctx.Err()
		}
	}
	return gone, nil
}
