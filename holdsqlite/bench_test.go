package holdsqlite

import (
	"context"
	"database/sql"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfastdb/holdfast/driver"
)

func entry(session driver.ID) driver.Entry {
	return driver.Entry{Lease: driver.NewID(), Session: session, Weight: driver.All, Limit: driver.All}
}

// cycle grabs and releases one name.
func cycle(ctx context.Context, b *testing.B, s *Store, name string, h driver.Entry, note *driver.Note, last driver.Micros) driver.Micros {
	seed := max(time.Now().UnixMicro(), last+1)
	h.Lease = driver.NewID()
	if taken, err := s.Grab(ctx, []driver.Ask{{Name: name, Seed: seed, Holder: h}}); err != nil || !taken[0] {
		b.Fatal(taken, err)
	}
	done, err := s.Swap(ctx, []driver.Change{{Name: name, Old: seed, New: seed + 1, Urgent: true, Note: note}})
	if err != nil || !done[0] {
		b.Fatal(done, err)
	}
	return seed + 1
}

func BenchmarkGrabAndRelease(b *testing.B) {
	ctx, cancel := context.WithTimeout(b.Context(), time.Hour)
	defer cancel()
	for name, note := range map[string]*driver.Note{"ordinary": nil, "with a note": {Data: []byte("tick"), Token: 1}} {
		b.Run(name, func(b *testing.B) {
			s := fresh(b)
			h := entry(driver.NewID())
			if note != nil {
				h.MinHold = time.Millisecond
			}
			var last driver.Micros
			for b.Loop() {
				last = cycle(ctx, b, s, "bench", h, note, last)
			}
		})
	}
}

// The same statement with and without a sync of the WAL.
func BenchmarkCommit(b *testing.B) {
	s := fresh(b)
	if err := s.Commit(b.Context()); err != nil {
		b.Fatal(err)
	}
	for name, l := range map[string]*lane{"normal": s.writes, "full": s.durable} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if _, err := l.exec(b.Context(), commitOne); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkInTx(b *testing.B) {
	s := fresh(b)
	db, lease := accounts(b, s), grant(b, s, "bench", joinAs(b, s, time.Hour).ID)
	for b.Loop() {
		if err := InTx(b.Context(), db, lease, func(*sql.Tx) error { return nil }); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkBeat(b *testing.B) {
	s := fresh(b)
	n := driver.Session{ID: driver.NewID(), Nonce: driver.NewID(), TTL: time.Hour}
	if _, err := s.Join(b.Context(), n); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if r, err := s.Beat(b.Context(), n.ID, n.Nonce, n.Nonce); err != nil || !r.Alive {
			b.Fatal(r, err)
		}
	}
}

func BenchmarkLoad(b *testing.B) {
	s := fresh(b)
	cycle(b.Context(), b, s, "bench", entry(driver.NewID()), nil, 0)
	for b.Loop() {
		if r, err := s.Load(b.Context(), []driver.Known{{Name: "bench"}}); err != nil || len(r) != 1 {
			b.Fatal(r, err)
		}
	}
}

func BenchmarkGrabAndReleaseBy16(b *testing.B) {
	s := fresh(b)
	ctx, cancel := context.WithTimeout(b.Context(), time.Hour)
	defer cancel()
	var names atomic.Int64
	b.SetParallelism(8)
	b.RunParallel(func(pb *testing.PB) {
		name, h := strconv.FormatInt(names.Add(1), 10), entry(driver.NewID())
		for last := driver.Micros(0); pb.Next(); {
			last = cycle(ctx, b, s, name, h, nil, last)
		}
	})
}
