package holdfast_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfastdb/holdfast"
)

func TestMaxHoldEndsTheLeaseForItsHolderBeforeOthersMayHold(t *testing.T) {
	bubble(t, func(w *world) {
		t := w.T
		a, b := w.client(nil), w.client(nil)
		time.Sleep(time.Minute)
		l := w.lock(a, "x", holdfast.MaxHold(time.Minute))
		start := time.Now()
		got := make(chan *holdfast.Lease)
		w.Go(func() { got <- w.lock(b, "x") })
		<-l.Context().Done()
		ended := time.Since(start)
		if ended > time.Minute-time.Second || ended < 50*time.Second {
			t.Errorf("MaxHold of a minute ended after %v for its holder", ended)
		}
		if !errors.Is(l.Err(), holdfast.ErrLost) || errors.Is(l.Err(), holdfast.ErrBroken) {
			t.Errorf("err: %v", l.Err())
		}
		next := <-got
		if came := time.Since(start); came < ended || came < time.Minute-time.Second || came > time.Minute+20*time.Second {
			t.Errorf("the next holder came after %v", came)
		}
		if err := l.Release(t.Context()); !errors.Is(err, holdfast.ErrLost) {
			t.Errorf("release after the end: %v", err)
		}
		w.release(next)
		time.Sleep(time.Second)
		w.free("x")
	})
}

func TestMinHoldKeepsTheNameAfterReleaseAndCrash(t *testing.T) {
	for _, how := range []string{"release", "close", "crash"} {
		t.Run(how, func(t *testing.T) {
			bubble(t, func(w *world) {
				t := w.T
				store := newSpy(w.store)
				a, b := w.clientOf(store, nil), w.client(nil)
				w.release(w.lock(b, "warm")) // b is no newcomer
				time.Sleep(time.Minute)
				l := w.lock(a, "x", holdfast.MinHold(40*time.Second))
				start := time.Now()
				switch how {
				case "release":
					w.release(l)
					if err := l.Release(t.Context()); err != nil {
						t.Errorf("a second release: %v", err)
					}
				case "close":
					a.Close(t.Context())
				case "crash":
					store.hooks(down, nil)
				}
				if how != "crash" {
					var held *holdfast.HeldError
					if _, err := b.TryLock(t.Context(), "x"); !errors.As(err, &held) || held.Holders[0].EndsIn <= 30*time.Second {
						t.Errorf("within MinHold: %v", err)
					}
				}
				next := w.lock(b, "x")
				if took := time.Since(start); took < 40*time.Second || took > time.Minute {
					t.Errorf("free after %v, want 40 s", took)
				}
				w.release(next)
				w.free("x")
			})
		})
	}
}

func TestMinHoldDoesNotApplyToAWaitThatWasGivenUp(t *testing.T) {
	bubble(t, func(w *world) {
		t := w.T
		a, b := w.client(nil), w.client(nil)
		givenUp := 0
		for range 100 {
			hold := w.lock(a, "x")
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			w.Go(func() {
				if _, err := b.Lock(ctx, "x", holdfast.MinHold(time.Hour)); err == nil { // a re-check came in between
					if _, err := a.Break(t.Context(), "x", &holdfast.BreakOptions{Force: true}); err != nil {
						t.Error(err)
					}
					return
				}
				givenUp++
			})
			time.Sleep(time.Second - time.Millisecond) // granted in the database, then given up
			w.release(hold)
			time.Sleep(time.Millisecond - time.Microsecond)
			cancel()
			time.Sleep(time.Second)
			w.wg.Wait()
			w.free("x")
		}
		if givenUp < 50 {
			t.Errorf("only %d of 100 waits were given up", givenUp)
		}
	})
}

func TestANoteStaysWithTheNameAndOnlyHoldersWriteIt(t *testing.T) {
	bubble(t, func(w *world) {
		t := w.T
		a, b := w.client(nil), w.client(nil)
		l := w.lock(a, "x")
		if note, err := l.Note(t.Context()); note != nil || err != nil {
			t.Errorf("no note yet: %q, %v", note, err)
		}
		for _, text := range []string{"one", "two", strings.Repeat("x", 4<<10)} {
			if err := l.SetNote(t.Context(), []byte(text)); err != nil {
				t.Fatal(err)
			}
			if note, err := l.Note(t.Context()); string(note) != text || err != nil {
				t.Errorf("note %q, %v", note, err)
			}
		}
		if err := l.SetNote(t.Context(), make([]byte, 4<<10+1)); !errors.Is(err, holdfast.ErrArgument) {
			t.Errorf("a note too long: %v", err)
		}
		if got := w.record("x").Note; got.Token != l.Token() {
			t.Errorf("the note has token %d, its writer %d", got.Token, l.Token())
		}
		w.release(l)
		if err := l.SetNote(t.Context(), []byte("late")); !errors.Is(err, holdfast.ErrReleased) {
			t.Errorf("a note after release: %v", err)
		}
		l = w.lock(b, "x")
		if note, err := l.Note(t.Context()); len(note) != 4<<10 || err != nil {
			t.Errorf("the next holder reads %d bytes, %v", len(note), err)
		}
		w.release(l)
	})
}

func TestALeaseThatNobodyGrantedHoldsNothingAndPanicsNowhere(t *testing.T) {
	t.Parallel()
	for _, l := range []*holdfast.Lease{nil, new(holdfast.Lease)} {
		_, noteErr := l.Note(t.Context())
		_, _, guardErr := l.BeginGuard(t.Context())
		for what, err := range map[string]error{
			"Err": l.Err(), "Release": l.Release(t.Context()), "SetNote": l.SetNote(t.Context(), nil), "Note": noteErr, "BeginGuard": guardErr,
		} {
			if !errors.Is(err, holdfast.ErrNotHeld) {
				t.Errorf("%s: %v", what, err)
			}
		}
	}
}

func TestAGrabWhoseReplyIsOlderThanATTLIsNoGrant(t *testing.T) {
	bubble(t, func(w *world) {
		t := w.T
		store := newSpy(w.store)
		ttl := 3 * time.Second
		c := w.clientOf(store, &holdfast.Options{TTL: ttl})
		w.release(w.lock(c, "warm"))
		var late atomic.Bool
		store.hooks(nil, func(call string) error {
			if call == "Grab" && !late.Swap(true) {
				time.Sleep(ttl) // the reply is held up, in spite of the call's limit
			}
			return nil
		})
		sent := time.Now()
		l := w.lock(c, "x")
		if token := time.UnixMicro(l.Token()); token.Sub(sent) < ttl {
			t.Errorf("granted with a token from %v after the call, by a reply that took %v", token.Sub(sent), ttl)
		}
		w.release(l)
		time.Sleep(time.Second)
		w.free("x")
	})
}

func TestReleaseIsIdempotentAndWorksUnderADeadContext(t *testing.T) {
	bubble(t, func(w *world) {
		t := w.T
		a, b := w.client(nil), w.client(nil)
		dead, cancel := context.WithCancel(t.Context())
		cancel()
		l := w.lock(a, "x")
		for range 10 {
			w.Go(func() {
				if err := l.Release(dead); err != nil {
					t.Errorf("release: %v", err)
				}
			})
		}
		w.wg.Wait()
		w.free("x")
		next := w.lock(b, "x")
		if err := l.Release(dead); err != nil || next.Err() != nil {
			t.Errorf("a release after another's grant: %v, %v", err, next.Err())
		}
		w.release(next)
	})
}

func TestAReleaseWhoseReplyIsLostIsDoneOnce(t *testing.T) {
	for _, when := range []string{"before", "after"} {
		t.Run(when+" the commit", func(t *testing.T) {
			bubble(t, func(w *world) {
				t := w.T
				store := newSpy(w.store)
				a, b := w.clientOf(store, nil), w.client(nil)
				l := w.lock(a, "x")
				lose := func(call string) error {
					if call == "Swap" {
						store.hooks(nil, nil)
						return errDown
					}
					return nil
				}
				if when == "before" {
					store.hooks(lose, nil)
				} else {
					store.hooks(nil, lose)
				}
				if err := l.Release(t.Context()); err != nil {
					t.Errorf("release: %v", err)
				}
				w.free("x")
				next, err := b.TryLock(t.Context(), "x")
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Minute)
				if next.Err() != nil {
					t.Errorf("the late release touched another lease: %v", next.Err())
				}
				w.release(next)
			})
		})
	}
}

func TestReleaseDoesNotHangWithoutTheDatabase(t *testing.T) {
	bubble(t, func(w *world) {
		t := w.T
		store := newSpy(w.store)
		c := w.clientOf(store, nil)
		l := w.lock(c, "x")
		store.hooks(down, nil)
		start := time.Now()
		err := l.Release(t.Context())
		if err == nil || time.Since(start) > holdfast.DefaultTTL+time.Second {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		store.hooks(nil, nil)
		time.Sleep(time.Minute)
		w.release(w.lock(c, "x"))
		w.free("x")
	})
}

func TestWhileAGuardedSectionIsOpenReleaseAndSetNoteAreRefused(t *testing.T) {
	bubble(t, func(w *world) {
		t := w.T
		c := w.client(nil)
		l := w.lock(c, "x")
		ctx, end, err := l.BeginGuard(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Release(t.Context()); !errors.Is(err, holdfast.ErrGuarded) {
			t.Errorf("release: %v", err)
		}
		if err := l.SetNote(t.Context(), nil); !errors.Is(err, holdfast.ErrGuarded) {
			t.Errorf("set note: %v", err)
		}
		if ctx.Err() != nil || l.Err() != nil {
			t.Error("a refused release ended something")
		}
		end()
		end()
		w.release(l)
		if _, _, err := l.BeginGuard(t.Context()); !errors.Is(err, holdfast.ErrReleased) {
			t.Errorf("guard after release: %v", err)
		}
	})
}
