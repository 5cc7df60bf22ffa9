package holdfast

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/holdfastdb/holdfast/driver"
)

// A session is this process's sign of life in the database. Its trust window is the time during which the client may
// believe in its leases: a beat sent at b is good until b + TTL - margin. A window that closed never opens again; cells
// belong to a session and end with it.
type session struct {
	c        *Client
	id       driver.ID
	ctx      context.Context // of its store calls; ends when the session does
	cancel   context.CancelCauseFunc
	trust    atomic.Int64 // local instant at which the trust window closes
	closed   atomic.Bool
	beatSoon chan struct{} // asks for a beat at once
	wake     chan struct{} // the watcher should look at its deadlines again
	polls    chan struct{} // the poller should look at its cells again

	nonce driver.Nonce // of the last acknowledged beat; only beats uses it

	// guarded by the client's mutex
	row     driver.Session // as joined
	beatErr error          // of the last beat, if it failed
	notice  int64          // as last acted on
	looking bool           // lookAtHeld runs
	over    error          // why it ended
	cells   map[string]*cell
	waiting map[*cell]struct{}  // cells to be re-checked
	timed   map[*Lease]struct{} // leases with a MaxHold
	ended   map[*Lease]instant  // broken and overdue leases, and when their entries go at the latest
	drift   time.Duration       // wall against local clock, as last seen
	doubtAt instant             // when the clocks were seen to contradict each other
	doubtBy instant             // when the session closes if no beat is acknowledged; 0: no doubt
	cleared chan struct{}       // closed when that doubt is over
}

// join is one attempt to join a session, shared by all who need it.
type join struct {
	done chan struct{}
	err  error
}

// joined returns the current session, joining one if there is none. A failed attempt is reported to all who waited for
// it; the next call tries again.
func (c *Client) joined(ctx context.Context) (*session, error) {
	for {
		c.mu.Lock()
		if c.closed {
			c.mu.Unlock()
			return nil, ErrClosed
		}
		if s := c.session; s != nil && s.over == nil {
			c.mu.Unlock()
			return s, nil
		}
		j := c.joining
		if j == nil {
			j = &join{done: make(chan struct{})}
			c.joining = j
			c.wg.Go(func() { c.join(j) })
		}
		c.mu.Unlock()
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-j.done:
			if j.err != nil {
				return nil, j.err
			}
		}
	}
}

// join is not bound to one caller's context. It is acknowledged before the session's id appears in any other request.
func (c *Client) join(j *join) {
	s := &session{
		c: c, id: driver.NewID(), nonce: driver.NewID(), cells: make(map[string]*cell),
		waiting: make(map[*cell]struct{}), timed: make(map[*Lease]struct{}),
		ended: make(map[*Lease]instant), drift: c.clock.drift(),
		beatSoon: make(chan struct{}, 1), wake: make(chan struct{}, 1), polls: make(chan struct{}, 1),
	}
	row := driver.Session{
		ID: s.id, Nonce: s.nonce, TTL: c.ttl, Label: c.opts.Label, PID: os.Getpid(), Local: driver.Here(),
		Program: filepath.Base(os.Args[0]),
	}
	row.Host, _ = os.Hostname() // for people only
	s.row = row
	s.ctx, s.cancel = context.WithCancelCause(c.base)
	ctx, cancel := c.call(s.ctx)
	defer cancel()
	sent := c.clock.now()
	now, err := c.store.Join(ctx, row)
	received := c.clock.now()
	s.trust.Store(int64(sent.add(c.ttl - c.margin)))
	if err == nil && received >= s.window() {
		err = errors.New("the database answered too late")
	}

	c.mu.Lock()
	defer c.mu.Unlock()
	c.joining = nil
	if err == nil && c.closed {
		err = ErrClosed
	}
	if err != nil {
		s.cancel(err)
		j.err = fmt.Errorf("join a session: %w", err)
		close(j.done)
		return
	}
	if c.watched == 0 {
		c.watched = received
	}
	c.sampled(sample{now, sent, received})
	c.session = s
	c.wg.Go(s.beats)
	c.wg.Go(s.watch)
	c.wg.Go(s.poll)
	c.wg.Go(s.janitor)
	close(j.done)
}

// sampled takes a reading of the database's clock in. Called with the client's mutex held.
func (c *Client) sampled(x sample) {
	if c.est.add(x, driver.MinMargin) {
		c.watched, c.stepped = x.received, true
		c.note(slog.LevelWarn, "the database's clock stepped; nothing is judged over by it for a TTL")
	}
	if s := c.session; s != nil {
		for l := range s.timed {
			l.retime(x.received)
		}
	}
}

func (s *session) window() instant { return instant(s.trust.Load()) }

// open reports whether the session's leases may be believed in now.
func (s *session) open() bool {
	return !s.closed.Load() && s.c.clock.now() < s.window()
}

// beats renews the session every third of the TTL, and after a failure every fifteenth.
func (s *session) beats() {
	c := s.c
	next := driver.NewID()
	pause := time.NewTimer(c.ttl / 3)
	defer pause.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-pause.C:
		case <-s.beatSoon:
		}
		sent := c.clock.now()
		ctx, cancel := c.call(s.ctx)
		reply, err := c.store.Beat(ctx, s.id, s.nonce, next)
		cancel()
		received := c.clock.now()
		if err != nil {
			if s.ctx.Err() != nil {
				return
			}
			if errors.Is(err, ErrLost) {
				s.close(err)
				return
			}
			c.log.Warn("the session could not be renewed", "left", s.window().sub(received), "error", err)
			c.mu.Lock()
			s.beatErr = err
			c.mu.Unlock()
			pause.Reset(c.ttl / 15)
			continue
		}
		if !reply.Alive {
			c.log.Error("the database says that the session is dead")
			s.close(fmt.Errorf("%w: the session was marked dead", ErrLost))
			return
		}
		s.nonce, next = next, driver.NewID()
		if !s.renewed(sent, received, reply) {
			return
		}
		pause.Reset(max(c.ttl/15, c.ttl/3-received.sub(sent)))
	}
}

// renewed moves the trust window, unless it has closed meanwhile.
func (s *session) renewed(sent, received instant, reply driver.BeatReply) bool {
	c := s.c
	from := sent
	if c.mutant.trustFromReply {
		from = received
	}
	if !s.open() {
		s.close(s.unrenewed(received))
		return false
	}
	c.mu.Lock()
	if s.over != nil {
		c.mu.Unlock()
		return false
	}
	left := s.window().sub(received)
	s.beatErr = nil
	if s.doubtBy == 0 || sent >= s.doubtAt {
		s.trust.Store(int64(from.add(c.ttl - c.margin)))
		s.undoubt()
	} else {
		signal(s.beatSoon)
	}
	c.sampled(sample{reply.Now, sent, received})
	if reply.Notice != s.notice && !s.looking {
		s.notice, s.looking = reply.Notice, true
		c.wg.Go(s.lookAtHeld) // not here: the next beat must not wait for it
	}
	if c.opts.Events != nil && c.opts.Events.Beat != nil {
		c.event(func() { c.opts.Events.Beat(left) })
	}
	c.mu.Unlock()
	c.tell()
	signal(s.wake)
	return true
}

// unrenewed says why the window closed.
func (s *session) unrenewed(now instant) error {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	if s.beatErr != nil {
		return fmt.Errorf("%w: not renewed in time: %w", ErrLost, s.beatErr)
	}
	if late := now.sub(s.window()); late > s.c.margin {
		return fmt.Errorf("%w: not renewed in time: this process stood still until %v after the end", ErrLost, late.Round(time.Millisecond))
	}
	return fmt.Errorf("%w: not renewed in time: the database did not answer", ErrLost)
}

// watch closes the window in time, ends leases whose MaxHold is up, and looks for clocks that contradict each other.
func (s *session) watch() {
	c := s.c
	pause := time.NewTimer(0)
	defer pause.Stop()
	for minute := c.clock.now().add(time.Minute); ; {
		select {
		case <-s.ctx.Done():
			return
		case <-pause.C:
		case <-s.wake:
		}
		now := c.clock.now()
		if now >= s.window() {
			s.close(s.unrenewed(now))
			return
		}
		c.mu.Lock()
		s.compareClocks(now)
		next := min(s.window(), now.add(min(c.ttl/10, time.Second))) // a suspended machine's timers are late
		for l := range s.timed {
			switch ends := instant(l.ends.Load()); {
			case ends == 0 || l.over.Load() != nil:
			case now >= ends:
				l.cell.lose(l, l.overdue())
			default:
				next = min(next, ends)
			}
		}
		s.dropOverdue(now)
		if now >= minute {
			minute = now.add(time.Minute)
			s.tellHeld(now)
		}
		c.mu.Unlock()
		c.tell()
		pause.Reset(next.sub(now))
	}
}

// compareClocks makes the window doubtful if the wall clock jumped against the local one by more than the margin: the
// machine may have been restored from a snapshot. Until a beat is acknowledged no grant is accepted. Called with the
// client's mutex held.
func (s *session) compareClocks(now instant) {
	c := s.c
	drift := c.clock.drift()
	if jump := (drift - s.drift).Abs(); jump > c.margin && s.doubtBy == 0 {
		c.note(slog.LevelWarn, "the wall clock jumped against the local clock; renewing", "jump", drift-s.drift)
		s.doubtAt, s.doubtBy, s.cleared = now, now.add(c.margin), make(chan struct{})
		signal(s.beatSoon)
	}
	s.drift = drift
	if s.doubtBy != 0 {
		s.trust.Store(min(s.trust.Load(), int64(s.doubtBy)))
	}
}

// undoubt ends the doubt. Called with the client's mutex held.
func (s *session) undoubt() {
	if s.doubtBy == 0 {
		return
	}
	s.doubtBy = 0
	close(s.cleared)
	for _, cl := range s.cellList() {
		cl.lookAgain()
		cl.kick()
	}
}

// settleDoubt waits while the clocks contradict each other.
func (s *session) settleDoubt() {
	s.c.mu.Lock()
	if s.over != nil {
		s.c.mu.Unlock()
		return
	}
	s.compareClocks(s.c.clock.now())
	doubtful, cleared := s.doubtBy != 0, s.cleared
	s.c.mu.Unlock()
	if doubtful {
		<-cleared
	}
}

// close ends the session for good: every lease ends, waiting calls are queued again in a new session, and the database
// is told, best effort.
func (s *session) close(why error) {
	c := s.c
	c.mu.Lock()
	if s.over != nil {
		c.mu.Unlock()
		return
	}
	s.end(why)
	if c.session == s {
		c.session = nil
	}
	c.note(slog.LevelError, "session lost", "error", why)
	if !c.closed {
		c.wg.Go(s.leave)
		c.rehome()
	}
	c.mu.Unlock()
	c.tell()
}

// end cancels everything that rests on the session. Called with the client's mutex held.
func (s *session) end(why error) {
	s.over = why
	s.closed.Store(true)
	s.trust.Store(0)
	if s.doubtBy != 0 {
		s.doubtBy = 0
		close(s.cleared)
	}
	for _, cl := range s.cellList() {
		cl.sessionEnded(why)
	}
	s.cells, s.waiting, s.timed, s.ended = nil, nil, nil, nil
	s.cancel(why)
}

func (s *session) leave() {
	ctx, cancel := s.c.call(context.WithoutCancel(s.ctx))
	defer cancel()
	if err := s.c.store.Leave(ctx, s.id); err != nil {
		s.c.log.Warn("the session could not be ended in the database; it ends by its TTL", "error", err)
	}
}

// rehome queues orphaned waiters again, oldest first, once a session can be joined. Called with the client's mutex held.
func (c *Client) rehome() {
	if len(c.orphans) == 0 || c.homing {
		return
	}
	c.homing = true
	c.wg.Go(func() {
		for {
			s, err := c.joined(c.base)
			c.mu.Lock()
			if c.closed {
				c.homing = false
				c.mu.Unlock()
				return
			}
			if err == nil && s.over == nil {
				for _, w := range c.orphans {
					s.cell(w.req.stored).arrive(w)
				}
				c.orphans, c.homing = nil, false
				c.mu.Unlock()
				c.tell()
				return
			}
			if err != nil && c.hopeless(err) {
				for _, w := range c.orphans {
					w.finish(nil, err)
				}
				c.orphans, c.homing = nil, false
				c.mu.Unlock()
				return
			}
			c.mu.Unlock()
			if err != nil {
				c.log.Warn("no session can be joined; trying again", "error", err)
				c.sleep(c.base, c.ttl/15)
			}
		}
	})
}

// hopeless reports whether trying again cannot help.
func (c *Client) hopeless(err error) bool {
	fault := c.store.Classify(err)
	return fault == driver.FaultPermanent || fault == driver.FaultDenied
}

// sleep waits for d or until ctx ends.
func (c *Client) sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// signal wakes a goroutine that may be waiting on ch, a channel of capacity one.
func signal(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}
