package holdfast_test

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/holdsqlite"
)

// Several real processes share a SQLite file. A child is this test binary, told by its environment what to do.

const childVariable = "HOLDFAST_TEST_CHILD"

// child runs what the environment asks for, if it asks for anything, and does not return then.
func child() {
	role, path, ok := strings.Cut(os.Getenv(childVariable), "=")
	if !ok {
		return
	}
	ctx := context.Background()
	store, err := holdsqlite.Open(path, nil)
	if err == nil {
		err = store.Setup(ctx)
	}
	if err == nil {
		ttl, _ := time.ParseDuration(os.Getenv("HOLDFAST_TEST_TTL")) // unset: the default
		client := holdfast.New(store, &holdfast.Options{TTL: ttl})
		switch role {
		case "contend":
			err = contend(ctx, client, filepath.Dir(path))
		case "hold":
			err = hold(ctx, client, path)
		default:
			err = fmt.Errorf("no role %q", role)
		}
		err = errors.Join(err, client.Close(ctx), store.Close())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

const (
	contenders = 4   // processes, and goroutines in each
	sections   = 625 // critical sections of each goroutine
)

// contend runs critical sections that would lose counts, and see each other, if two ran at once.
func contend(ctx context.Context, client *holdfast.Client, dir string) error {
	count, inside := filepath.Join(dir, "count"), filepath.Join(dir, "inside")
	errs := make(chan error, contenders)
	var wg sync.WaitGroup
	defer wg.Wait()
	for range contenders {
		wg.Go(func() {
			var err error
			for i := 0; i < sections && err == nil; i++ {
				began := time.Now()
				err = client.Do(ctx, "counter", func(context.Context) error {
					if waited := time.Since(began); waited > 20*time.Second {
						return fmt.Errorf("starved: waited %v", waited)
					}
					if err := os.Mkdir(inside, 0o700); err != nil {
						return fmt.Errorf("two at once: %w", err)
					}
					text, err := os.ReadFile(count)
					if err != nil {
						return err
					}
					n, err := strconv.Atoi(string(text))
					if err != nil {
						return err
					}
					return errors.Join(os.WriteFile(count, []byte(strconv.Itoa(n+1)), 0o600), os.Remove(inside))
				})
			}
			errs <- err
		})
	}
	var err error
	for range contenders {
		err = errors.Join(err, <-errs)
	}
	return err
}

// hold takes "x" and says so, then waits until its context ends, and says that, and what a guarded write answers.
func hold(ctx context.Context, client *holdfast.Client, path string) error {
	lease, err := client.Lock(ctx, "x")
	if err != nil {
		return err
	}
	fmt.Println("holding", lease.Token())
	<-lease.Context().Done()
	fmt.Println("ended", context.Cause(lease.Context()))
	db, err := sql.Open("sqlite", path)
	if err != nil {
		return err
	}
	err = holdsqlite.InTx(ctx, db, lease, insert(ctx, lease.Token()))
	fmt.Println("guarded", err)
	return db.Close()
}

func start(t *testing.T, role, path string) (*exec.Cmd, *bufio.Reader) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), childVariable+"="+role+"="+path)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, bufio.NewReader(out)
}

func TestFourProcessesTimesFourLoseNoUpdateOnSQLite(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "count"), []byte("0"), 0o600); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	var wg sync.WaitGroup
	for range contenders {
		wg.Go(func() {
			cmd, _ := start(t, "contend", filepath.Join(dir, "holdfast.db"))
			if err := cmd.Wait(); err != nil {
				t.Errorf("a process: %v", err)
			}
		})
	}
	wg.Wait()
	want := contenders * contenders * sections
	if got, err := os.ReadFile(filepath.Join(dir, "count")); string(got) != strconv.Itoa(want) {
		t.Errorf("%s of %d sections counted, %v", got, want, err)
	}
	t.Logf("%.0f hand-overs a second", float64(want)/time.Since(began).Seconds())
	client := openClient(t, filepath.Join(dir, "holdfast.db"))
	for rec, err := range client.List(t.Context(), "") {
		if err != nil || len(rec.Holders)+len(rec.Waiters) > 0 {
			t.Errorf("left behind: %+v, %v", rec, err)
		}
	}
}

func openClient(t *testing.T, path string) *holdfast.Client {
	t.Helper()
	store, err := holdsqlite.Open(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	client := holdfast.New(store, nil)
	if err := client.Setup(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(client.Close(context.Background()), store.Close()); err != nil {
			t.Error(err)
		}
	})
	return client
}

func TestTheKillOfAHolderOnThisMachineFreesItsNameAtOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "holdfast.db")
	client := openClient(t, path)
	for range 5 {
		holder, out := start(t, "hold", path)
		line, err := out.ReadString('\n')
		if err != nil || !strings.HasPrefix(line, "holding ") {
			t.Fatalf("the holder said %q, %v", line, err)
		}
		got := make(chan *holdfast.Lease, 1)
		var wg sync.WaitGroup
		wg.Go(func() {
			l, err := client.Lock(t.Context(), "x")
			if err != nil {
				t.Error(err)
			}
			got <- l
		})
		waitFor(t, func() bool {
			rec, err := client.Inspect(t.Context(), "x")
			return err == nil && len(rec.Waiters) == 1
		})
		killed := time.Now()
		if err := holder.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = holder.Wait()
		l := <-got
		t.Logf("the next holder came %v after the kill", time.Since(killed))
		if took := time.Since(killed); took > holdfast.DefaultTTL/2 {
			t.Errorf("took %v: the dead process was not noticed", took)
		}
		wg.Wait()
		if token, _ := strconv.ParseInt(strings.TrimSpace(strings.TrimPrefix(line, "holding ")), 10, 64); l.Token() <= token {
			t.Errorf("token %d after %d", l.Token(), token)
		}
		if err := l.Release(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

func TestAStoppedProcessIsToldThatItsLeaseIsLostWhenItWakes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "holdfast.db")
	store, err := holdsqlite.Open(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	client := holdfast.New(store, &holdfast.Options{TTL: time.Second})
	if err := client.Setup(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = errors.Join(client.Close(context.Background()), store.Close()) }()
	db := orders(t, path)
	t.Setenv("HOLDFAST_TEST_TTL", "1s")
	holder, out := start(t, "hold", path)
	if line, err := out.ReadString('\n'); err != nil || !strings.HasPrefix(line, "holding ") {
		t.Fatalf("the holder said %q, %v", line, err)
	}
	if err := holder.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	l, err := client.Lock(t.Context(), "x") // the stopped process lives, so this takes its TTL
	if err != nil {
		t.Fatal(err)
	}
	if err := holder.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if line, err := out.ReadString('\n'); err != nil || !strings.HasPrefix(line, "ended lease lost") {
		t.Errorf("the woken holder said %q, %v", line, err)
	}
	if line, err := out.ReadString('\n'); err != nil || !strings.Contains(line, "lease lost") || count(t, db) != 0 {
		t.Errorf("its guarded write said %q, %v, and wrote %d rows", line, err, count(t, db))
	}
	if err := holder.Wait(); err != nil {
		t.Error(err)
	}
	if err := l.Err(); err != nil {
		t.Errorf("the woken process touched the next lease: %v", err)
	}
	if err := l.Release(t.Context()); err != nil {
		t.Error(err)
	}
}

// waitFor looks until done says so, for a minute at most.
func waitFor(t *testing.T, done func() bool) {
	t.Helper()
	for limit := time.Now().Add(time.Minute); !done(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatal("it does not come")
		}
	}
}
