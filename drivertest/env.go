package drivertest

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/holdfastdb/holdfast/driver"
)

// t0 is the revision rules count from: of the size real ones have (2023 in microseconds, above 2^50), and past.
const t0 driver.Micros = 1_700_000_000_000_000

// env is what a rule works with. Its methods that answer no error end the rule on one, so they are called only from the
// rule's own goroutine.
type env struct {
	t   *testing.T
	h   Harness
	ctx context.Context
	db  Database
	s   driver.Store // the first handle
	all []driver.Store
}

// handles answers n handles on the rule's database, the first of them e.s.
func (e *env) handles(n int) []driver.Store {
	e.t.Helper()
	for len(e.all) < n {
		e.all = append(e.all, steady{e.db.Store(e.t)})
	}
	return e.all[:n]
}

// race runs n functions at once, each with one of a few handles, and ends the rule if one answers an error.
func (e *env) race(n int, run func(i int, s driver.Store) error) {
	e.t.Helper()
	stores := e.handles(min(n, 4))
	start := make(chan struct{})
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			<-start
			errs[i] = run(i, stores[i%len(stores)])
		})
	}
	close(start)
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		e.t.Fatal(err)
	}
}

// until polls a condition of the database until it holds.
func (e *env) until(what string, holds func() bool) {
	e.t.Helper()
	for !holds() {
		if e.ctx.Err() != nil {
			e.t.Fatalf("waited in vain until %s: %v", what, context.Cause(e.ctx))
		}
		pause(e.ctx, 5*time.Millisecond)
	}
}

// holder makes an exclusive entry of a new lease and session.
func holder() driver.Entry {
	return driver.Entry{Lease: driver.NewID(), Session: driver.NewID(), Weight: driver.All, Limit: driver.All}
}

// held is the record a grab of the entry makes of an absent one.
func held(name string, seed driver.Micros, h driver.Entry) driver.Record {
	h.Rev = seed
	return driver.Record{Name: name, Revision: seed, Holders: []driver.Entry{h}}
}

// grabOne asks for one name.
func grabOne(ctx context.Context, s driver.Store, name string, seed driver.Micros, h driver.Entry) (bool, error) {
	taken, err := s.Grab(ctx, []driver.Ask{{Name: name, Seed: seed, Holder: h}})
	return err == nil && len(taken) == 1 && taken[0], err
}

// grab asks for one name and answers whether it was taken.
func (e *env) grab(name string, seed driver.Micros, h driver.Entry) bool {
	e.t.Helper()
	taken, err := e.s.Grab(e.ctx, []driver.Ask{{Name: name, Seed: seed, Holder: h}})
	if err != nil || len(taken) != 1 {
		e.t.Fatalf("Grab %q with seed %d: %d answers, %v; want one", name, seed, len(taken), err)
	}
	return taken[0]
}

// take grabs a name that is free and answers the record as it must be stored now, the note left out.
func (e *env) take(name string, seed driver.Micros) driver.Record {
	e.t.Helper()
	h := holder()
	if !e.grab(name, seed, h) {
		e.t.Fatalf("Grab %q with seed %d was refused; the record is free and its revision lower", name, seed)
	}
	return held(name, seed, h)
}

// release makes the record free with the revision old + 1 and answers that.
func (e *env) release(name string, old driver.Micros) driver.Micros {
	e.t.Helper()
	if !e.swap(driver.Change{Name: name, Old: old, New: old + 1}) {
		e.t.Fatalf("Swap %q from its revision %d was refused", name, old)
	}
	return old + 1
}

// swapOne makes one change.
func swapOne(ctx context.Context, s driver.Store, c driver.Change) (bool, error) {
	done, err := s.Swap(ctx, []driver.Change{c})
	return err == nil && len(done) == 1 && done[0], err
}

func (e *env) swap(c driver.Change) bool {
	e.t.Helper()
	done, err := e.s.Swap(e.ctx, []driver.Change{c})
	if err != nil || len(done) != 1 {
		e.t.Fatalf("Swap %q from %d to %d: %d answers, %v; want one", c.Name, c.Old, c.New, len(done), err)
	}
	return done[0]
}

// put makes an absent record have that state: a grab, then a swap to the revision seed + 1.
func (e *env) put(rec driver.Record) driver.Record {
	e.t.Helper()
	e.take(rec.Name, rec.Revision-1)
	c := driver.Change{
		Name: rec.Name, Old: rec.Revision - 1, New: rec.Revision,
		Holders: rec.Holders, Tickets: rec.Tickets, Note: rec.Note,
	}
	if !e.swap(c) {
		e.t.Fatalf("Swap %q from its revision %d was refused", rec.Name, c.Old)
	}
	return rec
}

func (e *env) post(name string, ops []byte, before driver.Micros) bool {
	e.t.Helper()
	posted, err := e.s.Post(e.ctx, name, ops, before)
	if err != nil {
		e.t.Fatalf("Post to %q: %v", name, err)
	}
	return posted
}

// loadOne reads a record; an absent one is Record{Name: name}.
func loadOne(ctx context.Context, s driver.Store, name string) (driver.Record, error) {
	recs, err := s.Load(ctx, []driver.Known{{Name: name}})
	if err != nil {
		return driver.Record{}, err
	}
	if len(recs) == 0 {
		return driver.Record{Name: name}, nil
	}
	return recs[0], nil
}

func (e *env) load(name string) driver.Record {
	e.t.Helper()
	rec, err := loadOne(e.ctx, e.s, name)
	if err != nil {
		e.t.Fatalf("Load %q: %v", name, err)
	}
	return rec
}

func (e *env) list(q driver.Query) []driver.Record {
	e.t.Helper()
	recs, err := e.s.List(e.ctx, q)
	if err != nil {
		e.t.Fatalf("List %+v: %v", q, err)
	}
	return recs
}

func (e *env) prune(p driver.Pruning) int {
	e.t.Helper()
	n, err := e.s.Prune(e.ctx, p)
	if err != nil {
		e.t.Fatalf("Prune %+v: %v", p, err)
	}
	return n
}

// stored checks what the database has of one name.
func (e *env) stored(why string, want driver.Record) {
	e.t.Helper()
	e.same(why, want, e.load(want.Name))
}

// same compares what a rule wants with what it got; a nil and an empty list are the same.
func (e *env) same(why string, want, got any) {
	e.t.Helper()
	if sameRecords(want, got) {
		return
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		e.t.Fatalf("%s (-want +got):\n%s", why, diff)
	}
}

// sameRecords reports whether both are equal records or lists of them. It only saves time: cmp needs half a minute under
// the race detector to find a record at its caps equal.
func sameRecords(want, got any) bool {
	switch want := want.(type) {
	case driver.Record:
		got, ok := got.(driver.Record)
		return ok && equal(want, got)
	case []driver.Record:
		got, ok := got.([]driver.Record)
		return ok && slices.EqualFunc(want, got, equal)
	}
	return false
}

func equal(a, b driver.Record) bool {
	sameNote := a.Note == b.Note ||
		a.Note != nil && b.Note != nil && a.Note.Token == b.Note.Token && bytes.Equal(a.Note.Data, b.Note.Data)
	return a.Name == b.Name && a.Revision == b.Revision && sameNote && bytes.Equal(a.Inbox, b.Inbox) &&
		slices.Equal(a.Holders, b.Holders) && slices.Equal(a.Tickets, b.Tickets)
}

// names lists the names of records.
func names(recs []driver.Record) []string {
	list := make([]string, len(recs))
	for i, r := range recs {
		list[i] = r.Name
	}
	return list
}
