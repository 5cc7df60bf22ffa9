// Package drivertest is the suite every [driver.Store] passes: each subtest is one rule of the law in that interface.
//
// A backend's own test is only a harness:
//
//	func TestStoreKeepsTheLaw(t *testing.T) {
//		drivertest.Run(t, drivertest.Harness{Open: func(t *testing.T) drivertest.Database {
//			path := filepath.Join(t.TempDir(), "locks.db")
//			return drivertest.Database{
//				Store: func(t *testing.T) driver.Store {
//					store := open(t, path)
//					t.Cleanup(func() { store.Close() })
//					return store
//				},
//				Damage:   func(t *testing.T, name string) { run(t, path, damageStatement, name) },
//				StepBack: func(t *testing.T, id driver.ID, by time.Duration) { run(t, path, stepStatement, by, id) },
//			}
//		}})
//	}
//
// Rules judge what the law promises and no more: an error that Classify calls FaultNotApplied is tried again, any other
// error fails the rule. No rule depends on the speed of the machine: a rule about expiry compares instants of this
// process with the answers of the store and leaves a run without verdict if the machine was too slow for one.
package drivertest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/holdfastdb/holdfast/driver"
)

// Harness is how the suite reaches a backend.
type Harness struct {
	// Open gives a database that is fresh: empty, without Setup. Each rule opens its own, a few open several; rules run
	// in parallel. What it opened ends with t, by t.Cleanup.
	Open func(t *testing.T) Database

	// SteadyClock says that the clock which stamps beats cannot step, so that Reap may disregard Caution.Stepped and Caution.Low.
	SteadyClock bool

	// Rounds is how often each race is run; 0 means 30, and 6 under -short.
	Rounds int
}

// Database is one database, as a harness opened it. All its functions are needed.
type Database struct {
	// Store opens a handle on the database with a connection or pool of its own, as another process would have. A rule
	// opens one, a few or (first use) 30 of them. Memory stores answer the same store each time.
	Store func(t *testing.T) driver.Store

	// Damage overwrites the stored state of the record, which exists, with bytes that are no state.
	Damage func(t *testing.T, name string)

	// StepBack leaves the last beat of the session, which exists, that far in the future, as if the database's clock
	// had been stepped back since. Other sessions may be stepped too.
	StepBack func(t *testing.T, id driver.ID, by time.Duration)
}

// rule is one sentence of the law and how to check it.
type rule struct {
	name  string
	check func(e *env)
	bare  bool // the database is not set up yet
}

// Run checks all rules against the backend of h, each in a parallel subtest that is named by its sentence.
func Run(t *testing.T, h Harness) {
	t.Helper()
	if h.Rounds <= 0 {
		h.Rounds = 30
		if testing.Short() {
			h.Rounds = 6
		}
	}
	names := map[string]bool{}
	for _, r := range allRules() {
		if names[r.name] {
			t.Fatalf("two rules are named %q", r.name)
		}
		names[r.name] = true
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			e := open(t, h)
			if !r.bare {
				if err := e.s.Setup(e.ctx); err != nil {
					t.Fatalf("Setup of a fresh database: %v", err)
				}
			}
			r.check(e)
		})
	}
}

func allRules() []rule {
	var all []rule
	for _, topic := range [][]rule{
		setupRules(), grabRules(), swapRules(), loadRules(), batchRules(), postRules(), nameRules(), listRules(),
		raceRules(), historyRules(), sessionRules(), reapRules(), reapRaceRules(), pruneRules(), lateRules(), faultRules(),
	} {
		all = append(all, topic...)
	}
	return all
}

// open makes the rule's surroundings: a fresh database, one handle, and a time limit far above what any rule needs.
func open(t *testing.T, h Harness) *env {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), ruleLimit, fmt.Errorf("the rule took more than %v", ruleLimit))
	t.Cleanup(cancel)
	e := &env{t: t, h: h, ctx: ctx, db: h.Open(t)}
	if e.db.Store == nil || e.db.Damage == nil || e.db.StepBack == nil {
		t.Fatal("the harness lacks a function of Database: its rules would go unchecked")
	}
	e.s = e.handles(1)[0]
	return e
}

// ruleLimit bounds one rule, so that a store which hangs fails it.
const ruleLimit = 3 * time.Minute
