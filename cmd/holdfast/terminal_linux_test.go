package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// screen is a pseudo-terminal, with what was written to it.
type screen struct {
	t       *testing.T
	master  *os.File
	tty     string
	mu      sync.Mutex // guards written
	written bytes.Buffer
}

func newScreen(t *testing.T) *screen {
	t.Helper()
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	s := &screen{t: t, master: os.NewFile(uintptr(fd), "ptmx"), tty: fmt.Sprintf("/dev/pts/%d", n)}
	keep, err := os.OpenFile(s.tty, os.O_RDWR|unix.O_NOCTTY, 0) // so that reading does not end before somebody has it
	if err != nil {
		t.Fatal(err)
	}
	var reader sync.WaitGroup
	reader.Go(func() {
		buf := make([]byte, 4096)
		for {
			n, err := s.master.Read(buf)
			s.mu.Lock()
			s.written.Write(buf[:n])
			s.mu.Unlock()
			if err != nil {
				return
			}
		}
	})
	t.Cleanup(func() {
		_ = keep.Close()
		_ = s.master.Close()
		reader.Wait()
	})
	return s
}

// start starts a command as the leader of a session that has the terminal.
func (s *screen) start(cmd *exec.Cmd) {
	s.t.Helper()
	tty, err := os.OpenFile(s.tty, os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		s.t.Fatal(err)
	}
	defer tty.Close()
	cmd.Stdin, cmd.Stdout, cmd.Stderr = tty, tty, tty
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		if cmd.ProcessState == nil {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	})
}

func (s *screen) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.written.String()
}

func (s *screen) await(text string) {
	s.t.Helper()
	defer func() {
		if s.t.Failed() {
			s.t.Logf("on the screen: %q", s.text())
		}
	}()
	eventually(s.t, fmt.Sprintf("%q on the screen", text), func() bool { return strings.Contains(s.text(), text) })
}

func (s *screen) keys(text string) {
	s.t.Helper()
	if _, err := s.master.WriteString(text); err != nil {
		s.t.Fatal(err)
	}
}

func (s *screen) foreground() int {
	s.t.Helper()
	pgid, err := unix.IoctlGetInt(int(s.master.Fd()), unix.TIOCGPGRP)
	if err != nil {
		s.t.Fatal(err)
	}
	return pgid
}

func TestTheCommandOwnsTheTerminal(t *testing.T) {
	t.Parallel()
	b, s := newBench(t), newScreen(t)
	cmd := b.command("run", "x", "--", "sh", "-c", `echo "pid $$ end"; read line; echo "got $line"; stty -echo; echo "set"; read line; exit 3`)
	s.start(cmd)
	s.await("end")
	var pid int
	_, after, _ := strings.Cut(s.text(), "pid ")
	if _, err := fmt.Sscan(after, &pid); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the command's group is in the foreground", func() bool { return s.foreground() == pid })
	s.keys("hello\n")
	s.await("got hello")
	s.await("set")
	s.keys("\n")
	if status := wait(t, cmd); status != 3 {
		t.Errorf("exit %d, want 3", status)
	}
}

func TestCtrlCReachesTheCommandOnce(t *testing.T) {
	t.Parallel()
	b, s := newBench(t), newScreen(t)
	cmd := b.command("run", "x", "--", "sh", "-c", `trap 'echo caught' INT; echo ready; read line; read line; echo "left $line"; exit 4`)
	s.start(cmd)
	s.await("ready")
	eventually(t, "the command's group is in the foreground", func() bool { return s.foreground() != cmd.Process.Pid })
	s.keys("\x03")
	s.await("caught")
	s.keys("a\nb\n")
	s.await("left ")
	if status := wait(t, cmd); status != 4 {
		t.Errorf("exit %d, want 4", status)
	}
	if n := strings.Count(s.text(), "caught"); n != 1 {
		t.Errorf("the command had SIGINT %d times, want once", n)
	}
}

func TestCtrlCWhileWaitingEndsTheWait(t *testing.T) {
	t.Parallel()
	b, s := newBench(t), newScreen(t)
	b.holder("run", "x", "--")
	cmd := b.command("run", "x", "--", "true")
	s.start(cmd)
	b.waiting("x", 1)
	s.keys("\x03")
	if status := wait(t, cmd); status != 130 {
		t.Errorf("exit %d, want 130", status)
	}
	b.waiting("x", 0)
}

// A shell with job control runs holdfast as its jobs.
func (s *screen) shell(b *bench) *exec.Cmd {
	s.t.Helper()
	program := b.command().Path
	cmd := &exec.Cmd{
		Path: "/bin/bash", Args: []string{"bash", "--norc", "--noprofile", "--noediting", "-i"}, Dir: b.dir,
		Env: append(b.env, "PS1=$ ", "TERM=dumb", "HF="+program),
	}
	s.start(cmd)
	s.keys("holdfast() { (exec -a holdfast \"$HF\" \"$@\"); }; stty -echo; echo 'shell '''ready\n")
	s.await("shell ready")
	return cmd
}

func TestCtrlZStopsTheJobForTheShellAndFgContinuesIt(t *testing.T) {
	t.Parallel()
	b, s := newBench(t), newScreen(t)
	shell := s.shell(b)
	s.keys("holdfast run --ttl 1h x -- sh -c 'echo be''gin; read line; echo got $line'\n")
	s.await("begin")
	s.keys("\x1a")
	s.await("Stopped")
	if rec := b.show("x"); len(rec.Holders) != 1 {
		t.Errorf("a stopped job holds its lock until its TTL is over; got %+v", rec)
	}
	s.keys("echo shell is ba''ck\n")
	s.await("shell is back")
	s.keys("fg\n")
	s.keys("hello\n")
	s.await("got hello")
	s.keys("exit 9\n")
	if status := wait(t, shell); status != 9 {
		t.Errorf("shell: exit %d, want 9: it had not got its terminal back", status)
	}
	b.idle("x")
}

func TestCtrlZStopsAPipelineWithTheCommandInIt(t *testing.T) {
	t.Parallel()
	b, s := newBench(t), newScreen(t)
	shell := s.shell(b)
	s.keys("holdfast run --ttl 1h x -- sh -c 'echo be''gin; sleep 1; sleep 1; echo went on' | cat\n")
	s.await("begin")
	s.keys("\x1a")
	s.await("Stopped")
	s.keys("fg\n")
	s.await("went on")
	s.keys("exit 9\n")
	if status := wait(t, shell); status != 9 {
		t.Errorf("shell: exit %d, want 9", status)
	}
	b.idle("x")
}

func TestAJobStoppedBeyondItsTTLDoesNotRunAgain(t *testing.T) {
	t.Parallel()
	b, s := newBench(t), newScreen(t)
	shell := s.shell(b)
	s.keys("holdfast run --ttl 1s x -- sh -c 'trap \"echo term\" TERM; echo be''gin; read line; echo RAN; cat'\n")
	s.await("begin")
	s.keys("\x1a")
	s.await("Stopped")
	if r := b.run("run", "x", "true"); r.status != 0 { // waits for the stopped holder's TTL
		t.Errorf("next holder: exit %d: %s", r.status, r.stderr)
	}
	s.keys("fg; echo status $?\n")
	s.await("status 76")
	if strings.Contains(s.text(), "RAN") {
		t.Error("the command ran on after its lease was over")
	}
	s.keys("exit\n")
	wait(t, shell)
}

func TestAPagerBesideTheCommandKeepsTheTerminal(t *testing.T) {
	t.Parallel()
	b, s := newBench(t), newScreen(t)
	shell := s.shell(b)
	// The pager reads the terminal, while the command does not need it; then the command does.
	s.keys("holdfast run x -- sh -c 'echo page; sleep 0.3' | sh -c 'cat; read line </dev/tty; echo pager $line'; echo d''one\n")
	s.await("page")
	s.keys("first\n")
	s.await("pager first")
	s.await("done")
	s.keys("holdfast run x -- sh -c 'read line </dev/tty; echo command $line' | cat; echo d''one again\n")
	s.keys("second\n")
	s.await("command second")
	s.await("done again")
	s.keys("exit\n")
	wait(t, shell)
}

func TestAScriptHasItsTerminalBackAfterTheCommand(t *testing.T) {
	t.Parallel()
	b, s := newBench(t), newScreen(t)
	script := &exec.Cmd{Path: "/bin/bash", Dir: b.dir, Env: append(b.env, "HF="+b.command().Path), Args: []string{"bash", "-c",
		`(exec -a holdfast "$HF" run x -- sh -c 'read line; echo "command $line"'); read line; echo "script $line"`}}
	s.start(script)
	s.keys("one\n")
	s.await("command one")
	s.keys("two\n")
	s.await("script two")
	if status := wait(t, script); status != 0 {
		t.Errorf("exit %d, want 0", status)
	}
}

func TestCtrlCEndsTheScriptThatRunsHoldfast(t *testing.T) {
	t.Parallel()
	b, s := newBench(t), newScreen(t)
	shell := s.shell(b)
	s.keys("sh -c 'trap \"echo script ended; exit 1\" INT; (exec bash -c \"exec -a holdfast $HF run x -- sh -c \\\"echo be''gin; sleep 300\\\"\"); echo went on'; echo d''one\n")
	s.await("begin")
	s.keys("\x03")
	s.await("script ended")
	s.await("done")
	s.keys("exit\n")
	wait(t, shell)
	b.idle("x")
}

func TestBreakAsksOnTheTerminal(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	holder, _ := b.holder("run", "--label", "the-holder", "x", "--")
	for _, c := range []struct {
		answer string
		status int
	}{{"n\n", statusBusy}, {"\n", statusBusy}, {"\x04", statusBusy}, {"y\n", 0}} {
		s := newScreen(t)
		cmd := b.command("break", "x")
		s.start(cmd)
		s.await("[y/N]")
		if !strings.Contains(s.text(), "the-holder") {
			t.Errorf("the question does not name the holder: %q", s.text())
		}
		s.keys(c.answer)
		if status := wait(t, cmd); status != c.status {
			t.Errorf("answer %q: exit %d, want %d: %s", c.answer, status, c.status, s.text())
		}
		if c.status == 0 {
			s.await("asking the-holder")
			s.await("waiting up to two of its TTLs")
		}
	}
	if r := holder.end(); r.status != statusLost {
		t.Errorf("holder: exit %d, want %d", r.status, statusLost)
	}
}
