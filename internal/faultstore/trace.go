package faultstore

import (
	"fmt"
	"hash/fnv"
	"strings"
	"time"

	"github.com/holdfastdb/holdfast/driver"
)

// traced is how many calls are remembered.
const traced = 5000

// Call is one call as its client saw it.
type Call struct {
	Client     int
	Kind       Kind
	Key        string
	Sent, Done time.Duration
	Fault      string
	Err        error
	show       func() string
}

func (c Call) String() string {
	what := c.show()
	if c.Err != nil {
		what += " error: " + c.Err.Error()
	}
	if c.Fault != "" {
		what += " [" + c.Fault + "]"
	}
	return fmt.Sprintf("%12v +%-10v client %d %s %q %s", c.Sent, c.Done-c.Sent, c.Client, c.Kind, c.Key, what)
}

func (n *Network) begin() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.calls++
	n.flying++
}

func (n *Network) end(c Call) {
	c.Done = n.Elapsed()
	h := fnv.New64a()
	_, _ = fmt.Fprintf(h, "%d %d %s %d %d %s %v", c.Client, c.Kind, c.Key, c.Sent, c.Done, c.Fault, c.Err != nil) // never fails
	n.mu.Lock()
	defer n.mu.Unlock()
	n.flying--
	n.sum += h.Sum64() // a sum, so that calls that end at one instant may do so in any order
	if len(n.ring) >= 2*traced {
		n.ring = append(n.ring[:0], n.ring[traced:]...)
	}
	n.ring = append(n.ring, c)
}

// Sum is a hash of all calls that have ended: who called what, when, and what went wrong. Equal runs have equal sums.
func (n *Network) Sum() uint64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.sum
}

// Trace describes the last calls that have ended, at most that many.
func (n *Network) Trace(most int) string {
	n.mu.Lock()
	calls := n.ring[max(0, len(n.ring)-most):]
	var lines []string
	for _, c := range calls {
		lines = append(lines, c.String())
	}
	n.mu.Unlock()
	return strings.Join(lines, "\n")
}

func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

func short(id driver.ID) string {
	if id.IsZero() {
		return "-"
	}
	return id.String()[:4]
}

func showNothing(struct{}) string { return "" }

func showMicros(now driver.Micros) string { return fmt.Sprintf("now %d", now) }

func showBeat(r driver.BeatReply) string {
	return fmt.Sprintf("now %d alive %v notice %d", r.Now, r.Alive, r.Notice)
}

func showFates(fates map[driver.ID]driver.Fate) string {
	var b strings.Builder
	for id, f := range fates {
		fmt.Fprintf(&b, "%s:%s ", short(id), [...]string{"unknown", "alive " + f.Left.String(), "dead"}[f.Kind])
	}
	return b.String()
}

func showEntries(entries []driver.Entry) string {
	var b strings.Builder
	b.WriteByte('[')
	for i, e := range entries {
		if i > 0 {
			b.WriteByte(' ')
		}
		fmt.Fprintf(&b, "%s of %s rev %d", short(e.Lease), short(e.Session), e.Rev)
		if e.Broken {
			b.WriteString(" broken")
		}
		if e.Limit != driver.All || e.Weight != driver.All {
			fmt.Fprintf(&b, " %d/%d", e.Weight, e.Limit)
		}
	}
	return b.String() + "]"
}

func showOps(inbox []byte) string {
	ops, err := driver.DecodeOps(inbox)
	if err != nil {
		return err.Error()
	}
	var b strings.Builder
	for _, op := range ops {
		if op.Kind == driver.OpEnqueue {
			fmt.Fprintf(&b, " enqueue %s of %s", short(op.Entry.Lease), short(op.Entry.Session))
		} else {
			fmt.Fprintf(&b, " drop %s", short(op.Lease))
		}
	}
	return b.String()
}

func showRecords(recs []driver.Record) string {
	var b strings.Builder
	for _, r := range recs {
		fmt.Fprintf(&b, "%q rev %d holders %s tickets %s", r.Name, r.Revision, showEntries(r.Holders), showEntries(r.Tickets))
		if len(r.Inbox) > 0 {
			b.WriteString(" inbox" + showOps(r.Inbox))
		}
	}
	return b.String()
}

func showAsks(asks []driver.Ask, taken []bool) string {
	var b strings.Builder
	for i, a := range asks {
		fmt.Fprintf(&b, "seed %d %s taken %v ", a.Seed, showEntries([]driver.Entry{a.Holder}), i < len(taken) && taken[i])
	}
	return b.String()
}

func showChanges(changes []driver.Change, done []bool) string {
	var b strings.Builder
	for i, c := range changes {
		fmt.Fprintf(&b, "%d to %d holders %s tickets %s done %v ", c.Old, c.New, showEntries(c.Holders), showEntries(c.Tickets), i < len(done) && done[i])
	}
	return b.String()
}

func showPost(ops []byte, before driver.Micros, posted bool) string {
	return fmt.Sprintf("%s before %d posted %v", showOps(ops), before, posted)
}
