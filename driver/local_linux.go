package driver

import (
	"errors"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// Here identifies this process. It is the zero Local where the system cannot tell all of it, for half an identity
// proves nothing.
func Here() Local {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return Local{}
	}
	pidns, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		return Local{}
	}
	// Kernels before 5.6 have no time namespaces. All their processes then read one clock, so "" is a good name for it.
	timens, err := os.Readlink("/proc/self/ns/time")
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return Local{}
	}
	st, err := readStat("self")
	if err != nil || st.started == 0 {
		return Local{}
	}
	return Local{
		Boot: strings.TrimSpace(string(boot)), PIDNS: pidns, TimeNS: timens,
		PID: os.Getpid(), Started: st.started,
	}
}

// Gone reports whether there is proof that process l is gone: l belongs to this boot and to the PID and time namespaces
// of the calling process, and its pid is unknown to the kernel, belongs to a process started at another time, or to a
// zombie. False means "no proof", not "alive"; the zero Local is never gone. A missing /proc entry is no proof, since
// hidepid and mounted-over directories hide living processes. Once true, always true.
func (l Local) Gone() bool {
	if l.Boot == "" || l.PIDNS == "" || l.PID <= 0 || l.Started == 0 {
		return false
	}
	me := Here()
	if l.Boot != me.Boot || l.PIDNS != me.PIDNS || l.TimeNS != me.TimeNS {
		return false
	}
	if errors.Is(syscall.Kill(l.PID, 0), syscall.ESRCH) {
		return true
	}
	// What /proc says counts only if it was mounted for this PID namespace: a container may see its host's.
	if self, err := os.Readlink("/proc/self"); err != nil || self != strconv.Itoa(me.PID) {
		return false
	}
	st, err := readStat(strconv.Itoa(l.PID))
	if err != nil {
		return false
	}
	return st.started != l.Started || st.zombie()
}

// stat is what /proc/PID/stat says, see proc_pid_stat(5).
type stat struct {
	state   byte
	threads int
	started uint64
}

// zombie reports a process none of whose threads can run again. A first thread in state Z is not enough: the others
// may still be at work, or still be dying inside a write.
func (s stat) zombie() bool { return (s.state == 'Z' || s.state == 'X') && s.threads <= 1 }

func readStat(pid string) (stat, error) {
	b, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return stat{}, err
	}
	return parseStat(string(b))
}

func parseStat(line string) (stat, error) {
	// The second field is the program's name in parentheses; it may itself contain blanks and parentheses.
	i := strings.LastIndexByte(line, ')')
	fields := strings.Fields(line[i+1:])
	const state, threads, started = 0, 20 - 3, 22 - 3 // fields are numbered from 1; state is the third
	if i < 0 || len(fields) <= started || len(fields[state]) != 1 {
		return stat{}, errors.New("driver: /proc/PID/stat has an unknown form")
	}
	n, err := strconv.Atoi(fields[threads])
	if err != nil {
		return stat{}, err
	}
	at, err := strconv.ParseUint(fields[started], 10, 64)
	if err != nil {
		return stat{}, err
	}
	return stat{state: fields[state][0], threads: n, started: at}, nil
}
