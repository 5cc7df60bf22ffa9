package main

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// dieWithParent has the kernel kill the command when this process dies, however it dies (prctl(2), PR_SET_PDEATHSIG).
func dieWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = unix.SIGKILL }

// adoptOrphans makes orphans of the job children of this process (PR_SET_CHILD_SUBREAPER), so that it reaps them, also
// where the first process of a container does not, and sees at once when the last one is gone.
func adoptOrphans() {
	_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) // since Linux 3.4; without it their end is found by looking
}
