package holdfast

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/holdfastdb/holdfast/driver"
)

// Client takes locks through one store, with one session and one heartbeat however many it holds. Make one per process
// with New, share it, and Close it at the end.
type Client struct {
	store     driver.Store
	opts      Options
	ttl       time.Duration
	margin    time.Duration
	optErr    error // what is wrong with the options; every call answers it
	log       *slog.Logger
	clock     *clock
	mutant    mutant
	processes bool            // look at processes of this machine
	repeats   bool            // the store may run an answered request once more
	base      context.Context // ends at Close, after the releases
	cancel    context.CancelCauseFunc
	wg        sync.WaitGroup
	gate      chan struct{} // record calls in flight
	urgent    chan struct{} // releases and cancels in flight
	shutdown  chan struct{} // closed when Close is done

	mu      sync.Mutex // guards all that follows, and the state of sessions, cells, waiters and leases
	closed  bool
	session *session
	joining *join
	orphans []*waiter // waiting calls whose session ended, until they are queued again
	homing  bool      // a goroutine is queueing orphans again
	arrived uint64    // waiters so far
	est     estimator
	watched instant // since when the database's clock is known without a step; 0: never read
	stepped bool    // it stepped then; else that was the first contact
	hints   *hints
	rng     *rand.Rand // for jitter
	fates   map[driver.ID]*fate
	events  []func()
	telling bool // a goroutine is calling events
}

// New returns a client of store. It does no I/O: the first call that takes a lock joins the session. opts may be nil.
// Options out of range are reported by every call, as ErrArgument or ErrName.
func New(store driver.Store, opts *Options) *Client {
	c := &Client{
		store: store, ttl: DefaultTTL, log: slog.New(slog.DiscardHandler), clock: newClock(), hints: newHints(),
		rng:   rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())),
		fates: make(map[driver.ID]*fate), gate: make(chan struct{}, 16), urgent: make(chan struct{}, 16),
		shutdown: make(chan struct{}),
	}
	if opts != nil {
		c.opts, c.optErr = *opts, opts.check()
	}
	if store == nil {
		c.optErr = badArgument("the client has no store")
	}
	if c.opts.TTL != 0 {
		c.ttl = c.opts.TTL
	}
	c.margin = driver.Margin(c.ttl)
	if c.opts.Logger != nil {
		c.log = c.opts.Logger
	}
	if s, ok := store.(driver.SameMachine); ok {
		c.processes = s.SameMachine() && !c.opts.IgnoreProcesses
	}
	if r, ok := store.(driver.Repeater); ok {
		c.repeats = r.Repeats()
	}
	c.base, c.cancel = context.WithCancelCause(context.Background())
	return c
}

// Setup creates or upgrades the store's tables. Call it once per deployment, or at every start: it may race. Before it,
// other calls fail with driver.ErrNotSetUp.
func (c *Client) Setup(ctx context.Context) error {
	if err := c.usable(); err != nil {
		return fmt.Errorf("holdfast: set up: %w", err)
	}
	if err := c.store.Setup(ctx); err != nil {
		return fmt.Errorf("holdfast: set up: %w", err)
	}
	return nil
}

// Lock waits until it holds name exclusively. It returns an error as soon as ctx ends, and then holds nothing: what the
// database may have granted meanwhile is taken back in the background. While the database cannot be reached it goes on
// trying; only the first call of a client, which joins the session, reports that at once.
//
// The lease's context carries ctx's values but not its cancellation. Called with a context that comes from a lease of
// the same name it fails with ErrReentrant.
func (c *Client) Lock(ctx context.Context, name string, opts ...Option) (*Lease, error) {
	return c.acquire(ctx, "lock", c.request(name, driver.All, driver.All, opts))
}

// TryLock holds name exclusively at once or fails with a *HeldError, which is ErrHeld. It never queues, and does not
// overtake those who wait.
func (c *Client) TryLock(ctx context.Context, name string, opts ...Option) (*Lease, error) {
	return c.acquire(ctx, "try lock", tried(c.request(name, driver.All, driver.All, opts)))
}

// RLock waits until it holds name as one of any number of readers; no writer holds it meanwhile. It queues behind a
// waiting writer. There is no upgrade: with a context of the reader's lease, Lock fails with ErrReentrant.
func (c *Client) RLock(ctx context.Context, name string, opts ...Option) (*Lease, error) {
	return c.acquire(ctx, "read-lock", c.request(name, 1, driver.All, opts))
}

// TryRLock is RLock that does not wait; see TryLock.
func (c *Client) TryRLock(ctx context.Context, name string, opts ...Option) (*Lease, error) {
	return c.acquire(ctx, "try read-lock", tried(c.request(name, 1, driver.All, opts)))
}

// Do waits for name, runs fn, waits for it and releases. fn's context is ctx, ended early if the lease is lost. The
// error is fn's; joined with ErrLost if the lease was lost, or taken by Close (then ErrClosed too), before fn
// returned. If fn never ran the error is ErrNotHeld beside the reason. fn does not run without the lock. A panic in
// fn releases, and goes on.
func (c *Client) Do(ctx context.Context, name string, fn func(context.Context) error, opts ...Option) error {
	r := c.request(name, driver.All, driver.All, opts)
	r.inherit = true
	_, err := c.run(ctx, "do", r, fn)
	return err
}

// TryDo is Do that does not wait: if the name is held, fn does not run, and ran is false and err nil.
func (c *Client) TryDo(ctx context.Context, name string, fn func(context.Context) error, opts ...Option) (ran bool, err error) {
	r := tried(c.request(name, driver.All, driver.All, opts))
	r.inherit = true
	ran, err = c.run(ctx, "try do", r, fn)
	if !ran && errors.Is(err, ErrHeld) {
		return false, nil
	}
	return ran, err
}

func (c *Client) run(ctx context.Context, verb string, r *request, fn func(context.Context) error) (ran bool, err error) {
	// The lease's context must hang on one of package context: to end it under the mutex then calls no code of the caller.
	between, stop := context.WithCancel(ctx)
	defer stop()
	lease, err := c.acquire(between, verb, r)
	if err != nil {
		return false, notRun(err)
	}
	defer func() {
		if early := lease.over.Load(); early != nil && errors.Is(*early, ErrReleased) {
			err = errors.Join(err, fmt.Errorf("holdfast: %s %q: %w: %w", verb, r.name, ErrLost, ErrClosed))
			return
		}
		released := lease.Release(ctx)
		if errors.Is(released, ErrLost) {
			err = errors.Join(err, released)
		} else if released != nil {
			c.log.Warn("release goes on in the background", "name", r.name, "error", released)
		}
	}()
	return true, fn(lease.Context())
}

// notRun adds to an error that fn never ran.
func notRun(err error) error { return &notRunError{err} }

type notRunError struct{ error }

func (e *notRunError) Unwrap() []error { return []error{ErrNotHeld, e.error} }

// Semaphore names limit permits under name. It does no I/O. Use a name in one way only: locks, readers and permits of one
// name add up, so that one permit keeps a writer out, and a writer all permits. The limit is the caller's own: callers
// with different limits share the name, each judged by its own limit, so that a limit can be changed without a pause
// (while tickets with the old limit queue, it goes by that).
func (c *Client) Semaphore(name string, limit int) *Semaphore {
	return &Semaphore{client: c, name: name, limit: int64(limit)}
}

// Close releases every lease, in batches, within a third of the TTL, and ends the session, so that whatever could not
// be released in time is free at once for others. Waiting calls return ErrClosed. All goroutines of the client have
// ended when it returns. Like Release it ignores that ctx has ended. It may be called more than once; it does not close
// the store, and always returns nil.
func (c *Client) Close(ctx context.Context) error { return c.shut(ctx) }

func (c *Client) request(name string, weight, limit int64, opts []Option) *request {
	r := &request{name: name, stored: name, weight: weight, limit: limit}
	if c.opts.Namespace != "" {
		r.stored = c.opts.Namespace + "/" + name
	}
	for _, o := range opts {
		o(r)
	}
	if r.label == "" && r.minHold > 0 {
		r.label = c.opts.Label // its entry may outlive the session, which has the client's label
	}
	return r
}

func tried(r *request) *request { r.try = true; return r }

func (c *Client) usable() error {
	if c.optErr != nil {
		return c.optErr
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return ErrClosed
	}
	return nil
}

// call bounds one store call: no call takes longer than a third of the TTL, so that a renewal can follow one that hangs.
func (c *Client) call(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, c.ttl/3)
}
