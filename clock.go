package holdfast

import (
	"time"

	"github.com/holdfastdb/holdfast/driver"
)

// instant is a moment of the local clock, in nanoseconds since the client was made, by a clock that goes on while the
// machine is suspended.
type instant int64

func (i instant) add(d time.Duration) instant { return i + instant(d) }
func (i instant) sub(j instant) time.Duration { return time.Duration(i - j) }

// clock reads the local clocks of a client. It has no state that changes and is safe for concurrent use.
type clock struct {
	start     time.Time
	suspended func() time.Duration // how long the machine was suspended since start
	wall      func() time.Time
}

func newClock() *clock {
	return &clock{start: time.Now(), suspended: suspension(), wall: time.Now}
}

// now never goes back. Go's own monotonic clock stands still while a machine sleeps; the suspension is added.
func (k *clock) now() instant { return instant(time.Since(k.start) + k.suspended()) }

// drift is how far the wall clock has moved away from the local clock since the client was made.
func (k *clock) drift() time.Duration {
	return k.wall().Round(0).Sub(k.start.Round(0)) - time.Duration(k.now())
}

// at gives the wall time of a local instant, for people.
func (k *clock) at(i instant) time.Time { return k.wall().Add(i.sub(k.now())) }

// estimator knows the database's clock between two bounds. A reply that carries server time s, to a request sent at b
// and received at r, says that at local time x the server's clock lies in [s + (x - r), s + (x - b)]. Guarded by the
// client's mutex.
type estimator struct {
	best  sample
	valid bool
}

type sample struct {
	server         driver.Micros
	sent, received instant
}

func (s sample) trip() time.Duration { return s.received.sub(s.sent) }
func (s sample) low(x instant) driver.Micros {
	return s.server + x.sub(s.received).Microseconds()
}
func (s sample) high(x instant) driver.Micros {
	return s.server + x.sub(s.sent).Microseconds() + 1 // the rest of a microsecond
}

// add takes a sample in and reports whether the server's clock has moved against the local one by more than margin
// since the sample before: a step, or another server.
func (e *estimator) add(s sample, margin time.Duration) (stepped bool) {
	x := s.received
	if e.valid {
		gap := max(s.low(x)-e.best.high(x), e.best.low(x)-s.high(x))
		stepped = gap > margin.Microseconds()
	}
	if !e.valid || stepped || s.trip() <= e.best.trip() || x.sub(e.best.received) > time.Minute {
		e.best, e.valid = s, true
	}
	return stepped
}

func (e *estimator) low(x instant) driver.Micros {
	if !e.valid {
		return 0
	}
	return e.best.low(x)
}

func (e *estimator) high(x instant) driver.Micros {
	if !e.valid {
		return 0
	}
	return e.best.high(x)
}
