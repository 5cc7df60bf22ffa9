package holdsqlite

import (
	"context"
	"math/rand/v2"
	"time"

	sqlite3 "modernc.org/sqlite/lib"
)

// The pauses between two looks at a busy file: the first about as long as another process's change takes, the longest
// short enough for a hand-over, and for a few hundred looks a second at most.
const (
	firstPause   = 100 * time.Microsecond
	longestPause = 5 * time.Millisecond
)

// untilFree runs fn until it does not end with SQLITE_BUSY, or ctx ends. fn is the first statement of a transaction or
// one in autocommit mode, so busy means that nothing has happened.
//
// SQLite's own busy timeout is off. It cannot be interrupted: a call would outlive its context for as long as another
// process writes. It is also a lottery in which those lose who have waited longest, since it pauses up to 100 ms.
func untilFree(ctx context.Context, fn func() error) error {
	err := fn()
	if !busy(err) {
		return err
	}
	pause := time.NewTimer(firstPause)
	defer pause.Stop()
	for wait := firstPause; ; wait = min(2*wait, longestPause) {
		pause.Reset(wait/2 + rand.N(wait))
		select {
		case <-pause.C:
		case <-ctx.Done():
			return notApplied(ctx.Err())
		}
		if err = fn(); !busy(err) {
			return err
		}
	}
}

func busy(err error) bool {
	_, primary := code(err)
	return primary == sqlite3.SQLITE_BUSY
}
