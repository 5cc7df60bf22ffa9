package holdfast

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/holdfastdb/holdfast/internal/faultstore"
)

const simTTL = time.Second

// simPlan is one schedule: everything about it follows from its seed and its profile.
type simPlan struct {
	seed    uint64
	profile string
	slots   int             // processes at a time
	ttls    []time.Duration // of each
	callers int             // goroutines of each
	names   []string
	permits string // name of a semaphore; empty: none
	until   time.Duration
	net     faultstore.Plan
	events  []simEvent
	prune   time.Duration // age of free records that may be pruned
	holds   bool          // MinHold is used
	breaks  bool
	listens bool // clients have Events
	forces  bool
	busy    bool // callers hardly pause
	long    bool // critical sections are long
	mutant  mutant
}

// simEvent is something that happens to a process or to the database at a fixed instant.
type simEvent struct {
	at   time.Duration
	what simWhat
	slot int
	by   time.Duration // of a clock step
}

type simWhat uint8

const (
	simCrash simWhat = iota + 1 // the process dies and is started anew
	simClose                    // the client is closed and made anew
	simKill                     // some session is marked dead
	simStep                     // the database's clock steps
	simWall                     // a machine's wall clock steps
	simPrune                    // free records are deleted
)

func (w simWhat) String() string {
	return [...]string{"", "crash", "close", "kill", "step", "wall", "prune"}[w]
}

func (p *simPlan) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d, profile %s: %d processes of %d callers, TTLs %v, names %v, permits %q, faults until %v, late by %v at most, repeats %v, pace %v\nrates %+v\n",
		p.seed, p.profile, p.slots, p.callers, p.ttls, p.names, p.permits, p.until, p.net.MaxLate, p.net.Repeats, p.net.Pace, p.net.Rates)
	for _, c := range p.net.Cuts {
		fmt.Fprintf(&b, "cut %+v\n", c)
	}
	for _, s := range p.net.Stops {
		fmt.Fprintf(&b, "stop %+v\n", s)
	}
	for _, e := range p.events {
		fmt.Fprintf(&b, "at %v: %v slot %d by %v\n", e.at, e.what, e.slot, e.by)
	}
	return b.String()
}

// simProfiles are kinds of schedules; planOf picks one of the first simMixed for a schedule without a wish.
var simProfiles = []string{"calm", "lossy", "late", "twice", "slow", "cut", "stop", "die", "clock", "mixed", "mixed", "mixed", "mixed"}

func planOf(seed uint64, profile string) *simPlan {
	rng := rand.New(rand.NewPCG(seed, 0x5eed))
	if profile == "" {
		profile = simProfiles[rng.IntN(len(simProfiles))]
	}
	p := &simPlan{
		seed: seed, profile: profile, slots: 2 + rng.IntN(3), callers: 1 + rng.IntN(3),
		names: []string{"a", "b"}[:1+rng.IntN(2)], until: 1500*time.Millisecond + time.Duration(rng.Int64N(int64(3*time.Second))),
		breaks: rng.IntN(3) == 0, forces: rng.IntN(4) == 0, busy: rng.IntN(3) == 0, listens: seed%2 == 0,
	}
	if rng.IntN(3) == 0 {
		p.permits = "permits"
	}
	unequal := rng.IntN(6) == 0
	for range p.slots {
		ttl := simTTL
		if unequal {
			ttl = []time.Duration{simTTL, 2 * simTTL, 6 * simTTL}[rng.IntN(3)]
		}
		p.ttls = append(p.ttls, ttl)
	}
	if p.ttl() > simTTL {
		p.long, p.until = rng.IntN(2) == 0, p.until+time.Duration(rng.Int64N(int64(p.ttl())))
	}
	p.net.Seed, p.net.Until = seed, p.until
	p.net.MaxLate = []time.Duration{100 * time.Millisecond, time.Second, 5 * time.Second}[rng.IntN(3)]
	for range p.slots {
		p.net.Pace = append(p.net.Pace, time.Duration(30+rng.IntN(1+[]int{500, 3000, 15000}[rng.IntN(3)]))*time.Microsecond)
	}
	r, rate := &p.net.Rates, func(most int) int { return rng.IntN(most + 1) }
	all := profile == "mixed"
	if all || profile == "lossy" {
		r.LostBefore, r.NotApplied, r.LostAfter, r.Half = rate(40), rate(20), rate(60), rate(100)
	}
	if all || profile == "late" {
		r.Late, r.LostBefore = rate(80), rate(20)
	}
	if all || profile == "twice" {
		r.Twice, r.Again = rate(80), rate(80)
		p.net.Repeats = rng.IntN(2) == 0
	}
	if all || profile == "slow" {
		r.Slow = rate(60)
	}
	if all && rng.IntN(3) == 0 {
		r.Lag = rate(400)
	}
	if all || profile == "cut" {
		p.addCuts(rng)
	}
	if all && rng.IntN(3) == 0 || profile == "stop" {
		for range 1 + rng.IntN(3) {
			from := p.instant(rng)
			p.net.Stops = append(p.net.Stops, faultstore.Stop{Client: rng.IntN(p.slots), From: from, To: from + length(rng, 3*p.ttl())})
		}
	}
	steps := time.Duration(0)
	if all && rng.IntN(4) == 0 || profile == "clock" {
		steps = p.addSteps(rng)
	}
	if steps == 0 {
		p.holds = rng.IntN(2) == 0
	}
	if all && rng.IntN(2) == 0 || profile == "die" {
		p.addDeaths(rng)
	}
	if rng.IntN(3) == 0 && steps == 0 {
		// Less than a day is safe as long as it is longer than any request is late, and no clock steps.
		p.prune = p.net.MaxLate + 3*p.ttl()
		if rng.IntN(2) == 0 {
			p.until += p.prune
			p.net.Until = p.until
		}
		for range 4 {
			p.events = append(p.events, simEvent{at: p.instant(rng), what: simPrune})
		}
	}
	return p
}

// ttl is the longest of all.
func (p *simPlan) ttl() time.Duration { return slices.Max(p.ttls) }

func (p *simPlan) instant(rng *rand.Rand) time.Duration {
	return time.Duration(rng.Int64N(int64(p.until)))
}

// length draws a duration, short ones more often than long ones.
func length(rng *rand.Rand, most time.Duration) time.Duration {
	return time.Duration(1 + rng.Int64N(1+int64(most)>>rng.IntN(8)))
}

func (p *simPlan) addCuts(rng *rand.Rand) {
	for range 1 + rng.IntN(3) {
		from := p.instant(rng)
		c := faultstore.Cut{Client: rng.IntN(p.slots), From: from, To: from + length(rng, 3*p.ttl())}
		c.Mode = []faultstore.Mode{faultstore.Silent, faultstore.Refused, faultstore.Deaf}[rng.IntN(3)]
		if rng.IntN(4) == 0 {
			c.Client = faultstore.Everybody
		}
		p.net.Cuts = append(p.net.Cuts, c)
	}
}

// addSteps adds steps of the database's clock and of machines' wall clocks, and returns how far the former go in all.
func (p *simPlan) addSteps(rng *rand.Rand) (all time.Duration) {
	for range 1 + rng.IntN(2) {
		d := length(rng, 2*time.Hour)
		if rng.IntN(2) == 0 {
			d = -d
		}
		all += d.Abs()
		p.events = append(p.events, simEvent{at: p.instant(rng), what: simStep, by: d})
	}
	if rng.IntN(2) == 0 {
		p.events = append(p.events, simEvent{at: p.instant(rng), what: simWall, slot: rng.IntN(p.slots), by: length(rng, time.Hour) - 30*time.Minute})
	}
	return all
}

// addDeaths adds the ends of processes and sessions. The next process of a slot is another client of the network, by
// that many further on as there are slots.
func (p *simPlan) addDeaths(rng *rand.Rand) {
	clients := make([]int, p.slots)
	for i := range clients {
		clients[i] = i
	}
	at := time.Duration(0)
	for range 1 + rng.IntN(3) {
		at += time.Duration(rng.Int64N(int64(p.until)))/2 + 1
		e := simEvent{at: at, slot: rng.IntN(p.slots), what: simCrash + simWhat(rng.IntN(3))}
		if e.what == simCrash {
			p.net.Cuts = append(p.net.Cuts, faultstore.Cut{Client: clients[e.slot], From: at, To: faultstore.Forever, Mode: faultstore.Silent})
		}
		if e.what != simKill {
			clients[e.slot] += p.slots
		}
		p.events = append(p.events, e)
	}
	for len(p.net.Pace) < 4*p.slots {
		p.net.Pace = append(p.net.Pace, p.net.Pace[len(p.net.Pace)-p.slots])
	}
}
