package holdsqlite

import (
	"testing"
	"time"

	"github.com/holdfastdb/holdfast/driver"
)

func TestTheWallClockDecidesNothingAboutASessionOfThisBoot(t *testing.T) {
	t.Parallel()
	s := fresh(t)
	const ttl = time.Hour
	n := joinAs(t, s, ttl)
	db := raw(t, s.Path())
	for _, step := range []time.Duration{-30 * 24 * time.Hour, 30 * 24 * time.Hour} {
		run(t, db, `UPDATE holdfast_sessions SET beat_wall_us = beat_wall_us + ?`, step.Microseconds())
		if got := reap(t, s, n.ID, false); got.Kind != driver.FateAlive || got.Left < ttl/2 {
			t.Errorf("fate %+v after the wall clock stepped by %v, want alive", got, step)
		}
	}
	age(t, s, n.ID, ttl)
	if got := reap(t, s, n.ID, false); got.Kind != driver.FateDead {
		t.Errorf("fate %+v after a TTL, want dead", got)
	}
}
