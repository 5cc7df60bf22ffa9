package holdfast

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/holdfastdb/holdfast/driver"
	"github.com/holdfastdb/holdfast/internal/arbiter"
)

// Record is what Inspect and List tell of a name: the record as stored, with the operations posted to it applied.
type Record struct {
	Name     string // without the namespace
	Revision int64  // microseconds of the database's clock; 0: there is no record
	Holders  []Holder
	Waiters  []Waiter // the head of the queue first
	Note     []byte   // nil: none
}

// Entry is what holders and waiters have in common.
type Entry struct {
	Lease   driver.ID
	Session driver.ID // zero: the entry ends by time alone
	Label   string    // of the call, else of the client
	Host    string
	Program string
	PID     int
	Weight  int64
	Limit   int64
	Here    bool // it belongs to this client
	Dead    bool // its session is marked dead: the next who looks takes it out
}

// Holder is one holder of a name.
type Holder struct {
	Entry
	Token  int64
	Since  time.Time     // of the grant, by the database's clock
	EndsIn time.Duration // until its MaxHold, MinHold or own time is over; 0: it ends with its session only
	Broken bool          // an operator asked it to give way
}

// Waiter is one ticket in the queue of a name.
type Waiter struct {
	Entry
	Position int       // 1 is the head
	Since    time.Time // when its ticket was queued, by the database's clock
}

// Inspect tells who holds and who awaits a name. It does not join a session. A name without a record is no error: its
// Revision is 0.
func (c *Client) Inspect(ctx context.Context, name string) (*Record, error) {
	r := c.request(name, driver.All, driver.All, nil)
	err := c.usable()
	if err == nil {
		err = badName(r.stored)
	}
	var rec driver.Record
	if err == nil {
		rec, err = c.loadOne(ctx, r.stored)
	}
	var view *Record
	if err == nil {
		view, err = c.view(ctx, rec)
	}
	if err != nil {
		return nil, fmt.Errorf("holdfast: inspect %q: %w", name, err)
	}
	return view, nil
}

// List yields the records whose names begin with prefix, in byte order. It does not join a session. After an error it
// ends. A record that cannot be read is an error too; the names around it are not lost on the database.
func (c *Client) List(ctx context.Context, prefix string) iter.Seq2[*Record, error] {
	return func(yield func(*Record, error) bool) {
		fail := func(err error) { yield(nil, fmt.Errorf("holdfast: list %q: %w", prefix, err)) }
		if err := c.usable(); err != nil {
			fail(err)
			return
		}
		q := driver.Query{Prefix: c.prefix() + prefix}
		for {
			page, cancel := c.call(ctx)
			recs, err := c.store.List(page, q)
			cancel()
			for _, rec := range recs {
				view, err := c.view(ctx, rec)
				if err != nil {
					fail(err)
					return
				}
				if !yield(view, nil) {
					return
				}
			}
			if err != nil {
				fail(err)
				return
			}
			if len(recs) < driver.PageSize {
				return
			}
			q.After = recs[len(recs)-1].Name
		}
	}
}

func (c *Client) prefix() string {
	if c.opts.Namespace == "" {
		return ""
	}
	return c.opts.Namespace + "/"
}

// loadOne reads one record; an absent one has revision 0.
func (c *Client) loadOne(ctx context.Context, stored string) (driver.Record, error) {
	ctx, cancel := c.call(ctx)
	defer cancel()
	recs, err := c.store.Load(ctx, []driver.Known{{Name: stored}})
	if err != nil || len(recs) == 0 {
		return driver.Record{Name: stored}, err
	}
	return recs[0], nil
}

// view makes of a record what people want to know of it.
func (c *Client) view(ctx context.Context, rec driver.Record) (*Record, error) {
	d, err := arbiter.Begin(rec, 0, 0)
	if err != nil {
		return nil, err
	}
	var ids []driver.ID
	asked := map[driver.ID]bool{{}: true}
	for _, list := range [][]driver.Entry{d.Holders(), d.Tickets()} {
		for _, e := range list {
			if !asked[e.Session] {
				asked[e.Session] = true
				ids = append(ids, e.Session)
			}
		}
	}
	rows, err := c.rows(ctx, ids)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	var self driver.ID
	if c.session != nil {
		self = c.session.id
	}
	now := time.Now().UnixMicro()
	if c.est.valid {
		now = c.est.low(c.clock.now())
	}
	v := &Record{Name: rec.Name[len(c.prefix()):], Revision: rec.Revision}
	for _, e := range d.Holders() {
		v.Holders = append(v.Holders, describe(e, rows[e.Session], self, now))
	}
	for i, e := range d.Tickets() {
		h := describe(e, rows[e.Session], self, now)
		v.Waiters = append(v.Waiters, Waiter{Entry: h.Entry, Position: i + 1, Since: h.Since})
	}
	if rec.Note != nil {
		v.Note = append([]byte{}, rec.Note.Data...)
	}
	return v, nil
}

func (c *Client) rows(ctx context.Context, ids []driver.ID) (map[driver.ID]*driver.Session, error) {
	rows := make(map[driver.ID]*driver.Session, len(ids))
	for len(ids) > 0 {
		n := min(len(ids), driver.MaxBatch)
		page, cancel := c.call(ctx)
		got, err := c.store.Sessions(page, ids[:n])
		cancel()
		if err != nil {
			return nil, err
		}
		for i := range got {
			rows[got[i].ID] = &got[i]
		}
		ids = ids[n:]
	}
	return rows, nil
}

// holder describes an entry by what the client remembers, without asking the database. Called with the client's mutex
// held.
func (c *Client) holder(e driver.Entry, self driver.ID) Holder {
	var row *driver.Session
	if f := c.fates[e.Session]; f != nil {
		row = f.row
	} else if s := c.session; s != nil && s.id == e.Session {
		row = &s.row
	}
	return describe(e, row, self, c.est.low(c.clock.now()))
}

func describe(e driver.Entry, row *driver.Session, self driver.ID, now driver.Micros) Holder {
	h := Holder{
		Entry:  Entry{Lease: e.Lease, Session: e.Session, Label: e.Label, Weight: e.Weight, Limit: e.Limit, Here: !e.Session.IsZero() && e.Session == self},
		Token:  e.Rev,
		Since:  time.UnixMicro(e.Rev).UTC(),
		Broken: e.Broken,
	}
	if until := e.Until(); until > 0 {
		h.EndsIn = max(time.Microsecond, time.Duration(until-now)*time.Microsecond)
	}
	if row != nil {
		h.Host, h.Program, h.PID, h.Dead = row.Host, row.Program, row.PID, row.Dead
		if h.Label == "" {
			h.Label = row.Label
		}
	}
	return h
}
