package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestExitStatusIsTheChildsOrSaysWhatHappened(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for name, mode := range map[string]os.FileMode{"plain": 0o644, "bare": 0o755} {
		if err := os.WriteFile(filepath.Join(b.dir, name), []byte("exit 7\n"), mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(b.dir, "lost"), []byte("#!/nowhere/interpreter\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	b.env = append(b.env, "PATH="+b.dir+":"+os.Getenv("PATH"))
	for _, c := range []struct {
		args   []string
		status int
		stderr string // a part of it; empty: nothing at all
	}{
		{[]string{"run", "x", "--", "true"}, 0, ""},
		{[]string{"run", "x", "false"}, 1, ""},
		{[]string{"run", "--", "x", "false"}, 1, ""},
		{[]string{"run", "x", "--", "sh", "-c", "exit 76"}, 76, ""},
		{[]string{"run", "x", "--", "sh", "-c", "exit 255"}, 255, ""},
		{[]string{"run", "x", "--", "sh", "-c", "kill -KILL $$"}, 137, ""},
		{[]string{"run", "x", "--", "sh", "-c", "kill -TERM $$"}, 143, ""},
		{[]string{"run", "x", "--", "bare"}, 7, ""}, // no #!: sh runs it
		{[]string{"run", "x", "--", "plain"}, 126, "permission denied"},
		{[]string{"run", "x", "--", "./plain"}, 126, "permission denied"},
		{[]string{"run", "x", "--", "/"}, 126, "is a directory"},
		{[]string{"run", "x", "--", "no-such-command"}, 127, "command not found"},
		{[]string{"run", "x", "--", "./no-such-command"}, 127, "no such file"},
		{[]string{"run", "x", "--", "./plain/x"}, 127, "no such file"},
		{[]string{"run", "x", "--", "./lost"}, 127, "no such file"},
		{[]string{"run", "x", "--", ""}, 127, "command not found"},
		{[]string{"run"}, 64, "want NAME and CMD"},
		{[]string{"run", "x"}, 64, "want NAME and CMD"},
		{[]string{"run", "x", "--"}, 64, "want NAME and CMD"},
		{[]string{"run", "-s", "--permits", "1/2", "x", "true"}, 64, "--shared and --permits"},
		{[]string{"run", "-n", "-w", "1", "x", "true"}, 64, "--no-wait and --wait"},
		{[]string{"run", "--no-such-flag", "x", "true"}, 64, "unknown flag"},
		{[]string{"run", "x", "-n", "--", "true"}, 64, `run: "-n" stands after NAME`},
		{[]string{"run", "x", "--no-wait", "true"}, 64, `run: "--no-wait" stands after NAME`},
		{[]string{"run", "x", "-n"}, 64, `run: "-n" stands after NAME`},
		{[]string{"run", "x", "--", "-n"}, 127, "command not found"},
		{[]string{"run", "", "true"}, 64, "run: the name is empty"},
		{[]string{"run", "--ttl", "10ms", "x", "true"}, 64, "run: --ttl is 1s to 1h, not 10ms"},
		{[]string{"run", "--ttl", "0", "x", "true"}, 64, "run: --ttl is 1s to 1h, not 0s"},
		{[]string{"run", "--max-hold", "1s", "x", "true"}, 64, "run: --max-hold 1s is shorter than --ttl, 15s"},
		{[]string{"run", "--label", "\xff", "x", "true"}, 64, "run: --label is at most 64 bytes of UTF-8"},
		{[]string{"run", "--grace", "1h", "x", "true"}, 0, "run: --grace 1h is cut to 750ms"},
		{[]string{"run", "--grace", "0.5", "x", "true"}, 0, ""},
		{[]string{"no-such-command"}, 64, `there is no command "no-such-command" (see`},
		{[]string{"runn", "x"}, 64, `there is no command "runn", did you mean run?`},
		{[]string{"help", "foo"}, 64, `there is no command "foo"`},
		{[]string{"completion", "foo"}, 64, "bash, fish, powershell and zsh"},
		{[]string{"completion", "bash", "x"}, 64, "completion bash: wants no argument"},
		{[]string{"version", "x"}, 64, "version: wants no argument"},
		{[]string{"show"}, 64, "show: want one NAME, as in: holdfast show backup"},
		{[]string{"break", "a", "b"}, 64, "break: want one NAME, as in: holdfast break backup"},
		{[]string{"ls", "a", "b"}, 64, "ls: want one PREFIX at most"},
		{[]string{"ls", "--jsn"}, 64, "ls: unknown flag"},
		{[]string{"show", ""}, 64, "show: the name is empty"},
		{[]string{"--url", "foo", "run", "x", "true"}, 64, "--url: no usable database URL"},
		{[]string{"show", "never-locked"}, 1, "no record"},
		{[]string{"break", "x"}, 64, "--yes"},
		{[]string{"version"}, 0, ""},
		{[]string{"--version"}, 0, ""},
		{nil, 0, ""},
		{[]string{"completion"}, 0, ""},
		{[]string{"completion", "bash"}, 0, ""},
		{[]string{"help", "run"}, 0, ""},
	} {
		r := b.run(c.args...)
		if r.status != c.status || !strings.Contains(r.stderr, c.stderr) || (c.stderr == "") != (r.stderr == "") {
			t.Errorf("%q: exit %d, stderr %q; want %d, %q", c.args, r.status, r.stderr, c.status, c.stderr)
		}
		if r.stderr != "" && (!strings.HasPrefix(r.stderr, "holdfast: ") || strings.Count(r.stderr, "\n") != 1 || strings.Count(r.stderr, "holdfast: ") != 1) {
			t.Errorf("%q: stderr is not one line that begins with holdfast: %q", c.args, r.stderr)
		}
	}
	b.idle("x")
}

func TestABadURLOfTheEnvironmentIsNamedAsSuch(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.env = append(b.env, "HOLDFAST_URL=foo")
	if r := b.run("run", "x", "true"); r.status != statusUsage || !strings.HasPrefix(r.stderr, "holdfast: HOLDFAST_URL: no usable") {
		t.Errorf("exit %d, %q; want %d and HOLDFAST_URL", r.status, r.stderr, statusUsage)
	}
}

func TestVersionIsTheSameAsAFlag(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	if flag, command := b.run("--version").stdout, b.run("version").stdout; flag != command || !strings.HasPrefix(flag, "holdfast ") {
		t.Errorf("--version prints %q, version %q", flag, command)
	}
}

func TestACommandThatCannotRunTakesNoLock(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	if r := b.run("run", "x", "--", "no-such-command"); r.status != statusNotFound {
		t.Errorf("exit %d, want %d", r.status, statusNotFound)
	}
	if _, err := os.Stat(filepath.Join(b.dir, "locks.db")); err == nil {
		t.Error("the database was opened before the command was looked up")
	}
}

func TestBadInputIsOneSentenceAndChangesNothing(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 256)
	for _, c := range []struct {
		args   []string
		status int
	}{
		{[]string{"run", "", "true"}, 64},
		{[]string{"run", long, "true"}, 64},
		{[]string{"run", "\xff", "true"}, 64},
		{[]string{"show", ""}, 64},
		{[]string{"show", long}, 64},
		{[]string{"break", "--yes", "\xc3("}, 64},
		{[]string{"break", "--yes", "--wait", "-1", "x"}, 64},
		{[]string{"run", "-w", "-1", "x", "true"}, 64},
		{[]string{"run", "-w", "-1s", "x", "true"}, 64},
		{[]string{"run", "-w", "NaN", "x", "true"}, 64},
		{[]string{"run", "-w", "Inf", "x", "true"}, 64},
		{[]string{"run", "-w", "1e300", "x", "true"}, 64},
		{[]string{"run", "-w", "1e999", "x", "true"}, 64},
		{[]string{"run", "-w", "2000000h", "x", "true"}, 64},
		{[]string{"run", "-w", "soon", "x", "true"}, 64},
		{[]string{"run", "-w", "", "x", "true"}, 64},
		{[]string{"run", "--ttl", "0", "x", "true"}, 64},
		{[]string{"run", "--ttl", "1ns", "x", "true"}, 64},
		{[]string{"run", "--ttl", "25h", "x", "true"}, 64},
		{[]string{"run", "--max-hold", "0", "x", "true"}, 64},
		{[]string{"run", "--max-hold", "3s", "x", "true"}, 64}, // below the TTL
		{[]string{"run", "--min-hold", "-5", "x", "true"}, 64},
		{[]string{"run", "--grace", "-5", "x", "true"}, 64},
		{[]string{"run", "--label", long, "x", "true"}, 64},
		{[]string{"run", "--label", "\xff", "x", "true"}, 64},
		{[]string{"run", "--permits", "3/2", "x", "true"}, 64},
		{[]string{"run", "--permits", "0/2", "x", "true"}, 64},
		{[]string{"run", "--permits", "x/y", "x", "true"}, 64},
		{[]string{"run", "--permits", "2", "x", "true"}, 64},
		{[]string{"run", "--permits", "-1/2", "x", "true"}, 64},
		{[]string{"run", "--permits", "1/2/3", "x", "true"}, 64},
		{[]string{"run", "--permits", "1/1073741824", "x", "true"}, 64},
		{[]string{"run", "--permits", "1/99999999999999999999", "x", "true"}, 64},
		{[]string{"run", "-E", "256", "x", "true"}, 64},
		{[]string{"run", "-E", "-1", "x", "true"}, 64},
		{[]string{"--url", "", "ls"}, 64},
		{[]string{"--url", "postgres://u:hunter2@h/db", "ls"}, 64},
		{[]string{"--url", "oracle://u:hunter2@h/db", "ls"}, 64},
		{[]string{"--url", "hunter2", "ls"}, 64},
		{[]string{"--url", "u hunter2:x@h", "ls"}, 64},
		{[]string{"--url", "sqlite:", "ls"}, 64},
		{[]string{"--url", "sqlite://locks.db", "ls"}, 64},
		{[]string{"--url", "sqlite:locks.db?mode=ro", "ls"}, 64},
		{[]string{"--url", "sqlite:.", "ls"}, 69},
		{[]string{"--url", "sqlite:no/such/directory.db", "ls"}, 69},
		{[]string{"ls"}, 69},
		{[]string{"ls", "--json"}, 69},
		{[]string{"show", "x"}, 69},
		{[]string{"break", "--yes", "x"}, 69},
		{[]string{"break", "--yes", "--force", "x"}, 69},
		{[]string{"--url", "sqlite:typo.db", "ls"}, 69},
		{[]string{"--url", "sqlite:text", "ls"}, 69},
		{[]string{"--url", "sqlite:text", "run", "x", "true"}, 69},
		{[]string{"--url", "sqlite:text", "show", "x"}, 69},
		{[]string{"--url", "sqlite:text", "break", "--yes", "x"}, 69},
	} {
		t.Run(strings.Join(c.args, " "), func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			if err := os.WriteFile(filepath.Join(b.dir, "text"), []byte(strings.Repeat("no database ", 100)), 0o644); err != nil {
				t.Fatal(err)
			}
			r := b.run(c.args...)
			if r.status != c.status {
				t.Errorf("exit %d, want %d", r.status, c.status)
			}
			if r.stdout != "" || !strings.HasPrefix(r.stderr, "holdfast: ") || strings.Count(r.stderr, "\n") != 1 {
				t.Errorf("stdout %q, stderr %q; want one line on stderr", r.stdout, r.stderr)
			}
			for _, bad := range []string{"hunter2", "%!", "goroutine", "panic"} {
				if strings.Contains(r.stderr, bad) {
					t.Errorf("stderr shows %q: %s", bad, r.stderr)
				}
			}
			files, err := os.ReadDir(b.dir)
			if err != nil {
				t.Fatal(err)
			}
			if len(files) != 1 || b.file("text") != strings.Repeat("no database ", 100) {
				t.Errorf("something changed on disk: %v", files)
			}
		})
	}
}

func TestWithoutURLAndDefaultFileNothingIsHeldAndNothingIsMade(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + b.dir, "HOLDFAST_URL="} // empty: unset
	for _, c := range []struct {
		args   []string
		status int
		stdout string
	}{
		{[]string{"ls"}, 0, ""},
		{[]string{"ls", "--json"}, 0, "[]\n"},
		{[]string{"show", "x"}, 1, ""},
		{[]string{"break", "--yes", "x"}, 0, "nobody holds x\n"},
	} {
		if r := b.run(c.args...); r.status != c.status || r.stdout != c.stdout {
			t.Errorf("%v: exit %d, %q, %q; want %d, %q", c.args, r.status, r.stdout, r.stderr, c.status, c.stdout)
		}
	}
	if files, err := os.ReadDir(b.dir); len(files) != 0 || err != nil {
		t.Errorf("something was made: %v, %v", files, err)
	}
}

func TestWithoutURLTheStateDirectoryIsUsed(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + b.dir}
	if r := b.run("run", "x", "true"); r.status != 0 {
		t.Errorf("exit %d: %s", r.status, r.stderr)
	}
	b.idle("x")

	b.env = []string{"PATH=" + os.Getenv("PATH")}
	if r := b.run("run", "x", "true"); r.status != statusUsage || !strings.Contains(r.stderr, "--url") {
		t.Errorf("without HOME: exit %d, %q; want %d and what to do", r.status, r.stderr, statusUsage)
	}
}
