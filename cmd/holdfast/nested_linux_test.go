package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestARunInsideARunOfTheSameNameDoesNotWaitForItself(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		outer, inner string // options
		status       int
	}{
		{"", "", statusUsage},
		{"", "-w 50", statusUsage},
		{"", "-s", statusUsage},
		{"", "--permits 1/3", statusUsage},
		{"-s", "", statusUsage},
		{"--permits 2/3", "--permits 2/3", statusUsage},
		{"", "-n -E 9", 9},
		{"", "-w 0 -E 9", 9},
		{"-s", "-s", 0},
		{"--permits 2/3", "--permits 1/3", 0},
		{"", "--url sqlite:other.db", 0},
	} {
		t.Run(c.outer+" around "+c.inner, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			inner := append(append([]string{b.command().Path, "run"}, strings.Fields(c.inner)...), "x", "--", "echo", "inside")
			// The shell calls the program by its name, as a user would.
			script := append([]string{"x", "--", "bash", "-c", `p=$1; shift; (exec -a holdfast "$p" "$@")`, "bash"}, inner...)
			r := b.run(append(append([]string{"run"}, strings.Fields(c.outer)...), script...)...)
			if r.status != c.status || (r.stdout == "inside\n") != (c.status == 0) {
				t.Errorf("exit %d, stdout %q, stderr %q; want %d", r.status, r.stdout, r.stderr, c.status)
			}
			if lines := strings.Count(r.stderr, "\n"); c.status == 0 && lines != 0 || c.status != 0 && lines != 1 {
				t.Errorf("stderr %q", r.stderr)
			}
			if c.status == statusUsage && !strings.Contains(r.stderr, "HOLDFAST_LEASE") {
				t.Errorf("stderr does not say why: %q", r.stderr)
			}
			b.idle("x")
		})
	}
}

func TestAReaderInsideAReaderDoesNotWaitForAWriterThatWaitsForIt(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	outer, in := b.holder("run", "-s", "x", "--")
	lease := b.show("x").Holders[0].Lease
	writer := b.start("run", "--label", "the-writer", "x", "--", "true")
	b.waiting("x", 1)
	inner := b.command("run", "-s", "x", "--", "true")
	inner.Env = append(inner.Env[:len(inner.Env):len(inner.Env)], "HOLDFAST_NAME=x", "HOLDFAST_LEASE="+lease)
	if r := b.finish(inner); r.status != statusUsage || !strings.Contains(r.stderr, "the-writer") {
		t.Errorf("exit %d, %q; want %d and who is between", r.status, r.stderr, statusUsage)
	}
	_ = in.Close()
	if r := outer.end(); r.status != 0 {
		t.Errorf("outer: exit %d: %s", r.status, r.stderr)
	}
	if r := writer.end(); r.status != 0 {
		t.Errorf("writer: exit %d: %s", r.status, r.stderr)
	}
}

func TestWhatLeftTheGroupOrOutlivedTheLeaseMayWaitForTheName(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	program := b.command().Path
	// The daemon waits for the lock of the run that started it, which does not wait for the daemon.
	script := `setsid bash -c '(exec -a holdfast "$0" run x -- touch ran)' "$0" >/dev/null 2>&1 </dev/null & sleep 0.3`
	if r := b.run("run", "x", "--", "bash", "-c", script, program); r.status != 0 {
		t.Fatalf("exit %d: %s", r.status, r.stderr)
	}
	eventually(t, "the daemon gets its turn", func() bool {
		_, err := os.Stat(filepath.Join(b.dir, "ran"))
		return err == nil
	})
	// A name kept by --min-hold alone is waited for.
	r := b.run("run", "--min-hold", "1", "y", "--", "sh", "-c", "echo $HOLDFAST_LEASE")
	if r.status != 0 {
		t.Fatalf("exit %d: %s", r.status, r.stderr)
	}
	later := b.command("run", "y", "--", "true")
	later.Env = append(later.Env[:len(later.Env):len(later.Env)], "HOLDFAST_NAME=y", "HOLDFAST_LEASE="+strings.TrimSpace(r.stdout))
	if r := b.finish(later); r.status != 0 {
		t.Errorf("after the lease: exit %d: %s", r.status, r.stderr)
	}
}
