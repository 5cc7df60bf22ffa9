package driver

import (
	"bufio"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
)

// TestLocalChild is no test: the tests below start it as a process that says who it is and waits for its input to end.
func TestLocalChild(t *testing.T) {
	if os.Getenv("DRIVER_TEST_CHILD") == "" {
		return
	}
	l := Here()
	_, _ = os.Stdout.WriteString(strings.Join([]string{l.Boot, l.PIDNS, l.TimeNS}, " ") + "\n")
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
}

type child struct {
	cmd   *exec.Cmd
	local Local
}

func startChild(t *testing.T) child {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestLocalChild$")
	cmd.Env = append(os.Environ(), "DRIVER_TEST_CHILD=1")
	if _, err := cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	f := strings.Split(strings.TrimSpace(line), " ")
	st, err := readStat(strconv.Itoa(cmd.Process.Pid))
	if err != nil || len(f) != 3 {
		t.Fatal(err, f)
	}
	return child{cmd, Local{Boot: f[0], PIDNS: f[1], TimeNS: f[2], PID: cmd.Process.Pid, Started: st.started}}
}

func TestOwnProcessIsNotGone(t *testing.T) {
	t.Parallel()
	if l := Here(); l == (Local{}) || l.Gone() {
		t.Errorf("Here() = %+v, Gone() = %v; want an identity that is not gone", l, l.Gone())
	}
}

func TestZeroAndHalfIdentitiesAreNeverGone(t *testing.T) {
	t.Parallel()
	dead := startChild(t)
	_ = dead.cmd.Process.Kill()
	_ = dead.cmd.Wait()
	if !dead.local.Gone() {
		t.Fatal("the killed child is not gone")
	}
	for name, spoil := range map[string]func(*Local){
		"zero":           func(l *Local) { *l = Local{} },
		"no boot":        func(l *Local) { l.Boot = "" },
		"no namespace":   func(l *Local) { l.PIDNS = "" },
		"no start":       func(l *Local) { l.Started = 0 },
		"pid 0":          func(l *Local) { l.PID = 0 },
		"pid -1":         func(l *Local) { l.PID = -1 },
		"other boot":     func(l *Local) { l.Boot = "00000000-0000-4000-8000-000000000000" },
		"other pid ns":   func(l *Local) { l.PIDNS = "pid:[1]" },
		"other time ns":  func(l *Local) { l.TimeNS = "time:[1]" },
		"missing timens": func(l *Local) { l.TimeNS += "x" },
	} {
		l := dead.local
		spoil(&l)
		if l.Gone() {
			t.Errorf("%s: %+v is gone, want no proof", name, l)
		}
	}
}

func TestLivingChildIsNotGoneAndKilledChildIs(t *testing.T) {
	t.Parallel()
	c := startChild(t)
	if c.local.Gone() {
		t.Fatal("a living child is gone")
	}
	if err := c.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = c.cmd.Wait()
	if !c.local.Gone() {
		t.Error("a killed and reaped child is not gone")
	}
}

func TestZombieIsGone(t *testing.T) {
	t.Parallel()
	c := startChild(t)
	if err := c.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for { // until the kernel has torn it down; nobody waits for it, so it stays a zombie
		st, err := readStat(strconv.Itoa(c.local.PID))
		if err != nil {
			t.Fatal(err)
		}
		if st.zombie() {
			break
		}
	}
	if !c.local.Gone() {
		t.Error("a zombie is not gone")
	}
}

func TestReusedPIDIsGone(t *testing.T) {
	t.Parallel()
	l := Here()
	l.Started--
	if !l.Gone() {
		t.Error("a pid whose process started at another time is not gone")
	}
}

func TestProcessOfAnotherUserIsNotGone(t *testing.T) {
	t.Parallel()
	st, err := readStat("1")
	if err != nil {
		t.Fatal(err)
	}
	l := Here()
	l.PID, l.Started = 1, st.started
	if l.Gone() {
		t.Error("process 1 is gone")
	}
}

func TestParseStat(t *testing.T) {
	t.Parallel()
	const tail = " 1 1 1 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 %T 0 4711 0 0"
	for _, c := range []struct {
		line   string
		want   stat
		zombie bool
	}{
		{"7 (a) S" + strings.Replace(tail, "%T", "9", 1), stat{'S', 9, 4711}, false},
		{"7 (a) Z 1 ) (b)) Z" + strings.Replace(tail, "%T", "1", 1), stat{'Z', 1, 4711}, true},
		{"7 (first thread ended) Z" + strings.Replace(tail, "%T", "3", 1), stat{'Z', 3, 4711}, false},
		{"7 (a) X" + strings.Replace(tail, "%T", "0", 1), stat{'X', 0, 4711}, true},
	} {
		got, err := parseStat(c.line)
		if err != nil || got != c.want || got.zombie() != c.zombie {
			t.Errorf("parseStat(%q) = %+v, %v; want %+v, zombie %v", c.line, got, err, c.want, c.zombie)
		}
	}
	for _, bad := range []string{"", "7", "7 (a", "7 (a)", "7 (a) S 1 1", "7 (a) SS" + tail, "7 (a) S" + tail} {
		if got, err := parseStat(bad); err == nil {
			t.Errorf("parseStat(%q) = %+v, want an error", bad, got)
		}
	}
}
