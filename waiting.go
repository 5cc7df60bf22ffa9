package holdfast

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/holdfastdb/holdfast/driver"
	"github.com/holdfastdb/holdfast/internal/arbiter"
)

// Waiting without push: the head of a queue is looked at after 5 ms, then more and more seldom, down to every 50 ms;
// those behind it up to four times as seldom. One Load serves all names of the process that are due.
const (
	firstCheck = 5 * time.Millisecond
	lastCheck  = 50 * time.Millisecond
)

// recheckLater has the poller look at the record again, while somebody waits for it.
func (cl *cell) recheckLater(d *arbiter.Draft) {
	s := cl.s
	if len(cl.placed)+len(cl.local) == 0 {
		return
	}
	if cl.checked != cl.rec.Revision || cl.interval == 0 {
		cl.checked, cl.interval = cl.rec.Revision, firstCheck
	} else {
		cl.interval = min(cl.interval*3/2, lastCheck)
	}
	ahead := slices.IndexFunc(d.Tickets(), func(e driver.Entry) bool { return e.Session == s.id })
	slower := 2 + min(max(ahead, 0), 6) // in halves
	cl.checkAt = s.c.clock.now().add(s.c.jitter(cl.interval * time.Duration(slower) / 2))
	s.waiting[cl] = struct{}{}
	signal(s.polls)
}

// poll is the re-check of everything that waits. It loads the records that are due in one call, looks at the processes
// of this machine that hold them, and lets the cells draw the conclusions.
func (s *session) poll() {
	pause := time.NewTimer(time.Hour)
	defer pause.Stop()
	for {
		due, known, looks, next := s.due()
		if len(due) == 0 {
			pause.Reset(next)
			select {
			case <-s.ctx.Done():
				return
			case <-pause.C:
			case <-s.polls:
			}
			continue
		}
		s.lookAtProcesses(due)
		s.limited(s.c.gate, func(ctx context.Context) {
			recs, err := s.c.store.Load(ctx, known)
			s.answered(func() { s.loaded(due, looks, recs, err) })
		})
		s.c.tell()
		if s.ctx.Err() != nil {
			return
		}
	}
}

// due returns the cells to look at now, and how long it is to the next if there are none.
func (s *session) due() (due []*cell, known []driver.Known, looks []look, next time.Duration) {
	c := s.c
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.clock.now()
	next = time.Hour
	for cl := range s.waiting {
		at := cl.checkAt
		switch {
		case len(cl.placed)+len(cl.local) > 0:
		case cl.soft > 0:
			at = cl.softAt // only a refused Grab that may run once more is left to be settled
		default:
			delete(s.waiting, cl)
			continue
		}
		if now >= at {
			due = append(due, cl)
		} else {
			next = min(next, at.sub(now))
		}
	}
	slices.SortFunc(due, func(a, b *cell) int { return cmp.Or(cmp.Compare(a.checkAt, b.checkAt), cmp.Compare(a.name, b.name)) })
	due = due[:min(len(due), driver.MaxBatch)]
	for _, cl := range due {
		k := driver.Known{Name: cl.name}
		if cl.known {
			k.Revision = cl.rec.Revision
		}
		known = append(known, k)
		looks = append(looks, look{k.Revision, cl.gen, cl.stamp})
		cl.checkAt = now.add(lastCheck) // until the cell itself says when
		cl.fence = max(cl.fence, cl.soft)
	}
	return due, known, looks, next
}

// loaded hands the records of a batch to their cells, whose engines then draw the conclusions, also where nothing
// changed: a fate may have run out.
func (s *session) loaded(due []*cell, looks []look, recs []driver.Record, err error) {
	damaged := damagedNames(err)
	for i, cl := range due {
		var mine []driver.Record
		if len(recs) > 0 && recs[0].Name == cl.name {
			mine, recs = recs[:1], recs[1:]
		}
		if s.cells[cl.name] != cl {
			continue // forgotten meanwhile: a successor may have taken its place, whose entries it does not know
		}
		switch {
		case damaged[cl.name] != nil:
			cl.damaged(damaged[cl.name])
		case err != nil && damaged == nil && mine == nil:
			if !cl.running {
				cl.failed(err)
			}
		default:
			cl.loadedIn(looks[i], mine)
		}
		cl.kick()
	}
}

func (cl *cell) loadedIn(at look, recs []driver.Record) {
	noteKnown := cl.noteKnown
	cl.loaded(at, recs, nil)
	if len(recs) == 0 && at.known > 0 {
		cl.noteKnown = noteKnown
	}
}

// damagedNames returns the damage an error reports, by name; nil if it is an error of another kind.
func damagedNames(err error) map[string]error {
	var names map[string]error
	var walk func(error)
	walk = func(err error) {
		var d *driver.DamagedError
		if joined, ok := err.(interface{ Unwrap() []error }); ok {
			for _, e := range joined.Unwrap() {
				walk(e)
			}
		} else if errors.As(err, &d) {
			if names == nil {
				names = make(map[string]error)
			}
			names[d.Name] = d
		}
	}
	if err != nil {
		walk(err)
	}
	return names
}

// lookAtProcesses notes which processes of this machine, that stand in the way of the cells, are gone.
func (s *session) lookAtProcesses(due []*cell) {
	c := s.c
	if !c.processes {
		return
	}
	c.mu.Lock()
	var ids []driver.ID
	for _, cl := range due {
		for _, id := range cl.sessions() {
			if !slices.Contains(ids, id) {
				ids = append(ids, id)
			}
		}
	}
	c.mu.Unlock()
	gone := c.goneProcesses(ids)
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range gone {
		c.fate(id).gone = true
	}
}

// lookAtHeld loads the records of all names held, in batches: the session was given notice, so one of its leases may
// have been broken.
func (s *session) lookAtHeld() {
	c := s.c
	c.mu.Lock()
	var held []*cell
	for _, cl := range s.cellList() {
		if len(cl.leases) > 0 {
			held = append(held, cl)
		}
	}
	c.mu.Unlock()
	for batch := range slices.Chunk(held, driver.MaxBatch) {
		var known []driver.Known
		var looks []look
		c.mu.Lock()
		for _, cl := range batch {
			known = append(known, driver.Known{Name: cl.name, Revision: cl.rec.Revision})
			looks = append(looks, look{cl.rec.Revision, cl.gen, cl.stamp})
		}
		c.mu.Unlock()
		ctx, cancel := c.call(s.ctx)
		recs, err := c.store.Load(ctx, known)
		cancel()
		if err != nil && damagedNames(err) == nil {
			c.mu.Lock()
			s.notice = -1 // no counter is: the next beat notices again
			c.mu.Unlock()
			break
		}
		s.answered(func() { s.loaded(batch, looks, recs, err) })
	}
	c.mu.Lock()
	s.looking = false
	c.mu.Unlock()
	c.tell()
}
