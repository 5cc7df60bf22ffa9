package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/sys/windows"
)

// forwarded are the signals this process receives. The command, on the same console, receives them from Windows itself.
func forwarded() []os.Signal { return []os.Signal{os.Interrupt, syscall.SIGTERM} }

// harmless are those of them that end no program by default.
func harmless() []os.Signal { return nil }

// run runs the command and waits for it. Windows has neither process groups nor TERM: if the lease ends the command is
// killed at once, and what it has started lives on.
func (j *job) run() (status int, err error) {
	if err := j.lease.Err(); err != nil {
		return 0, err
	}
	cmd := &exec.Cmd{Path: j.path, Args: j.argv, Env: j.env, Stdin: j.stdin, Stdout: j.stdout, Stderr: j.stderr}
	if err := cmd.Start(); err != nil {
		return 0, cannotRun(j.argv[0], err)
	}
	stop := context.AfterFunc(j.lease.Context(), func() { _ = cmd.Process.Kill() }) // it may have ended by itself
	defer stop()
	_ = cmd.Wait() // the status is in ProcessState
	return cmd.ProcessState.ExitCode(), nil
}

func cannotRun(command string, err error) error {
	status := statusCannotRun
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		status = statusNotFound
	}
	return &ending{status, fmt.Errorf("run %s: %w", command, err)}
}

// lookup finds a command in the directories of PATH, with the endings of PATHEXT.
func lookup(command, _ string) (string, error) {
	path, err := exec.LookPath(command)
	if err != nil {
		return "", cannotRun(command, err)
	}
	return path, nil
}

// isTerminal reports whether f is a console.
func isTerminal(f *os.File) bool {
	var mode uint32
	return windows.GetConsoleMode(windows.Handle(f.Fd()), &mode) == nil
}

// addGuard adds nothing: there is no guard on Windows.
func (inv *invocation) addGuard(*cobra.Command) {}

// leftSession is false: Windows has no such sessions.
func leftSession(int) bool { return false }
