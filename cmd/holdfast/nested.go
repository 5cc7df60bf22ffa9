package main

import (
	"context"
	"fmt"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/driver"
)

// refuseNested refuses a wait that would never end: for the very lease this program was started under, which is given
// back only when this program is over. An id of a lease is unique, so who finds it looks at the same database.
func (inv *invocation) refuseNested(ctx context.Context, o *runOptions, c *holdfast.Client, name string) error {
	outer := inv.getenv("HOLDFAST_LEASE")
	if outer == "" || inv.getenv("HOLDFAST_NAME") != name || !o.waits() {
		return nil
	}
	rec, err := inspect(ctx, c, name)
	if err != nil {
		return nil // whatever it is, the wait will meet it too, and tell it better
	}
	for _, h := range rec.Holders {
		// A kept entry ends by its time, and what has left the session of its lease's holder does not keep the lease.
		if h.Lease.String() != outer || h.Session.IsZero() || leftSession(h.PID) {
			continue
		}
		if weight, limit := o.wanted(); h.Weight+weight > limit {
			return &ending{statusUsage, fmt.Errorf("run %q: it would wait for ever: this very name is held by the run around it (HOLDFAST_LEASE)", name)}
		}
		for _, w := range rec.Waiters { // nobody is served before those ahead of him
			if h.Weight+w.Weight > w.Limit {
				return &ending{statusUsage, fmt.Errorf("run %q: it would wait for ever: the run around it (HOLDFAST_LEASE) holds the name, and ahead in the queue is %s, who waits for that one", name, waiterName(w))}
			}
		}
	}
	return nil
}

// waits reports whether run waits if the lock is held.
func (o *runOptions) waits() bool { return !o.noWait && !(o.wait.set && o.wait.d == 0) }

// wanted is what run asks for: weight fits beside holders if all of them together are not above limit.
func (o *runOptions) wanted() (weight, limit int64) {
	switch {
	case o.permits.limit > 0:
		return int64(o.permits.n), int64(o.permits.limit)
	case o.shared:
		return 1, driver.All
	}
	return driver.All, driver.All
}

func waiterName(w holdfast.Waiter) string {
	host, pid := where(w.Entry)
	return fmt.Sprintf("%s (%s, pid %s)", who(w.Entry), host, pid)
}
