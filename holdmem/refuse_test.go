package holdmem

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastdb/holdfast/driver"
)

func entry() driver.Entry {
	return driver.Entry{Lease: driver.NewID(), Session: driver.NewID(), Weight: driver.All, Limit: driver.All}
}

func TestRequestThatBreaksTheLawIsRefusedAndDoesNothing(t *testing.T) {
	t.Parallel()
	s := New()
	ctx := t.Context()
	grab := func(asks ...driver.Ask) error { _, err := s.Grab(ctx, asks); return err }
	swap := func(cs ...driver.Change) error { _, err := s.Swap(ctx, cs); return err }
	load := func(known ...driver.Known) error { _, err := s.Load(ctx, known); return err }
	if err := grab(driver.Ask{Name: "a", Seed: 10, Holder: entry()}); err != nil {
		t.Fatal(err)
	}
	var asks []driver.Ask
	var known []driver.Known
	var changes []driver.Change
	for i := range driver.MaxBatch + 1 {
		name := fmt.Sprint(i)
		asks = append(asks, driver.Ask{Name: name, Seed: 1, Holder: entry()})
		known = append(known, driver.Known{Name: name})
		changes = append(changes, driver.Change{Name: name, Old: 1, New: 2})
	}
	twice := entry()
	cases := map[string]error{
		"a batch of grabs too large":  grab(asks...),
		"a batch of loads too large":  load(known...),
		"a batch of swaps too large":  swap(changes...),
		"a grab of no name":           grab(driver.Ask{Seed: 1, Holder: entry()}),
		"a grab of a name too long":   grab(driver.Ask{Name: strings.Repeat("n", 256), Seed: 1, Holder: entry()}),
		"a grab of a name with a NUL": grab(driver.Ask{Name: "a\x00", Seed: 1, Holder: entry()}),
		"a load of invalid UTF-8":     load(driver.Known{Name: "\xff"}),
		"a grab without a seed":       grab(driver.Ask{Name: "b", Holder: entry()}),
		"a grab without a lease":      grab(driver.Ask{Name: "b", Seed: 1}),
		"one name twice in a batch":   grab(driver.Ask{Name: "b", Seed: 1, Holder: entry()}, driver.Ask{Name: "b", Seed: 2, Holder: entry()}),
		"a swap from 0":               swap(driver.Change{Name: "a", Old: 0, New: 11}),
		"a swap that does not rise":   swap(driver.Change{Name: "a", Old: 10, New: 10}),
		"a swap that falls":           swap(driver.Change{Name: "a", Old: 10, New: 9}),
		"one lease twice in a record": swap(driver.Change{Name: "a", Old: 10, New: 11, Holders: []driver.Entry{twice, twice}}),
		"a good swap beside a bad one": swap(driver.Change{Name: "a", Old: 10, New: 11},
			driver.Change{Name: "b", Old: 1, New: 1}),
	}
	_, cases["a post to no name"] = s.Post(ctx, "", []byte("x"), 100)
	_, cases["a join without an id"] = s.Join(ctx, driver.Session{Nonce: driver.NewID(), TTL: time.Second})
	_, cases["a join without a TTL"] = s.Join(ctx, driver.Session{ID: driver.NewID(), Nonce: driver.NewID()})
	for what, err := range cases {
		if err == nil {
			t.Errorf("%s: no error", what)
		} else if got := s.Classify(fmt.Errorf("lock: %w", err)); got != driver.FaultPermanent {
			t.Errorf("%s: %v is classified %q, want %q", what, err, got, driver.FaultPermanent)
		}
	}
	recs, err := s.List(ctx, driver.Query{})
	if err != nil || len(recs) != 1 || recs[0].Revision != 10 {
		t.Errorf("records %+v, %v; want the one grabbed first, unchanged", recs, err)
	}
}

func TestEndedContextIsCertainlyNotApplied(t *testing.T) {
	t.Parallel()
	s := New()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := s.Grab(ctx, []driver.Ask{{Name: "a", Seed: 1, Holder: entry()}})
	if !errors.Is(err, context.Canceled) || s.Classify(err) != driver.FaultNotApplied {
		t.Errorf("error %v, classified %q; want one that is context.Canceled and not applied", err, s.Classify(err))
	}
}

func TestTimeInASynctestBubbleIsExact(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := New()
		session := driver.Session{ID: driver.NewID(), Nonce: driver.NewID(), TTL: 15 * time.Second}
		fate := func() driver.Fate {
			fates, err := s.Reap(t.Context(), []driver.ID{session.ID}, nil, driver.Caution{})
			if err != nil {
				t.Fatal(err)
			}
			return fates[session.ID]
		}
		want := func(f driver.Fate) {
			t.Helper()
			if got := fate(); got != f {
				t.Fatalf("fate %+v, want %+v", got, f)
			}
		}
		now, err := s.Join(t.Context(), session)
		if err != nil || now != time.Now().UnixMicro() {
			t.Fatalf("Join answers %d, %v; want the clock of the bubble", now, err)
		}
		time.Sleep(session.TTL - time.Microsecond)
		want(driver.Fate{Kind: driver.FateAlive, Left: time.Microsecond, TTL: session.TTL})
		s.StepClock(-time.Hour) // the beat lies in the future now: set to now by the first Reap
		want(driver.Fate{Kind: driver.FateAlive, Left: session.TTL, TTL: session.TTL})
		time.Sleep(session.TTL)
		want(driver.Fate{Kind: driver.FateDead})
	})
}
