package holdfast

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastdb/holdfast/driver"
	"github.com/holdfastdb/holdfast/holdmem"
	"github.com/holdfastdb/holdfast/internal/faultstore"
)

// simProcess is one process: a client, its clocks and its end.
type simProcess struct {
	id      int // its client number in the network
	client  *Client
	net     *faultstore.Network
	ctx     context.Context // of its callers; ends when it crashes
	die     context.CancelCauseFunc
	crashed atomic.Bool
	closed  atomic.Bool
	over    atomic.Bool  // Close has returned
	wall    atomic.Int64 // how far its wall clock was stepped
}

func (p *simProcess) stopped() bool { return p.net.Stopped(p.id) }

// simSlot is the place of one process after another.
type simSlot struct {
	index   int
	mu      sync.Mutex
	process *simProcess
}

func (s *simSlot) current() *simProcess {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.process
}

// simulation is one run of a schedule inside a bubble.
type simulation struct {
	plan    *simPlan
	db      *holdmem.Store
	net     *faultstore.Network
	check   *simChecker
	ctx     context.Context // of the callers; ends early after a violation
	cancel  context.CancelFunc
	slots   []*simSlot
	all     []*simProcess
	closing sync.WaitGroup
	stepped time.Duration // when the database's clock last stepped
	notes   atomic.Int64
}

// simResult is what became of a schedule.
type simResult struct {
	failure  string
	trace    string
	sum      uint64
	calls    int
	acquired int
}

// simulate runs one schedule in a bubble of its own.
func simulate(t *testing.T, plan *simPlan) (result simResult) {
	t.Helper()
	guard := time.AfterFunc(2*time.Minute, func() { panic(fmt.Sprintf("the schedule does not end: %v", plan)) })
	defer guard.Stop()
	synctest.Test(t, func(*testing.T) {
		s := &simulation{plan: plan, db: holdmem.New(), check: newSimChecker()}
		s.ctx, s.cancel = context.WithCancel(context.Background())
		defer s.cancel()
		s.net = faultstore.New(s.db, plan.net, s.check.committed)
		s.check.stop, s.check.elapsed = s.cancel, func() any { return s.net.Elapsed() }
		s.run()
		result = simResult{failure: s.check.result(), sum: s.net.Sum(), acquired: s.check.acquired}
		result.calls, _ = s.net.Calls()
		if result.failure != "" {
			result.trace = s.net.Trace(*simTrace)
		}
	})
	return result
}

func (s *simulation) start(id int) *simProcess {
	store := s.net.Client(id)
	p := &simProcess{id: id, net: s.net}
	opts := &Options{TTL: s.plan.ttls[id%s.plan.slots], Label: fmt.Sprintf("process %d", id)}
	if s.plan.listens {
		opts.Events = s.events(p)
	}
	c := New(store, opts)
	p.client = c
	p.ctx, p.die = context.WithCancelCause(s.ctx)
	c.mutant = s.plan.mutant
	c.rng = rand.New(rand.NewPCG(s.plan.seed, uint64(1000+id)))
	c.clock.suspended = func() time.Duration { return s.net.Suspended(id) }
	c.clock.wall = func() time.Time { return time.Now().Add(s.net.Suspended(id) + time.Duration(p.wall.Load())) }
	s.all = append(s.all, p)
	return p
}

// events are those of a client: all are heard, one at a time and none after Close.
func (s *simulation) events(p *simProcess) *Events {
	var busy atomic.Bool
	heard := func() {
		if !busy.CompareAndSwap(false, true) {
			s.check.fail("TWO EVENTS AT ONCE of client %d", p.id)
		}
		if p.over.Load() {
			s.check.fail("AN EVENT AFTER CLOSE of client %d", p.id)
		}
		busy.Store(false)
	}
	return &Events{
		Granted: func(Grant) { heard() }, Waiting: func(string) { heard() }, Refused: func(string, *HeldError) { heard() },
		HandOver: func(string, string) { heard() }, Lost: func(string, int64, error) { heard() },
		Released: func(string, int64, time.Duration) { heard() }, Requeued: func(string) { heard() },
		Beat: func(time.Duration) { heard() }, Held: func(string, int64, time.Duration) { heard() },
	}
}

func (s *simulation) run() {
	for i := range s.plan.slots {
		s.slots = append(s.slots, &simSlot{index: i, process: s.start(i)})
	}
	done := make(chan struct{})
	var callers sync.WaitGroup
	for _, slot := range s.slots {
		for g := range s.plan.callers {
			callers.Go(func() { s.caller(slot, g) })
		}
	}
	directed := make(chan struct{})
	var director sync.WaitGroup
	defer director.Wait()
	director.Go(func() {
		s.direct()
		close(directed)
		callers.Wait()
		close(done)
	})
	<-directed
	select {
	case <-done:
	case <-time.After(s.plan.until + s.plan.net.MaxLate + 60*s.plan.ttl()):
		s.check.fail("A WAITER HANGS: a call has not returned a minute after the faults ended; %s", s.stored())
		select {
		case <-done:
		case <-time.After(60 * s.plan.ttl()):
			// A bubble cannot end while one of its goroutines is blocked for good.
			panic(fmt.Sprintf("a call ignores its context: %v%s\n%s", s.plan, s.net.Trace(*simTrace), s.check.result()))
		}
	}
	s.net.Wait()
	s.settle()
	s.shut()
}

// direct makes happen what the plan says, at its time.
func (s *simulation) direct() {
	events := slices.Clone(s.plan.events)
	slices.SortStableFunc(events, func(a, b simEvent) int { return int(a.at - b.at) })
	for i, e := range events {
		if !s.sleep(s.ctx, e.at-s.net.Elapsed()) {
			return
		}
		s.happen(i, e)
	}
	s.sleep(s.ctx, s.plan.until-s.net.Elapsed())
}

func (s *simulation) happen(i int, e simEvent) {
	slot := s.slots[e.slot]
	switch e.what {
	case simCrash, simClose:
		p := slot.current()
		if e.what == simCrash {
			p.crashed.Store(true)
			p.die(errors.New("the process crashed"))
		} else {
			p.closed.Store(true)
		}
		s.close(p)
		if s.stepped > 0 {
			s.sleep(s.ctx, s.stepped+s.plan.ttl()-s.net.Elapsed()) // no first contact within a TTL of a step, see acquainted
		}
		next := s.start(p.id + s.plan.slots)
		slot.mu.Lock()
		slot.process = next
		slot.mu.Unlock()
	case simKill:
		if joined := s.net.Sessions(); len(joined) > 0 {
			victim := joined[int(s.plan.seed+uint64(i))%len(joined)].Session
			s.check.kill(victim)
			_ = s.db.Leave(context.Background(), victim) // never fails
		}
	case simStep:
		if e.by < 0 || s.acquainted() {
			s.db.StepClock(e.by)
			s.stepped = s.net.Elapsed()
		}
	case simWall:
		slot.current().wall.Add(int64(e.by))
	case simPrune:
		now := s.now()
		_, _ = s.db.Prune(context.Background(), driver.Pruning{Before: now - s.plan.prune.Microseconds(), Silent: day}) // never fails
	}
	s.check.checkAll()
}

// acquainted reports whether every client has read the database's clock. One that reads it for the first time after a
// step forward, and within a TTL, cannot see the step, and its patience is two TTLs only: nothing is promised then to
// those whose last beat the step made older than that.
func (s *simulation) acquainted() bool {
	for _, p := range s.all {
		p.client.mu.Lock()
		read, closed := p.client.est.valid, p.client.closed
		p.client.mu.Unlock()
		if !closed && !read {
			return false
		}
	}
	return true
}

func (s *simulation) now() driver.Micros {
	reply, _ := s.db.Beat(context.Background(), driver.NewID(), driver.ID{}, driver.ID{}) // of nobody: reads the clock
	return reply.Now
}

func (s *simulation) close(p *simProcess) {
	s.closing.Go(func() {
		began := s.net.Elapsed()
		_ = p.client.Close(context.Background()) // always nil
		p.over.Store(true)
		took := s.net.Elapsed() - began
		for _, stop := range s.plan.net.Stops {
			if stop.Client == p.id {
				took -= stop.To - stop.From
			}
		}
		if took > 2*p.client.ttl {
			s.check.fail("CLOSE OF CLIENT %d TOOK %v", p.id, took)
		}
	})
}

// settle waits until whatever goes on in the background is over, and looks for entries that nobody owns.
func (s *simulation) settle() {
	if s.check.result() != "" {
		return
	}
	s.closing.Wait()
	time.Sleep(6 * s.plan.ttl())
	s.check.checkAll()
	alive := map[driver.ID]int{}
	for _, p := range s.all {
		p.client.mu.Lock()
		if x := p.client.session; x != nil && x.over == nil {
			alive[x.id] = p.id
		}
		p.client.mu.Unlock()
	}
	for _, rec := range s.records() {
		for _, list := range [][]driver.Entry{rec.Holders, rec.Tickets} {
			for _, e := range list {
				if client, ok := alive[e.Session]; ok {
					s.check.fail("LEFT BEHIND: entry %s rev %d of client %d, that lives and wants nothing; %s", short(e.Lease), e.Rev, client, s.stored())
				}
			}
		}
	}
}

// shut closes all clients, has a fresh one look at each name, and finds what is left then.
func (s *simulation) shut() {
	for _, slot := range s.slots {
		s.close(slot.current())
	}
	s.closing.Wait()
	s.net.Wait()
	if s.check.result() != "" {
		return
	}
	made, flying := s.net.Calls()
	if flying > 0 {
		s.check.fail("%d CALLS IN FLIGHT after all clients were closed", flying)
	}
	time.Sleep(2 * s.plan.ttl())
	if again, _ := s.net.Calls(); again > made {
		s.check.fail("%d CALLS AFTER CLOSE", again-made)
	}
	fresh := New(s.db, &Options{TTL: s.plan.ttl()})
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, name := range s.everyName() {
		l, err := fresh.Lock(ctx, name)
		if err != nil {
			s.check.fail("NOT FREE: a fresh client cannot lock %q: %v; %s", name, err, s.stored())
			continue
		}
		if err := l.Release(ctx); err != nil {
			s.check.fail("a fresh client cannot release %q: %v", name, err)
		}
	}
	_ = fresh.Close(ctx) // always nil
	for _, rec := range s.records() {
		if !rec.Free() {
			s.check.fail("LEFT BEHIND after all clients were closed: %s", s.stored())
		}
	}
}

func (s *simulation) everyName() []string {
	names := slices.Clone(s.plan.names)
	if s.plan.permits != "" {
		names = append(names, s.plan.permits)
	}
	return names
}

func (s *simulation) records() []driver.Record {
	recs, _ := s.db.List(context.Background(), driver.Query{}) // no record is damaged here
	return recs
}

func (s *simulation) stored() string {
	var b []byte
	for _, r := range s.records() {
		b = fmt.Appendf(b, "\n  %q rev %d inbox %d", r.Name, r.Revision, len(r.Inbox))
		for _, e := range r.Holders {
			b = fmt.Appendf(b, "\n    holder %s of session %s rev %d %d/%d minhold %v maxhold %v", short(e.Lease), short(e.Session), e.Rev, e.Weight, e.Limit, e.MinHold, e.MaxHold)
		}
		for _, e := range r.Tickets {
			b = fmt.Appendf(b, "\n    ticket %s of session %s rev %d %d/%d", short(e.Lease), short(e.Session), e.Rev, e.Weight, e.Limit)
		}
	}
	return string(b)
}

// sleep returns false if ctx ends before d is over.
func (s *simulation) sleep(ctx context.Context, d time.Duration) bool {
	if ctx.Err() != nil {
		return false
	}
	t := time.NewTimer(max(d, 1))
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
