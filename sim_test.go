package holdfast

import (
	"flag"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"
)

var (
	simSeed    = flag.Uint64("sim.seed", 0, "replay the schedule of this seed")
	simRuns    = flag.Int("sim.runs", 300, "how many schedules TestSimulated runs")
	simFirst   = flag.Uint64("sim.first", 1, "seed of the first of them")
	simTrace   = flag.Int("sim.trace", 100, "how many calls to print before a violation")
	simSame    = flag.Int("sim.same", 0, "run every schedule so many times and count those with equal traces")
	simStop    = flag.Int("sim.stop", 5, "stop after so many violations")
	simBrief   = flag.Bool("sim.brief", false, "print a line for each violation")
	simProfile = flag.String("sim.profile", "", "kind of the schedules: one of "+fmt.Sprint(simProfiles))
)

// TestSimulatedHistoriesKeepThePromises runs seeded random schedules of clients, faults and clocks, each in a bubble of
// its own, and checks each history. Replay a failure with -sim.seed and, if it names one, -sim.profile.
func TestSimulatedHistoriesKeepThePromises(t *testing.T) {
	t.Parallel()
	if *simSame > 0 {
		measureReplay(t)
		return
	}
	if *simSeed != 0 {
		replay(t)
		return
	}
	var next, calls, acquired, failed atomic.Int64
	began := time.Now()
	t.Run("workers", func(t *testing.T) {
		for range runtime.GOMAXPROCS(0) {
			t.Run("", func(t *testing.T) {
				t.Parallel()
				for i := next.Add(1) - 1; i < int64(*simRuns) && failed.Load() < int64(*simStop); i = next.Add(1) - 1 {
					plan := planOf(*simFirst+uint64(i), *simProfile)
					result := simulate(t, plan)
					calls.Add(int64(result.calls))
					acquired.Add(int64(result.acquired))
					if result.failure != "" {
						failed.Add(1)
						if *simBrief {
							t.Errorf("seed %d profile %s: %.300s", plan.seed, plan.profile, result.failure)
							continue
						}
						t.Errorf("%v%s\n%s", plan, result.trace, result.failure)
					}
				}
			})
		}
	})
	t.Logf("%d schedules, %d calls, %d leases, %.0f schedules/s", *simRuns, calls.Load(), acquired.Load(), float64(*simRuns)/time.Since(began).Seconds())
}

// measureReplay runs each schedule several times and reports how reliably a seed replays.
func measureReplay(t *testing.T) {
	equal, firsts := 0, 0
	for i := range *simRuns {
		plan := planOf(*simFirst+uint64(i), *simProfile)
		sums := map[uint64]int{}
		most := 0
		for range *simSame {
			sum := simulate(t, plan).sum
			sums[sum]++
			most = max(most, sums[sum])
		}
		firsts += most
		if len(sums) == 1 {
			equal++
		} else {
			t.Logf("seed %d, profile %s: %d different traces, the most frequent %d times", plan.seed, plan.profile, len(sums), most)
		}
	}
	t.Logf("%d of %d schedules had one trace in all of %d runs; the usual trace came in %.1f%% of all runs", equal, *simRuns, *simSame, 100*float64(firsts)/float64(*simRuns**simSame))
}

// replay runs one schedule until it fails, ten times at most: goroutines that act at one instant may take turns.
func replay(t *testing.T) {
	for range 10 {
		plan := planOf(*simSeed, *simProfile)
		result := simulate(t, plan)
		t.Logf("%v%d calls, %d leases, trace hash %016x", plan, result.calls, result.acquired, result.sum)
		if result.failure != "" {
			t.Fatalf("%s\n%s", result.trace, result.failure)
		}
	}
}
