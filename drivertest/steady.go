package drivertest

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/holdfastdb/holdfast/driver"
)

// steady is a handle that tries again what was certainly not applied (a deadlock, a busy file), as the client does.
// All other errors are the rule's to judge.
type steady struct{ driver.Store }

// mostTries bounds the attempts of one call; a store that is refused more often than that is not making progress.
const mostTries = 200

func again[T any](ctx context.Context, s driver.Store, call func() (T, error)) (T, error) {
	for try := 1; ; try++ {
		answer, err := call()
		if err == nil || try == mostTries || ctx.Err() != nil || s.Classify(err) != driver.FaultNotApplied {
			return answer, err
		}
		pause(ctx, rand.N(time.Duration(min(try, 20))*time.Millisecond))
	}
}

// pause waits for d or the end of ctx.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

func (s steady) Join(ctx context.Context, joining driver.Session) (driver.Micros, error) {
	return again(ctx, s, func() (driver.Micros, error) { return s.Store.Join(ctx, joining) })
}

func (s steady) Beat(ctx context.Context, id driver.ID, prev, next driver.Nonce) (driver.BeatReply, error) {
	return again(ctx, s, func() (driver.BeatReply, error) { return s.Store.Beat(ctx, id, prev, next) })
}

func (s steady) Reap(ctx context.Context, ids, certified []driver.ID, care driver.Caution) (map[driver.ID]driver.Fate, error) {
	return again(ctx, s, func() (map[driver.ID]driver.Fate, error) { return s.Store.Reap(ctx, ids, certified, care) })
}

func (s steady) Leave(ctx context.Context, id driver.ID) error {
	_, err := again(ctx, s, func() (bool, error) { return true, s.Store.Leave(ctx, id) })
	return err
}

func (s steady) Notify(ctx context.Context, id driver.ID) error {
	_, err := again(ctx, s, func() (bool, error) { return true, s.Store.Notify(ctx, id) })
	return err
}

func (s steady) Grab(ctx context.Context, asks []driver.Ask) ([]bool, error) {
	return again(ctx, s, func() ([]bool, error) { return s.Store.Grab(ctx, asks) })
}

func (s steady) Load(ctx context.Context, known []driver.Known) ([]driver.Record, error) {
	return again(ctx, s, func() ([]driver.Record, error) { return s.Store.Load(ctx, known) })
}

func (s steady) Swap(ctx context.Context, changes []driver.Change) ([]bool, error) {
	return again(ctx, s, func() ([]bool, error) { return s.Store.Swap(ctx, changes) })
}

func (s steady) Post(ctx context.Context, name string, ops []byte, before driver.Micros) (bool, error) {
	return again(ctx, s, func() (bool, error) { return s.Store.Post(ctx, name, ops, before) })
}

func (s steady) List(ctx context.Context, q driver.Query) ([]driver.Record, error) {
	return again(ctx, s, func() ([]driver.Record, error) { return s.Store.List(ctx, q) })
}

func (s steady) Sessions(ctx context.Context, ids []driver.ID) ([]driver.Session, error) {
	return again(ctx, s, func() ([]driver.Session, error) { return s.Store.Sessions(ctx, ids) })
}

func (s steady) Prune(ctx context.Context, p driver.Pruning) (int, error) {
	return again(ctx, s, func() (int, error) { return s.Store.Prune(ctx, p) })
}
