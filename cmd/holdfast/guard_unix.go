//go:build unix

package main

import (
	"bufio"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

// guard is a second process of this program that kills the job's group if this process dies without having ended it. It
// sees that by the end of its input, a pipe that nobody else has. The parent-death signal alone reaches the command, but
// nothing the command has started, and exists on Linux only.
type guard struct {
	pid  int // 0: reaped
	pipe *os.File
}

const guardCommand = "guard-group"

// startGuard starts the guard. On failure the guard is nil, which does nothing.
func startGuard() (*guard, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("start the guard: %w", err)
	}
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		return nil, fmt.Errorf("start the guard: %w", err)
	}
	defer null.Close()
	r, w, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("start the guard: %w", err)
	}
	defer r.Close()
	pid, err := syscall.ForkExec(program, []string{"holdfast", guardCommand}, &syscall.ProcAttr{
		Dir:   "/",
		Env:   []string{"GOMAXPROCS=1"}, // it needs nothing, and must not know a URL
		Files: []uintptr{r.Fd(), null.Fd(), null.Fd()},
		Sys:   &syscall.SysProcAttr{Setsid: true}, // out of reach of the terminal's signals
	})
	if err != nil {
		_ = w.Close() // nothing was written
		return nil, fmt.Errorf("start the guard: %w", err)
	}
	return &guard{pid: pid, pipe: w}, nil
}

// watch tells the guard which group to kill.
func (g *guard) watch(pgid int) {
	if g != nil {
		_, _ = fmt.Fprintln(g.pipe, pgid) // fails only if the guard is dead, which cannot be mended
	}
}

// reaped notes that a child was reaped, which may have been the guard.
func (g *guard) reaped(pid int) {
	if g != nil && g.pid == pid {
		g.pid = 0
	}
}

// stop ends the guard, before it could see the end of its input.
func (g *guard) stop() {
	if g == nil {
		return
	}
	if g.pid != 0 {
		_ = unix.Kill(g.pid, unix.SIGKILL) // our own child, not reaped yet: it is there
		for {
			if _, err := unix.Wait4(g.pid, nil, 0, nil); err != unix.EINTR {
				break
			}
		}
	}
	_ = g.pipe.Close() // nobody reads it
}

// addGuard adds the command that is the guard's side. It is not for people.
func (inv *invocation) addGuard(root *cobra.Command) {
	root.AddCommand(&cobra.Command{
		Use:    guardCommand,
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			signal.Ignore(forwarded()...)
			in := bufio.NewReader(inv.stdin)
			line, _ := in.ReadString('\n') // the end of input without a line: nothing was started
			_, _ = in.ReadByte()           // returns when the other side is gone
			if pgid, err := strconv.Atoi(strings.TrimSpace(line)); err == nil && pgid > 1 {
				_ = unix.Kill(-pgid, unix.SIGKILL) // it may be gone already
			}
			return nil
		},
	})
}
