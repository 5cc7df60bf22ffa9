package holdfast_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/holdfastdb/holdfast"
)

func TestBadInputGetsOneSentenceAndChangesNothing(t *testing.T) {
	bubble(t, func(w *world) {
		t := w.T
		store := newSpy(w.store)
		c := w.clientOf(store, nil)
		ctx := t.Context()
		lock := func(name string, opts ...holdfast.Option) func() error {
			return func() error { _, err := c.Lock(ctx, name, opts...); return err }
		}
		acquire := func(limit, n int) func() error {
			return func() error { _, err := c.Semaphore("s", limit).Acquire(ctx, n); return err }
		}
		withOptions := func(o holdfast.Options) func() error {
			return func() error {
				bad := w.clientOf(store, &o)
				_, err := bad.TryLock(ctx, "x")
				if _, again := bad.Inspect(ctx, "x"); again == nil {
					t.Errorf("%+v: Inspect does not mind", o)
				}
				return err
			}
		}
		for what, test := range map[string]struct {
			do   func() error
			want error
		}{
			"an empty name":          {lock(""), holdfast.ErrName},
			"a name of 256 bytes":    {lock(strings.Repeat("n", 256)), holdfast.ErrName},
			"a name not UTF-8":       {lock("a\xff"), holdfast.ErrName},
			"a name with NUL":        {lock("a\x00b"), holdfast.ErrName},
			"MaxHold below the TTL":  {lock("x", holdfast.MaxHold(time.Second)), holdfast.ErrArgument},
			"MaxHold of 0":           {lock("x", holdfast.MaxHold(0)), holdfast.ErrArgument},
			"a negative MaxHold":     {lock("x", holdfast.MaxHold(-time.Hour)), holdfast.ErrArgument},
			"an absurd MaxHold":      {lock("x", holdfast.MaxHold(math.MaxInt64)), holdfast.ErrArgument},
			"a negative MinHold":     {lock("x", holdfast.MinHold(-1)), holdfast.ErrArgument},
			"an absurd MinHold":      {lock("x", holdfast.MinHold(math.MaxInt64)), holdfast.ErrArgument},
			"a label too long":       {lock("x", holdfast.Label(strings.Repeat("l", 65))), holdfast.ErrArgument},
			"a label not UTF-8":      {lock("x", holdfast.Label("\xff")), holdfast.ErrArgument},
			"no permits":             {acquire(2, 0), holdfast.ErrArgument},
			"negative permits":       {acquire(2, -1), holdfast.ErrArgument},
			"more than the limit":    {acquire(2, 3), holdfast.ErrArgument},
			"a limit of 0":           {acquire(0, 0), holdfast.ErrArgument},
			"a limit of all":         {acquire(1<<30, 1), holdfast.ErrArgument},
			"an overflowing limit":   {acquire(math.MaxInt64, math.MaxInt64), holdfast.ErrArgument},
			"a TTL of 1 ns":          {withOptions(holdfast.Options{TTL: 1}), holdfast.ErrArgument},
			"a negative TTL":         {withOptions(holdfast.Options{TTL: -time.Second}), holdfast.ErrArgument},
			"a TTL above an hour":    {withOptions(holdfast.Options{TTL: math.MaxInt64}), holdfast.ErrArgument},
			"a client label too big": {withOptions(holdfast.Options{Label: strings.Repeat("l", 65)}), holdfast.ErrArgument},
			"a bad namespace":        {withOptions(holdfast.Options{Namespace: "a\x00"}), holdfast.ErrName},
			"a namespace too long":   {withOptions(holdfast.Options{Namespace: strings.Repeat("n", 255)}), holdfast.ErrName},
			"a bad name to inspect":  {func() error { _, err := c.Inspect(ctx, ""); return err }, holdfast.ErrName},
			"a bad name to break":    {func() error { _, err := c.Break(ctx, "", nil); return err }, holdfast.ErrName},
		} {
			err := test.do()
			if !errors.Is(err, test.want) {
				t.Errorf("%s: got %v, want %v", what, err, test.want)
				continue
			}
			if text := err.Error(); strings.Contains(text, "\n") || strings.Contains(text, "%!") || strings.Count(text, "holdfast:") != 1 {
				t.Errorf("%s: %q is no clear sentence", what, text)
			}
		}
		if n := store.count() + store.count("Join"); n != 0 {
			t.Errorf("bad input made %d calls", n)
		}
		for _, name := range []string{strings.Repeat("n", 255), "job ", "JOB", "job", " ", "$a.b", "a/b", "../x", "\u00e9", "e\u0301", "\U0001F512", "'"} {
			l, err := c.TryLock(ctx, name)
			if err != nil {
				t.Fatalf("%q: %v", name, err)
			}
			defer func() { _ = l.Release(context.WithoutCancel(ctx)) }() // all at once: they are all distinct
		}
	})
}

func TestNamespacesNeverMeet(t *testing.T) {
	bubble(t, func(w *world) {
		t := w.T
		a := w.client(&holdfast.Options{Namespace: "a"})
		b := w.client(&holdfast.Options{Namespace: "b"})
		none := w.client(nil)
		la, lb, ln := w.lock(a, "x"), w.lock(b, "x"), w.lock(none, "x")
		if la.Name() != "x" || la.StoredName() != "a/x" {
			t.Errorf("name %q stored as %q", la.Name(), la.StoredName())
		}
		if _, err := none.TryLock(t.Context(), "a/x"); !errors.Is(err, holdfast.ErrHeld) {
			t.Errorf("a/x is what namespace a stores: %v", err)
		}
		for _, c := range []*holdfast.Client{a, b} {
			n := 0
			for rec, err := range c.List(t.Context(), "") {
				if n++; err != nil || rec.Name != "x" || len(rec.Holders) != 1 {
					t.Errorf("%+v, %v", rec, err)
				}
			}
			if n != 1 {
				t.Errorf("%d records", n)
			}
		}
		for _, l := range []*holdfast.Lease{la, lb, ln} {
			w.release(l)
		}
	})
}

func TestInspectShowsHoldersAndTheQueue(t *testing.T) {
	bubble(t, func(w *world) {
		t := w.T
		a, b := w.client(&holdfast.Options{Label: "node a"}), w.client(&holdfast.Options{Label: "node b"})
		l := w.lock(a, "x", holdfast.MaxHold(time.Hour), holdfast.Label("call"))
		ctx, cancel := context.WithCancel(t.Context())
		for range 3 {
			w.Go(func() { _, _ = b.Lock(ctx, "x") })
			time.Sleep(time.Second)
		}
		rec, err := w.client(nil).Inspect(t.Context(), "x")
		if err != nil {
			t.Fatal(err)
		}
		h := rec.Holders[0]
		if h.Label != "call" || h.Token != l.Token() || h.Lease != l.ID() || h.PID == 0 || h.Here || h.EndsIn < 50*time.Minute || h.EndsIn > time.Hour {
			t.Errorf("holder: %+v", h)
		}
		if len(rec.Waiters) != 2 || rec.Waiters[0].Label != "node b" || rec.Waiters[1].Position != 2 {
			t.Errorf("waiters: %+v", rec.Waiters)
		}
		cancel()
		w.release(l)
		time.Sleep(time.Second)
		w.free("x")
	})
}
