package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// TestMain makes the test binary the program when it is called holdfast, so that the tests run real processes of this
// very code, with the race detector if the tests have it.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == "holdfast" {
		os.Exit(Main(context.Background(), os.Args, os.Environ(), os.Stdin, os.Stdout, os.Stderr))
	}
	goleak.VerifyTestMain(m)
}

// bench is a database of its own and an environment to run holdfast in.
type bench struct {
	*testing.T
	dir string
	env []string
}

func newBench(t *testing.T) *bench {
	t.Helper()
	dir := t.TempDir()
	return &bench{t, dir, []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "HOLDFAST_URL=sqlite:" + filepath.Join(dir, "locks.db"),
		"GORACE=atexit_sleep_ms=0", // the race detector sleeps for a second at each exit otherwise
	}}
}

// command is holdfast with these arguments, ready to start.
func (b *bench) command(args ...string) *exec.Cmd {
	b.Helper()
	program, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	cmd := &exec.Cmd{Path: program, Args: append([]string{"holdfast"}, args...), Env: b.env, Dir: b.dir}
	cmd.WaitDelay = 30 * time.Second
	return cmd
}

// result is what a finished process leaves.
type result struct {
	status         int
	stdout, stderr string
}

// run runs holdfast to its end.
func (b *bench) run(args ...string) result {
	b.Helper()
	return b.finish(b.command(args...))
}

func (b *bench) finish(cmd *exec.Cmd) result {
	b.Helper()
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	return result{wait(b.T, cmd), stdout.String(), stderr.String()}
}

// wait waits for a process, but not for ever.
func wait(t *testing.T, cmd *exec.Cmd) int {
	t.Helper()
	timer := time.AfterFunc(50*time.Second, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	err := cmd.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("%v: %v", cmd.Args, err)
	}
	if cmd.ProcessState.ExitCode() < 0 {
		t.Errorf("%v: %v", cmd.Args, cmd.ProcessState)
	}
	return cmd.ProcessState.ExitCode()
}

// running is a holdfast that has been started.
type running struct {
	*exec.Cmd
	t      *testing.T
	pipe   io.ReadCloser // stdout
	out    *bufio.Reader // the same, by lines
	stderr *bytes.Buffer
	reaped bool
}

// start starts holdfast; it is killed at the end of the test if it is still there.
func (b *bench) start(args ...string) *running {
	b.Helper()
	return b.startWith(nil, args...)
}

func (b *bench) startWith(stdin *os.File, args ...string) *running {
	b.Helper()
	cmd := b.command(args...)
	if stdin != nil {
		cmd.Stdin = stdin
	}
	return b.begin(cmd)
}

func (b *bench) begin(cmd *exec.Cmd) *running {
	b.Helper()
	r := &running{Cmd: cmd, t: b.T, stderr: &bytes.Buffer{}}
	var err error
	if r.pipe, err = cmd.StdoutPipe(); err != nil {
		b.Fatal(err)
	}
	cmd.Stderr = r.stderr
	r.out = bufio.NewReader(r.pipe)
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if !r.reaped {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	})
	return r
}

// line reads a line of stdout.
func (r *running) line() string {
	r.t.Helper()
	timer := time.AfterFunc(50*time.Second, func() { _ = r.Process.Kill() })
	defer timer.Stop()
	line, err := r.out.ReadString('\n')
	if err != nil {
		r.t.Fatalf("%v: no line on stdout: %v", r.Args, err)
	}
	return strings.TrimSuffix(line, "\n")
}

// end waits for the exit status, and returns it with the rest of stdout.
func (r *running) end() result {
	r.t.Helper()
	rest, _ := io.ReadAll(r.out)
	r.reaped = true
	status := wait(r.t, r.Cmd)
	return result{status, string(rest), r.stderr.String()}
}

// show returns the record of a name.
func (b *bench) show(name string) (rec recordJSON) {
	b.Helper()
	r := b.run("show", "--json", name)
	if r.status != 0 {
		b.Fatalf("show %q: exit %d: %s", name, r.status, r.stderr)
	}
	if err := json.Unmarshal([]byte(r.stdout), &rec); err != nil {
		b.Fatalf("show %q: %v: %s", name, err, r.stdout)
	}
	return rec
}

// idle fails unless nobody holds or awaits the name.
func (b *bench) idle(name string) {
	b.Helper()
	if rec := b.show(name); len(rec.Holders)+len(rec.Waiters) != 0 {
		b.Errorf("left behind on %q: %+v", name, rec)
	}
}

// waiting waits until n tickets are queued for the name.
func (b *bench) waiting(name string, n int) {
	b.Helper()
	eventually(b.T, "a ticket is queued", func() bool { return len(b.show(name).Waiters) == n })
}

// eventually waits until ok holds.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}

// file reads a file of the bench.
func (b *bench) file(name string) string {
	b.Helper()
	data, err := os.ReadFile(filepath.Join(b.dir, name))
	if err != nil && !os.IsNotExist(err) {
		b.Fatal(err)
	}
	return string(data)
}
