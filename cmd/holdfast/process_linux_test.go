package main

import (
	"io"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// holder starts a run that holds until its input is closed, and waits until it holds.
func (b *bench) holder(args ...string) (*running, io.Closer) {
	b.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = w.Close() })
	cmd := b.startWith(r, append(args, "sh", "-c", "echo ready; exec cat >/dev/null")...)
	_ = r.Close()
	if got := cmd.line(); got != "ready" {
		b.Fatalf("got %q", got)
	}
	return cmd, w
}

// stat returns the fields of /proc/PID/stat after the name, empty if there is no such process.
func stat(t *testing.T, pid string) string {
	t.Helper()
	data, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return ""
	}
	text := string(data)
	return text[strings.LastIndexByte(text, ')')+2:]
}

// alive reports whether a process is there and no zombie.
func alive(t *testing.T, pid string) bool {
	t.Helper()
	s := stat(t, pid)
	return s != "" && s[0] != 'Z' && s[0] != 'X'
}

func ppid(t *testing.T, pid string) int {
	t.Helper()
	n := 0
	if f := strings.Fields(stat(t, pid)); len(f) > 1 {
		n, _ = strconv.Atoi(f[1])
	}
	return n
}

// children returns the children of a process, zombies too.
func children(t *testing.T, pid string) (pids []string) {
	t.Helper()
	procs, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range procs {
		if n, err := strconv.Atoi(p.Name()); err == nil && n > 0 && strconv.Itoa(ppid(t, p.Name())) == pid {
			pids = append(pids, p.Name())
		}
	}
	return pids
}

// interrupt ends a run whose command ends at TERM.
func (b *bench) interrupt(r *running) {
	b.Helper()
	_ = r.Process.Signal(syscall.SIGTERM)
	if got := r.end(); got.status != 128+int(syscall.SIGTERM) {
		b.Errorf("exit %d, want 143: %s", got.status, got.stderr)
	}
}

func kill(pid string) {
	if n, err := strconv.Atoi(pid); err == nil && n > 1 {
		_ = syscall.Kill(n, syscall.SIGKILL)
	}
}
