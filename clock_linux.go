package holdfast

import (
	"time"

	"golang.org/x/sys/unix"
)

// suspension returns a function that tells how long the machine has been suspended since now: what CLOCK_BOOTTIME has
// gained on CLOCK_MONOTONIC (clock_gettime(2)).
func suspension() func() time.Duration {
	first, ok := bootAhead()
	if !ok {
		return func() time.Duration { return 0 }
	}
	return func() time.Duration {
		ahead, ok := bootAhead()
		if !ok || ahead-first < time.Millisecond { // reading two clocks costs a little time itself
			return 0
		}
		return ahead - first
	}
}

// bootAhead reads how far CLOCK_BOOTTIME is ahead of CLOCK_MONOTONIC. Interrupted between the readings it errs upward,
// which closes a trust window early and never late; so it reads again.
func bootAhead() (time.Duration, bool) {
	var ahead time.Duration
	for range 4 {
		before, err := read(unix.CLOCK_MONOTONIC)
		if err != nil {
			return 0, false
		}
		boot, err := read(unix.CLOCK_BOOTTIME)
		if err != nil {
			return 0, false
		}
		after, err := read(unix.CLOCK_MONOTONIC)
		if err != nil {
			return 0, false
		}
		ahead = boot - before
		if after-before < time.Millisecond/4 {
			break
		}
	}
	return ahead, true
}

func read(id int32) (time.Duration, error) {
	var ts unix.Timespec
	if err := unix.ClockGettime(id, &ts); err != nil {
		return 0, err
	}
	return time.Duration(ts.Nano()), nil
}
