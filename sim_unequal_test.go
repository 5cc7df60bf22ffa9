package holdfast

import (
	"testing"
	"time"

	"github.com/holdfastdb/holdfast/internal/faultstore"
)

// Processes with different TTLs share a database: a job with a short one beside services with long ones. What one of
// them judges of another goes by the other's TTL and margin.

func TestAClientOfAShortTTLWaitsForTheNextBeatOfALongOneAfterAClockStep(t *testing.T) {
	t.Parallel()
	for after := 100 * time.Millisecond; after < 4*time.Second; after += 100 * time.Millisecond {
		stepBetween(t, 6*time.Second, simTTL, time.Hour, 4*time.Second+50*time.Millisecond, after)
	}
}

func TestAClientOfALongTTLNoticesAStepLongerThanTheMarginOfAShortOne(t *testing.T) {
	t.Parallel()
	for after := 10 * time.Millisecond; after < time.Second; after += 20 * time.Millisecond {
		stepBetween(t, simTTL, 10*time.Second, 900*time.Millisecond, 12*time.Second+50*time.Millisecond, after)
	}
}

// stepBetween has one client hold a name while another, that knows the database's clock for long, asks for it some time
// after that clock has stepped forward.
func stepBetween(t *testing.T, holding, asking, step, at, after time.Duration) {
	t.Helper()
	playOnStage(t, faultstore.Plan{}, func(st *stage) {
		holder, asker := st.processOf(0, holding), st.processOf(1, asking)
		l, g := st.lock(holder, "a")
		other, g2 := st.lock(asker, "b")
		st.release(other, g2)
		time.Sleep(at - st.net.Elapsed())
		st.db.StepClock(step)
		time.Sleep(after)
		if got, err := asker.client.TryLock(st.Context(), "a"); err == nil {
			st.release(got, st.check.took(asker, "a", got))
		}
		if err := l.Err(); err != nil {
			st.Errorf("asked %v after the step: the holder: %v", after, err)
			return
		}
		st.release(l, g)
	})
}
