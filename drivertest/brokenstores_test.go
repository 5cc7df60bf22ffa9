package drivertest_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfastdb/holdfast/driver"
)

// brokenStore is one way to break the law, and the rules that must notice.
type brokenStore struct {
	rules   []string
	breakIt func(driver.Store) driver.Store
}

func brokenStores() map[string]brokenStore {
	all := map[string]brokenStore{}
	for _, topic := range []map[string]brokenStore{brokenRecords(), brokenReading(), brokenSessions(), brokenCalls()} {
		maps.Copy(all, topic)
	}
	return all
}

// store overrides single methods of the store inside it.
type store struct {
	driver.Store
	grab     func(ctx context.Context, asks []driver.Ask) ([]bool, error)
	load     func(ctx context.Context, known []driver.Known) ([]driver.Record, error)
	swap     func(ctx context.Context, changes []driver.Change) ([]bool, error)
	post     func(ctx context.Context, name string, ops []byte, before driver.Micros) (bool, error)
	list     func(ctx context.Context, q driver.Query) ([]driver.Record, error)
	prune    func(ctx context.Context, p driver.Pruning) (int, error)
	setup    func(ctx context.Context) error
	join     func(ctx context.Context, s driver.Session) (driver.Micros, error)
	beat     func(ctx context.Context, id driver.ID, prev, next driver.Nonce) (driver.BeatReply, error)
	reap     func(ctx context.Context, ids, certified []driver.ID, care driver.Caution) (map[driver.ID]driver.Fate, error)
	leave    func(ctx context.Context, id driver.ID) error
	notify   func(ctx context.Context, id driver.ID) error
	sessions func(ctx context.Context, ids []driver.ID) ([]driver.Session, error)
	classify func(err error) driver.Fault
}

// whole makes a store that overrides nothing yet.
func whole(s driver.Store) *store {
	return &store{
		Store: s, grab: s.Grab, load: s.Load, swap: s.Swap, post: s.Post, list: s.List, prune: s.Prune, setup: s.Setup,
		join: s.Join, beat: s.Beat, reap: s.Reap, leave: s.Leave, notify: s.Notify, sessions: s.Sessions,
		classify: s.Classify,
	}
}

func (s *store) Grab(ctx context.Context, asks []driver.Ask) ([]bool, error) {
	return s.grab(ctx, asks)
}
func (s *store) Load(ctx context.Context, known []driver.Known) ([]driver.Record, error) {
	return s.load(ctx, known)
}
func (s *store) Swap(ctx context.Context, cs []driver.Change) ([]bool, error) { return s.swap(ctx, cs) }
func (s *store) Post(ctx context.Context, name string, ops []byte, before driver.Micros) (bool, error) {
	return s.post(ctx, name, ops, before)
}
func (s *store) List(ctx context.Context, q driver.Query) ([]driver.Record, error) {
	return s.list(ctx, q)
}
func (s *store) Prune(ctx context.Context, p driver.Pruning) (int, error) { return s.prune(ctx, p) }
func (s *store) Setup(ctx context.Context) error                          { return s.setup(ctx) }
func (s *store) Join(ctx context.Context, j driver.Session) (driver.Micros, error) {
	return s.join(ctx, j)
}
func (s *store) Beat(ctx context.Context, id driver.ID, prev, next driver.Nonce) (driver.BeatReply, error) {
	return s.beat(ctx, id, prev, next)
}
func (s *store) Reap(ctx context.Context, ids, certified []driver.ID, care driver.Caution) (map[driver.ID]driver.Fate, error) {
	return s.reap(ctx, ids, certified, care)
}
func (s *store) Leave(ctx context.Context, id driver.ID) error  { return s.leave(ctx, id) }
func (s *store) Notify(ctx context.Context, id driver.ID) error { return s.notify(ctx, id) }
func (s *store) Sessions(ctx context.Context, ids []driver.ID) ([]driver.Session, error) {
	return s.sessions(ctx, ids)
}
func (s *store) Classify(err error) driver.Fault { return s.classify(err) }

// current loads one record; an absent one has the revision 0.
func (s *store) current(ctx context.Context, name string) driver.Record {
	recs, err := s.Store.Load(ctx, []driver.Known{{Name: name}})
	if err != nil || len(recs) == 0 {
		return driver.Record{Name: name}
	}
	return recs[0]
}

// force makes the record what the change says, from whatever revision it has.
func (s *store) force(ctx context.Context, c driver.Change) (bool, error) {
	for {
		c.Old = s.current(ctx, c.Name).Revision
		if c.Old == 0 {
			return false, nil
		}
		c.New = max(c.New, c.Old+1)
		done, err := s.Store.Swap(ctx, []driver.Change{c})
		if err != nil || done[0] {
			return err == nil, err
		}
	}
}

// eachGrab overrides Grab by one that is called for each ask.
func eachGrab(one func(ctx context.Context, s *store, a driver.Ask) (bool, error)) func(driver.Store) driver.Store {
	return func(inner driver.Store) driver.Store {
		s := whole(inner)
		s.grab = func(ctx context.Context, asks []driver.Ask) ([]bool, error) {
			taken := make([]bool, len(asks))
			var errs error
			for i, a := range asks {
				var err error
				taken[i], err = one(ctx, s, a)
				errs = errors.Join(errs, err)
			}
			return taken, errs
		}
		return s
	}
}

// eachSwap overrides Swap by one that is called for each change.
func eachSwap(one func(ctx context.Context, s *store, c driver.Change) (bool, error)) func(driver.Store) driver.Store {
	return func(inner driver.Store) driver.Store {
		s := whole(inner)
		s.swap = func(ctx context.Context, changes []driver.Change) ([]bool, error) {
			done := make([]bool, len(changes))
			var errs error
			for i, c := range changes {
				var err error
				done[i], err = one(ctx, s, c)
				errs = errors.Join(errs, err)
			}
			return done, errs
		}
		return s
	}
}

func (s *store) grabOne(ctx context.Context, a driver.Ask) (bool, error) {
	taken, err := s.Store.Grab(ctx, []driver.Ask{a})
	return err == nil && taken[0], err
}

func (s *store) swapOne(ctx context.Context, c driver.Change) (bool, error) {
	done, err := s.Store.Swap(ctx, []driver.Change{c})
	return err == nil && done[0], err
}

// override makes a broken store of a function that changes what it likes.
func override(change func(s *store)) func(driver.Store) driver.Store {
	return func(inner driver.Store) driver.Store {
		s := whole(inner)
		change(s)
		return s
	}
}

func brokenCalls() map[string]brokenStore {
	return map[string]brokenStore{
		"setup fails if it ran before": {
			[]string{
				"30 clients at once on first use all set up and join and exactly one takes the name",
				"setup may be called again and changes nothing that is in use",
			},
			override(func(s *store) {
				var ran atomic.Bool
				s.setup = func(context.Context) error {
					if ran.Swap(true) {
						return errors.New("the table exists")
					}
					return nil
				}
			}),
		},
		"join without setup does not say so": {
			[]string{"joining without setup works or says Setup"},
			override(func(s *store) {
				var ran atomic.Bool
				s.setup = func(ctx context.Context) error { ran.Store(true); return s.Store.Setup(ctx) }
				s.join = func(ctx context.Context, j driver.Session) (driver.Micros, error) {
					if !ran.Load() {
						return 0, errors.New("no such table")
					}
					return s.Store.Join(ctx, j)
				}
			}),
		},
		"the context is ignored": {
			[]string{"a call whose context is over answers an error and does nothing"},
			override(func(s *store) {
				s.swap = func(ctx context.Context, cs []driver.Change) ([]bool, error) {
					return s.Store.Swap(context.WithoutCancel(ctx), cs)
				}
			}),
		},
		"the context is looked at too late": {
			[]string{"a call whose context is over answers an error and does nothing"},
			override(func(s *store) {
				s.grab = func(ctx context.Context, asks []driver.Ask) ([]bool, error) {
					taken, err := s.Store.Grab(context.WithoutCancel(ctx), asks)
					return taken, errors.Join(err, ctx.Err())
				}
			}),
		},
		"every error counts as not applied": {
			[]string{"an error of somebody else has an unknown outcome", "a damaged record is an error that names it"},
			override(func(s *store) { s.classify = func(error) driver.Fault { return driver.FaultNotApplied } }),
		},
		"the answers of a batch are reversed": {
			[]string{
				"a batch of grabs answers each ask in its place", "a batch of two grabs answers each ask in its place",
				"a batch of swaps answers each change in its place", "a batch of two swaps answers each change in its place",
			},
			override(func(s *store) {
				s.grab = func(ctx context.Context, asks []driver.Ask) ([]bool, error) {
					taken, err := s.Store.Grab(ctx, asks)
					slices.Reverse(taken)
					return taken, err
				}
				s.swap = func(ctx context.Context, cs []driver.Change) ([]bool, error) {
					done, err := s.Store.Swap(ctx, cs)
					slices.Reverse(done)
					return done, err
				}
			}),
		},
		"an empty batch is an error": {
			[]string{"an empty batch does nothing"},
			override(func(s *store) {
				s.load = func(ctx context.Context, known []driver.Known) ([]driver.Record, error) {
					if len(known) == 0 {
						return nil, errors.New("syntax error near IN ()")
					}
					return s.Store.Load(ctx, known)
				}
			}),
		},
		"a prune deletes records with a note": {
			[]string{"a prune deletes old free records without a note and nothing else"},
			override(func(s *store) {
				var bound atomic.Int64
				s.prune = func(ctx context.Context, p driver.Pruning) (int, error) {
					bound.Store(p.Before)
					return s.Store.Prune(ctx, p)
				}
				s.list = func(ctx context.Context, q driver.Query) ([]driver.Record, error) {
					recs, err := s.Store.List(ctx, q)
					gone := func(r driver.Record) bool { return r.Note != nil && r.Free() && r.Revision < bound.Load() }
					return slices.DeleteFunc(recs, gone), err
				}
			}),
		},
		"a prune deletes records of any age": {
			[]string{
				"a prune deletes old free records without a note and nothing else",
				"tokens of a name strictly increase through grabs, releases, prunes and re-creations",
				"a random history is answered as the law says",
			},
			override(func(s *store) {
				s.prune = func(ctx context.Context, p driver.Pruning) (int, error) {
					p.Before = 1 << 62
					return s.Store.Prune(ctx, p)
				}
			}),
		},
		"a prune deletes without a look at the record's revision": {
			[]string{"a prune never deletes a record that was just taken"},
			override(func(s *store) {
				var mu sync.RWMutex
				gone := map[string]bool{}
				s.prune = func(ctx context.Context, p driver.Pruning) (int, error) {
					recs, err := s.Store.List(ctx, driver.Query{Before: p.Before})
					wait(ctx, time.Millisecond)
					mu.Lock()
					defer mu.Unlock()
					for _, r := range recs {
						gone[r.Name] = gone[r.Name] || r.Free()
					}
					return len(recs), err
				}
				s.load = func(ctx context.Context, known []driver.Known) ([]driver.Record, error) {
					recs, err := s.Store.Load(ctx, known)
					mu.RLock()
					defer mu.RUnlock()
					return slices.DeleteFunc(recs, func(r driver.Record) bool { return gone[r.Name] }), err
				}
			}),
		},
		"a prune has no bound": {
			[]string{
				"a prune deletes at most as many records as it may, and in the end all",
				"a prune deletes at most as many sessions as it may, and in the end all",
			},
			override(func(s *store) {
				s.prune = func(ctx context.Context, p driver.Pruning) (int, error) {
					p.Max = 1 << 30
					return s.Store.Prune(ctx, p)
				}
			}),
		},
		"a prune marks and deletes sessions in one go": {
			[]string{"a prune marks silent sessions dead and deletes them only later", "a prune keeps a session that died lately"},
			override(func(s *store) {
				s.prune = func(ctx context.Context, p driver.Pruning) (int, error) {
					_, err := s.Store.Prune(ctx, p)
					if err != nil {
						return 0, err
					}
					return s.Store.Prune(ctx, driver.Pruning{Silent: 0, Max: p.Max})
				}
			}),
		},
		"a prune ignores the TTL": {
			[]string{"a prune marks silent sessions dead and deletes them only later"},
			override(func(s *store) {
				var mu sync.Mutex
				var joined []driver.ID
				s.join = func(ctx context.Context, j driver.Session) (driver.Micros, error) {
					mu.Lock()
					joined = append(joined, j.ID)
					mu.Unlock()
					return s.Store.Join(ctx, j)
				}
				s.prune = func(ctx context.Context, p driver.Pruning) (int, error) {
					mu.Lock()
					ids := slices.Clone(joined)
					mu.Unlock()
					n, err := s.Store.Prune(ctx, p)
					rows, _ := s.Store.Sessions(ctx, ids)
					for _, r := range rows {
						if r.Silent >= p.Silent {
							err = errors.Join(err, s.Store.Leave(ctx, r.ID))
						}
					}
					return n, err
				}
			}),
		},
	}
}

// wait waits for d or the end of ctx.
func wait(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
