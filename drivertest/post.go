package drivertest

import (
	"strings"

	"github.com/holdfastdb/holdfast/driver"
)

func postRules() []rule {
	return []rule{
		{name: "a post appends to the inbox and raises the revision by one", check: func(e *env) {
			rec := e.take("posted", t0)
			for range 5 {
				ops := driver.EncodeOps([]driver.Op{drop(), {Kind: driver.OpEnqueue, Entry: fullEntry(3)}})
				if !e.post("posted", ops, t0+1000) {
					e.t.Fatal("Post to a held record was refused")
				}
				rec.Revision++
				rec.Inbox = append(rec.Inbox, ops...)
				e.stored("the record after a post", rec)
			}
			e.same("the record as listed", []driver.Record{rec}, e.list(driver.Query{Busy: true}))
		}},
		{name: "a post to a record with only tickets is appended", check: func(e *env) {
			rec := e.put(driver.Record{Name: "queued", Revision: t0, Tickets: []driver.Entry{fullEntry(1)}})
			rec.Inbox = driver.EncodeOps([]driver.Op{drop()})
			rec.Revision = t0 + 1
			if !e.post("queued", rec.Inbox, t0+10) {
				e.t.Fatal("Post to a record with a ticket was refused")
			}
			e.stored("the record after a post", rec)
		}},
		{name: "a post to an absent record is refused", check: func(e *env) {
			if e.post("absent", driver.EncodeOps([]driver.Op{drop()}), t0) {
				e.t.Fatal("Post to an absent record was accepted")
			}
			e.same("records after a refused post", []driver.Record{}, e.list(driver.Query{}))
		}},
		{name: "a post to a free record is refused", check: func(e *env) {
			e.take("free", t0)
			rev := e.release("free", t0)
			if e.post("free", driver.EncodeOps([]driver.Op{drop()}), rev+1000) {
				e.t.Fatal("Post to a free record was accepted")
			}
			e.stored("the record after a refused post", driver.Record{Name: "free", Revision: rev})
		}},
		{name: "a post at or past its fence is refused", check: func(e *env) {
			rec := e.take("fenced", t0)
			ops := driver.EncodeOps([]driver.Op{drop()})
			for _, before := range []driver.Micros{0, 1, t0 - 1, t0} {
				if e.post("fenced", ops, before) {
					e.t.Fatalf("Post before %d was accepted at revision %d", before, t0)
				}
				e.stored("the record after a refused post", rec)
			}
			if !e.post("fenced", ops, t0+1) {
				e.t.Fatal("Post one revision below its fence was refused")
			}
			rec.Revision, rec.Inbox = t0+1, ops
			if e.post("fenced", ops, t0+1) {
				e.t.Fatal("Post was accepted at its fence")
			}
			e.stored("the record after both", rec)
		}},
		{name: "a post that takes the inbox over its cap is refused", check: func(e *env) {
			rec := e.take("capped", t0)
			quarter := opsOfSize(e, driver.MaxInboxBytes/4)
			for range 3 {
				if !e.post("capped", quarter, t0+1000) {
					e.t.Fatal("Post within MaxInboxBytes was refused")
				}
			}
			if e.post("capped", opsOfSize(e, driver.MaxInboxBytes/4+1), t0+1000) {
				e.t.Fatal("Post to one byte over MaxInboxBytes was accepted")
			}
			rec.Inbox, rec.Revision = []byte(strings.Repeat(string(quarter), 3)), t0+3
			e.stored("the record after a refused post", rec)
			if !e.post("capped", quarter, t0+1000) {
				e.t.Fatal("Post to exactly MaxInboxBytes was refused")
			}
			if e.post("capped", driver.EncodeOps([]driver.Op{drop()}), t0+1000) {
				e.t.Fatal("Post to a full inbox was accepted")
			}
			rec.Inbox, rec.Revision = append(rec.Inbox, quarter...), t0+4
			e.stored("the record with a full inbox", rec)
			e.release("capped", t0+4)
		}},
	}
}

// drop makes the operation that releases a lease nobody has.
func drop() driver.Op { return driver.Op{Kind: driver.OpDrop, Lease: driver.NewID()} }

// opsOfSize makes operations that are exactly that many bytes when encoded.
func opsOfSize(e *env, size int) []byte {
	e.t.Helper()
	labelled := func(n int) []byte {
		h := holder()
		h.Label = strings.Repeat("x", n)
		return driver.EncodeOps([]driver.Op{{Kind: driver.OpEnqueue, Entry: h}})
	}
	least, each := len(labelled(1))-1, len(driver.EncodeOps([]driver.Op{drop()}))
	drops := (size - least - 1) / each
	label := size - least - drops*each
	if drops < 0 || label < 1 || label > driver.MaxLabelBytes {
		e.t.Fatalf("operations of %d bytes cannot be made: %d drops and a label of %d", size, drops, label)
	}
	ops := make([]driver.Op, drops)
	for i := range ops {
		ops[i] = drop()
	}
	return append(driver.EncodeOps(ops), labelled(label)...)
}
