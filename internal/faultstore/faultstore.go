// Package faultstore puts a network that fails, and processes that stop or die, between the clients of a test and their
// store. What goes wrong is decided by a pure hash of the seed, the client, the call and how many of its kind came
// before it, so that a seed replays, whatever order goroutines run in; all time is time of package time, so inside a
// testing/synctest bubble it is virtual.
//
// A [Network] is one database with the ways to it; [Network.Client] is the store as one client sees it.
package faultstore

import (
	"context"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/holdfastdb/holdfast/driver"
)

// Everybody stands for all clients in a Cut.
const Everybody = -1

// Forever is the end of a Cut or Stop that has none.
const Forever = 1000 * time.Hour

// Plan says what goes wrong. Instants count from New. The zero value is a network without faults.
type Plan struct {
	Seed    uint64
	Rates   Rates
	Until   time.Duration   // calls sent later meet none of the faults of Rates
	MaxLate time.Duration   // a request takes effect at most so long after its call has ended; 0: a second
	Pace    []time.Duration // how long the way to the store usually takes, by client; default 300 µs
	Cuts    []Cut
	Stops   []Stop
	Repeats bool // a request that was answered may run once more later
	Script  []Scripted
}

// Scripted says what happens to one call: the first of its kind that the client sends at or after From.
type Scripted struct {
	Client      int
	Kind        Kind
	From        time.Duration
	What        Mishap
	Hangs       bool          // a lost reply is noticed at the caller's deadline only
	Late        time.Duration // how long after its call a request takes effect
	There, Back time.Duration // how long request and reply travel; 0: as usual
}

// Rates are the chances of the faults of one call, in thousandths. Where several might happen, one does.
type Rates struct {
	LostBefore int // an error, nothing applied
	NotApplied int // an error that says so
	LostAfter  int // applied, but the reply is lost
	Late       int // an error at the caller's deadline or before, applied later
	LatePost   int // the same for Posts, in addition
	Twice      int // executed twice at once; the reply is the second's
	Again      int // executed, and once more later; without Plan.Repeats its reply is lost
	Half       int // one part of a batch applied beside an error
	Slow       int // takes up to two thirds of a second
	Lag        int // a Reap that finds no row of a session that lives
}

// Mode is how a Cut cuts.
type Mode uint8

// The modes of a Cut.
const (
	open    Mode = iota
	Silent       // requests vanish, and calls end by their context
	Refused      // calls fail at once
	Deaf         // requests arrive, replies do not
)

// Cut separates a client, or everybody, from the store.
type Cut struct {
	Client   int
	From, To time.Duration
	Mode     Mode
}

// Stop stops a client's process: its calls neither start nor return, and its local clock, as Suspended tells it, stands
// still, to jump ahead at the end.
type Stop struct {
	Client   int
	From, To time.Duration
}

// Commit is a change of a record's holders as the store applied it.
type Commit struct {
	Client        int
	Name          string
	Old, New      driver.Micros // revisions; Old is 0 for a Grab
	Before, After []driver.Entry
	Marked        any // what Mark put into the context of the call
}

// Network is one database and the ways to it. It is safe for concurrent use.
type Network struct {
	store  driver.Store
	plan   Plan
	start  time.Time
	commit func(Commit)

	mu       sync.Mutex // guards what follows, and makes a call and its Commit one step
	late     int        // requests under way whose calls have ended
	settled  *sync.Cond // late became 0
	holders  map[string][]driver.Entry
	sessions []Joined
	counts   map[string]uint64
	played   []bool // parts of the script
	calls    int
	flying   int
	sum      uint64
	ring     []Call
}

// Joined is a session that was joined through the network.
type Joined struct {
	Client  int
	Session driver.ID
}

// New returns a network around store. commit, if not nil, is called with every change of a record's holders, in order,
// and must not call the network.
func New(store driver.Store, plan Plan, commit func(Commit)) *Network {
	n := &Network{
		store: store, plan: plan, start: time.Now(), commit: commit,
		holders: make(map[string][]driver.Entry), counts: make(map[string]uint64), played: make([]bool, len(plan.Script)),
	}
	n.settled = sync.NewCond(&n.mu)
	return n
}

// Client returns the store as one client sees it.
func (n *Network) Client(client int) *Store { return &Store{net: n, client: client} }

// Wait returns when no request is under way any more whose call has ended.
func (n *Network) Wait() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for n.late > 0 {
		n.settled.Wait()
	}
}

// Elapsed is the time since New.
func (n *Network) Elapsed() time.Duration { return time.Since(n.start) }

// Holders returns who holds name in the store.
func (n *Network) Holders(name string) []driver.Entry {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.holders[name]
}

// Sessions returns the sessions joined so far, in order.
func (n *Network) Sessions() []Joined {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.sessions)
}

// Calls returns how many calls were made, and how many of them have not returned.
func (n *Network) Calls() (made, flying int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.calls, n.flying
}

// Suspended is what a stop takes from a client's local clock: nothing, or the time since the stop began, negative.
func (n *Network) Suspended(client int) time.Duration {
	at := n.Elapsed()
	for _, s := range n.plan.Stops {
		if s.Client == client && s.From <= at && at < s.To {
			return s.From - at
		}
	}
	return 0
}

// Stopped reports whether the client's process is stopped now.
func (n *Network) Stopped(client int) bool { return n.stopEnd(client) > 0 }

// Awake returns when the client's process is not stopped. What woke up together goes on after, so that different
// callers with different times have an order.
func (n *Network) Awake(client int, after time.Duration) {
	for end := n.stopEnd(client); end > 0; end = n.stopEnd(client) {
		<-time.After(end + after - n.Elapsed())
	}
}

func (n *Network) stopEnd(client int) time.Duration {
	at := n.Elapsed()
	for _, s := range n.plan.Stops {
		if s.Client == client && s.From <= at && at < s.To {
			return s.To
		}
	}
	return 0
}

func (n *Network) cut(client int) Mode {
	at := n.Elapsed()
	for _, c := range n.plan.Cuts {
		if (c.Client == client || c.Client == Everybody) && c.From <= at && at < c.To {
			return c.Mode
		}
	}
	return open
}

// later executes a request some time after its call has ended; Wait waits for it.
func (n *Network) later(d time.Duration, run func()) {
	n.mu.Lock()
	n.late++
	n.mu.Unlock()
	time.AfterFunc(d, func() {
		run()
		n.mu.Lock()
		defer n.mu.Unlock()
		if n.late--; n.late == 0 {
			n.settled.Broadcast()
		}
	})
}

type markKey struct{}

// Mark returns a context whose calls are reported with mark in their Commits.
func Mark(ctx context.Context, mark any) context.Context {
	return context.WithValue(ctx, markKey{}, mark)
}

// Error is a fault the network made.
type Error struct {
	Kind  Kind
	Fault driver.Fault
	Err   error // the context's, or nil
}

func (e *Error) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("faultstore: %v: %v: %v", e.Kind, e.Fault, e.Err)
	}
	return fmt.Sprintf("faultstore: %v: %v", e.Kind, e.Fault)
}

// Unwrap returns the context's error, if that ended the call.
func (e *Error) Unwrap() error { return e.Err }

// Mishap is what happens to one call; see Rates.
type Mishap uint8

// The mishaps. The zero value is none.
const (
	Fine Mishap = iota
	LostBefore
	NotApplied
	LostAfter
	Late
	Twice
	Again
	Half
)

var mishapNames = [...]string{"", "lost before", "not applied", "lost after", "late", "twice", "again", "half"}

// draw is all that is decided about one call.
type draw struct {
	what        Mishap
	there, back time.Duration // how long request and reply travel
	late        time.Duration // how long after its call a request takes effect
	straggles   bool          // if the caller gives up first, the request takes effect nevertheless
	hangs       bool          // a lost reply is noticed at the deadline only
	part        uint64        // which part of a batch
	lag         uint64        // which sessions a Reap does not find
}

// decide draws what happens to the call; key tells calls apart that may be made at the same instant.
func (n *Network) decide(client int, kind Kind, key string) draw {
	id := fmt.Sprintf("%d %d %s", client, kind, key)
	n.mu.Lock()
	n.counts[id]++
	count := n.counts[id]
	n.mu.Unlock()
	h := fnv.New64a()
	_, _ = h.Write([]byte(id)) // never fails
	rng := rand.New(rand.NewPCG(n.plan.Seed, h.Sum64()+count*0x9e3779b97f4a7c15))
	pace := 300 * time.Microsecond
	if client < len(n.plan.Pace) {
		pace = n.plan.Pace[client]
	}
	maxLate := n.plan.MaxLate
	if maxLate == 0 {
		maxLate = time.Second
	}
	d := draw{
		there: pace/2 + time.Duration(rng.Int64N(int64(pace))),
		back:  pace/2 + time.Duration(rng.Int64N(int64(pace))),
		late:  spread(rng, time.Millisecond, maxLate),
		part:  rng.Uint64(), lag: rng.Uint64(),
		hangs: rng.IntN(2) == 0, straggles: rng.IntN(2) == 0,
	}
	r := n.plan.Rates
	if kind == Post {
		r.Late += r.LatePost
	}
	dice, slow := rng.IntN(1000), rng.IntN(1000)
	slowThere, slowBack := time.Duration(rng.Int64N(int64(350*time.Millisecond))), time.Duration(rng.Int64N(int64(350*time.Millisecond)))
	if n.play(client, kind, &d) || n.Elapsed() >= n.plan.Until {
		return d
	}
	for i, rate := range []int{r.LostBefore, r.NotApplied, r.LostAfter, r.Late, r.Twice, r.Again, r.Half} {
		if dice < rate {
			d.what = Mishap(i + 1)
			break
		}
		dice -= rate
	}
	if slow < r.Slow {
		switch slow % 3 {
		case 0:
			d.there += slowThere
		case 1:
			d.back += slowBack
		default:
			d.there += slowThere
			d.back += slowBack
		}
	}
	return d
}

// play does what the script says of the call, and reports whether it says anything.
func (n *Network) play(client int, kind Kind, d *draw) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	for i, s := range n.plan.Script {
		if n.played[i] || s.Client != client || s.Kind != kind || n.Elapsed() < s.From {
			continue
		}
		n.played[i] = true
		d.what, d.hangs, d.late = s.What, s.Hangs, s.Late
		if s.There > 0 {
			d.there = s.There
		}
		if s.Back > 0 {
			d.back = s.Back
		}
		return true
	}
	return false
}

// spread draws a duration between low and high, short ones as likely as long ones.
func spread(rng *rand.Rand, low, high time.Duration) time.Duration {
	d := low
	for d < high && rng.IntN(3) > 0 {
		d *= 3
	}
	return min(d/2+time.Duration(rng.Int64N(int64(d))), high)
}

// wait returns false if ctx ends before d is over.
func wait(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
