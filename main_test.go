package holdfast_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/driver"
	"github.com/holdfastdb/holdfast/holdmem"
)

func TestMain(m *testing.M) {
	child()
	goleak.VerifyTestMain(m)
}

// world is one in-memory database inside a bubble of testing/synctest, in which time is virtual.
type world struct {
	*testing.T
	store *holdmem.Store
	wg    sync.WaitGroup
}

// bubble runs f as a parallel test in virtual time.
func bubble(t *testing.T, f func(w *world)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &world{T: t, store: holdmem.New()}
		f(w)
		w.wg.Wait()
	})
}

// Go runs f beside the test, which waits for it at its end.
func (w *world) Go(f func()) { w.wg.Go(f) }

// client returns a client that is closed at the end of the bubble.
func (w *world) client(opts *holdfast.Options) *holdfast.Client { return w.clientOf(w.store, opts) }

func (w *world) clientOf(store driver.Store, opts *holdfast.Options) *holdfast.Client {
	c := holdfast.New(store, opts)
	w.Cleanup(func() { c.Close(context.Background()) })
	return c
}

func (w *world) lock(c *holdfast.Client, name string, opts ...holdfast.Option) *holdfast.Lease {
	w.Helper()
	l, err := c.Lock(w.Context(), name, opts...)
	if err != nil {
		w.Fatalf("Lock %q: %v", name, err)
	}
	return l
}

func (w *world) release(l *holdfast.Lease) {
	w.Helper()
	if err := l.Release(w.Context()); err != nil {
		w.Fatalf("Release %q: %v", l.Name(), err)
	}
}

// record returns the record as stored.
func (w *world) record(name string) driver.Record {
	w.Helper()
	recs, err := w.store.Load(w.Context(), []driver.Known{{Name: name}})
	if err != nil {
		w.Fatal(err)
	}
	if len(recs) == 0 {
		return driver.Record{Name: name}
	}
	return recs[0]
}

// free fails unless nothing is left of anybody in the record.
func (w *world) free(name string) {
	w.Helper()
	if rec := w.record(name); !rec.Free() {
		w.Fatalf("left behind in %q: holders %v, tickets %v, inbox %q", name, rec.Holders, rec.Tickets, rec.Inbox)
	}
}

// spy counts the calls of a store and may run something before or after them.
type spy struct {
	driver.Store
	mu     sync.Mutex
	counts map[string]int
	before func(call string) error // an error keeps the call from being made
	after  func(call string) error // an error takes the reply's place
}

func newSpy(store driver.Store) *spy { return &spy{Store: store, counts: make(map[string]int)} }

// count returns how often the calls were made, all but beats and joins if none are named.
func (s *spy) count(calls ...string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for call, times := range s.counts {
		for _, c := range calls {
			if c == call {
				n += times
			}
		}
		if len(calls) == 0 && call != "Beat" && call != "Join" {
			n += times
		}
	}
	return n
}

func (s *spy) around(call string, do func() error) error {
	s.mu.Lock()
	s.counts[call]++
	before, after := s.before, s.after
	s.mu.Unlock()
	if before != nil {
		if err := before(call); err != nil {
			return err
		}
	}
	if err := do(); err != nil {
		return err
	}
	if after != nil {
		return after(call)
	}
	return nil
}

// hooks sets what runs before and after every call.
func (s *spy) hooks(before, after func(call string) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.before, s.after = before, after
}

func (s *spy) Join(ctx context.Context, x driver.Session) (now driver.Micros, err error) {
	err = s.around("Join", func() error { now, err = s.Store.Join(ctx, x); return err })
	return now, err
}

func (s *spy) Beat(ctx context.Context, id driver.ID, prev, next driver.Nonce) (r driver.BeatReply, err error) {
	err = s.around("Beat", func() error { r, err = s.Store.Beat(ctx, id, prev, next); return err })
	return r, err
}

func (s *spy) Reap(ctx context.Context, ids, certified []driver.ID, care driver.Caution) (f map[driver.ID]driver.Fate, err error) {
	err = s.around("Reap", func() error { f, err = s.Store.Reap(ctx, ids, certified, care); return err })
	return f, err
}

func (s *spy) Grab(ctx context.Context, asks []driver.Ask) (taken []bool, err error) {
	err = s.around("Grab", func() error { taken, err = s.Store.Grab(ctx, asks); return err })
	if err != nil {
		taken = nil
	}
	return taken, err
}

func (s *spy) Load(ctx context.Context, known []driver.Known) (recs []driver.Record, err error) {
	err = s.around("Load", func() error { recs, err = s.Store.Load(ctx, known); return err })
	return recs, err
}

func (s *spy) Swap(ctx context.Context, changes []driver.Change) (done []bool, err error) {
	err = s.around("Swap", func() error { done, err = s.Store.Swap(ctx, changes); return err })
	if err != nil {
		done = nil
	}
	return done, err
}

func (s *spy) Post(ctx context.Context, name string, ops []byte, before driver.Micros) (ok bool, err error) {
	err = s.around("Post", func() error { ok, err = s.Store.Post(ctx, name, ops, before); return err })
	return ok, err
}

func (s *spy) Leave(ctx context.Context, id driver.ID) error {
	return s.around("Leave", func() error { return s.Store.Leave(ctx, id) })
}
