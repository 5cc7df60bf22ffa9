package arbiter_test

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfastdb/holdfast/driver"
	"github.com/holdfastdb/holdfast/internal/arbiter"
)

func begin(t *testing.T, rec driver.Record, now, floor driver.Micros) *arbiter.Draft {
	t.Helper()
	d, err := arbiter.Begin(rec, now, floor)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// many returns n entries of session 1 with one permit of a shared lock each, under leases from first on.
func many(n, first int) []driver.Entry {
	es := make([]driver.Entry, n)
	for i := range es {
		es[i] = want(first+i, 1, 1, driver.All)
		es[i].Rev = driver.Micros(1 + i)
	}
	return es
}

func TestARequestThatCouldNeverBeGrantedIsRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		weight, limit int64
		ok            bool
	}{
		{1, 1, true}, {1, driver.All, true}, {driver.All, driver.All, true}, {5, 5, true},
		{0, 1, false}, {-1, 1, false}, {2, 1, false}, {1, 0, false}, {1, driver.All + 1, false}, {driver.All + 1, driver.All + 1, false},
	} {
		if err := arbiter.Check(c.weight, c.limit); (err == nil) != c.ok {
			t.Errorf("Check(%d, %d) = %v", c.weight, c.limit, err)
		}
		d := begin(t, driver.Record{Revision: 1}, 0, 0)
		if got := d.Request(want(1, 1, c.weight, c.limit)); (got == arbiter.Granted) != c.ok || d.Changed() != c.ok {
			t.Errorf("Request(%d, %d) = %d", c.weight, c.limit, got)
		}
		d = begin(t, driver.Record{Revision: 1}, 0, 0)
		if got := d.Try(want(1, 1, c.weight, c.limit)); (got == arbiter.Granted) != c.ok || d.Changed() != c.ok {
			t.Errorf("Try(%d, %d) = %d", c.weight, c.limit, got)
		}
	}
}

func TestWeightsOfManyExclusiveHoldersAreSummedInSixtyFourBits(t *testing.T) {
	t.Parallel()
	held := many(4, 1) // as a restored or hand-edited record may look: 4 times All overflows 32 bits to 0
	for i := range held {
		held[i].Weight = driver.All
	}
	if got := begin(t, driver.Record{Revision: 9, Holders: held}, 0, 0).Try(want(9, 1, 1, driver.All)); got != arbiter.Refused {
		t.Errorf("Try = %d, want Refused", got)
	}
	if got := begin(t, driver.Record{Revision: 9, Holders: held}, 0, 0).Request(want(9, 1, 1, driver.All)); got != arbiter.Queued {
		t.Errorf("Request = %d, want Queued", got)
	}
}

func TestTwoDraftsOfOneRecordShareNothing(t *testing.T) {
	t.Parallel()
	rec := driver.Record{Revision: 100, Holders: many(2, 1), Tickets: []driver.Entry{want(3, 1, driver.All, driver.All)}}
	rec.Holders, rec.Tickets = slices.Grow(rec.Holders, 8), slices.Grow(rec.Tickets, 8) // room an append could write into
	if got := begin(t, rec, 0, 0).Request(want(9, 1, 1, 1)); got != arbiter.Queued {
		t.Fatalf("Request = %d, want Queued", got)
	}
	var changes []driver.Change
	for n := range 2 {
		d := begin(t, rec, 0, 0)
		d.Drop(lease(3), true)
		if got := d.Request(want(10+n, 1, 1, driver.All)); got != arbiter.Granted {
			t.Fatalf("Request = %d, want Granted", got)
		}
		d.Request(want(20+n, 1, driver.All, driver.All))
		changes = append(changes, d.Change())
	}
	for n, c := range changes {
		if c.Holders[2].Lease != lease(10+n) || c.Tickets[0].Lease != lease(20+n) {
			t.Errorf("draft %d shows %+v", n, c)
		}
	}
	if rec.Holders[:3][2] != (driver.Entry{}) || rec.Tickets[:2][1] != (driver.Entry{}) || rec.Tickets[0].Lease != lease(3) {
		t.Error("a draft wrote into the loaded record")
	}
}

func TestEveryViewOfADraftShowsItsGrants(t *testing.T) {
	t.Parallel()
	rec := driver.Record{Revision: 100, Tickets: many(1, 1)} // a head that fits, as no change of ours leaves it
	for name, shows := range map[string]func(d *arbiter.Draft) bool{
		"Holders": func(d *arbiter.Draft) bool { return len(d.Holders()) == 1 },
		"Tickets": func(d *arbiter.Draft) bool { return len(d.Tickets()) == 0 },
		"Granted": func(d *arbiter.Draft) bool { return len(d.Granted()) == 1 },
		"Changed": (*arbiter.Draft).Changed,
		"Change":  func(d *arbiter.Draft) bool { c := d.Change(); return len(c.Holders) == 1 && c.Holders[0].Rev == 101 },
		"SetNote": func(d *arbiter.Draft) bool { return d.SetNote(lease(1), nil) },
	} {
		if !shows(begin(t, rec, 0, 0)) {
			t.Errorf("%s does not show the grant of a head that fits", name)
		}
	}
}

func TestTheIthGrantOfAChangeHasTokenBasePlusI(t *testing.T) {
	t.Parallel()
	rec := driver.Record{Revision: 50, Holders: []driver.Entry{want(1, 1, driver.All, driver.All)}, Tickets: many(3, 2)}
	for _, c := range []struct{ now, floor, base driver.Micros }{{0, 0, 51}, {70, 0, 70}, {70, 90, 90}, {90, 70, 90}} {
		d := begin(t, rec, c.now, c.floor)
		d.Drop(lease(1), false)
		var tokens []driver.Micros
		for _, e := range d.Granted() {
			tokens = append(tokens, e.Rev)
		}
		if want := []driver.Micros{c.base, c.base + 1, c.base + 2}; !slices.Equal(tokens, want) || d.Change().New != c.base+2 {
			t.Errorf("tokens %v and revision %d, want %v", tokens, d.Change().New, want)
		}
	}
}

func TestAFullRecordTakesNoEntryAlsoWhenFolded(t *testing.T) {
	t.Parallel()
	full := driver.Record{Revision: 9000, Holders: many(driver.MaxHolders, 1)}
	d := begin(t, full, 0, 0)
	if got := d.Try(want(9000, 1, 1, driver.All)); got != arbiter.Full || d.Changed() {
		t.Errorf("Try = %d, changed %v; want Full and unchanged", got, d.Changed())
	}
	if got := d.Request(want(9000, 1, 1, driver.All)); got != arbiter.Queued {
		t.Errorf("Request = %d, want Queued: it fits once a holder goes", got)
	}
	d.Drop(lease(7), false)
	if h := d.Holders(); len(h) != driver.MaxHolders || h[len(h)-1].Lease != lease(9000) {
		t.Errorf("%d holders, the last %s; want the queued one handed over", len(h), short(h[len(h)-1].Lease))
	}

	queue := driver.Record{Revision: 9000, Holders: []driver.Entry{want(9001, 1, driver.All, driver.All)}, Tickets: many(driver.MaxTickets, 1)}
	d = begin(t, queue, 0, 0)
	if got := d.Request(want(9002, 1, 1, 1)); got != arbiter.Full || d.Changed() {
		t.Errorf("Request = %d, changed %v; want Full and unchanged", got, d.Changed())
	}
	queue.Inbox = driver.EncodeOps([]driver.Op{{Kind: driver.OpEnqueue, Entry: want(9002, 1, 1, 1)}})
	if c := begin(t, queue, 0, 0).Change(); !slices.Equal(c.Tickets, queue.Tickets) {
		t.Errorf("%d tickets, want those that were there", len(c.Tickets))
	}
	queue.Inbox = slices.Concat(driver.EncodeOps([]driver.Op{{Kind: driver.OpDrop, Lease: lease(3)}}), queue.Inbox)
	if c := begin(t, queue, 0, 0).Change(); len(c.Tickets) != driver.MaxTickets || c.Tickets[driver.MaxTickets-1].Lease != lease(9002) {
		t.Errorf("%d tickets, want the posted one in the room its post made", len(c.Tickets))
	}
}

func TestALeaseThatIsNotThereChangesNothing(t *testing.T) {
	t.Parallel()
	rec := driver.Record{
		Name: "n", Revision: 50, Note: &driver.Note{Token: 1},
		Holders: []driver.Entry{want(1, 1, driver.All, driver.All)}, Tickets: []driver.Entry{want(2, 1, 1, 1)},
	}
	d := begin(t, rec, 99, 0)
	d.Drop(lease(3), false)
	d.Drop(lease(3), true)
	if d.MarkBroken(lease(3)) || d.MarkBroken(lease(2)) || d.SetNote(lease(3), nil) || d.SetNote(lease(2), nil) {
		t.Error("a lease that does not hold is said to")
	}
	if d.Request(rec.Holders[0]) != arbiter.Present || d.Try(rec.Tickets[0]) != arbiter.Present {
		t.Error("a lease that is there was asked again")
	}
	d.Evict(func(driver.ID) bool { return false }, 99)
	if d.Changed() {
		t.Error("the record is said to have changed")
	}
	c := d.Change()
	if !slices.Equal(c.Holders, rec.Holders) || !slices.Equal(c.Tickets, rec.Tickets) || c.Note != nil || c.Old != 50 || c.New != 99 {
		t.Errorf("the change is %+v, want the record as it was", c)
	}
	if d.Raise(); !d.Changed() {
		t.Error("Raise does not count as a change")
	}
}

func TestWhatADraftReturnedStaysAsItWas(t *testing.T) {
	t.Parallel()
	es := many(3, 1)
	es[0] = holding(es[0], 500, 0)
	waits := []driver.Entry{want(4, 2, driver.All, driver.All), want(5, 1, 1, driver.All)}
	d := begin(t, driver.Record{Revision: 100, Holders: es, Tickets: waits}, 0, 0)
	c := d.Change()
	before := [2][]driver.Entry{slices.Clone(c.Holders), slices.Clone(c.Tickets)}
	d.MarkBroken(lease(2))
	d.Drop(lease(1), false)
	d.Drop(lease(4), false)
	d.Drop(lease(3), true)
	d.Evict(func(id driver.ID) bool { return id == session(1) }, 900)
	d.Request(want(6, 3, 1, driver.All))
	if diff := cmp.Diff(before, [2][]driver.Entry{c.Holders, c.Tickets}, cmp.AllowUnexported(driver.Entry{})); diff != "" {
		t.Errorf("later operations changed what Change returned: %s", diff)
	}
}

func TestAnInboxThatCannotBeReadIsDamage(t *testing.T) {
	t.Parallel()
	for _, inbox := range []string{"{", "{}\n", `{"drop":"00000000000000000000000000000001"}`} {
		var damaged *driver.DamagedError
		if _, err := arbiter.Begin(driver.Record{Name: "n", Inbox: []byte(inbox)}, 1, 0); !errors.As(err, &damaged) || damaged.Name != "n" {
			t.Errorf("Begin with inbox %q = %v, want a *DamagedError", inbox, err)
		}
	}
}

func TestTheDeadLeaveHoldersTicketsAndTheInbox(t *testing.T) {
	t.Parallel()
	kept := holding(want(4, 1, driver.All, driver.All), 5000, 0)
	d := begin(t, driver.Record{
		Revision: 100, Holders: []driver.Entry{want(1, 1, driver.All, driver.All)}, Tickets: []driver.Entry{want(2, 1, 1, 1)},
		Inbox: driver.EncodeOps([]driver.Op{
			{Kind: driver.OpDrop, Lease: lease(1)}, {Kind: driver.OpDrop, Lease: lease(2)},
			{Kind: driver.OpEnqueue, Entry: kept}, // granted by the fold: nobody was told, so its MinHold does not hold
			{Kind: driver.OpEnqueue, Entry: want(5, 1, 1, 1)}, {Kind: driver.OpEnqueue, Entry: want(6, 2, 1, 1)},
		}),
	}, 0, 0)
	d.Evict(func(id driver.ID) bool { return id == session(1) }, 0)
	if h := d.Holders(); len(h) != 1 || h[0].Lease != lease(6) || len(d.Tickets()) != 0 {
		t.Errorf("holders %+v and tickets %+v, want lease 6 alone", h, d.Tickets())
	}
}

func TestTheNoteBelongsToWhoHolds(t *testing.T) {
	t.Parallel()
	held := want(1, 1, 1, driver.All)
	held.Rev = 40
	kept := holding(want(2, 0, 1, driver.All), 500, 500) // session-less: released already
	d := begin(t, driver.Record{Revision: 50, Holders: []driver.Entry{held, kept}}, 0, 0)
	if d.SetNote(kept.Lease, []byte("late")) || d.Change().Note != nil {
		t.Error("a released lease set the note")
	}
	if !d.SetNote(held.Lease, []byte("x")) || !d.Changed() {
		t.Error("a holder could not set the note")
	}
	if n := d.Change().Note; n == nil || n.Token != 40 || !bytes.Equal(n.Data, []byte("x")) {
		t.Errorf("note %+v, want x by token 40", n)
	}
}
