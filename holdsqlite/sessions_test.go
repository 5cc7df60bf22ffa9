package holdsqlite

import (
	"sync"
	"testing"
	"time"

	"github.com/holdfastdb/holdfast/driver"
)

// age makes the last beat of a session look that much older, on both clocks.
func age(t *testing.T, s *Store, id driver.ID, by time.Duration) {
	t.Helper()
	run(t, raw(t, s.Path()), `UPDATE holdfast_sessions SET beat_us = beat_us - ?2, beat_wall_us = beat_wall_us - ?2 WHERE id = ?1`,
		id.String(), by.Microseconds())
}

func reap(t *testing.T, s *Store, id driver.ID, patient bool) driver.Fate {
	t.Helper()
	var care driver.Caution
	if patient {
		care.Known = 1
	}
	fates, err := s.Reap(t.Context(), []driver.ID{id}, nil, care)
	if err != nil {
		t.Fatal(err)
	}
	return fates[id]
}

func TestASessionOfAnotherBootIsJudgedByTheWallClockAndPatiently(t *testing.T) {
	t.Parallel()
	s := fresh(t)
	const ttl = time.Hour
	otherBoot := func(silent time.Duration) driver.ID {
		n := joinAs(t, s, ttl)
		run(t, raw(t, s.Path()), `UPDATE holdfast_sessions SET beat_clock = 'another boot', beat_us = 1, beat_wall_us = beat_wall_us - ?2
WHERE id = ?1`, n.ID.String(), silent.Microseconds())
		return n.ID
	}
	if got := reap(t, s, otherBoot(ttl+ttl/2), false); got.Kind != driver.FateAlive || got.Left > ttl/2 {
		t.Errorf("fate %+v after 1.5 TTL, want alive for half a TTL", got)
	}
	if got := reap(t, s, otherBoot(0), false); got.Kind != driver.FateAlive || got.Left > ttl {
		t.Errorf("fate %+v at once, want alive for a TTL at most", got)
	}
	if got := reap(t, s, otherBoot(2*ttl), false); got.Kind != driver.FateDead {
		t.Errorf("fate %+v after 2 TTL, want dead", got)
	}
	// In the future: counted from now, and on this process's clock from then on.
	id := otherBoot(-10 * ttl)
	if got := reap(t, s, id, false); got.Kind != driver.FateAlive || got.Left != ttl {
		t.Errorf("fate %+v of a beat in the future, want alive for a TTL", got)
	}
	age(t, s, id, ttl)
	if got := reap(t, s, id, false); got.Kind != driver.FateDead {
		t.Errorf("fate %+v a TTL after a beat in the future, want dead", got)
	}
}

// The reaper's clock is read under the write lock: a beat that came while it waited must not look like the future, nor
// be set back.
func TestABeatDuringTheReapersWaitCounts(t *testing.T) {
	t.Parallel()
	s := fresh(t)
	reaper := open(t, s.Path())
	n := joinAs(t, s, time.Hour)
	for range 50 {
		var group sync.WaitGroup
		group.Go(func() {
			if _, err := reaper.Reap(t.Context(), []driver.ID{n.ID}, nil, driver.Caution{}); err != nil {
				t.Error(err)
			}
		})
		before := s.now()
		if r, err := s.Beat(t.Context(), n.ID, n.Nonce, n.Nonce); err != nil || !r.Alive {
			t.Fatal(r, err)
		}
		group.Wait()
		var us int64
		if err := s.reads.db.QueryRow(`SELECT beat_us FROM holdfast_sessions`).Scan(&us); err != nil || us < before.us {
			t.Fatalf("the beat is stamped %d, %v; it was sent at %d", us, err, before.us)
		}
	}
}

func TestAKilledProcessIsProvenGoneByItsSessionRow(t *testing.T) {
	t.Parallel()
	s := fresh(t)
	n := joinAs(t, s, time.Hour)
	rows, err := s.Sessions(t.Context(), []driver.ID{n.ID})
	if err != nil || len(rows) != 1 || rows[0].Local != n.Local {
		t.Fatalf("%+v, %v; want the local identity %+v", rows, err, n.Local)
	}
	if rows[0].Local.Gone() {
		t.Error("this process is gone")
	}
	fates, err := s.Reap(t.Context(), nil, []driver.ID{n.ID}, driver.Caution{Known: 1})
	if err != nil || fates[n.ID].Kind != driver.FateDead {
		t.Errorf("fate %+v, %v of a certified session, want dead", fates[n.ID], err)
	}
	if r, err := s.Beat(t.Context(), n.ID, n.Nonce, n.Nonce); err != nil || r.Alive {
		t.Errorf("Beat of a dead session = %+v, %v", r, err)
	}
}
