package main

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

func TestASignalEndsTheWaitAndLeavesNoTicket(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.holder("run", "x", "--")
	for _, s := range []syscall.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGUSR2} {
		waiter := b.start("run", "x", "--", "echo", "ran")
		b.waiting("x", 1)
		for range 3 {
			_ = waiter.Process.Signal(syscall.SIGWINCH) // a resized window is no reason to give up
		}
		_ = waiter.Process.Signal(s)
		if r := waiter.end(); r.status != 128+int(s) || r.stdout != "" {
			t.Errorf("%v: exit %d, stdout %q; want %d and none", s, r.status, r.stdout, 128+int(s))
		}
		if rec := b.show("x"); len(rec.Holders) != 1 || len(rec.Waiters) != 0 {
			t.Errorf("%v: a ticket was left behind: %+v", s, rec)
		}
	}
}

func TestSignalsAreForwardedToTheWholeGroup(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for name, s := range map[string]syscall.Signal{
		"HUP": syscall.SIGHUP, "INT": syscall.SIGINT, "QUIT": syscall.SIGQUIT, "TERM": syscall.SIGTERM,
		"USR1": syscall.SIGUSR1, "USR2": syscall.SIGUSR2, "WINCH": syscall.SIGWINCH,
	} {
		script := fmt.Sprintf(`trap 'echo outer; exit 5' %s
			sh -c 'trap "echo inner; exit" %s; echo ready; while :; do sleep 0.01; done'`, name, name)
		run := b.start("run", "x", "--", "sh", "-c", script)
		run.line()
		_ = run.Process.Signal(s)
		if r := run.end(); r.status != 5 || r.stdout != "inner\nouter\n" {
			t.Errorf("%s: exit %d, stdout %q; want 5, and that both shells had it once; %s", name, r.status, r.stdout, r.stderr)
		}
		b.idle("x")
	}
}

func TestASignalledChildIsGoneAndTheLockFreeBeforeTheExit(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for _, s := range []syscall.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGTERM} {
		run := b.start("run", "--ttl", "1h", "x", "--", "sh", "-c", "echo $$; exec sleep 300")
		pid := run.line()
		_ = run.Process.Signal(s)
		if r := run.end(); r.status != 128+int(s) {
			t.Errorf("%v: exit %d, want %d", s, r.status, 128+int(s))
		}
		if alive(t, pid) {
			t.Errorf("%v: the child lives on", s)
		}
		b.idle("x")
	}
}

func TestATermSprayedOverTheStartNeverLeavesTheLockBehind(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	if r := b.run("run", "x", "true"); r.status != 0 {
		t.Fatalf("exit %d: %s", r.status, r.stderr)
	}
	const workers, rounds = 4, 50
	var wg sync.WaitGroup
	for worker := range workers {
		wg.Go(func() {
			name := fmt.Sprintf("spray-%d", worker)
			for i := range rounds {
				cmd := b.command("run", "--ttl", "1h", name, "--", "sleep", "300")
				if err := cmd.Start(); err != nil {
					t.Error(err)
					return
				}
				time.Sleep(time.Duration(i) * time.Millisecond)
				for cmd.ProcessState == nil {
					_ = cmd.Process.Signal(syscall.SIGTERM)
					if err := cmd.Wait(); cmd.ProcessState == nil {
						t.Error(err)
						return
					}
				}
				if r := b.run("run", "-w", "30", name, "true"); r.status != 0 {
					t.Errorf("round %d: the lock was left behind: exit %d: %s", i, r.status, r.stderr)
				}
			}
		})
	}
	wg.Wait()
}

func TestSignalsIgnoredAtTheStartStayIgnored(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	program := b.command("run", "x", "--", "sh", "-c", "echo ready; grep SigIgn /proc/self/status; exec cat")
	cmd := b.command()
	cmd.Path, cmd.Args = "/bin/bash", append([]string{"bash", "-c", `trap '' HUP; exec -a holdfast "$0" "$@"`, program.Path}, program.Args[1:]...)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	run := b.begin(cmd)
	run.line()
	mask := strings.TrimPrefix(run.line(), "SigIgn:\t")
	if last := mask[len(mask)-1]; last != '1' { // HUP is the lowest bit
		t.Errorf("the child's ignored signals are %s, want HUP among them and no other", mask)
	}
	_ = run.Process.Signal(syscall.SIGHUP)
	_ = in.Close()
	if r := run.end(); r.status != 0 {
		t.Errorf("exit %d after a HUP under nohup: %s", r.status, r.stderr)
	}
}

func TestTheChildBeginsWithDefaultSignals(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r := b.run("run", "x", "--", "grep", "-E", "Sig(Blk|Ign):", "/proc/self/status")
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	ignored := regexp.MustCompile(`SigIgn:\t[0-9a-f]+\n`).Find(status) // what whoever started the tests ignores, stays so
	if want := "SigBlk:\t0000000000000000\n" + string(ignored); r.stdout != want {
		t.Errorf("got %q, want %q", r.stdout, want)
	}
}
