package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestParallelRunsExcludeEachOther(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	const processes, rounds = 4, 8
	count := `n=$(cat counter 2>/dev/null || echo 0); echo $((n+1)) > counter`
	var wg sync.WaitGroup
	for range processes {
		wg.Go(func() {
			for range rounds {
				if r := b.run("run", "counter", "--", "sh", "-c", count); r.status != 0 {
					t.Errorf("exit %d: %s", r.status, r.stderr)
				}
			}
		})
	}
	wg.Wait()
	if got, want := b.file("counter"), strconv.Itoa(processes*rounds)+"\n"; got != want {
		t.Errorf("counter is %q, want %q", got, want)
	}
	b.idle("counter")
}

func TestTokensRiseFromRunToRun(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	last := int64(0)
	for range 5 {
		r := b.run("run", "x", "--", "sh", "-c", "echo $HOLDFAST_TOKEN")
		token, err := strconv.ParseInt(strings.TrimSpace(r.stdout), 10, 64)
		if err != nil || token <= last {
			t.Fatalf("token %q after %d", r.stdout, last)
		}
		last = token
	}
}

func TestBusyIsToldFromAChildsStatusOneByALineOnStderr(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.holder("run", "--label", "the-holder", "x", "--")
	for _, c := range []struct {
		args   []string
		status int
	}{
		{[]string{"-n"}, 1},
		{[]string{"--no-wait", "-E", "75"}, 75},
		{[]string{"-n", "--conflict-exit-code=0"}, 0},
		{[]string{"-w", "0"}, 1},
		{[]string{"-w", "0.2"}, 1},
		{[]string{"--wait", "200ms", "-E", "42"}, 42},
		{[]string{"-s", "-n"}, 1},
		{[]string{"--permits", "1/9", "-n"}, 1},
	} {
		args := append(append([]string{"run"}, c.args...), "x", "--", "touch", "ran")
		r := b.run(args...)
		if r.status != c.status || r.stdout != "" {
			t.Errorf("%v: exit %d, stdout %q; want %d and none", c.args, r.status, r.stdout, c.status)
		}
		if !strings.Contains(r.stderr, "the-holder") || strings.Count(r.stderr, "\n") != 1 {
			t.Errorf("%v: stderr does not name the holder in one line: %q", c.args, r.stderr)
		}
	}
	if _, err := os.Stat(filepath.Join(b.dir, "ran")); err == nil {
		t.Error("a command ran without the lock")
	}
	if rec := b.show("x"); len(rec.Holders) != 1 || len(rec.Waiters) != 0 {
		t.Errorf("want the holder and no ticket, got %+v", rec)
	}
}

func TestReadersShareAndAWriterWaitsForThem(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	first, firstIn := b.holder("run", "-s", "x", "--")
	b.holder("run", "--shared", "x", "--")
	if r := b.run("run", "-n", "x", "true"); r.status != statusBusy {
		t.Errorf("a writer beside two readers: exit %d, want %d", r.status, statusBusy)
	}
	if n := len(b.show("x").Holders); n != 2 {
		t.Errorf("%d holders, want 2 readers", n)
	}
	_ = firstIn.Close()
	if r := first.end(); r.status != 0 {
		t.Errorf("reader: exit %d: %s", r.status, r.stderr)
	}
}

func TestPermitsAreCounted(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.holder("run", "--permits", "2/3", "x", "--")
	if r := b.run("run", "-n", "--permits", "2/3", "x", "true"); r.status != statusBusy {
		t.Errorf("2 more of 3: exit %d, want %d", r.status, statusBusy)
	}
	if r := b.run("run", "-n", "--permits", "1/3", "x", "true"); r.status != 0 {
		t.Errorf("the third of 3: exit %d: %s", r.status, r.stderr)
	}
	if h := b.show("x").Holders; len(h) != 1 || h[0].Weight != 2 || h[0].Limit != 3 {
		t.Errorf("holders %+v, want one of weight 2 and limit 3", h)
	}
}

func TestMinHoldKeepsTheLockAndMaxHoldEndsTheCommand(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	if r := b.run("run", "--min-hold", "1h", "tick", "true"); r.status != 0 {
		t.Errorf("exit %d: %s", r.status, r.stderr)
	}
	if r := b.run("run", "-n", "tick", "true"); r.status != statusBusy {
		t.Errorf("exit %d, want %d", r.status, statusBusy)
	}
	if h := b.show("tick").Holders; len(h) != 1 || h[0].EndsInMS == nil || *h[0].EndsInMS <= 0 || h[0].Session != "" {
		t.Errorf("want one holder without a session that ends by time, got %+v", h)
	}
	r := b.run("run", "--ttl", "1s", "--max-hold", "1s", "y", "--", "sleep", "60")
	if r.status != statusLost || !strings.Contains(r.stderr, "MaxHold") {
		t.Errorf("after --max-hold: exit %d, %q; want %d", r.status, r.stderr, statusLost)
	}
}

func TestVerboseSaysWhoHoldsAndWhenAcquired(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	holder, in := b.holder("run", "--label", "the-holder", "x", "--")
	said, err := os.Create(filepath.Join(b.dir, "said"))
	if err != nil {
		t.Fatal(err)
	}
	defer said.Close()
	waiter := b.command("run", "-v", "x", "--", "sh", "-c", "echo $HOLDFAST_TOKEN >token")
	waiter.Stderr = said
	if err := waiter.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it says whom it waits for", func() bool { return strings.Contains(b.file("said"), "the-holder") })
	_ = in.Close()
	holder.end()
	if status := wait(t, waiter); status != 0 {
		t.Errorf("exit %d", status)
	}
	want := fmt.Sprintf("holdfast: acquired \"x\", token %s", b.file("token"))
	if got := b.file("said"); !strings.HasPrefix(got, "holdfast: waiting: \"x\" is held by the-holder") || !strings.HasSuffix(got, want) {
		t.Errorf("got %q, want it to say what it waits for, and %q", got, want)
	}
}

func TestAKilledHolderFreesTheLockAtOnceAndTakesItsChildrenAlong(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	holder := b.start("run", "--ttl", "1h", "x", "--", "sh", "-c", `sleep 300 & echo $!; echo $$; wait`)
	grandchild, child := holder.line(), holder.line()
	waiter := b.start("run", "--ttl", "1h", "x", "--", "echo", "mine")
	b.waiting("x", 1)
	killed := time.Now()
	if err := holder.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if got := waiter.line(); got != "mine" { // within the TTL of an hour only by seeing the death
		t.Errorf("got %q", got)
	}
	t.Logf("the next command ran %v after the kill", time.Since(killed))
	if r := waiter.end(); r.status != 0 {
		t.Errorf("waiter: exit %d: %s", r.status, r.stderr)
	}
	eventually(t, "child and grandchild are dead", func() bool { return !alive(t, child) && !alive(t, grandchild) })
	holder.reaped = true
	_ = holder.Wait()
}

func TestTheKernelKillsTheCommandWhenTheGuardIsGoneToo(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	holder := b.start("run", "x", "--", "sh", "-c", `echo $$; exec sleep 300`)
	child := holder.line()
	for _, pid := range children(t, strconv.Itoa(holder.Process.Pid)) {
		if pid != child {
			kill(pid)
			eventually(t, "the guard is reaped", func() bool { return stat(t, pid) == "" })
		}
	}
	if !alive(t, child) {
		t.Error("the command died with the guard")
	}
	_ = holder.Process.Kill()
	eventually(t, "the command is dead", func() bool { return !alive(t, child) })
}

func TestABackgroundProcessOfTheCommandKeepsTheLock(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	run := b.start("run", "-v", "x", "--", "sh", "-c", `mkfifo gate; cat gate & echo $!; exit 3`)
	background := run.line()
	eventually(t, "its leader was reaped", func() bool { return stat(t, background) != "" && ppid(t, background) == run.Process.Pid })
	if r := b.run("run", "-n", "x", "true"); r.status != statusBusy {
		t.Errorf("beside a background process: exit %d, want %d", r.status, statusBusy)
	}
	if err := os.WriteFile(filepath.Join(b.dir, "gate"), nil, 0); err != nil {
		t.Fatal(err)
	}
	if r := run.end(); r.status != 3 || !strings.Contains(r.stderr, "background") {
		t.Errorf("exit %d, %q; want 3, and a word about the background", r.status, r.stderr)
	}
	b.idle("x")
}

func TestADaemonDoesNotKeepTheLock(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r := b.run("run", "x", "--", "sh", "-c", `setsid sleep 300 >/dev/null 2>&1 & echo $!; sleep 0.3`)
	pid := strings.TrimSpace(r.stdout)
	t.Cleanup(func() { kill(pid) })
	if r.status != 0 || !alive(t, pid) {
		t.Errorf("exit %d, daemon alive: %v; want 0 and a living daemon", r.status, alive(t, pid))
	}
	b.idle("x")
}
