package drivertest

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/holdfastdb/holdfast/driver"
)

func grabRules() []rule {
	return []rule{
		{name: "a grab creates an absent record with the seed as revision and token", check: func(e *env) {
			h := fullEntry(7)
			h.Rev = 12345
			if !e.grab("absent", t0, h) {
				e.t.Fatal("Grab of an absent record was refused")
			}
			e.stored("the record after the grab", held("absent", t0, h))
		}},
		{name: "a grab of a held record is refused and changes nothing", check: func(e *env) {
			rec := e.take("held", t0)
			for _, seed := range []driver.Micros{t0 - 1, t0, t0 + 1, t0 + 1e9} {
				if e.grab("held", seed, holder()) {
					e.t.Fatalf("seed %d took a held record of revision %d", seed, t0)
				}
				e.stored("the record after a refused grab", rec)
			}
		}},
		{name: "a grab of a record with only tickets is refused", check: func(e *env) {
			rec := e.put(driver.Record{Name: "queued", Revision: t0, Tickets: []driver.Entry{fullEntry(1)}})
			if e.grab("queued", t0+1000, holder()) {
				e.t.Fatal("Grab took a record that has a ticket")
			}
			e.stored("the record after a refused grab", rec)
		}},
		{name: "a grab of a free record needs a seed above its revision", check: func(e *env) {
			e.take("free", t0)
			rev := e.release("free", t0)
			for _, seed := range []driver.Micros{1, t0, rev - 1, rev} {
				if e.grab("free", seed, holder()) {
					e.t.Fatalf("seed %d took a free record of revision %d", seed, rev)
				}
				e.stored("the record after a refused grab", driver.Record{Name: "free", Revision: rev})
			}
			e.stored("the record after a grab with a higher seed", e.take("free", rev+1))
		}},
		{name: "a grab leaves the note", check: func(e *env) {
			note := &driver.Note{Data: []byte("since Tuesday"), Token: t0 - 5}
			e.put(driver.Record{Name: "noted", Revision: t0, Note: note})
			rec := e.take("noted", t0+10)
			rec.Note = note
			e.stored("the record after the grab", rec)
		}},
	}
}

func swapRules() []rule {
	return []rule{
		{name: "a swap applies only from its own revision", check: func(e *env) {
			rec := e.take("swapped", t0)
			for _, old := range []driver.Micros{1, t0 - 1, t0 + 1, t0 + 1e9} {
				if e.swap(driver.Change{Name: "swapped", Old: old, New: old + 5}) {
					e.t.Fatalf("a change from revision %d applied to a record of revision %d", old, t0)
				}
				e.stored("the record after a refused swap", rec)
			}
			if !e.swap(driver.Change{Name: "swapped", Old: t0, New: t0 + 77}) {
				e.t.Fatal("a change from the record's revision was refused")
			}
			e.stored("the record after the swap", driver.Record{Name: "swapped", Revision: t0 + 77})
		}},
		{name: "a swap never creates a record", check: func(e *env) {
			c := driver.Change{Name: "absent", Old: t0, New: t0 + 1, Holders: []driver.Entry{holder()}}
			if e.swap(c) {
				e.t.Fatal("Swap of an absent record answers done")
			}
			e.same("records after a swap of an absent one", []driver.Record{}, e.list(driver.Query{}))
		}},
		{name: "a swap stores an empty inbox", check: func(e *env) {
			rec := e.take("posted", t0)
			if !e.post("posted", driver.EncodeOps([]driver.Op{drop()}), t0+100) {
				e.t.Fatal("Post to a held record was refused")
			}
			c := driver.Change{Name: "posted", Old: t0 + 1, New: t0 + 2, Holders: rec.Holders}
			if !e.swap(c) {
				e.t.Fatal("a change from the revision after the post was refused")
			}
			rec.Revision = t0 + 2
			e.stored("the record after the swap", rec)
			e.release("posted", t0+2)
			e.stored("the record after the release", driver.Record{Name: "posted", Revision: t0 + 3})
			e.take("posted", t0+4)
		}},
		{name: "a swap without a note leaves the note and one with a note replaces it", check: func(e *env) {
			want := e.put(driver.Record{Name: "noted", Revision: t0})
			all := make([]byte, driver.MaxNoteBytes)
			for i := range all {
				all[i] = byte(i)
			}
			for _, data := range [][]byte{[]byte("first"), all, {}, []byte("\x00"), []byte("last\n")} {
				want.Note = &driver.Note{Data: data, Token: want.Revision}
				c := driver.Change{Name: "noted", Old: want.Revision, New: want.Revision + 1, Note: want.Note}
				if want.Revision++; !e.swap(c) {
					e.t.Fatal("a change with a note was refused")
				}
				e.stored(fmt.Sprintf("the record after a note of %d bytes", len(data)), want)
				want.Revision = e.release("noted", want.Revision)
				e.stored("the record after a swap without a note", want)
			}
		}},
		{name: "a swap keeps every field of every entry and their order", check: func(e *env) {
			rec := driver.Record{Name: "full", Revision: t0}
			for i := range 20 {
				rec.Holders = append(rec.Holders, fullEntry(i))
				rec.Tickets = append(rec.Tickets, fullEntry(i+100))
			}
			rec.Tickets[3].Session = driver.ID{}
			e.stored("the record after the swap", e.put(rec))
			e.same("the record as listed", []driver.Record{rec}, e.list(driver.Query{}))
		}},
		{name: "a record at its caps is kept whole", check: func(e *env) {
			rec := driver.Record{Name: "caps", Revision: t0}
			for i := range driver.MaxHolders {
				rec.Holders = append(rec.Holders, fullEntry(i))
			}
			for i := range driver.MaxTickets {
				rec.Tickets = append(rec.Tickets, fullEntry(i))
			}
			rec.Note = &driver.Note{Data: bytes.Repeat([]byte{0xff}, driver.MaxNoteBytes), Token: t0}
			e.put(rec)
			ops := opsOfSize(e, driver.MaxInboxBytes)
			if !e.post("caps", ops, t0+100) {
				e.t.Fatal("Post within MaxInboxBytes was refused")
			}
			rec.Inbox, rec.Revision = ops, t0+1
			listed := e.list(driver.Query{})
			e.same("records listed", []string{"caps"}, names(listed))
			for i, got := range []driver.Record{e.load("caps"), listed[0]} {
				if !equal(rec, got) { // a diff of some megabytes would take minutes and help nobody
					e.t.Fatalf("answer %d is another record: want %s, got %s", i, sizes(rec), sizes(got))
				}
			}
		}},
	}
}

func loadRules() []rule {
	return []rule{
		{name: "a load leaves out what is unchanged and keeps the order of the question", check: func(e *env) {
			b, a := e.take("b", t0), e.take("a", t0)
			recs, err := e.s.Load(e.ctx, []driver.Known{
				{Name: "never"}, {Name: "b", Revision: t0 - 1}, {Name: "gone", Revision: t0}, {Name: "a"},
			})
			e.same("error", nil, err)
			e.same("records", []driver.Record{b, {Name: "gone"}, a}, recs)

			recs, err = e.s.Load(e.ctx, []driver.Known{{Name: "b", Revision: t0}, {Name: "a", Revision: t0 + 1}})
			e.same("error", nil, err)
			e.same("records beside an unchanged one", []driver.Record{a}, recs)
		}},
		{name: "a load sees every acknowledged write, also of another handle", check: func(e *env) {
			stores := e.handles(3)
			rev := t0
			for round := range e.h.Rounds {
				name := fmt.Sprint("seen ", round%3)
				h := holder()
				taken, err := grabOne(e.ctx, stores[round%3], name, rev, h)
				if err != nil || !taken {
					e.t.Fatalf("Grab %q: %v, %v; want taken", name, taken, err)
				}
				got, err := loadOne(e.ctx, stores[(round+1)%3], name)
				e.same("error", nil, err)
				e.same("the record by another handle", held(name, rev, h), got)
				done, err := swapOne(e.ctx, stores[(round+1)%3], driver.Change{Name: name, Old: rev, New: rev + 1})
				if err != nil || !done {
					e.t.Fatalf("Swap %q: %v, %v; want done", name, done, err)
				}
				got, err = loadOne(e.ctx, stores[(round+2)%3], name)
				e.same("error", nil, err)
				e.same("the record by a third handle", driver.Record{Name: name, Revision: rev + 1}, got)
				rev += 10
			}
		}},
		{name: "questions and answers share no memory with the store", check: func(e *env) {
			rec := e.put(driver.Record{
				Name: "own", Revision: t0, Holders: []driver.Entry{fullEntry(1)},
				Tickets: []driver.Entry{fullEntry(2)}, Note: &driver.Note{Data: []byte("mine"), Token: t0},
			})
			ops := driver.EncodeOps([]driver.Op{drop()})
			if !e.post("own", ops, t0+10) {
				e.t.Fatal("Post to a held record was refused")
			}
			want := driver.Record{
				Name: "own", Revision: t0 + 1, Holders: slices.Clone(rec.Holders), Tickets: slices.Clone(rec.Tickets),
				Inbox: bytes.Clone(ops), Note: &driver.Note{Data: []byte("mine"), Token: t0},
			}
			rec.Inbox = ops
			scribble(rec)
			loaded := e.load("own")
			e.same("a load after the caller overwrote what it had sent", want, loaded)
			scribble(loaded)
			e.same("a load after a loaded answer was overwritten", want, e.load("own"))
			scribble(e.list(driver.Query{})[0])
			e.same("a load after a listed answer was overwritten", want, e.load("own"))
			e.same("a list after both were overwritten", []driver.Record{want}, e.list(driver.Query{}))
		}},
	}
}

// sizes describes a record too large to be shown.
func sizes(r driver.Record) string {
	note := 0
	if r.Note != nil {
		note = len(r.Note.Data)
	}
	return fmt.Sprintf("revision %d, %d holders, %d tickets, an inbox of %d bytes, a note of %d",
		r.Revision, len(r.Holders), len(r.Tickets), len(r.Inbox), note)
}

// scribble overwrites all memory of a record.
func scribble(r driver.Record) {
	r.Holders[0].Label, r.Tickets[0].Label = "scribbled", "scribbled"
	r.Inbox[0], r.Note.Data[0] = '#', '#'
}

// fullEntry makes an entry with every field set, different for every i and as large as an entry can be.
func fullEntry(i int) driver.Entry {
	label := fmt.Sprintf("%d \"Müller\" <&> \\ \U0001F512 \u2028 ", i)
	label += strings.Repeat("x", driver.MaxLabelBytes-len(label))
	return driver.Entry{
		Lease: driver.NewID(), Session: driver.NewID(), Weight: int64(i + 1), Limit: driver.All - 1,
		Rev: t0 - driver.Micros(i), MinHold: time.Duration(i) * time.Microsecond, MaxHold: 300*time.Hour + time.Microsecond,
		Broken: i%2 == 1, Label: label,
	}
}
