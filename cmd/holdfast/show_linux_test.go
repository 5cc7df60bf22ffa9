package main

import (
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestShowIsTheShapeThatProgramsAreTold(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	holder, _ := b.holder("run", "--label", "<the holder>", "--max-hold", "1h", "jobs/a", "--")
	waiter := b.start("run", "jobs/a", "--", "echo")
	b.waiting("jobs/a", 1)

	r := b.run("show", "--json", "jobs/a")
	var raw map[string]any
	if err := json.Unmarshal([]byte(r.stdout), &raw); err != nil || strings.Count(r.stdout, "\n") != 1 {
		t.Fatalf("not one object on one line: %v: %s", err, r.stdout)
	}
	entry := []string{"ends_in_ms", "host", "label", "lease", "limit", "pid", "session", "since", "token", "weight"}
	for _, c := range []struct {
		what string
		got  any
		want []string
	}{
		{"record", raw, []string{"holders", "name", "note", "revision", "waiters"}},
		{"holder", raw["holders"].([]any)[0], entry},
		{"waiter", raw["waiters"].([]any)[0], append([]string{"position"}, entry...)},
	} {
		var keys []string
		for key := range c.got.(map[string]any) {
			keys = append(keys, key)
		}
		slices.Sort(keys)
		slices.Sort(c.want)
		if !slices.Equal(keys, c.want) {
			t.Errorf("the keys of a %s are %v, want %v", c.what, keys, c.want)
		}
	}

	rec := b.show("jobs/a")
	h, w := rec.Holders[0], rec.Waiters[0]
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	if h.Label != "<the holder>" || h.Host != host || h.PID != holder.Process.Pid || h.Token == nil || h.EndsInMS == nil || *h.EndsInMS < 1000 {
		t.Errorf("holder %+v", h)
	}
	if w.Label != "echo" || w.PID != waiter.Process.Pid || w.Position != 1 || w.Token != nil || w.EndsInMS != nil {
		t.Errorf("waiter %+v", w)
	}
	if since, err := time.Parse(time.RFC3339, h.Since); err != nil || time.Since(since) > time.Hour || !strings.HasSuffix(h.Since, "Z") {
		t.Errorf("since %q, %v; want RFC 3339 in UTC, of just now", h.Since, err)
	}
	if rec.Note != nil || rec.Name != "jobs/a" || rec.Revision < *h.Token {
		t.Errorf("record %+v", rec)
	}

	table := b.run("show", "jobs/a").stdout
	for _, want := range []string{"jobs/a", "<the holder>", host, fmt.Sprint(holder.Process.Pid), "exclusive", h.Lease, "WAITING", "echo"} {
		if !strings.Contains(table, want) {
			t.Errorf("the table lacks %q:\n%s", want, table)
		}
	}
}

func TestLsListsByPrefixInByteOrder(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	if r := b.run("--url", "mem:", "ls"); r.status != 0 || r.stdout != "" {
		t.Errorf("empty: exit %d, %q", r.status, r.stdout)
	}
	if r := b.run("--url", "mem:", "ls", "--json"); r.stdout != "[]\n" {
		t.Errorf("empty: %q, want []", r.stdout)
	}
	names := []string{"b/ü", "a", "b/%", "b/\x1b[31mred\n"}
	for _, name := range names {
		if r := b.run("run", name, "true"); r.status != 0 {
			t.Fatalf("exit %d: %s", r.status, r.stderr)
		}
	}
	b.holder("run", "-s", "--label", "reader\t1", "b/%", "--")
	b.holder("run", "-s", "b/%", "--")

	var list []recordJSON
	r := b.run("ls", "--json", "b/")
	if err := json.Unmarshal([]byte(r.stdout), &list); err != nil {
		t.Fatalf("%v: %s", err, r.stdout)
	}
	var got []string
	for _, rec := range list {
		got = append(got, rec.Name)
	}
	if want := []string{"b/\x1b[31mred\n", "b/%", "b/ü"}; !reflect.DeepEqual(got, want) {
		t.Errorf("names %q, want %q", got, want)
	}

	table := b.run("ls").stdout
	lines := strings.Split(strings.TrimSuffix(table, "\n"), "\n")
	if len(lines) != 5 || !strings.HasPrefix(lines[0], "NAME") || strings.Contains(table, "\x1b") || strings.Contains(table, "\t") {
		t.Errorf("want a heading and four lines without control characters:\n%q", table)
	}
	for _, want := range []string{`reader\u00091 and 1 more`, "shared", "free", `b/\u001b[31mred\u000a`} {
		if !strings.Contains(table, want) {
			t.Errorf("the table lacks %q:\n%s", want, table)
		}
	}
	column := strings.Index(lines[0], "WAITING")
	for _, line := range lines[1:] {
		if runes := []rune(line); string(runes[column:]) != "0" {
			t.Errorf("the columns are not aligned: %q", line)
		}
	}
}

func TestAFullDeviceIsNoSuccess(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	for _, args := range [][]string{
		{"version"}, {"--version"}, {"--url", "mem:", "ls", "--json"}, {"help"}, {"help", "run"}, {"run", "--help"}, {"completion", "bash"},
	} {
		cmd := b.command(args...)
		cmd.Stdout = full
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if status := wait(t, cmd); status != statusCannotPrint {
			t.Errorf("%v: exit %d, want %d", args, status, statusCannotPrint)
		}
	}
}
