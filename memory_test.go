package holdfast_test

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/driver"
	"github.com/holdfastdb/holdfast/holdmem"
)

const manyLeases = 100_000

// lockMany holds n names.
func lockMany(t *testing.T, c *holdfast.Client, names []string) []*holdfast.Lease {
	t.Helper()
	held := make([]*holdfast.Lease, len(names))
	var wg sync.WaitGroup
	for part := range 8 {
		wg.Go(func() {
			for i := part; i < len(names); i += 8 {
				l, err := c.Lock(t.Context(), names[i])
				if err != nil {
					t.Error(err)
					return
				}
				held[i] = l
			}
		})
	}
	wg.Wait()
	return held
}

func manyNames() []string {
	names := make([]string, manyLeases)
	for i := range names {
		names[i] = fmt.Sprintf("lease/%06d", i)
	}
	return names
}

func TestCloseOfAHundredThousandLeasesLeavesNoHolderBehind(t *testing.T) {
	store := newSpy(holdmem.New())
	c := holdfast.New(store, &holdfast.Options{TTL: time.Hour})
	lockMany(t, c, manyNames())
	if n := store.count(); n != manyLeases || store.count("Grab") != n {
		t.Errorf("%d calls for %d leases", n, manyLeases)
	}
	if err := c.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if n := store.count("Swap"); n > 2*manyLeases/driver.MaxBatch {
		t.Errorf("Close made %d Swaps", n)
	}
	left, err := store.List(t.Context(), driver.Query{Busy: true})
	if err != nil || len(left) > 0 {
		t.Errorf("%d and more records still held: %v", len(left), err)
	}
}

// hollow is a store without memory, in which every name is free: what is measured over it is the client's own.
type hollow struct {
	driver.Store
	beats, others atomic.Int64
}

func (*hollow) Join(context.Context, driver.Session) (driver.Micros, error) {
	return time.Now().UnixMicro(), nil
}

func (h *hollow) Beat(context.Context, driver.ID, driver.Nonce, driver.Nonce) (driver.BeatReply, error) {
	h.beats.Add(1)
	return driver.BeatReply{Now: time.Now().UnixMicro(), Alive: true}, nil
}

func (h *hollow) Grab(context.Context, []driver.Ask) ([]bool, error) {
	h.others.Add(1)
	return []bool{true}, nil
}

func (h *hollow) Load(context.Context, []driver.Known) ([]driver.Record, error) {
	h.others.Add(1)
	return nil, nil
}

func (h *hollow) Swap(_ context.Context, changes []driver.Change) ([]bool, error) {
	h.others.Add(1)
	done := make([]bool, len(changes))
	for i := range done {
		done[i] = true
	}
	return done, nil
}

func (*hollow) Leave(context.Context, driver.ID) error { return nil }

func TestAHundredThousandLeasesCostABeatAndUnderOneKiBOfClientMemoryEach(t *testing.T) {
	names := manyNames()
	store := &hollow{}
	c := holdfast.New(store, nil)
	before := heap()
	held := lockMany(t, c, names)
	each := (int64(heap()) - int64(before)) / manyLeases
	t.Logf("%d bytes a lease", each)
	if each > 1024 {
		t.Errorf("a held lease costs %d bytes, want at most 1,024", each)
	}
	calls, beats := store.others.Load(), store.beats.Load()
	waitFor(t, func() bool { return store.beats.Load() >= beats+2 })
	if n := store.others.Load() - calls; n != 0 || calls != manyLeases {
		t.Errorf("%d calls for %d leases, and %d beside two beats", calls, manyLeases, n)
	}
	for _, l := range held {
		if l.Err() != nil {
			t.Fatal(l.Err())
		}
	}
	if err := c.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
