package driver

// Local identifies a process on its machine, so that another process of the same machine can tell for certain that it
// is gone. The zero value identifies nothing.
type Local struct {
	Boot    string // boot id of the running kernel
	PIDNS   string // PID namespace
	TimeNS  string // time namespace: start times are comparable only inside one
	PID     int
	Started uint64 // start time in clock ticks since boot, as /proc/PID/stat has it
}
