package main

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestABrokenLeaseEndsTheWholeGroupBeforeTheNextHolderStarts(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	// Both ignore TERM, so that only KILL can end them, and the parent of one of them is gone.
	holder := b.start("run", "x", "--", "sh", "-c", `trap '' TERM; (sleep 300 & echo $!); echo $$; sleep 300 & wait; wait`)
	pids := []string{holder.line(), holder.line()}
	next := b.start("run", "x", "--", "sh", "-c", `for p in "$@"; do kill -0 $p 2>/dev/null && echo alive; done; echo done`, "sh", pids[0], pids[1])
	b.waiting("x", 1)
	r := b.run("break", "--yes", "x")
	if r.status != 0 || !strings.Contains(r.stdout, "gave way") {
		t.Errorf("break: exit %d, %q, %q; want 0 and who gave way", r.status, r.stdout, r.stderr)
	}
	if r := holder.end(); r.status != statusLost || !strings.Contains(r.stderr, "broke it") {
		t.Errorf("holder: exit %d, %q; want %d", r.status, r.stderr, statusLost)
	}
	if r := next.end(); r.stdout != "done\n" {
		t.Errorf("the next command began with %q; want all of the group gone", r.stdout)
	}
}

func TestALostLeaseIsNeverStatusZero(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	holder := b.start("run", "x", "--", "sh", "-c", `trap 'exit 0' TERM; echo ready; while :; do sleep 0.01; done`)
	holder.line()
	if r := b.run("break", "--yes", "x"); r.status != 0 {
		t.Errorf("break: exit %d: %s", r.status, r.stderr)
	}
	if r := holder.end(); r.status != statusLost {
		t.Errorf("the child exited 0 at TERM: exit %d, want %d", r.status, statusLost)
	}
	b.idle("x")
}

func TestTermComesFirstAndKillAfterTheGrace(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	holder := b.start("run", "--grace", "0.3", "x", "--", "sh", "-c",
		`trap 'echo term' TERM; echo ready; while :; do sleep 0.01; done`)
	holder.line()
	if r := b.run("break", "--yes", "--force", "x"); r.status != 0 { // the entry is gone: the holder learns of it by its notice
		t.Errorf("break: exit %d: %s", r.status, r.stderr)
	}
	if got := holder.line(); got != "term" {
		t.Errorf("got %q, want term", got)
	}
	if r := holder.end(); r.status != statusLost {
		t.Errorf("exit %d, want %d: %s", r.status, statusLost, r.stderr)
	}
}

func TestAGraceBeyondHalfAMarginIsCut(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		ttl, grace duration
		want       time.Duration
	}{
		{want: 750 * time.Millisecond},
		{grace: duration{time.Hour, true}, want: 750 * time.Millisecond},
		{grace: duration{time.Millisecond, true}, want: time.Millisecond},
		{grace: duration{0, true}, want: 0},
		{ttl: duration{time.Second, true}, want: 50 * time.Millisecond},
		{ttl: duration{10 * time.Minute, true}, grace: duration{20 * time.Second, true}, want: 20 * time.Second},
		{ttl: duration{10 * time.Minute, true}, want: 30 * time.Second},
	} {
		o := &runOptions{ttl: c.ttl, grace: c.grace}
		if got := o.patience(); got != c.want {
			t.Errorf("TTL %v, grace %v: %v, want %v", c.ttl.d, c.grace.d, got, c.want)
		}
	}
}

func TestALostDatabaseEndsTheCommand(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	holder := b.start("run", "--ttl", "1s", "x", "--", "sh", "-c", `echo $$; exec sleep 300`)
	pid := holder.line()
	for _, suffix := range []string{"", "-wal", "-shm"} {
		if err := os.Remove(filepath.Join(b.dir, "locks.db"+suffix)); err != nil {
			t.Fatal(err)
		}
	}
	if r := holder.end(); r.status != statusLost {
		t.Errorf("exit %d, want %d: %s", r.status, statusLost, r.stderr)
	}
	if alive(t, pid) {
		t.Error("the child lives on without a lease")
	}
}

func TestAHolderStoppedBeyondItsTTLKillsItsJobWhenItWakes(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	holder := b.start("run", "--ttl", "1s", "x", "--", "sh", "-c", `trap 'echo term' TERM; echo $$; while :; do sleep 0.01; done`)
	pid := holder.line()
	_ = holder.Process.Signal(syscall.SIGSTOP)
	if r := b.run("run", "x", "--", "true"); r.status != 0 {
		t.Errorf("next holder: exit %d: %s", r.status, r.stderr)
	}
	_ = holder.Process.Signal(syscall.SIGCONT)
	if r := holder.end(); r.status != statusLost || r.stdout != "" {
		t.Errorf("exit %d, stdout %q; want %d, and no time for TERM to be handled: the lease was over", r.status, r.stdout, statusLost)
	}
	if alive(t, pid) {
		t.Error("the child lives on without a lease")
	}
}

func TestBreakExitsWithOneIfSomebodyDoesNotGiveWay(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	holder, in := b.holder("run", "x", "--")
	_ = holder.Process.Signal(syscall.SIGSTOP) // it cannot give way
	r := b.run("break", "--yes", "--wait", "0.2", "x")
	if r.status != statusBusy || r.stdout != "" || strings.Count(r.stderr, "\n") != 1 || !strings.HasSuffix(r.stderr, "did not give way in 200ms: the request stands\n") {
		t.Errorf("exit %d, %q, %q; want %d", r.status, r.stdout, r.stderr, statusBusy)
	}
	if r := b.run("break", "--yes", "--wait", "0", "x"); r.status != statusBusy {
		t.Errorf("exit %d, want %d", r.status, statusBusy)
	}
	if r := b.run("break", "--yes", "--force", "x"); r.status != 0 || !strings.Contains(r.stdout, "was removed") {
		t.Errorf("force: exit %d, %q, %q", r.status, r.stdout, r.stderr)
	}
	if r := b.run("run", "-n", "x", "true"); r.status != 0 {
		t.Errorf("after force: exit %d: %s", r.status, r.stderr)
	}
	_ = holder.Process.Signal(syscall.SIGCONT)
	_ = in.Close()
	holder.end()
	if r := b.run("break", "--yes", "x"); r.status != 0 || r.stdout != "nobody holds x\n" {
		t.Errorf("of a free name: exit %d, %q", r.status, r.stdout)
	}
}

func TestBreakDoesNotWaitForANameThatIsOnlyKept(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	if r := b.run("run", "--min-hold", "1h", "x", "--", "true"); r.status != 0 {
		t.Fatalf("exit %d: %s", r.status, r.stderr)
	}
	for _, args := range [][]string{{"--yes"}, {"--yes", "--wait", "0"}, {"--yes", "--wait", "1h"}} {
		r := b.run(append(append([]string{"break"}, args...), "x")...)
		if r.status != statusBusy || r.stdout != "" || !strings.Contains(r.stderr, "kept until 20") || !strings.Contains(r.stderr, "--force") {
			t.Errorf("%v: exit %d, %q, %q; want %d, and until when", args, r.status, r.stdout, r.stderr, statusBusy)
		}
	}
	if table := b.run("show", "x").stdout; !strings.Contains(table, "kept") || strings.Contains(table, "giving way") {
		t.Errorf("show:\n%s", table)
	}
	if r := b.run("break", "--yes", "--force", "x"); r.status != 0 || !strings.Contains(r.stdout, "was removed") {
		t.Errorf("force: exit %d, %q, %q", r.status, r.stdout, r.stderr)
	}
	b.idle("x")
}

func TestBreakEndsWhenTheCommandsAreOverThoughTheNameIsKept(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	holder, _ := b.holder("run", "--ttl", "1s", "--label", "the-holder", "--min-hold", "1h", "x", "--")
	r := b.run("break", "-v", "--yes", "--wait", "1h", "x")
	if r.status != statusBusy || !strings.HasPrefix(r.stdout, "the-holder") || !strings.HasSuffix(r.stdout, "gave way\n") {
		t.Errorf("exit %d, %q; want %d and who gave way", r.status, r.stdout, statusBusy)
	}
	lines := strings.Split(strings.TrimSuffix(r.stderr, "\n"), "\n")
	if len(lines) != 2 || !strings.Contains(lines[0], "asking the-holder") || !strings.Contains(lines[0], "up to 1h") || !strings.Contains(lines[1], "kept until 20") {
		t.Errorf("stderr %q; want who was asked, and until when the name is kept", r.stderr)
	}
	if r := holder.end(); r.status != statusLost {
		t.Errorf("holder: exit %d, want %d", r.status, statusLost)
	}
}
