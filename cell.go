package holdfast

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/holdfastdb/holdfast/driver"
)

// maxQueued is how many tickets of one process stand in the database for one name; its other waiters wait in process.
// Two, so that the second is in the queue already while the first holds.
const maxQueued = 2

// cell is the engine of one name in one session. At most one store call per name is in flight; whatever arrives
// meanwhile is taken into the next one. A goroutine runs only while there is something to do. Everything in it is
// guarded by the client's mutex.
//
// Invariant: while a waiter exists, the client believes that a ticket of its own is queued, or a change is in flight or
// owed.
type cell struct {
	s    *session
	name string

	rec       driver.Record // the newest record known
	known     bool          // rec was seen, and is not only a remembered revision
	noteKnown bool          // rec.Note is the record's note, and not only left unread
	gen       uint64        // counts the records taken over
	stamp     uint64        // counts what makes an older record doubtful
	asOf      uint64        // the stamp when the request was sent that brought rec
	lookAt    uint64        // a record from before this stamp must be loaded anew
	fresh     bool          // rec comes from a Load, and nothing was swapped since
	refused   bool          // a Grab was refused since the last change of the record: use Swap
	fence     driver.Micros // the highest fence of requests of unknown outcome; 0: all are settled
	soft      driver.Micros // the highest seed of refused Grabs that may run once more later
	softAt    instant       // when that is settled at the latest
	postponed bool          // rec shows a grant that was not accepted yet
	stray     bool          // rec shows an entry of this session that nobody here knows
	running   bool          // a goroutine runs work, or a batch of Close holds the cell
	losses    int           // compare-and-sets lost in a row, on fresh records
	failures  int           // failed calls in a row
	lastErr   error         // of the last failed call
	pause     time.Duration // before the next call

	placed []*waiter    // waiters whose ids were sent, in the order they were
	local  []*waiter    // waiters in process, first come first served
	tries  []*waiter    // calls that do not wait
	leases []*Lease     // leases whose entries stand in the record
	drops  []*drop      // ids to be removed
	notes  []*noteWrite // notes to be written

	checkAt  instant // next re-check, while waiters exist
	interval time.Duration
	checked  driver.Micros // revision at the last re-check
}

// drop removes one id for good: a release, a wait that was given up, or an id replaced by another.
type drop struct {
	id     driver.ID
	token  driver.Micros // what a record must have reached to show that the id is gone; 0 for a ticket
	cancel bool          // nobody was told of a grant: MinHold does not apply
	done   chan struct{}
}

type noteWrite struct {
	lease *Lease
	data  []byte
	done  chan struct{}
	err   error
}

// cell returns the cell of a stored name. Called with the client's mutex held, on a session that is not over.
func (s *session) cell(stored string) *cell {
	cl := s.cells[stored]
	if cl == nil {
		cl = &cell{s: s, name: stored}
		cl.rec = driver.Record{Name: stored, Revision: s.c.hints.take(stored)}
		s.cells[stored] = cl
	}
	return cl
}

// plain is the name without the namespace, as callers know it.
func (cl *cell) plain() string { return cl.name[len(cl.s.c.prefix()):] }

// cellList returns the cells in the order of their names.
func (s *session) cellList() []*cell {
	return slices.SortedFunc(maps.Values(s.cells), func(a, b *cell) int { return cmp.Compare(a.name, b.name) })
}

// arrive takes a waiter in.
func (cl *cell) arrive(w *waiter) {
	w.cell = cl
	w.id, w.sent, w.seen, w.seed = driver.NewID(), false, false, 0
	if w.req.try {
		cl.stamp++ // an older record does not prove that the name is held now
		cl.tries = append(cl.tries, w)
	} else {
		cl.local = append(cl.local, w)
	}
	cl.interval = 0
	cl.kick()
}

// withdraw takes a waiter out whose caller has left, and what it may have been granted.
func (cl *cell) withdraw(w *waiter, why error) {
	if w.lease != nil {
		if w.lease.finish(why) {
			cl.giveBack(w.lease, true)
		}
		w.lease = nil
		return
	}
	cl.forgo(w)
	w.finish(nil, why)
	w.end(why)
	cl.kick()
}

// forgo takes a waiter off the lists; if its id was sent, it is to be removed.
func (cl *cell) forgo(w *waiter) {
	cl.local, cl.placed, cl.tries = without(cl.local, w), without(cl.placed, w), without(cl.tries, w)
	cl.retire(w, 0)
}

// retire sees to it that the waiter's present id ends up nowhere.
func (cl *cell) retire(w *waiter, token driver.Micros) {
	if w.sent {
		cl.drops = append(cl.drops, &drop{id: w.id, token: token, cancel: true, done: make(chan struct{})})
	}
}

// renew gives a waiter a new id, under which it queues again.
func (cl *cell) renew(w *waiter, token driver.Micros) {
	cl.retire(w, token)
	w.id, w.sent, w.seen, w.seed = driver.NewID(), false, false, 0
	cl.emitRequeued(w)
}

// giveBack starts the removal of a lease's entry.
func (cl *cell) giveBack(l *Lease, cancel bool) {
	if l.drop != nil || cl.s.over != nil {
		return
	}
	l.drop = &drop{id: l.id, token: l.token, cancel: cancel, done: make(chan struct{})}
	cl.leases = without(cl.leases, l)
	cl.drops = append(cl.drops, l.drop)
	delete(cl.s.timed, l)
	delete(cl.s.ended, l)
	cl.kick()
}

// lose ends a lease that was not released. Its entry stays known until it is given back or gone.
func (cl *cell) lose(l *Lease, why error) {
	if !l.finish(why) {
		return
	}
	cl.emitLost(l, why)
	if cl.s.over == nil {
		delete(cl.s.timed, l)
		cl.s.ended[l] = cl.s.c.clock.now().add(cl.s.c.ttl)
		signal(cl.s.wake)
	}
}

// dropOverdue gives back the entries of broken and overdue leases that nobody released for a TTL. Called with the
// client's mutex held.
func (s *session) dropOverdue(now instant) {
	for l, at := range s.ended {
		if now >= at {
			l.cell.giveBack(l, false)
		}
	}
}

// sessionEnded ends what the cell holds; its waiters are queued again elsewhere, its unsettled requests end with the
// session.
func (cl *cell) sessionEnded(why error) {
	c := cl.s.c
	for _, l := range cl.leases {
		if l.finish(why) {
			cl.emitLost(l, why)
		}
	}
	waiting := append(slices.Clone(cl.placed), cl.local...)
	for _, w := range waiting {
		w.cell, w.sent = nil, false
		if c.closed {
			w.finish(nil, ErrClosed)
			continue
		}
		c.orphans = append(c.orphans, w)
		cl.emitRequeued(w)
	}
	slices.SortFunc(c.orphans, func(a, b *waiter) int { return cmp.Compare(a.seq, b.seq) })
	for _, w := range cl.tries {
		w.finish(nil, cl.interrupted(why))
	}
	for _, n := range cl.notes {
		n.finish(why)
	}
	cl.placed, cl.local, cl.tries, cl.leases, cl.notes = nil, nil, nil, nil, nil
}

// interrupted is the error of a call that held nothing when its session ended: it lost no lease.
func (cl *cell) interrupted(why error) error {
	switch {
	case cl.s.c.closed:
		return ErrClosed
	case cl.lastErr != nil:
		return fmt.Errorf("the session ended: %w", cl.lastErr)
	default:
		return fmt.Errorf("the session ended: %v", why) // not ErrLost: it never held
	}
}

func (n *noteWrite) finish(err error) {
	n.err = err
	close(n.done)
}

// lookAgain demands a record loaded by a request that is sent after this call.
func (cl *cell) lookAgain() {
	cl.stamp++
	cl.lookAt = cl.stamp
}

// kick starts the engine if it does not run.
func (cl *cell) kick() {
	if cl.running || cl.s.over != nil {
		return
	}
	cl.running = true
	cl.s.c.wg.Go(cl.work)
}

// work runs the engine until nothing is left to do.
func (cl *cell) work() {
	c := cl.s.c
	c.mu.Lock()
	for {
		do := cl.next()
		if do == nil {
			break
		}
		c.mu.Unlock()
		c.tell()
		do()
		c.mu.Lock()
	}
	cl.running = false
	cl.forget()
	c.mu.Unlock()
	c.tell()
}

// next decides what to do on what is known, and returns it; nil if nothing is to be done now. Called with the client's
// mutex held; what it returns is called without.
func (cl *cell) next() func() {
	s := cl.s
	switch {
	case s.over != nil:
		return nil
	case cl.pause > 0:
		d := cl.pause
		cl.pause = 0
		return func() { s.c.sleep(s.ctx, d) }
	case !cl.due():
		return nil
	case cl.asOf < cl.lookAt:
		return cl.load()
	}
	if w := cl.grabber(); w != nil {
		return cl.grab(w)
	}
	if !cl.known {
		return cl.load()
	}
	if cl.rec.Revision == 0 && cl.floor() > 0 {
		return cl.grabTombstone()
	}
	if ids, certified := cl.unknownFates(); len(ids)+len(certified) > 0 {
		return cl.reap(ids, certified)
	}
	return cl.change()
}

// due reports whether the cell has anything to see to.
func (cl *cell) due() bool {
	return len(cl.placed)+len(cl.local)+len(cl.tries)+len(cl.drops)+len(cl.notes) > 0 ||
		cl.stray || cl.fence > 0 || cl.asOf < cl.lookAt && len(cl.leases) > 0
}

// grabber returns the waiter to Grab for: the first in line, if the record is not known to be taken.
func (cl *cell) grabber() *waiter {
	if cl.refused || cl.known && !cl.rec.Free() {
		return nil
	}
	for _, list := range [][]*waiter{cl.placed, cl.local, cl.tries} {
		if len(list) > 0 {
			return list[0]
		}
	}
	return nil
}

// forget gives the cell's memory back once nothing in it matters any more.
func (cl *cell) forget() {
	if cl.running || cl.s.over != nil || cl.s.cells[cl.name] != cl || cl.due() || len(cl.leases) > 0 || cl.soft > 0 {
		return
	}
	delete(cl.s.cells, cl.name)
	delete(cl.s.waiting, cl)
	if cl.rec.Revision > 0 {
		cl.s.c.hints.put(cl.name, cl.rec.Revision)
	}
}

// place marks a waiter's id as sent.
func (cl *cell) place(w *waiter) {
	if !w.sent {
		w.sent = true
		if !w.req.try && !slices.Contains(cl.placed, w) { // a renewed one stands there
			cl.local = without(cl.local, w)
			cl.placed = append(cl.placed, w)
		}
	}
}

// failed takes in that a call failed. Calls that do not wait fail with it; those that wait only if trying again cannot
// help.
func (cl *cell) failed(err error) {
	c := cl.s.c
	fault := c.store.Classify(err)
	cl.lastErr = err
	if fault == driver.FaultNotApplied {
		cl.lost()
		return
	}
	cl.failures++
	cl.lookAgain()
	cl.pause = c.jitter(min(time.Second, 10*time.Millisecond<<min(cl.failures, 7)))
	hopeless := fault == driver.FaultPermanent || fault == driver.FaultDenied
	for _, w := range slices.Clone(cl.tries) {
		cl.giveUp(w, err)
	}
	if !hopeless {
		return
	}
	for _, w := range append(slices.Clone(cl.placed), cl.local...) {
		cl.giveUp(w, err)
	}
	for _, n := range cl.notes {
		n.finish(err)
	}
	cl.notes = nil
}

// giveUp ends one wait with an error.
func (cl *cell) giveUp(w *waiter, err error) {
	cl.forgo(w)
	w.finish(nil, err)
}

// lost takes in that a compare-and-set lost its race, so that the next one comes a little later.
func (cl *cell) lost() {
	cl.losses++
	cl.pause = cl.s.c.jitter(time.Duration(min(cl.losses, 50)) * 200 * time.Microsecond)
}

// jitter returns between half and one and a half of d. Called with the client's mutex held.
func (c *Client) jitter(d time.Duration) time.Duration {
	return d/2 + time.Duration(c.rng.Int64N(int64(d)+1))
}

// damaged takes in that the record cannot be read: nothing is concluded from it.
func (cl *cell) damaged(err error) {
	var d *driver.DamagedError
	if !errors.As(err, &d) {
		err = &driver.DamagedError{Name: cl.name, Err: err}
	}
	cl.s.c.note(slog.LevelError, "a record is damaged", "name", cl.name, "error", err)
	for _, w := range append(append(slices.Clone(cl.placed), cl.local...), cl.tries...) {
		cl.giveUp(w, err)
	}
	for _, n := range cl.notes {
		n.finish(err)
	}
	cl.notes, cl.lastErr = nil, err
	cl.known, cl.lookAt = false, cl.asOf
	if cl.due() {
		cl.pause = min(time.Second, cl.s.c.ttl/3)
		cl.lookAgain()
	}
}
