//go:build unix

package main

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Pauses between two looks whether a group is gone. Mostly the death of a member is seen at once, as that of a child of
// this process; only members with another living parent are found by looking.
const (
	firstLook = 2 * time.Millisecond
	lastLook  = 250 * time.Millisecond
)

// forwarded are the signals passed on to the job.
func forwarded() []os.Signal {
	return []os.Signal{unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM, unix.SIGUSR1, unix.SIGUSR2, unix.SIGWINCH}
}

// harmless are those of them that end no program by default.
func harmless() []os.Signal { return []os.Signal{unix.SIGWINCH} }

// group is a running job: a process group, led by the command.
type group struct {
	*job
	pid    int // of the command, and of the group
	guard  *guard
	tty    *terminal
	stops  chan os.Signal // SIGTSTP from the terminal
	exited bool           // the command was reaped
	status int
}

// run runs the command and waits until its whole process group is gone: a background process of it works under the
// lock as the command did, and would go on beside the next holder.
func (j *job) run() (status int, err error) {
	// The parent-death signal comes when the thread ends that began the child, so the child's life is spent on it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	children := make(chan os.Signal, 1)
	signal.Notify(children, unix.SIGCHLD)
	defer signal.Stop(children)
	adoptOrphans()

	g := &group{job: j, stops: make(chan os.Signal, 1), tty: openTerminal(j.stdin, j.stdout, j.stderr)}
	defer g.tty.close()
	if g.tty != nil {
		signal.Notify(g.stops, unix.SIGTSTP)
		defer signal.Stop(g.stops)
	}
	if g.guard, err = startGuard(); err != nil {
		j.say("run %q: %s: if holdfast is killed, processes that %s began may live on", j.lease.Name(), err, j.argv[0])
	}
	defer g.guard.stop()
	if err := j.lease.Err(); err != nil {
		return 0, err
	}
	if err := g.start(); err != nil {
		return 0, err
	}
	g.attend(children)
	g.tty.takeBack()
	signal.Reset(unix.SIGTTOU)
	return g.status, nil
}

// start starts the command as the leader of a new process group.
func (g *group) start() error {
	attr := &syscall.ProcAttr{
		Env:   g.env,
		Files: []uintptr{g.stdin.Fd(), g.stdout.Fd(), g.stderr.Fd()},
		Sys:   &syscall.SysProcAttr{Setpgid: true},
	}
	dieWithParent(attr.Sys)
	pid, err := syscall.ForkExec(g.path, g.argv, attr)
	if errors.Is(err, syscall.ENOEXEC) { // a script without #!, which execvp(3) and shells give to sh
		pid, err = syscall.ForkExec("/bin/sh", append([]string{"/bin/sh", g.path}, g.argv[1:]...), attr)
	}
	if err != nil {
		return cannotRun(g.argv[0], err)
	}
	g.pid = pid
	g.guard.watch(pid)
	// The child has run for a moment by now. If it used the terminal before it was given, it has been stopped for that,
	// and is continued below like one that needs the terminal later.
	if g.tty.eager() {
		g.tty.give(pid)
	}
	// Now that the child cannot inherit it: taking the terminal back from the background must not stop this process.
	signal.Ignore(unix.SIGTTOU)
	return nil
}

// attend does what there is to do until the group is gone.
func (g *group) attend(children <-chan os.Signal) {
	over := g.lease.Context().Done()
	kill, look := time.NewTimer(time.Hour), time.NewTimer(time.Hour)
	kill.Stop()
	look.Stop()
	defer kill.Stop()
	defer look.Stop()
	pause := firstLook
	for {
		select {
		case <-children:
			g.reap()
		case s := <-g.signals:
			g.signal(s.(syscall.Signal))
		case <-g.stops:
			g.signal(unix.SIGTSTP)
		case <-over:
			over = nil
			if wait := time.Until(g.killAt(time.Now())); wait > 0 {
				g.signal(unix.SIGTERM)
				g.signal(unix.SIGCONT) // a stopped process would not see the TERM
				kill.Reset(wait)
			} else {
				kill.Reset(0)
			}
		case <-kill.C:
			g.signal(unix.SIGKILL)
			pause = firstLook
		case <-look.C:
			pause = min(2*pause, lastLook)
		}
		if !g.exited {
			continue
		}
		if errors.Is(unix.Kill(-g.pid, 0), unix.ESRCH) {
			return
		}
		look.Reset(pause)
	}
}

// signal sends a signal to every process of the group.
func (g *group) signal(s syscall.Signal) { _ = unix.Kill(-g.pid, s) } // a group that is gone is seen by attend

// reap takes what wait has for this process: the end and the stops of the command, and the end of all other children,
// among them the orphans of the job.
func (g *group) reap() {
	for {
		var ws unix.WaitStatus
		pid, err := unix.Wait4(-1, &ws, unix.WNOHANG|unix.WUNTRACED, nil)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || pid == 0 {
			return
		}
		g.guard.reaped(pid)
		if pid != g.pid {
			continue
		}
		switch {
		case ws.Stopped():
			g.stopped(ws.StopSignal())
		case ws.Exited():
			g.exited, g.status = true, ws.ExitStatus()
		case ws.Signaled():
			g.exited, g.status = true, statusSignal+int(ws.Signal())
		}
		if g.exited && g.verbose && unix.Kill(-g.pid, 0) == nil {
			g.say("%s has ended, background processes of it still hold %q", g.argv[0], g.lease.Name())
		}
	}
}

// stopped does what a shell's user expects when the command stops. One that needs the terminal gets it, if it is ours to
// give. One that was stopped from the terminal takes this process along, so that the shell sees a stopped job. Any other
// stop is not our business; the lock stays held.
func (g *group) stopped(by syscall.Signal) {
	needs := by == unix.SIGTTIN || by == unix.SIGTTOU
	switch {
	case g.tty == nil:
	case needs && (g.tty.given || g.tty.foreground()):
		g.tty.give(g.pid)
		g.signal(unix.SIGCONT)
	case needs || by == unix.SIGTSTP || g.tty.given:
		g.suspend()
	}
}

// suspend stops the job and this process until a shell continues it. A stopped process renews nothing: if the lease is
// over when it wakes, the job is killed without having run again.
func (g *group) suspend() {
	g.signal(unix.SIGSTOP) // all of it, also what ignores SIGTSTP
	given := g.tty.given
	g.tty.takeBack()
	woken := make(chan os.Signal, 1)
	signal.Notify(woken, unix.SIGCONT)
	defer signal.Stop(woken)
	if given {
		// The rest of our own group, a pipeline or a script, has not had the terminal's signal.
		signal.Stop(g.stops)
		_ = unix.Kill(0, unix.SIGTSTP)
	}
	// Not SIGSTOP, which would stop us also where nobody is there to continue us: the others the kernel drops then. Not
	// SIGTSTP either: once it was asked for, package signal does not give it back its default.
	_ = unix.Kill(os.Getpid(), unix.SIGTTIN)
	select {
	case <-woken:
	case <-time.After(100 * time.Millisecond): // not stopped, or continued already
	}
	signal.Notify(g.stops, unix.SIGTSTP)
	if g.lease.Err() != nil {
		return // attend sees it too
	}
	if given && g.tty.foreground() {
		g.tty.give(g.pid)
	}
	g.signal(unix.SIGCONT)
}

// cannotRun is the ending for a command that could not be started, as in a shell.
func cannotRun(command string, err error) error {
	status := statusCannotRun
	if errors.Is(err, unix.ENOENT) || errors.Is(err, errNoCommand) {
		status = statusNotFound
	}
	return &ending{status, fmt.Errorf("run %s: %w", command, err)}
}

// leftSession reports whether this process is in another session (setsid(2)) than the process pid.
func leftSession(pid int) bool {
	theirs, err := unix.Getsid(pid)
	if err != nil {
		return false
	}
	own, err := unix.Getsid(0)
	return err == nil && own != theirs
}
