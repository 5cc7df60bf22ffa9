package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestStandardStreamsPassThrough(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	const size = 4 << 20
	cmd := b.command("run", "x", "--", "cat")
	cmd.Stdin = strings.NewReader(strings.Repeat("0123456789abcdef", size/16))
	r := b.finish(cmd)
	if r.status != 0 || len(r.stdout) != size {
		t.Errorf("exit %d, %d bytes, want 0, %d", r.status, len(r.stdout), size)
	}
	if r := b.run("run", "x", "--", "sh", "-c", "echo out; echo err >&2"); r.stdout != "out\n" || r.stderr != "err\n" {
		t.Errorf("stdout %q, stderr %q", r.stdout, r.stderr)
	}
}

func TestAClosedPipeEndsTheChildAsItWouldAlone(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	run := b.start("run", "-v", "x", "--", "yes")
	run.line()
	_ = run.pipe.Close()
	run.reaped = true
	if status := wait(t, run.Cmd); status != 128+13 {
		t.Errorf("exit %d, want 141 for SIGPIPE", status)
	}
	b.idle("x")
}

func TestAClosedStderrDoesNotKillTheHolder(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	_ = r.Close()
	cmd := b.command("run", "-v", "x", "--", "sh", "-c", "exit 5")
	cmd.Stderr = w
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = w.Close()
	if status := wait(t, cmd); status != 5 {
		t.Errorf("exit %d, want 5", status)
	}
}

func TestTheChildsArgumentsAreUntouched(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	args := []string{"-n", "--help", "--", "-v", "", "a b", "--url", "x"}
	want := strings.Join(args, "|") + "|\n"
	show := []string{"sh", "-c", `printf '%s|' "$@"; echo`, "sh"}
	for _, before := range [][]string{{"run", "x", "--"}, {"run", "x"}, {"run", "--", "x"}, {"run", "-v", "--", "x", "--"}} {
		if r := b.run(append(append(before, show...), args...)...); r.stdout != want {
			t.Errorf("%v: the child got %q, want %q", before, r.stdout, want)
		}
	}
	if r := b.run("run", "x", "--", "sh", "-c", `echo "$0"`, "--"); r.stdout != "--\n" {
		t.Errorf("got %q, want --", r.stdout)
	}
}

func TestTheChildLearnsOfItsLockAndOfNoURL(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	url := b.env[2]
	secret := strings.TrimPrefix(url, "HOLDFAST_URL=")
	b.env = append(b.env[:2:2], "HOLDFAST_NAME=outer", "HOLDFAST_TOKEN=1", "GORACE=atexit_sleep_ms=0")
	r := b.run("--url", secret, "run", "a name", "--", "sh", "-c", "env; echo parent; tr '\\0' ' ' < /proc/$PPID/cmdline")
	child, _, _ := strings.Cut(r.stdout, "parent")
	if strings.Contains(child, secret) || strings.Contains(child, "HOLDFAST_URL") {
		t.Errorf("the URL of --url is in the child's environment: %s", child)
	}
	for _, want := range []string{"HOLDFAST_NAME=a name\n", "HOLDFAST_TOKEN=", "HOLDFAST_LEASE="} {
		if strings.Count(child, want) != 1 {
			t.Errorf("%q is not once in the child's environment: %s", want, child)
		}
	}
	b.env = append(b.env, url)
	if help := b.run("help", "run").stdout; strings.Contains(help, secret) {
		t.Errorf("help shows the URL of the environment: %s", help)
	}
	r = b.run("run", "x", "--", "sh", "-c", `echo "$HOLDFAST_URL"; cat /proc/$PPID/cmdline /proc/$$/cmdline`)
	if got, rest, _ := strings.Cut(r.stdout, "\n"); got != secret || strings.Contains(rest, secret) {
		t.Errorf("HOLDFAST_URL is %q, want %q as it was; the command lines, which must not have it: %q", got, secret, rest)
	}
}

// The lock is in a database, so unlike with flock(1) no descriptor matters; but an inherited one would keep the file
// open, and on POSIX systems closing it would drop SQLite's own locks.
func TestNeitherChildNorGuardInheritsADescriptor(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	run := b.start("run", "x", "--", "sh", "-c", `echo $$; exec sleep 300`)
	child := run.line()
	var guard string
	for _, pid := range children(t, fmt.Sprint(run.Process.Pid)) {
		if pid != child {
			guard = pid
		}
	}
	if guard == "" {
		t.Fatal("there is no guard")
	}
	pipe, err := os.Readlink("/proc/" + guard + "/fd/0")
	if err != nil || !strings.HasPrefix(pipe, "pipe:") {
		t.Fatalf("the guard's input is %q, %v; want a pipe", pipe, err)
	}
	for who, pid := range map[string]string{"child": child, "guard": guard} {
		fds, err := os.ReadDir("/proc/" + pid + "/fd")
		if err != nil {
			t.Fatal(err)
		}
		for _, fd := range fds {
			target, _ := os.Readlink(filepath.Join("/proc", pid, "fd", fd.Name()))
			if strings.Contains(target, b.dir) {
				t.Errorf("the %s has descriptor %s open on %s", who, fd.Name(), target)
			}
			if who == "child" && target == pipe {
				t.Errorf("the child has descriptor %s open on the guard's pipe: the guard would not see our end", fd.Name())
			}
		}
	}
	environ, err := os.ReadFile("/proc/" + guard + "/environ")
	if err != nil || strings.Contains(string(environ), "HOLDFAST") {
		t.Errorf("the guard's environment: %q, %v", environ, err)
	}
	b.interrupt(run)
	if alive(t, guard) {
		t.Error("the guard outlived the run")
	}
}

func TestOrphansAreReaped(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	run := b.start("run", "x", "--", "sh", "-c", `for i in 1 2 3 4 5; do (sleep 0.01 & ) ; done; sleep 0.1; echo $$; exec sleep 300`)
	child := run.line()
	eventually(t, "only the command and the guard are left", func() bool {
		return len(children(t, fmt.Sprint(run.Process.Pid))) == 2
	})
	if !alive(t, child) {
		t.Error("the command itself is gone")
	}
	b.interrupt(run)
}
