//go:build !linux

package holdfast

import "time"

// suspension returns a function that always says zero: this system has no clock that tells. On macOS and Windows Go's
// monotonic clock may stand still while the machine sleeps; docs/GUARANTEES.md says what that means.
func suspension() func() time.Duration {
	return func() time.Duration { return 0 }
}
