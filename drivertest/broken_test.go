package drivertest_test

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/holdfastdb/holdfast/driver"
	"github.com/holdfastdb/holdfast/drivertest"
	"github.com/holdfastdb/holdfast/holdmem"
)

// brokenVar names, for a child process, the broken store to run the suite on.
const brokenVar = "HOLDFAST_DRIVERTEST_BROKEN"

// TestSuite runs the suite on a whole store, or in a child of TestSuiteFailsBrokenStores on a broken one.
func TestSuite(t *testing.T) {
	breakIt := func(s driver.Store) driver.Store { return s }
	if name := os.Getenv(brokenVar); name != "" {
		breakIt = brokenStores()[name].breakIt
	}
	drivertest.Run(t, drivertest.Harness{Open: func(*testing.T) drivertest.Database {
		memory := holdmem.New()
		store := breakIt(memory)
		return drivertest.Database{
			Store:    func(*testing.T) driver.Store { return store },
			Damage:   func(_ *testing.T, name string) { memory.Damage(name) },
			StepBack: func(_ *testing.T, _ driver.ID, by time.Duration) { memory.StepClock(-by) },
		}
	}})
}

// TestSuiteFailsBrokenStores shows that the rules are worth something: each store here breaks the law in one way, as a
// plausible backend would, and each rule named for it must see that. A failing rule ends a test, so each store
// is run in a process of its own.
func TestSuiteFailsBrokenStores(t *testing.T) {
	if os.Getenv(brokenVar) != "" {
		t.Fatal("a child ran all tests instead of TestSuite")
	}
	for name, broken := range brokenStores() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			patterns := make([]string, len(broken.rules))
			for i, rule := range broken.rules {
				patterns[i] = regexp.QuoteMeta(testName(rule))
			}
			run := "^TestSuite$/^(" + strings.Join(patterns, "|") + ")$"
			child := exec.CommandContext(t.Context(), os.Args[0], "-test.run", run, "-test.timeout", "2m", "-test.v")
			child.Env = append(os.Environ(), brokenVar+"="+name)
			output, err := child.CombinedOutput()
			if err == nil {
				t.Errorf("the suite passed")
			}
			for _, rule := range broken.rules {
				if !strings.Contains(string(output), "--- FAIL: TestSuite/"+testName(rule)+" ") {
					t.Errorf("the rule %q did not fail", rule)
				}
			}
			for _, bad := range []string{"panic:", "DATA RACE", "no tests to run"} {
				if strings.Contains(string(output), bad) {
					t.Errorf("the child says %q", bad)
				}
			}
			if t.Failed() {
				t.Logf("output of the child (%v):\n%s", err, output)
			}
		})
	}
}

// testName is a rule's name as package testing shows it.
func testName(rule string) string { return strings.ReplaceAll(rule, " ", "_") }
