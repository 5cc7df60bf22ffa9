package holdsqlite

import (
	"time"

	"github.com/holdfastdb/holdfast/driver"
)

// A stamp is one instant on two clocks. The first is the one that decides: time since boot, named by boot id and time
// namespace, since only readings of the same name can be compared; the name is empty where it is the wall clock.
//
// Stamps are taken after BEGIN IMMEDIATE has the write lock, which may take as long as another writer likes. For a beat
// an earlier stamp would be safe but would shorten the session's life by the wait. For a reaper it would not be safe: it
// would see beats of the meantime in its future, set them back to its own old now, and so end a session before beat +
// TTL. Under the lock, stamps are ordered like the writes.
type stamp struct {
	clock  string
	us     int64
	wallUS driver.Micros
}

// clockName names the clock of bootTime in this process, empty if there is none.
func clockName(here driver.Local) string {
	if _, ok := bootTime(); !ok || here.Boot == "" {
		return ""
	}
	return here.Boot + " " + here.TimeNS
}

// now reads both clocks.
func (s *Store) now() stamp {
	wall := time.Now().UnixMicro()
	if s.clock != "" {
		if since, ok := bootTime(); ok {
			return stamp{clock: s.clock, us: since.Microseconds(), wallUS: wall}
		}
	}
	return stamp{us: wall, wallUS: wall}
}

// since is the time from then to now, and whether both were read on one clock. If not, the wall clock has to do: the
// machine was booted in between, or the file is shared with a guest or a container that has clocks of its own. Neither
// proves the session's process gone, and a wall clock is often wrong in the first minutes after a boot and then set, so
// whoever judges by it must be patient.
func (now stamp) since(then stamp) (elapsed time.Duration, sameClock bool) {
	if now.clock == then.clock {
		return time.Duration(now.us-then.us) * time.Microsecond, true
	}
	return time.Duration(now.wallUS-then.wallUS) * time.Microsecond, false
}
