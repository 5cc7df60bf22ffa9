package faultstore

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/holdfastdb/holdfast/driver"
)

// Kind is a call of driver.Store.
type Kind uint8

// The kinds of calls.
const (
	Setup Kind = iota
	Join
	Beat
	Reap
	Leave
	Notify
	Grab
	Load
	Swap
	Post
	List
	Sessions
	Prune
)

var kindNames = [...]string{"Setup", "Join", "Beat", "Reap", "Leave", "Notify", "Grab", "Load", "Swap", "Post", "List", "Sessions", "Prune"}

func (k Kind) String() string { return kindNames[k] }

// Store is the store as one client of the network sees it.
type Store struct {
	net    *Network
	client int
}

var (
	_ driver.Store    = (*Store)(nil)
	_ driver.Repeater = (*Store)(nil)
)

// Repeats reports what Plan.Repeats says.
func (s *Store) Repeats() bool { return s.net.plan.Repeats }

// Classify knows the network's own errors and asks the store about the others.
func (s *Store) Classify(err error) driver.Fault {
	var own *Error
	if errors.As(err, &own) {
		return own.Fault
	}
	return s.net.store.Classify(err)
}

// exchange makes one call: the request travels, is executed, the reply travels. run executes it on the store; part, if
// not nil, executes a part of a batch.
func exchange[T any](ctx context.Context, s *Store, kind Kind, key string, run func(context.Context) (T, error), part func(context.Context, draw) (T, error), show func(T) string) (T, error) {
	n := s.net
	d := n.decide(s.client, kind, key)
	n.begin()
	sent := n.Elapsed()
	var answer T
	var err error
	if n.Awake(s.client, d.there); ctx.Err() != nil {
		answer, err = run(ctx)
	} else {
		answer, err = travel(ctx, s, kind, d, run, part)
	}
	if n.Awake(s.client, d.back); err == nil && ctx.Err() != nil && d.hangs {
		var none T
		answer, err = none, s.lost(ctx, kind)
	}
	n.end(Call{Client: s.client, Kind: kind, Key: key, Sent: sent, Fault: mishapNames[d.what], Err: err, show: func() string { return show(answer) }})
	return answer, err
}

func travel[T any](ctx context.Context, s *Store, kind Kind, d draw, run func(context.Context) (T, error), part func(context.Context, draw) (T, error)) (none T, _ error) {
	n, settled := s.net, context.WithoutCancel(ctx)
	straggle := func() { n.later(d.late, func() { _, _ = run(settled) }) } // nobody is there for the answer
	hang := func() (T, error) { return none, s.hang(ctx, kind) }
	if !wait(ctx, d.there) {
		if d.straggles {
			straggle()
		}
		return hang()
	}
	switch n.cut(s.client) {
	case Refused:
		return none, &Error{Kind: kind, Fault: driver.FaultUnavailable}
	case Silent:
		if d.straggles {
			straggle()
		}
		return hang()
	}
	lost := func() (T, error) {
		if d.hangs {
			return hang()
		}
		wait(ctx, d.back)
		return none, s.lost(ctx, kind)
	}
	var answer T
	var err error
	switch d.what {
	case LostBefore:
		return lost()
	case NotApplied:
		wait(ctx, d.back)
		return none, &Error{Kind: kind, Fault: driver.FaultNotApplied, Err: ctx.Err()}
	case Late:
		straggle()
		return lost()
	case Half:
		if part != nil {
			answer, err = part(settled, d)
			wait(ctx, d.back)
			return answer, errors.Join(err, s.lost(ctx, kind))
		}
	}
	answer, err = run(settled)
	switch d.what {
	case Twice:
		answer, err = run(settled)
	case Again:
		straggle()
		if !n.plan.Repeats {
			return lost()
		}
	case LostAfter:
		return lost()
	}
	if !wait(ctx, d.back) || n.cut(s.client) != open {
		return hang()
	}
	return answer, err
}

// hang waits for the end of the call's context, and no longer than a minute.
func (s *Store) hang(ctx context.Context, kind Kind) error {
	wait(ctx, time.Minute)
	return s.lost(ctx, kind)
}

func (s *Store) lost(ctx context.Context, kind Kind) error {
	fault := driver.FaultUnknown
	if ctx.Err() == nil {
		fault = driver.FaultUnavailable
	}
	return &Error{Kind: kind, Fault: fault, Err: ctx.Err()}
}

// step executes a request and takes note of it, in one step.
func (n *Network) step(f func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	f()
}

// committed reports a change of holders; n.mu is held.
func (s *Store) committed(ctx context.Context, name string, old, revision driver.Micros, after []driver.Entry) {
	n := s.net
	before := n.holders[name]
	n.holders[name] = slices.Clone(after)
	if n.commit != nil {
		n.commit(Commit{
			Client: s.client, Name: name, Old: old, New: revision, Before: before, After: n.holders[name],
			Marked: ctx.Value(markKey{}),
		})
	}
}

// Setup is not disturbed.
func (s *Store) Setup(ctx context.Context) error { return s.net.store.Setup(ctx) }

// Join disturbs the store's Join.
func (s *Store) Join(ctx context.Context, row driver.Session) (driver.Micros, error) {
	return exchange(ctx, s, Join, "", func(ctx context.Context) (now driver.Micros, err error) {
		s.net.step(func() {
			if now, err = s.net.store.Join(ctx, row); err == nil && !slices.Contains(s.net.sessions, Joined{s.client, row.ID}) {
				s.net.sessions = append(s.net.sessions, Joined{s.client, row.ID})
			}
		})
		return now, err
	}, nil, showMicros)
}

// Beat disturbs the store's Beat.
func (s *Store) Beat(ctx context.Context, id driver.ID, prev, next driver.Nonce) (driver.BeatReply, error) {
	return exchange(ctx, s, Beat, "", func(ctx context.Context) (driver.BeatReply, error) {
		return s.net.store.Beat(ctx, id, prev, next)
	}, nil, showBeat)
}

// Reap disturbs the store's Reap, and may not find rows of sessions that live.
func (s *Store) Reap(ctx context.Context, ids, certified []driver.ID, care driver.Caution) (map[driver.ID]driver.Fate, error) {
	return exchange(ctx, s, Reap, "", func(ctx context.Context) (map[driver.ID]driver.Fate, error) {
		fates, err := s.net.store.Reap(ctx, ids, certified, care)
		if rate := uint64(s.net.plan.Rates.Lag); rate > 0 && s.net.Elapsed() < s.net.plan.Until {
			lag := s.net.decide(s.client, Reap, "lag").lag
			for i, id := range ids {
				if fates[id].Kind == driver.FateAlive && mix(lag+uint64(i))%1000 < rate {
					fates[id] = driver.Fate{}
				}
			}
		}
		return fates, err
	}, nil, showFates)
}

// Leave disturbs the store's Leave.
func (s *Store) Leave(ctx context.Context, id driver.ID) error {
	_, err := exchange(ctx, s, Leave, "", func(ctx context.Context) (struct{}, error) {
		return struct{}{}, s.net.store.Leave(ctx, id)
	}, nil, showNothing)
	return err
}

// Notify disturbs the store's Notify.
func (s *Store) Notify(ctx context.Context, id driver.ID) error {
	_, err := exchange(ctx, s, Notify, "", func(ctx context.Context) (struct{}, error) {
		return struct{}{}, s.net.store.Notify(ctx, id)
	}, nil, showNothing)
	return err
}

// Grab disturbs the store's Grab.
func (s *Store) Grab(ctx context.Context, asks []driver.Ask) ([]bool, error) {
	grab := func(ctx context.Context, asks []driver.Ask) (taken []bool, err error) {
		s.net.step(func() {
			taken, err = s.net.store.Grab(ctx, asks)
			for i, ask := range asks {
				if i < len(taken) && taken[i] {
					ask.Holder.Rev = ask.Seed
					s.committed(ctx, ask.Name, 0, ask.Seed, []driver.Entry{ask.Holder})
				}
			}
		})
		return taken, err
	}
	names := make([]string, len(asks))
	for i, ask := range asks {
		names[i] = ask.Name
	}
	return exchange(ctx, s, Grab, strings.Join(names, " "), func(ctx context.Context) ([]bool, error) { return grab(ctx, asks) },
		parts(asks, grab), func(taken []bool) string { return showAsks(asks, taken) })
}

// Load disturbs the store's Load.
func (s *Store) Load(ctx context.Context, known []driver.Known) ([]driver.Record, error) {
	names := make([]string, len(known))
	for i, k := range known {
		names[i] = k.Name
	}
	return exchange(ctx, s, Load, strings.Join(names, " "), func(ctx context.Context) ([]driver.Record, error) {
		return s.net.store.Load(ctx, known)
	}, nil, showRecords)
}

// Swap disturbs the store's Swap.
func (s *Store) Swap(ctx context.Context, changes []driver.Change) ([]bool, error) {
	swap := func(ctx context.Context, changes []driver.Change) (done []bool, err error) {
		s.net.step(func() {
			done, err = s.net.store.Swap(ctx, changes)
			for i, c := range changes {
				if i < len(done) && done[i] {
					s.committed(ctx, c.Name, c.Old, c.New, c.Holders)
				}
			}
		})
		return done, err
	}
	names := make([]string, len(changes))
	for i, c := range changes {
		names[i] = c.Name
	}
	return exchange(ctx, s, Swap, strings.Join(names, " "), func(ctx context.Context) ([]bool, error) { return swap(ctx, changes) },
		parts(changes, swap), func(done []bool) string { return showChanges(changes, done) })
}

// parts executes the first items of a batch, so that an error can stand beside their answers; nil for a batch of one.
// The answers of some of them are lost.
func parts[T any](items []T, run func(context.Context, []T) ([]bool, error)) func(context.Context, draw) ([]bool, error) {
	if len(items) < 2 {
		return nil
	}
	return func(ctx context.Context, d draw) ([]bool, error) {
		n := int(d.part % uint64(len(items)))
		done, err := run(ctx, items[:n])
		answers := make([]bool, len(items))
		copy(answers, done)
		for i := range answers {
			answers[i] = answers[i] && mix(d.part+uint64(i))%2 == 0
		}
		return answers, err
	}
}

// Post disturbs the store's Post.
func (s *Store) Post(ctx context.Context, name string, ops []byte, before driver.Micros) (bool, error) {
	return exchange(ctx, s, Post, name, func(ctx context.Context) (bool, error) {
		return s.net.store.Post(ctx, name, ops, before)
	}, nil, func(posted bool) string { return showPost(ops, before, posted) })
}

// List disturbs the store's List.
func (s *Store) List(ctx context.Context, q driver.Query) ([]driver.Record, error) {
	return exchange(ctx, s, List, q.Prefix, func(ctx context.Context) ([]driver.Record, error) {
		return s.net.store.List(ctx, q)
	}, nil, showRecords)
}

// Sessions disturbs the store's Sessions.
func (s *Store) Sessions(ctx context.Context, ids []driver.ID) ([]driver.Session, error) {
	return exchange(ctx, s, Sessions, "", func(ctx context.Context) ([]driver.Session, error) {
		return s.net.store.Sessions(ctx, ids)
	}, nil, func([]driver.Session) string { return "" })
}

// Prune disturbs the store's Prune.
func (s *Store) Prune(ctx context.Context, p driver.Pruning) (int, error) {
	return exchange(ctx, s, Prune, "", func(ctx context.Context) (int, error) {
		return s.net.store.Prune(ctx, p)
	}, nil, func(int) string { return "" })
}
