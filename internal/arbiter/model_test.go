package arbiter_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfastdb/holdfast/driver"
)

// instant is the distance of two time steps of a model. A whole life of a record in a model raises its revision by far
// less than half of it, and its holds end between two of them, so that two worlds that agree in whole instants behave the same.
const instant = 1000

func lease(n int) driver.ID   { return driver.ID{14: byte(n >> 8), 15: byte(n)} }
func session(n int) driver.ID { return driver.ID{0: byte(n)} }

// want is a request of lease n by a session.
func want(n, of int, weight, limit int64) driver.Entry {
	return driver.Entry{Lease: lease(n), Session: session(of), Weight: weight, Limit: limit}
}

func holding(e driver.Entry, minHold, maxHold driver.Micros) driver.Entry {
	e.MinHold, e.MaxHold = time.Duration(minHold)*time.Microsecond, time.Duration(maxHold)*time.Microsecond
	return e
}

// model is a small world to be explored completely.
type model struct {
	name     string
	leases   []driver.Entry
	mortals  int // sessions that may die: session(1) to session(mortals)
	posts    int // operations in the inbox at most
	instants int
	most     int // states; more is a failure, for then the exploration is not complete
}

// world is a state of a model, and how it was reached.
type world struct {
	rec  driver.Record
	now  driver.Micros
	dead int // bit n: session(n) is dead
	by   any // told in a failure: a string or acts
	from *world
}

func (w *world) path() string {
	var ways []string
	for ; w != nil; w = w.from {
		ways = append(ways, fmt.Sprint(w.by))
	}
	slices.Reverse(ways)
	return strings.Join(ways, "\n")
}

// key tells worlds apart that can behave differently. Of an entry's revision only its whole instant counts: every new
// token exceeds the record's revision, whatever that is.
func (w *world) key() string {
	b := []byte{byte(w.now / instant), byte(w.dead)}
	for _, e := range w.rec.Holders {
		b = append(b, 'h', e.Lease[15], e.Session[0])
		b = binary.AppendVarint(b, e.Rev/instant)
		if e.Broken {
			b = append(b, 'b')
		}
	}
	for _, e := range w.rec.Tickets {
		b = append(b, 't', e.Lease[15])
	}
	return string(append(b, w.rec.Inbox...))
}

func (w *world) deadSessions() map[driver.ID]bool {
	m := map[driver.ID]bool{}
	for n := range 8 {
		if w.dead&(1<<n) != 0 {
			m[session(n)] = true
		}
	}
	return m
}

// changes lists what a client may do to the record in one change.
func (m model) changes(w *world) [][]act {
	evict := act{do: "evict", judged: w.now, dead: w.deadSessions()}
	doubt := act{do: "evict", judged: 0, dead: evict.dead}
	all := [][]act{nil, {evict}, {doubt}, {{do: "raise"}}}
	all = append(all, []act{{do: "break", lease: m.leases[0].Lease}}) // one is enough, and keeps the model small
	for i, e := range m.leases {
		for _, do := range []string{"request", "try", "drop", "cancel"} {
			all = append(all, []act{{do: do, entry: e, lease: e.Lease}})
		}
		all = append(all, []act{evict, {do: "try", entry: e}}, []act{{do: "try", entry: e}, doubt})
		next := m.leases[(i+1)%len(m.leases)] // a release combined with another goroutine's acquire
		all = append(all, []act{{do: "drop", lease: e.Lease}, {do: "request", entry: next}})
	}
	return all
}

// others lists what may happen to the world besides changes: a post, a death, the time.
func (m model) others(w *world) []*world {
	var all []*world
	if !w.rec.Free() && bytes.Count(w.rec.Inbox, []byte{'\n'}) < m.posts {
		for _, e := range m.leases {
			for _, op := range []driver.Op{
				{Kind: driver.OpEnqueue, Entry: e},
				{Kind: driver.OpDrop, Lease: e.Lease},
				{Kind: driver.OpDrop, Lease: e.Lease, Cancel: true},
			} {
				n := &world{rec: w.rec, now: w.now, dead: w.dead, by: fmt.Sprintf("post %d cancel=%v %s", op.Kind, op.Cancel, short(e.Lease)), from: w}
				n.rec.Inbox = slices.Concat(w.rec.Inbox, driver.EncodeOps([]driver.Op{op}))
				n.rec.Revision++
				all = append(all, n)
			}
		}
	}
	for n := 1; n <= m.mortals; n++ {
		if w.dead&(1<<n) == 0 {
			all = append(all, &world{rec: w.rec, now: w.now, dead: w.dead | 1<<n, by: fmt.Sprintf("session %d dies", n), from: w})
		}
	}
	if w.now < driver.Micros(m.instants)*instant {
		all = append(all, &world{rec: w.rec, now: w.now + instant, dead: w.dead, by: "time passes", from: w})
	}
	return all
}

// explore visits every reachable world and checks every change of it.
func (m model) explore(t *testing.T) {
	start := &world{rec: driver.Record{Name: "n", Revision: 1}, now: instant, by: m.name}
	seen := map[string]bool{start.key(): true}
	queue := []*world{start}
	changes := 0
	visit := func(n *world) {
		if key := n.key(); !seen[key] {
			seen[key] = true
			queue = append(queue, n)
		}
	}
	for len(queue) > 0 {
		w := queue[0]
		queue = queue[1:]
		if underRace && len(seen) > 1200 {
			t.Log("stopped early under the race detector; run without it for the complete exploration")
			return
		}
		if len(seen) > m.most {
			t.Fatalf("more than %d states: the exploration is not complete", m.most)
		}
		inbox := posted(w.rec.Inbox)
		for _, acts := range m.changes(w) {
			changes++
			s := step{before: w.rec, now: w.now, acts: acts, inbox: inbox}
			if len(acts) == 1 && acts[0].do == "raise" {
				s.floor = w.rec.Revision + 3
			}
			if err := s.check(); err != nil {
				t.Fatalf("%s\n%v: %v\n%+v\nbecame\n%+v", w.path(), acts, err, s.before, s.after)
			}
			if s.changed {
				visit(&world{rec: s.swapped(), now: w.now, dead: w.dead, by: acts, from: w})
			}
		}
		for _, n := range m.others(w) {
			visit(n)
		}
	}
	t.Logf("%d states, %d changes", len(seen), changes)
}

// swapped is the record as a store keeps it after the step.
func (s step) swapped() driver.Record {
	return driver.Record{Name: s.after.Name, Revision: s.after.New, Holders: s.after.Holders, Tickets: s.after.Tickets}
}

// check runs the step and judges it by the promises, by the reference model, and by what every change must be.
func (s *step) check() error {
	holders, tickets := slices.Clone(s.before.Holders), slices.Clone(s.before.Tickets)
	if err := s.run(); err != nil {
		return err
	}
	if !slices.Equal(holders, s.before.Holders) || !slices.Equal(tickets, s.before.Tickets) {
		return fmt.Errorf("the loaded record was changed: %s", cmp.Diff(holders, s.before.Holders))
	}
	if err := audit(*s); err != nil {
		return err
	}
	if err := expect(*s).compare(s.after); err != nil {
		return err
	}
	same := slices.Equal(holders, s.after.Holders) && slices.Equal(tickets, s.after.Tickets) && len(s.before.Inbox) == 0
	if !s.changed && !same {
		return fmt.Errorf("the record differs, but Changed says it does not")
	}
	if len(s.acts) <= 1 && s.changed && same && (len(s.acts) == 0 || s.acts[0].do != "raise") {
		return fmt.Errorf("Changed says that an equal record differs")
	}
	if len(s.acts) != 1 || s.acts[0].do == "raise" || s.acts[0].do == "request" {
		return nil
	}
	again := step{before: s.swapped(), now: s.now, acts: s.acts}
	if err := again.run(); err != nil {
		return err
	}
	if again.changed && s.acts[0].do != "try" {
		return fmt.Errorf("%v once more changed the record to %+v", s.acts[0], again.after)
	}
	return nil
}

func TestEveryReachableRecordKeepsThePromises(t *testing.T) {
	t.Parallel()
	const all = driver.All
	for _, m := range []model{
		{
			name:     "mixed kinds, deaths and a post",
			leases:   []driver.Entry{want(1, 1, all, all), want(2, 2, 1, all), want(3, 1, 1, 2), want(4, 2, 2, 3)},
			mortals:  1,
			posts:    1,
			instants: 1,
			most:     20_000,
		},
		{
			name:     "permits of different limits",
			leases:   []driver.Entry{want(1, 1, 1, 2), want(2, 2, 2, 2), want(3, 1, 2, 3), want(4, 2, 1, all)},
			mortals:  1,
			posts:    1,
			instants: 1,
			most:     20_000,
		},
		{
			name:     "two posts",
			leases:   []driver.Entry{want(1, 1, all, all), want(2, 2, 1, all), want(3, 1, 2, 3)},
			mortals:  1,
			posts:    2,
			instants: 1,
			most:     20_000,
		},
		{
			name: "holds that end by the clock",
			leases: []driver.Entry{
				holding(want(1, 1, all, all), 500, 0), holding(want(2, 2, 1, all), 0, 1500), holding(want(3, 1, 1, 2), 1500, 500),
			},
			mortals:  1,
			posts:    1,
			instants: 3,
			most:     20_000,
		},
		{
			name: "both holds, and a detached lease",
			leases: []driver.Entry{
				holding(want(1, 1, 1, 2), 500, 1500), holding(want(2, 0, 2, 2), 0, 500), want(3, 2, 1, 1),
			},
			mortals:  1,
			posts:    1,
			instants: 3,
			most:     20_000,
		},
	} {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			m.explore(t)
		})
	}
}
