// Package holdmem keeps records and sessions in the memory of one process. It is the reference for what a
// [driver.Store] does, and the test double for programs that use Holdfast: their tests need no database.
//
// A store is one database. Clients that are to see each other share the same *Store; a new one is empty. It starts no
// goroutine and reads time only from package time, so inside a testing/synctest bubble it is deterministic. It cannot
// push, so clients poll it.
//
// It is strict where a database would be lenient: a request that breaks the law of [driver.Store] or the sizes of
// package driver is answered by an error that Classify calls FaultPermanent, so that a mistake of a caller shows in
// the first test.
package holdmem

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/holdfastdb/holdfast/driver"
)

// Store is a database in memory. Make one with New; it is safe for concurrent use, and nothing has to be closed.
type Store struct {
	mu       sync.Mutex // guards all below; held for plain computing only
	offset   driver.Micros
	records  map[string]*row
	sessions map[driver.ID]*sessionRow
}

var _ driver.Store = (*Store)(nil)

// New returns an empty store. It is set up already.
func New() *Store {
	return &Store{records: map[string]*row{}, sessions: map[driver.ID]*sessionRow{}}
}

// StepClock moves the database's clock by d, rounded down to whole microseconds, as an operator or NTP does on a
// server: by d > 0 all sessions age at once, after d < 0 their beats lie in the future. Steps add up.
func (s *Store) StepClock(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.offset += d.Microseconds()
}

// Damage overwrites the stored state of a record with bytes that are no state, as a faulty disk or a careless hand does,
// and does nothing if there is no such record. Load and List report the record by a *driver.DamagedError from then on.
func (s *Store) Damage(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.records[name]; r != nil {
		r.state = []byte(`{"holders":[{"lease":"cut off`)
	}
}

// now is the database's clock; s.mu is held.
func (s *Store) now() driver.Micros { return time.Now().UnixMicro() + s.offset }

// Setup does nothing: a store in memory is ready when New returns. It fails only if ctx is over.
func (s *Store) Setup(ctx context.Context) error { return alive(ctx) }

// Classify says what an error of this store means: FaultNotApplied if the context was over before the call began,
// FaultPermanent for a request that breaks the law and for a damaged record, FaultUnknown for an error of anyone else.
func (s *Store) Classify(err error) driver.Fault {
	var own *callError
	if errors.As(err, &own) {
		return own.fault
	}
	var damaged *driver.DamagedError
	if errors.As(err, &damaged) {
		return driver.FaultPermanent
	}
	return driver.FaultUnknown
}

// callError is an error this store made itself: the whole call did nothing.
type callError struct {
	fault driver.Fault
	err   error
}

func (e *callError) Error() string { return "holdmem: " + e.err.Error() }

func (e *callError) Unwrap() error { return e.err }

// alive refuses a call whose context is over before anything was done.
func alive(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return &callError{fault: driver.FaultNotApplied, err: err}
	}
	return nil
}

// refuse makes the error for a request that breaks the law.
func refuse(format string, args ...any) error {
	return &callError{fault: driver.FaultPermanent, err: fmt.Errorf(format, args...)}
}

// checkBatch refuses a batch that is too large, has an unusable name, or has one name twice.
func checkBatch[T any](items []T, name func(T) string) error {
	if len(items) > driver.MaxBatch {
		return refuse("a batch of %d, the most is %d", len(items), driver.MaxBatch)
	}
	seen := make(map[string]bool, len(items))
	for _, item := range items {
		n := name(item)
		if err := driver.CheckName(n); err != nil {
			return refuse("%w", err)
		}
		if seen[n] {
			return refuse("the name %q stands twice in a batch", n)
		}
		seen[n] = true
	}
	return nil
}
