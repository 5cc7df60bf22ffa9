package main

import (
	"os"
	"time"

	"github.com/holdfastdb/holdfast"
)

// job is a command that runs while a lease is held. Its run method, one for each kind of system, returns when no
// process of the job is left, with the exit status, or with the program's ending if the command could not be started.
type job struct {
	path                  string
	argv, env             []string
	stdin, stdout, stderr *os.File
	lease                 *holdfast.Lease
	signals               <-chan os.Signal // to be forwarded
	grace                 time.Duration    // between TERM and KILL; never more than half a margin
	say                   func(format string, args ...any)
	verbose               bool
}

// killAt is when the job must be killed whose lease has ended by now: after the grace, counted from when the lease ended
// for its holder, which is long past if this process was stopped meanwhile.
func (j *job) killAt(now time.Time) time.Time {
	if ended := j.lease.Deadline(); ended.Before(now) {
		now = ended
	}
	return now.Add(j.grace)
}
