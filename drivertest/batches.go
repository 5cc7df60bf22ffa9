package drivertest

import (
	"fmt"
	"slices"

	"github.com/holdfastdb/holdfast/driver"
)

func batchRules() []rule {
	return []rule{
		{name: "an empty batch does nothing", check: func(e *env) {
			taken, err := e.s.Grab(e.ctx, nil)
			if len(taken) != 0 || err != nil {
				e.t.Errorf("Grab of nothing: %v, %v", taken, err)
			}
			recs, err := e.s.Load(e.ctx, nil)
			if len(recs) != 0 || err != nil {
				e.t.Errorf("Load of nothing: %v, %v", recs, err)
			}
			done, err := e.s.Swap(e.ctx, nil)
			if len(done) != 0 || err != nil {
				e.t.Errorf("Swap of nothing: %v, %v", done, err)
			}
			fates, err := e.s.Reap(e.ctx, nil, nil, driver.Caution{})
			if len(fates) != 0 || err != nil {
				e.t.Errorf("Reap of nothing: %v, %v", fates, err)
			}
			rows, err := e.s.Sessions(e.ctx, nil)
			if len(rows) != 0 || err != nil {
				e.t.Errorf("Sessions of nothing: %v, %v", rows, err)
			}
			e.same("records after empty batches", []driver.Record{}, e.list(driver.Query{}))
		}},
		{name: "a batch of grabs answers each ask in its place", check: func(e *env) { grabBatch(e, driver.MaxBatch) }},
		{name: "a batch of two grabs answers each ask in its place", check: func(e *env) { grabBatch(e, 2) }},
		{name: "a batch of swaps answers each change in its place", check: func(e *env) { swapBatch(e, driver.MaxBatch) }},
		{name: "a batch of two swaps answers each change in its place", check: func(e *env) { swapBatch(e, 2) }},
	}
}

// batchName is the name at place i of a batch; the order of the batch is not that of the names.
func batchName(i int) string { return fmt.Sprintf("batch %03d", (i*211)%driver.MaxBatch) }

// grabBatch asks for n names of which every third is held and every third is free with too high a revision.
func grabBatch(e *env, n int) {
	asks, want, stored := make([]driver.Ask, n), make([]bool, n), make([]driver.Record, n)
	var before []driver.Ask
	var released []driver.Change
	for i := range n {
		name := batchName(i)
		asks[i] = driver.Ask{Name: name, Seed: t0 + driver.Micros(i%7), Holder: fullEntry(i)}
		switch (i + 1) % 3 {
		case 0:
			before = append(before, driver.Ask{Name: name, Seed: t0 - 1, Holder: holder()})
			stored[i] = held(name, t0-1, before[len(before)-1].Holder)
		case 1:
			before = append(before, driver.Ask{Name: name, Seed: t0 + 98, Holder: holder()})
			released = append(released, driver.Change{Name: name, Old: t0 + 98, New: t0 + 99})
			stored[i] = driver.Record{Name: name, Revision: t0 + 99}
		case 2:
			want[i] = true
			stored[i] = held(name, asks[i].Seed, asks[i].Holder)
		}
	}
	if _, err := e.s.Grab(e.ctx, before); err != nil {
		e.t.Fatalf("Grab of %d names: %v", len(before), err)
	}
	if _, err := e.s.Swap(e.ctx, released); err != nil {
		e.t.Fatalf("Swap of %d names: %v", len(released), err)
	}
	taken, err := e.s.Grab(e.ctx, asks)
	if err != nil {
		e.t.Fatalf("Grab of %d names: %v", n, err)
	}
	e.same("answers", want, taken)
	e.sameBatch(stored)

	taken, err = e.s.Grab(e.ctx, asks)
	if err != nil {
		e.t.Fatalf("Grab of %d names, again: %v", n, err)
	}
	e.same("answers to the same batch again", make([]bool, n), taken)
	e.sameBatch(stored)
}

// swapBatch makes n changes of which every second applies and some concern absent records.
func swapBatch(e *env, n int) {
	asks := make([]driver.Ask, 0, n)
	for i := range n {
		if i%5 != 4 {
			asks = append(asks, driver.Ask{Name: batchName(i), Seed: t0 + driver.Micros(i), Holder: holder()})
		}
	}
	if _, err := e.s.Grab(e.ctx, asks); err != nil {
		e.t.Fatalf("Grab of %d names: %v", len(asks), err)
	}
	changes := make([]driver.Change, n)
	want := make([]bool, n)
	var stored []driver.Record
	for i := range n {
		name, rev := batchName(i), t0+driver.Micros(i)
		want[i] = i%2 == 1 && i%5 != 4
		c := driver.Change{Name: name, Old: rev, New: rev + 1000, Holders: []driver.Entry{fullEntry(i)}}
		if i%2 == 0 {
			c.Old--
		}
		if i%3 == 0 {
			c.Note = &driver.Note{Data: []byte(name), Token: rev}
		}
		if i%7 == 0 {
			c.Holders = nil
		}
		changes[i] = c
		switch {
		case want[i]:
			stored = append(stored, driver.Record{Name: name, Revision: c.New, Holders: c.Holders, Note: c.Note})
		case i%5 == 4:
			stored = append(stored, driver.Record{Name: name})
		default:
			at := slices.IndexFunc(asks, func(a driver.Ask) bool { return a.Name == name })
			stored = append(stored, held(name, rev, asks[at].Holder))
		}
	}
	done, err := e.s.Swap(e.ctx, changes)
	if err != nil {
		e.t.Fatalf("Swap of %d names: %v", n, err)
	}
	e.same("answers", want, done)
	e.sameBatch(stored)
}

// sameBatch loads all those records in one call and compares; an absent one is asked for by a known revision.
func (e *env) sameBatch(want []driver.Record) {
	e.t.Helper()
	known := make([]driver.Known, len(want))
	for i, r := range want {
		known[i] = driver.Known{Name: r.Name, Revision: 1}
	}
	got, err := e.s.Load(e.ctx, known)
	if err != nil {
		e.t.Fatalf("Load of %d names: %v", len(known), err)
	}
	e.same("records", want, got)
}
