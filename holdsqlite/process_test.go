package holdsqlite

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfastdb/holdfast/driver"
)

// again starts this test binary once more, to run one test as another process.
func again(t *testing.T, test string, env ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+test+"$", "-test.timeout=2m")
	cmd.Env = append(os.Environ(), env...)
	return cmd
}

// TestChildTakesTurns is no test by itself: it is one of the processes of the next one.
func TestChildTakesTurns(t *testing.T) {
	path := os.Getenv("HOLDSQLITE_TEST_FILE")
	if path == "" {
		return
	}
	rounds, err := strconv.Atoi(os.Getenv("HOLDSQLITE_TEST_ROUNDS"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	s := open(t, path)
	if err := s.Setup(ctx); err != nil {
		t.Fatal(err)
	}
	session := driver.Session{ID: driver.NewID(), Nonce: driver.NewID(), TTL: time.Minute}
	if _, err := s.Join(ctx, session); err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	for range 2 {
		group.Go(func() {
			longest, err := takeTurns(ctx, s, session, rounds)
			if err != nil {
				t.Error(err)
			}
			t.Logf("longest call %v", longest)
		})
	}
	group.Wait()
}

// takeTurns holds the shared name rounds times and each time adds a line to its note, as nobody else may meanwhile.
func takeTurns(ctx context.Context, s *Store, session driver.Session, rounds int) (longest time.Duration, err error) {
	timed := func(call func() error) error {
		start := time.Now()
		err := call()
		longest = max(longest, time.Since(start))
		return err
	}
	for turn := 0; turn < rounds; {
		var records []driver.Record
		if err := timed(func() (err error) { records, err = s.Load(ctx, []driver.Known{{Name: "shared"}}); return err }); err != nil {
			return longest, err
		}
		var last driver.Record
		if len(records) == 1 {
			last = records[0]
		}
		seed := max(time.Now().UnixMicro(), last.Revision+1)
		var taken []bool
		ask := driver.Ask{Name: "shared", Seed: seed, Holder: entry(session.ID)}
		if err := timed(func() (err error) { taken, err = s.Grab(ctx, []driver.Ask{ask}); return err }); err != nil {
			return longest, err
		}
		if !taken[0] {
			continue
		}
		if records, err = s.Load(ctx, []driver.Known{{Name: "shared"}}); err != nil {
			return longest, err
		}
		count := 0
		if note := records[0].Note; note != nil {
			if note.Token >= seed {
				return longest, fmt.Errorf("token %d after %d", seed, note.Token)
			}
			if count, err = strconv.Atoi(string(note.Data)); err != nil {
				return longest, err
			}
		}
		change := driver.Change{
			Name: "shared", Old: seed, New: seed + 1, Urgent: true,
			Note: &driver.Note{Data: []byte(strconv.Itoa(count + 1)), Token: seed},
		}
		var done []bool
		if err := timed(func() (err error) { done, err = s.Swap(ctx, []driver.Change{change}); return err }); err != nil {
			return longest, err
		}
		if !done[0] {
			return longest, fmt.Errorf("the holder's swap from %d did not apply", seed)
		}
		if err := timed(func() error { _, err := s.Beat(ctx, session.ID, session.Nonce, session.Nonce); return err }); err != nil {
			return longest, err
		}
		turn++
	}
	return longest, nil
}

func TestEightProcessesOnOneFileNeverSeeItLockedNorLoseATurn(t *testing.T) {
	t.Parallel()
	const processes, rounds = 8, 40
	s := open(t, t.TempDir()+"/locks.db")
	var group sync.WaitGroup
	for range processes {
		cmd := again(t, "TestChildTakesTurns", "HOLDSQLITE_TEST_FILE="+s.Path(), "HOLDSQLITE_TEST_ROUNDS="+strconv.Itoa(rounds))
		cmd.Args = append(cmd.Args, "-test.v")
		group.Go(func() {
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Errorf("%v\n%s", err, out)
			}
			for line := range strings.Lines(string(out)) {
				if strings.Contains(line, "longest") {
					t.Log(strings.TrimSpace(line))
				}
			}
		})
	}
	group.Wait()
	records, err := s.Load(t.Context(), []driver.Known{{Name: "shared"}})
	if err != nil || len(records) != 1 {
		t.Fatal(records, err)
	}
	if got, want := string(records[0].Note.Data), strconv.Itoa(processes*2*rounds); got != want {
		t.Errorf("%s turns were written down, want %s", got, want)
	}
}
