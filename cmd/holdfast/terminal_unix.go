//go:build unix

package main

import (
	"os"

	"golang.org/x/sys/unix"
)

// isTerminal reports whether f is a terminal.
func isTerminal(f *os.File) bool {
	_, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	return err == nil
}

// terminal is the controlling terminal and whose it is. A nil terminal does nothing.
type terminal struct {
	tty         *os.File
	own         int  // this process's group
	interactive bool // nothing but the terminal on the standard streams
	given       bool // the job's group is in the foreground, by our doing
}

// openTerminal returns the controlling terminal, nil if there is none.
func openTerminal(streams ...*os.File) *terminal {
	tty, err := os.OpenFile("/dev/tty", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil
	}
	t := &terminal{tty: tty, own: unix.Getpgrp(), interactive: true}
	for _, f := range streams {
		t.interactive = t.interactive && isTerminal(f)
	}
	return t
}

func (t *terminal) close() {
	if t != nil {
		_ = t.tty.Close() // nothing was written
	}
}

// foreground reports whether the terminal is this process's, or its group's, to give.
func (t *terminal) foreground() bool {
	pgid, err := unix.IoctlGetInt(int(t.tty.Fd()), unix.TIOCGPGRP)
	return err == nil && pgid == t.own
}

// eager reports whether to give the terminal to the job at once: if a shell started this process alone in the
// foreground. In a pipeline or a script the others need it too (the pager in run ... | less, the script that Ctrl-C is
// to end), so there the job gets it when it asks for it, by reading from it or changing it.
func (t *terminal) eager() bool {
	return t != nil && t.interactive && t.own == os.Getpid() && t.foreground()
}

// give puts the group into the foreground.
func (t *terminal) give(pgid int) {
	if unix.IoctlSetPointerInt(int(t.tty.Fd()), unix.TIOCSPGRP, pgid) == nil {
		t.given = true
	}
}

// takeBack puts this process's own group into the foreground again if it was given away. The caller ignores SIGTTOU.
func (t *terminal) takeBack() {
	if t != nil && t.given {
		_ = unix.IoctlSetPointerInt(int(t.tty.Fd()), unix.TIOCSPGRP, t.own) // a terminal that hung up is nobody's
		t.given = false
	}
}
