package holdfast

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	"github.com/holdfastdb/holdfast/driver"
)

// waiter is one call that wants a lease.
type waiter struct {
	req    *request
	ctx    context.Context         // the caller's
	inner  context.Context         // of the lease to be
	end    context.CancelCauseFunc // ends inner
	parent *Lease                  // the lease the caller's context comes from
	seq    uint64                  // order of arrival in this process
	since  instant
	ready  chan struct{} // closed when lease or err is set

	// guarded by the client's mutex
	cell   *cell // nil while its session is lost
	id     driver.ID
	sent   bool          // a request that may add its id was sent
	seen   bool          // a record showed its id
	seed   driver.Micros // the highest seed of its Grabs
	seedAt instant       // when the first of them was made
	told   bool          // the event Waiting was called
	done   bool          // it has a lease or an error, or its caller left
	lease  *Lease
	err    error
}

// acquire is every verb that takes a lease.
func (c *Client) acquire(ctx context.Context, verb string, r *request) (*Lease, error) {
	lease, err := c.await(ctx, r)
	if err == nil {
		return lease, nil
	}
	var held *HeldError
	if errors.As(err, &held) {
		return nil, held
	}
	return nil, fmt.Errorf("holdfast: %s %q: %w", verb, r.name, err)
}

func (c *Client) await(ctx context.Context, r *request) (*Lease, error) {
	if err := c.usable(); err != nil {
		return nil, err
	}
	if err := r.check(c.ttl); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	parent, _ := ctx.Value(leaseKey{}).(*Lease)
	for l := parent; l != nil; l = l.parent {
		if sameStore(l.cell.s.c.store, c.store) && l.cell.name == r.stored && l.over.Load() == nil {
			return nil, ErrReentrant
		}
	}
	w := &waiter{req: r, ctx: ctx, parent: parent, since: c.clock.now(), ready: make(chan struct{})}
	if r.inherit {
		w.inner, w.end = context.WithCancelCause(ctx)
	} else {
		w.inner, w.end = context.WithCancelCause(context.WithoutCancel(ctx))
	}
	if err := c.enter(ctx, w); err != nil {
		w.end(err)
		return nil, err
	}
	select {
	case <-w.ready:
	case <-ctx.Done():
		if err := c.abandon(w, ctx.Err()); err != nil {
			return nil, err
		}
	}
	if w.err != nil {
		w.end(w.err)
		return nil, w.err
	}
	return w.lease, nil
}

func sameStore(a, b driver.Store) bool {
	return reflect.ValueOf(a).Comparable() && a == b
}

// enter hands the waiter to the cell of its name in the current session.
func (c *Client) enter(ctx context.Context, w *waiter) error {
	for {
		s, err := c.joined(ctx)
		c.mu.Lock()
		switch {
		case c.closed:
			c.mu.Unlock()
			return ErrClosed
		case err != nil && (w.req.try || !c.est.valid || ctx.Err() != nil || c.hopeless(err)):
			c.mu.Unlock()
			return err
		case err != nil: // there was a session before: wait for the next one
			c.arrived++
			w.seq = c.arrived
			c.orphans = append(c.orphans, w)
			c.rehome()
			c.mu.Unlock()
			return nil
		case s.over != nil:
			c.mu.Unlock()
			continue
		}
		c.arrived++
		w.seq = c.arrived
		s.cell(w.req.stored).arrive(w)
		c.mu.Unlock()
		return nil
	}
}

// abandon takes back what a caller whose context ended has under way: the caller gets its error at once, the ticket or
// the grant goes in the background. It returns nil if the call had failed by itself before.
func (c *Client) abandon(w *waiter, why error) error {
	c.mu.Lock()
	defer c.tell()
	defer c.mu.Unlock()
	if w.err != nil {
		return nil
	}
	err := why
	if w.cell != nil {
		if w.cell.lastErr != nil {
			err = fmt.Errorf("%w (the database's last error: %w)", why, w.cell.lastErr)
		}
		w.cell.withdraw(w, why)
	} else {
		c.orphans = without(c.orphans, w)
		w.finish(nil, why)
		w.end(why)
	}
	return err
}

// finish ends the wait with a lease or an error. Called with the client's mutex held.
func (w *waiter) finish(l *Lease, err error) {
	if w.done {
		return
	}
	w.lease, w.err, w.done = l, err, true
	close(w.ready)
}

// without returns list without x, in order.
func without[T comparable](list []T, x T) []T {
	for i := range list {
		if list[i] == x && len(list) == 1 {
			return nil // and nothing keeps x reachable
		} else if list[i] == x {
			return append(list[:i:i], list[i+1:]...)
		}
	}
	return list
}
