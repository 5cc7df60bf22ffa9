package holdfast

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/holdfastdb/holdfast/driver"
)

// Lease is one grant. It is over when it is released, when its session is lost, when its MaxHold is up or when an
// operator breaks it; then its context has ended, with ErrReleased, ErrLost or ErrBroken as its cause. Leases come from a
// Client; the zero value holds nothing, and answers ErrNotHeld where it can. A lease must not be copied.
type Lease struct {
	cell   *cell
	id     driver.ID
	token  driver.Micros
	inner  context.Context // without the look at the clock
	end    context.CancelCauseFunc
	parent *Lease // the lease whose context the caller had
	since  instant
	ends   atomic.Int64          // local instant at which MaxHold is up for its holder; 0: never
	over   atomic.Pointer[error] // why it is over; nil while it is held

	// guarded by the client's mutex
	until  driver.Micros // the database's instant at which MaxHold is up; 0: never
	guards int           // open guarded transactions
	drop   *drop         // the release, once it is under way
}

// leaseContext is the context of a lease. Its Err and Done look at the clock themselves, so that a process that was
// stopped learns at its first look that its time is over.
type leaseContext Lease

type leaseKey struct{}

func (x *leaseContext) Deadline() (time.Time, bool) { return x.inner.Deadline() }

func (x *leaseContext) Done() <-chan struct{} {
	(*Lease)(x).look()
	return x.inner.Done()
}

func (x *leaseContext) Err() error {
	if err := x.inner.Err(); err != nil {
		return err
	}
	(*Lease)(x).look()
	return x.inner.Err()
}

func (x *leaseContext) Value(key any) any {
	if key == (leaseKey{}) {
		return (*Lease)(x)
	}
	return x.inner.Value(key)
}

func newLease(cl *cell, w *waiter, e driver.Entry) *Lease {
	now := cl.s.c.clock.now()
	l := &Lease{cell: cl, id: e.Lease, token: e.Rev, inner: w.inner, end: w.end, parent: w.parent, since: now, until: e.Until()}
	l.retime(now)
	return l
}

// retime sets the local instant at which MaxHold is up: when the high estimate of the database's clock is a margin
// before it. Called with the client's mutex held.
func (l *Lease) retime(now instant) {
	if l.until == 0 {
		return
	}
	c := l.cell.s.c
	left := time.Duration(l.until-c.est.high(now))*time.Microsecond - c.margin
	l.ends.Store(max(1, int64(now.add(left))))
}

// look ends the lease if its time is over by the clock.
func (l *Lease) look() {
	if l.over.Load() != nil {
		return
	}
	s := l.cell.s
	now := s.c.clock.now()
	if now >= s.window() {
		s.close(s.unrenewed(now))
		return
	}
	if ends := l.ends.Load(); ends != 0 && now >= instant(ends) {
		s.c.mu.Lock()
		l.cell.lose(l, l.overdue())
		s.c.mu.Unlock()
		s.c.tell()
	}
}

func (l *Lease) overdue() error {
	return fmt.Errorf("%w: its MaxHold of %v is up", ErrLost, time.Duration(l.until-l.token)*time.Microsecond)
}

// Name returns the name as the caller gave it, without the namespace.
func (l *Lease) Name() string {
	if l == nil || l.cell == nil {
		return ""
	}
	return l.cell.plain()
}

// Context returns a context that ends when the lease is over. It carries the values of the context the lock was taken
// with, but not its cancellation. Its Err and Done read the clock, so that a process that was stopped learns at its
// first look. A context derived from it, and a channel that Done returned earlier, learn when the client's own timer has
// run, some microseconds after the process goes on: before an act that must not come late ask the lease itself.
func (l *Lease) Context() context.Context { return (*leaseContext)(l) }

// Token returns the fencing token, in microseconds of the database's clock. Tokens of one name strictly increase.
func (l *Lease) Token() int64 { return l.token }

// Deadline returns the wall time at which the lease ends if it is not renewed until then, or at its MaxHold.
func (l *Lease) Deadline() time.Time {
	at := l.cell.s.window()
	if ends := l.ends.Load(); ends != 0 {
		at = min(at, instant(ends))
	}
	return l.cell.s.c.clock.at(at)
}

// Err returns nil while the lease is held, then ErrReleased, or an error that is ErrLost (perhaps ErrBroken). It reads
// the clock. While the machine's clocks contradict each other it waits for a renewal, at most a margin (a tenth of the
// TTL, at least 100 ms).
func (l *Lease) Err() error {
	if l == nil || l.cell == nil {
		return ErrNotHeld // nobody was granted this one
	}
	l.look()
	l.cell.s.settleDoubt()
	if err := l.over.Load(); err != nil {
		return *err
	}
	return nil
}

// Release gives the lease back and returns once that is certain. It ignores that ctx has ended and has a time limit of
// its own, a TTL; after that the release goes on in the background. It returns nil also if the lease was released
// before, ErrLost (perhaps ErrBroken) if it had been lost before its first Release, and ErrGuarded, changing nothing,
// while a guarded transaction is open. It never touches another lease.
func (l *Lease) Release(ctx context.Context) error {
	if l == nil || l.cell == nil {
		return fmt.Errorf("holdfast: release: %w", ErrNotHeld)
	}
	if err := l.release(context.WithoutCancel(ctx)); err != nil {
		return fmt.Errorf("holdfast: release %q: %w", l.Name(), err)
	}
	return nil
}

// Note returns what the holders of the name left there, nil if nothing. It reads the database.
func (l *Lease) Note(ctx context.Context) ([]byte, error) {
	if err := l.Err(); err != nil {
		return nil, fmt.Errorf("holdfast: note of %q: %w", l.Name(), err)
	}
	rec, err := l.cell.s.c.loadOne(ctx, l.cell.name)
	if err != nil {
		return nil, fmt.Errorf("holdfast: note of %q: %w", l.Name(), err)
	}
	if rec.Note == nil {
		return nil, nil
	}
	return rec.Note.Data, nil
}

// SetNote stores a note of at most 4 KiB under the name, for this and all later holders, together with the lease's
// token. It succeeds only while the lease holds: otherwise the error is ErrLost or ErrReleased and the note is
// unchanged. If ctx ends first the outcome is unknown.
func (l *Lease) SetNote(ctx context.Context, note []byte) error {
	if len(note) > driver.MaxNoteBytes {
		return fmt.Errorf("holdfast: set note of %q: %w", l.Name(), badArgument("a note of %d bytes is above the most, %d", len(note), driver.MaxNoteBytes))
	}
	if err := l.setNote(ctx, note); err != nil {
		return fmt.Errorf("holdfast: set note of %q: %w", l.Name(), err)
	}
	return nil
}

// StoredName is the name with its namespace. Together with ID, Store and BeginGuard it makes a Lease a driver.Lease, for
// the guarded transactions of the backends.
func (l *Lease) StoredName() string { return l.cell.name }

// ID returns the lease id, new for every attempt.
func (l *Lease) ID() driver.ID { return l.id }

// Store returns the store the lease was taken through.
func (l *Lease) Store() driver.Store { return l.cell.s.c.store }

// BeginGuard opens a guarded section: until end is called, Release and SetNote answer ErrGuarded. The returned context
// is ctx, ended early if the lease is over. Call InTx of the backend instead.
func (l *Lease) BeginGuard(ctx context.Context) (context.Context, func(), error) {
	if err := l.Err(); err != nil {
		return nil, nil, err
	}
	guarded, cancel := context.WithCancelCause(ctx) // not under the mutex: ctx is the caller's
	c := l.cell.s.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := l.over.Load(); err != nil {
		cancel(*err)
		return nil, nil, *err
	}
	l.guards++
	stop := context.AfterFunc(l.inner, func() { cancel(context.Cause(l.inner)) })
	var ended atomic.Bool
	return guarded, func() {
		if ended.Swap(true) {
			return
		}
		stop()
		cancel(context.Canceled)
		c.mu.Lock()
		defer c.mu.Unlock()
		l.guards--
	}, nil
}

// finish ends the lease once; it reports whether this call did. Called with the client's mutex held.
func (l *Lease) finish(why error) bool {
	if !l.over.CompareAndSwap(nil, &why) {
		return false
	}
	l.end(why)
	return true
}
