package holdfast

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/holdfastdb/holdfast/driver"
	"github.com/holdfastdb/holdfast/internal/faultstore"
)

// caller is one goroutine of a process: it takes locks, works under them and releases them until the faults end.
func (s *simulation) caller(slot *simSlot, index int) {
	rng := rand.New(rand.NewPCG(s.plan.seed, uint64(1+slot.index*100+index)))
	s.sleep(s.ctx, time.Duration(rng.Int64N(int64(time.Millisecond))))
	for s.ctx.Err() == nil && s.net.Elapsed() < s.plan.until {
		p := slot.current()
		s.awake(p, rng)
		s.act(p, rng)
		pause := time.Duration(rng.Int64N(int64(5 * time.Millisecond)))
		if !s.plan.busy {
			pause = length(rng, 300*time.Millisecond)
		}
		s.sleep(s.ctx, pause)
	}
}

// awake waits for the end of a stop.
func (s *simulation) awake(p *simProcess, rng *rand.Rand) {
	s.net.Awake(p.id, time.Duration(rng.Int64N(int64(time.Millisecond))))
}

// act makes one call that takes a lock, and does what follows.
func (s *simulation) act(p *simProcess, rng *rand.Rand) {
	name := s.plan.names[rng.IntN(len(s.plan.names))]
	var opts []Option
	if s.plan.holds && rng.IntN(6) == 0 {
		opts = append(opts, MinHold(time.Duration(rng.Int64N(int64(500*time.Millisecond)))))
	}
	if rng.IntN(8) == 0 {
		opts = append(opts, MaxHold(p.client.ttl+time.Duration(rng.Int64N(int64(p.client.ttl)))))
	}
	ctx, cancel := s.bound(p, rng)
	defer cancel()
	dice := rng.IntN(100)
	switch {
	case s.plan.permits != "" && dice < 35:
		name = s.plan.permits
		limit := 2 + rng.IntN(4)
		sem, n := p.client.Semaphore(name, limit), 1+rng.IntN(limit)
		if dice < 25 {
			l, err := sem.Acquire(ctx, n, opts...)
			s.hold(p, rng, ctx, name, l, err, false)
		} else {
			l, err := sem.TryAcquire(ctx, n, opts...)
			s.hold(p, rng, ctx, name, l, err, true)
		}
	case dice < 62:
		l, err := p.client.Lock(ctx, name, opts...)
		s.hold(p, rng, ctx, name, l, err, false)
	case dice < 72:
		l, err := p.client.RLock(ctx, name, opts...)
		s.hold(p, rng, ctx, name, l, err, false)
	case dice < 80:
		l, err := p.client.TryLock(ctx, name, opts...)
		s.hold(p, rng, ctx, name, l, err, true)
	case dice < 84:
		l, err := p.client.TryRLock(ctx, name, opts...)
		s.hold(p, rng, ctx, name, l, err, true)
	case dice < 92:
		s.do(p, rng, ctx, name, opts)
	case dice < 94:
		_, _ = p.client.Inspect(ctx, name) // may fail; must not disturb
	default:
		s.breakOne(p, rng, name)
	}
}

// bound gives a caller's context: without an end, with one at a random instant, near the grant, or over already.
func (s *simulation) bound(p *simProcess, rng *rand.Rand) (context.Context, context.CancelFunc) {
	switch d := time.Duration(rng.Int64N(int64(time.Second))); rng.IntN(12) {
	case 0, 1:
		return context.WithTimeout(p.ctx, d)
	case 2, 3, 4:
		return context.WithTimeout(p.ctx, d/100)
	case 5:
		if rng.IntN(8) == 0 {
			ctx, cancel := context.WithCancel(p.ctx)
			cancel()
			return ctx, cancel
		}
	}
	return context.WithCancel(p.ctx)
}

// hold works under a lease and releases it. ctx bounded the wait.
func (s *simulation) hold(p *simProcess, rng *rand.Rand, ctx context.Context, name string, l *Lease, err error, try bool) {
	if err != nil {
		s.judge(p, ctx, name, err, try)
		return
	}
	if p.crashed.Load() {
		return
	}
	g := s.check.took(p, name, l)
	s.work(p, rng, name, g)
	s.awake(p, rng)
	s.check.releasing(g)
	began, over := s.net.Elapsed(), l.over.Load()
	err = l.Release(ctx)
	switch {
	case p.crashed.Load() || p.stopped():
	case over == nil && err != nil && s.net.Elapsed()-began < p.client.ttl && !errors.Is(err, ErrLost) && !errors.Is(err, ErrClosed):
		s.check.fail("RELEASE of %q by client %d: %v after %v", name, p.id, err, s.net.Elapsed()-began)
	case over != nil && errors.Is(*over, ErrLost) && !errors.Is(err, ErrLost):
		s.check.fail("RELEASE of a lost lease of %q by client %d: %v", name, p.id, err)
	}
	if l.Err() == nil || l.Context().Err() == nil {
		s.check.fail("A RELEASED LEASE of %q goes on: %v, %v", name, l.Err(), l.Context().Err())
	}
	if rng.IntN(4) == 0 && !p.crashed.Load() {
		_ = l.Release(ctx) // once more does nothing
	}
}

// judge finds errors that a call must not have.
func (s *simulation) judge(p *simProcess, ctx context.Context, name string, err error, try bool) {
	joining := strings.Contains(err.Error(), "join a session: ") // the one failure a waiting call reports at once
	switch {
	case ctx.Err() != nil, p.crashed.Load(), p.closed.Load() && errors.Is(err, ErrClosed), joining:
	case try: // the database may be out of reach, the session lost
	default:
		s.check.fail("A CALL FAILED: client %d %q: %v", p.id, name, err)
	}
}

// work is a critical section.
func (s *simulation) work(p *simProcess, rng *rand.Rand, name string, g *simGrant) {
	l := g.lease
	section := length(rng, 20*time.Millisecond)
	switch rng.IntN(10) {
	case 0, 1:
		section = length(rng, 200*time.Millisecond)
	case 2:
		section = length(rng, 1600*time.Millisecond)
	}
	if s.plan.long && rng.IntN(2) == 0 {
		section = time.Duration(rng.Int64N(3 * int64(s.plan.ttl())))
	}
	if rng.IntN(4) == 0 {
		s.note(p, rng, name, g)
	}
	if rng.IntN(8) == 0 {
		// One that does not listen to its lease.
		select {
		case <-time.After(section):
		case <-p.ctx.Done():
		}
	} else {
		select {
		case <-time.After(section):
		case <-l.Context().Done():
		}
	}
	s.awake(p, rng)
	ended := l.Context().Err() != nil
	if err := l.Err(); ended && err == nil && errors.Is(context.Cause(l.Context()), ErrLost) { // Do's context ends with the caller's too
		s.check.fail("THE CONTEXT of a lease of %q ended, and Err is nil", name)
	}
	s.check.checkAll()
	s.check.lost(name, g)
}

// note writes or reads the note of the name. Only exclusive leases write, so that the numbers rise.
func (s *simulation) note(p *simProcess, rng *rand.Rand, name string, g *simGrant) {
	l := g.lease
	ctx, cancel := context.WithTimeout(p.ctx, time.Duration(1+rng.Int64N(int64(simTTL))))
	defer cancel()
	if g.entry.Weight == driver.All && rng.IntN(2) == 0 {
		number := int(s.notes.Add(1))
		if l.SetNote(ctx, []byte(strconv.Itoa(number))) == nil && !p.crashed.Load() {
			s.check.noteWritten(name, number)
		}
		return
	}
	least := s.check.lastNote(name)
	data, err := l.Note(ctx)
	if err != nil || l.Err() != nil {
		return
	}
	number := 0
	if data != nil {
		number, _ = strconv.Atoi(string(data)) // anything else counts as 0
	}
	if number < least {
		s.check.fail("A NOTE IS GONE: %q has note %d, %d was acknowledged", name, number, least)
	}
}

// do takes the lock by Do.
func (s *simulation) do(p *simProcess, rng *rand.Rand, ctx context.Context, name string, opts []Option) {
	ran := false
	fn := func(inner context.Context) error {
		ran = true
		l, _ := inner.Value(leaseKey{}).(*Lease)
		if p.crashed.Load() {
			return nil
		}
		g := s.check.took(p, name, l)
		s.work(p, rng, name, g)
		s.check.releasing(g)
		return nil
	}
	var err error
	if rng.IntN(4) == 0 {
		ran, err = p.client.TryDo(ctx, name, fn, opts...)
		if err != nil && !ran {
			s.judge(p, ctx, name, err, true)
		}
		return
	}
	switch err = p.client.Do(ctx, name, fn, opts...); {
	case ran && err != nil && !errors.Is(err, ErrLost):
		s.check.fail("DO of %q by client %d ran and says %v", name, p.id, err)
	case ran == errors.Is(err, ErrNotHeld):
		s.check.fail("DO of %q by client %d: ran %v, error %v", name, p.id, ran, err)
	case !ran:
		s.judge(p, ctx, name, err, false)
	}
}

// breakOne asks the holders of a name to give way, or forces them to.
func (s *simulation) breakOne(p *simProcess, rng *rand.Rand, name string) {
	if !s.plan.breaks {
		return
	}
	ctx, cancel := context.WithTimeout(p.ctx, 3*p.client.ttl)
	defer cancel()
	o := &BreakOptions{}
	if s.plan.forces && rng.IntN(2) == 0 {
		o.Force = true
		ctx = faultstore.Mark(ctx, "forced")
	} else if rng.IntN(2) == 0 {
		o.Wait = -1
	}
	_, _ = p.client.Break(ctx, name, o) // may fail in many ways; what matters is what it leaves behind
}
