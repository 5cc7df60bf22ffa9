//go:build !linux

package holdsqlite

import "time"

// bootTime is not used here: without a boot id two readings cannot be known to belong to one boot.
func bootTime() (time.Duration, bool) { return 0, false }
