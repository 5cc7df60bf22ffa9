package holdfast

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/holdfastdb/holdfast/driver"
	"github.com/holdfastdb/holdfast/internal/faultstore"
)

// simGrant is a lease as its caller sees it: from the return of the call that took it to the call of Release.
type simGrant struct {
	lease    *Lease
	entry    driver.Entry // as the store had it when the call returned
	process  *simProcess
	released bool
}

// believed reports whether the caller may believe that it holds: what Err says, by the client's own clock, but without
// the consequences of a look. Nobody believes anything while its process is stopped.
func (g *simGrant) believed() bool {
	l := g.lease
	if g.released || g.process.crashed.Load() || g.process.stopped() || l.over.Load() != nil {
		return false
	}
	now := l.cell.s.c.clock.now()
	ends := l.ends.Load()
	return now < l.cell.s.window() && (ends == 0 || now < instant(ends))
}

// simChecker keeps the history of a schedule and finds what the design forbids.
type simChecker struct {
	mu       sync.Mutex
	failure  string
	stop     func() // ends the schedule early
	elapsed  func() any
	held     map[string][]*simGrant
	store    map[string][]driver.Entry
	tokens   map[string]driver.Micros // the last one given by the store
	seen     map[string]driver.Micros // the last one an exclusive caller believed in
	keeps    map[string]driver.Entry  // an exclusive lease with MinHold that a caller had
	forced   map[driver.ID]bool       // leases removed by a forced break: by design they may overlap
	killed   map[driver.ID]bool       // sessions marked dead by the harness, against the protocol
	acked    map[string]int           // number of the last note acknowledged
	acquired int
}

func newSimChecker() *simChecker {
	return &simChecker{
		held: map[string][]*simGrant{}, store: map[string][]driver.Entry{}, tokens: map[string]driver.Micros{},
		seen: map[string]driver.Micros{}, keeps: map[string]driver.Entry{}, forced: map[driver.ID]bool{},
		killed: map[driver.ID]bool{}, acked: map[string]int{},
	}
}

// fail notes the first violation and ends the schedule.
func (k *simChecker) fail(format string, args ...any) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.failed(format, args...)
}

func (k *simChecker) failed(format string, args ...any) {
	if k.failure == "" {
		k.failure = fmt.Sprintf("at %v: ", k.elapsed()) + fmt.Sprintf(format, args...)
		k.stop()
	}
}

func (k *simChecker) result() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.failure
}

// committed checks a change of holders as the store applied it.
func (k *simChecker) committed(c faultstore.Commit) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.store[c.Name] = c.After
	if c.Marked != nil {
		for _, e := range c.Before {
			if !slices.ContainsFunc(c.After, func(a driver.Entry) bool { return a.Lease == e.Lease }) {
				k.forced[e.Lease] = true
			}
		}
	}
	granted := slices.DeleteFunc(slices.Clone(c.After), func(e driver.Entry) bool { return e.Rev <= c.Old })
	slices.SortFunc(granted, func(a, b driver.Entry) int { return cmp.Compare(a.Rev, b.Rev) })
	for _, e := range granted {
		if last := k.tokens[c.Name]; e.Rev <= last {
			k.failed("TOKEN FELL: client %d grants %q to %s with token %d after %d", c.Client, c.Name, e.Lease, e.Rev, last)
		}
		k.tokens[c.Name] = e.Rev
		sum := int64(0)
		for _, h := range c.After {
			if h.Rev <= e.Rev {
				sum += h.Weight
			}
		}
		if sum > e.Limit {
			k.failed("OVER-GRANTED: client %d grants %q to %s: %d of %d", c.Client, c.Name, e.Lease, sum, e.Limit)
		}
		if keep := k.keeps[c.Name]; keep.Keep() > e.Rev && !k.forced[keep.Lease] {
			k.failed("MINHOLD CUT SHORT: %q is granted to %s at %d, though %s keeps it until %d", c.Name, e.Lease, e.Rev, keep.Lease, keep.Keep())
		}
	}
	k.check(c.Name)
}

// took checks a lease that a call has returned.
func (k *simChecker) took(p *simProcess, name string, l *Lease) *simGrant {
	g := &simGrant{lease: l, process: p}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.acquired++
	if k.tainted(g) {
		return g
	}
	i := slices.IndexFunc(k.store[name], func(e driver.Entry) bool { return e.Lease == l.id })
	if i < 0 {
		if g.believed() {
			k.failed("BELIEF WITHOUT AN ENTRY: %q: client %d took lease %s token %d", name, p.id, short(l.id), l.token)
		}
		return g
	}
	g.entry = k.store[name][i]
	k.held[name] = append(k.held[name], g)
	if g.entry.Weight == driver.All && g.believed() {
		if last := k.seen[name]; l.token <= last {
			k.failed("TOKEN FELL: a caller of client %d has %q with token %d after one had %d", p.id, name, l.token, last)
		}
		k.seen[name], k.keeps[name] = l.token, g.entry
	}
	k.check(name)
	return g
}

// releasing notes that the caller gives up its belief.
func (k *simChecker) releasing(g *simGrant) {
	k.mu.Lock()
	defer k.mu.Unlock()
	g.released = true
}

// kill notes that the harness marks a session dead.
func (k *simChecker) kill(session driver.ID) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.killed[session] = true
}

func (k *simChecker) tainted(g *simGrant) bool {
	return k.forced[g.lease.id] || k.killed[g.lease.cell.s.id]
}

// check finds two believers, and believers whose entry is gone.
func (k *simChecker) check(name string) {
	k.held[name] = slices.DeleteFunc(k.held[name], func(g *simGrant) bool {
		return g.released || g.lease.over.Load() != nil || k.tainted(g)
	})
	var believers []*simGrant
	for _, g := range k.held[name] {
		if g.believed() {
			believers = append(believers, g)
		}
	}
	for _, g := range believers {
		sum := int64(0)
		for _, h := range believers {
			if h.lease.token <= g.lease.token {
				sum += h.entry.Weight
			}
		}
		if sum > g.entry.Limit {
			var who []string
			for _, h := range believers {
				who = append(who, fmt.Sprintf("client %d lease %s token %d window %v", h.process.id, short(h.lease.id), h.lease.token, h.lease.cell.s.window().sub(h.lease.cell.s.c.clock.now())))
			}
			k.failed("TWO BELIEVERS: %q: %v", name, who)
		}
		if !slices.ContainsFunc(k.store[name], func(e driver.Entry) bool {
			return e.Lease == g.lease.id && e.Session == g.lease.cell.s.id && e.Rev == g.lease.token
		}) {
			k.failed("BELIEF WITHOUT AN ENTRY: %q: client %d lease %s token %d is not among the holders", name, g.process.id, short(g.lease.id), g.lease.token)
		}
	}
}

// lost finds a lease that was lost though its session lives and nobody removed its entry or asked for it.
func (k *simChecker) lost(name string, g *simGrant) {
	why, c := g.lease.over.Load(), g.process.client
	if why == nil || !errors.Is(*why, ErrLost) || errors.Is(*why, ErrBroken) {
		return
	}
	c.mu.Lock()
	alive := g.lease.cell.s.over == nil && g.lease.cell.s.open()
	c.mu.Unlock()
	k.mu.Lock()
	defer k.mu.Unlock()
	if alive && g.entry.MaxHold == 0 && !k.tainted(g) && !g.process.closed.Load() {
		k.failed("LOST WITHOUT A CAUSE: %q: client %d lease %s token %d: %v", name, g.process.id, short(g.lease.id), g.lease.token, *why)
	}
}

// checkAll looks at every name.
func (k *simChecker) checkAll() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for name := range k.held {
		k.check(name)
	}
}

func (k *simChecker) noteWritten(name string, number int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.acked[name] = max(k.acked[name], number)
}

func (k *simChecker) lastNote(name string) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.acked[name]
}

func short(id driver.ID) string { return id.String()[:4] }
