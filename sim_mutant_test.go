package holdfast

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfastdb/holdfast/internal/faultstore"
)

// mutantRuns bounds how many schedules a mutant may survive.
const mutantRuns = 3000

// Each of these takes one rule of the protocol away. The checker that finds nothing with all rules kept must find what
// the rule prevents; schedules are of a kind in which that is likely.

func TestWithoutSettlingARequestThatComesLateLeavesAHolder(t *testing.T) {
	findMutant(t, mutant{noSettling: true}, func(p *simPlan, rng *rand.Rand) {
		p.names, p.permits = []string{"a", "b", "c", "d", "e", "f"}, "" // so that nobody may come by and clean up
		p.net.Rates.Late, p.net.MaxLate = 100+rng.IntN(100), 5*time.Second
	})
}

func TestWithoutAFenceOnPostsOneThatComesLateLeavesATicket(t *testing.T) {
	findMutant(t, mutant{noPostFence: true}, func(p *simPlan, rng *rand.Rand) {
		p.slots, p.callers, p.names, p.permits, p.busy, p.ttls = 4, 3, []string{"a"}, "", true, slices.Repeat([]time.Duration{simTTL}, 4)
		p.net.Pace = []time.Duration{time.Millisecond, 2 * time.Millisecond, 3 * time.Millisecond, 9 * time.Millisecond}
		p.net.Rates.LatePost, p.net.MaxLate = 300+rng.IntN(500), simTTL
		p.until = simTTL + time.Duration(rng.Int64N(int64(simTTL)))
	})
}

func TestWithTrustCountedFromTheReplyTwoBelieve(t *testing.T) {
	findMutant(t, mutant{trustFromReply: true}, func(p *simPlan, rng *rand.Rand) {
		p.names, p.permits, p.long, p.until = []string{"a"}, "", true, 4*simTTL
		p.ttls = slices.Repeat([]time.Duration{simTTL}, p.slots)
		victim := rng.IntN(p.slots)
		for i := range p.net.Pace {
			p.net.Pace[i] = 300 * time.Microsecond
		}
		p.net.Pace[victim] = 130 * time.Millisecond // its replies are slower than the margin
		from := simTTL/2 + time.Duration(rng.Int64N(int64(2*simTTL)))
		p.net.Cuts = []faultstore.Cut{{Client: victim, From: from, To: from + 2*simTTL, Mode: faultstore.Silent}}
	})
}

func TestWithAMissingRowTakenForDeathTwoBelieve(t *testing.T) {
	findMutant(t, mutant{missingIsDead: true}, func(p *simPlan, rng *rand.Rand) { p.net.Rates.Lag = 300 })
}

func TestWithAnOlderLoadThatWinsAHolderIsOrphaned(t *testing.T) {
	findMutant(t, mutant{olderLoadWins: true}, func(p *simPlan, rng *rand.Rand) {
		p.net.Rates.Slow, p.busy = 100+rng.IntN(200), true
	})
}

// findMutant runs schedules, tuned for the mutant, until one shows a violation. With all rules kept the same seeds must
// pass, as many as it took to find the mutant and some more.
func findMutant(t *testing.T, m mutant, tune func(*simPlan, *rand.Rand)) {
	t.Helper()
	t.Parallel()
	plan := func(seed uint64, m mutant) *simPlan {
		p := planOf(seed, "calm")
		p.prune, p.events, p.breaks, p.forces = 0, nil, false, false
		tune(p, rand.New(rand.NewPCG(seed, 7)))
		p.net.Until, p.mutant = p.until, m
		p.profile = fmt.Sprintf("%+v", m)
		return p
	}
	var next, found atomic.Int64
	var what atomic.Pointer[string]
	t.Run("found", func(t *testing.T) {
		for range runtime.GOMAXPROCS(0) {
			t.Run("", func(t *testing.T) {
				t.Parallel()
				for i := next.Add(1); i <= mutantRuns && found.Load() == 0; i = next.Add(1) {
					p := plan(uint64(i), m)
					if result := simulate(t, p); result.failure != "" && found.CompareAndSwap(0, i) {
						text := fmt.Sprintf("%.400s", result.failure)
						what.Store(&text)
					}
				}
			})
		}
	})
	if found.Load() == 0 {
		t.Fatalf("%+v survived %d schedules", m, mutantRuns)
	}
	t.Logf("found by seed %d: %s", found.Load(), *what.Load())
	for seed := uint64(1); seed <= uint64(min(found.Load()+5, 30)); seed++ {
		p := plan(seed, mutant{})
		if result := simulate(t, p); result.failure != "" {
			t.Fatalf("with all rules kept: %v%s\n%s", p, result.trace, result.failure)
		}
	}
}
