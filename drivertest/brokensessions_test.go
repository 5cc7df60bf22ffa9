package drivertest_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfastdb/holdfast/driver"
)

func brokenReading() map[string]brokenStore {
	listing := func(list func(ctx context.Context, s *store, q driver.Query) ([]driver.Record, error)) func(driver.Store) driver.Store {
		return override(func(s *store) {
			s.list = func(ctx context.Context, q driver.Query) ([]driver.Record, error) { return list(ctx, s, q) }
		})
	}
	return map[string]brokenStore{
		"a load answers from a replica that lags": {
			[]string{"a load sees every acknowledged write, also of another handle"},
			override(func(s *store) {
				var mu sync.Mutex
				lagging := map[string]driver.Record{}
				s.load = func(ctx context.Context, known []driver.Known) ([]driver.Record, error) {
					recs, err := s.Store.Load(ctx, known)
					mu.Lock()
					defer mu.Unlock()
					for i, r := range recs {
						if old, found := lagging[r.Name]; found {
							recs[i] = old
						}
						lagging[r.Name] = r
					}
					return recs, err
				}
			}),
		},
		"a load answers what is unchanged": {
			[]string{"a load leaves out what is unchanged and keeps the order of the question"},
			override(func(s *store) {
				s.load = func(ctx context.Context, known []driver.Known) ([]driver.Record, error) {
					known = slices.Clone(known)
					for i := range known {
						known[i].Revision = min(known[i].Revision, 1)
					}
					return s.Store.Load(ctx, known)
				}
			}),
		},
		"a load leaves out what was deleted": {
			[]string{"a load leaves out what is unchanged and keeps the order of the question"},
			override(func(s *store) {
				s.load = func(ctx context.Context, known []driver.Known) ([]driver.Record, error) {
					recs, err := s.Store.Load(ctx, known)
					return slices.DeleteFunc(recs, func(r driver.Record) bool { return r.Revision == 0 }), err
				}
			}),
		},
		"a load answers in the order of names": {
			[]string{"a load leaves out what is unchanged and keeps the order of the question"},
			override(func(s *store) {
				s.load = func(ctx context.Context, known []driver.Known) ([]driver.Record, error) {
					recs, err := s.Store.Load(ctx, known)
					slices.SortFunc(recs, func(a, b driver.Record) int { return strings.Compare(a.Name, b.Name) })
					return recs, err
				}
			}),
		},
		"a damaged record reads as free": {
			[]string{"a damaged record is reported beside the others and never as free"},
			override(func(s *store) {
				s.load = func(ctx context.Context, known []driver.Known) ([]driver.Record, error) {
					recs, err := s.Store.Load(ctx, known)
					var damage *driver.DamagedError
					if errors.As(err, &damage) {
						return append(recs, driver.Record{Name: damage.Name}), nil
					}
					return recs, err
				}
			}),
		},
		"a damaged record hides the others": {
			[]string{"a damaged record is reported beside the others and never as free"},
			override(func(s *store) {
				s.load = func(ctx context.Context, known []driver.Known) ([]driver.Record, error) {
					recs, err := s.Store.Load(ctx, known)
					if err != nil {
						return nil, err
					}
					return recs, nil
				}
			}),
		},
		"answers share memory": {
			[]string{"questions and answers share no memory with the store"},
			override(func(s *store) {
				var mu sync.Mutex
				cache := map[string]driver.Record{}
				s.load = func(ctx context.Context, known []driver.Known) ([]driver.Record, error) {
					recs, err := s.Store.Load(ctx, known)
					mu.Lock()
					defer mu.Unlock()
					for i, r := range recs {
						if old := cache[r.Name]; old.Revision == r.Revision {
							recs[i] = old
						}
						cache[r.Name] = recs[i]
					}
					return recs, err
				}
			}),
		},
		"a list is in the order of a locale": {
			[]string{"a list is in byte order and pages miss nothing and double nothing"},
			listing(func(ctx context.Context, s *store, q driver.Query) ([]driver.Record, error) {
				recs, err := s.Store.List(ctx, q)
				slices.SortFunc(recs, func(a, b driver.Record) int {
					return strings.Compare(strings.ToLower(a.Name), strings.ToLower(b.Name))
				})
				return recs, err
			}),
		},
		"a page begins with the last name of the one before": {
			[]string{"a list keeps to its prefix, its start and its size together", "names are compared byte by byte"},
			listing(func(ctx context.Context, s *store, q driver.Query) ([]driver.Record, error) {
				after, most := q.After, q.Max
				q.After, q.Max = "", 0
				recs, err := s.Store.List(ctx, q)
				recs = slices.DeleteFunc(recs, func(r driver.Record) bool { return r.Name < after })
				if most > 0 {
					recs = recs[:min(most, len(recs))]
				}
				return recs, err
			}),
		},
		"a prefix is a pattern": {
			[]string{"a listed prefix is taken literally"},
			listing(func(ctx context.Context, s *store, q driver.Query) ([]driver.Record, error) {
				q.Prefix, _, _ = strings.Cut(q.Prefix, "%")
				return s.Store.List(ctx, q)
			}),
		},
		"busy means held": {
			[]string{"a list of busy records leaves out free ones only"},
			listing(func(ctx context.Context, s *store, q driver.Query) ([]driver.Record, error) {
				recs, err := s.Store.List(ctx, q)
				queued := func(r driver.Record) bool { return q.Busy && len(r.Holders) == 0 }
				return slices.DeleteFunc(recs, queued), err
			}),
		},
		"a list counts the bound as old": {
			[]string{"a list of old records leaves out those at the bound and above"},
			listing(func(ctx context.Context, s *store, q driver.Query) ([]driver.Record, error) {
				if q.Before != 0 {
					q.Before++
				}
				return s.Store.List(ctx, q)
			}),
		},
		"a list leaves out the inbox": {
			[]string{"a list shows records whole", "a post appends to the inbox and raises the revision by one"},
			listing(func(ctx context.Context, s *store, q driver.Query) ([]driver.Record, error) {
				recs, err := s.Store.List(ctx, q)
				for i := range recs {
					recs[i].Inbox = nil
				}
				return recs, err
			}),
		},
	}
}

func brokenSessions() map[string]brokenStore {
	type fates = map[driver.ID]driver.Fate
	reaping := func(reap func(ctx context.Context, s *store, ids, certified []driver.ID, care driver.Caution) (fates, error)) func(driver.Store) driver.Store {
		return override(func(s *store) {
			s.reap = func(ctx context.Context, ids, certified []driver.ID, care driver.Caution) (map[driver.ID]driver.Fate, error) {
				return reap(ctx, s, ids, certified, care)
			}
		})
	}
	return map[string]brokenStore{
		"a reap reads first and marks later": {
			[]string{"racing beats and reaps agree on who is alive"},
			reaping(func(ctx context.Context, s *store, ids, certified []driver.ID, care driver.Caution) (fates, error) {
				rows, err := s.Store.Sessions(ctx, ids)
				if err != nil {
					return nil, err
				}
				for _, r := range rows {
					if r.Silent >= r.TTL {
						certified = append(certified, r.ID)
					}
				}
				wait(ctx, 20*time.Millisecond)
				found, err := s.Store.Reap(ctx, nil, certified, care)
				for _, r := range rows {
					if r.Silent < r.TTL {
						found[r.ID] = driver.Fate{Kind: driver.FateAlive, Left: r.TTL - r.Silent}
					}
				}
				return found, err
			}),
		},
		"a reap marks sessions before their TTL": {
			[]string{
				"a reap marks an expired session dead, not before its TTL and not long after",
				"a reap never marks a session that beats",
			},
			reaping(func(ctx context.Context, s *store, ids, certified []driver.ID, care driver.Caution) (fates, error) {
				rows, err := s.Store.Sessions(ctx, ids)
				if err != nil {
					return nil, err
				}
				for _, r := range rows {
					if r.Silent >= r.TTL/20 {
						certified = append(certified, r.ID)
					}
				}
				return s.Store.Reap(ctx, ids, certified, care)
			}),
		},
		"a reap is never patient": {
			[]string{
				"a patient reap gives a session twice its TTL",
				"a patient reap marks a session dead only after twice its TTL",
			},
			reaping(func(ctx context.Context, s *store, ids, certified []driver.ID, care driver.Caution) (fates, error) {
				care.Known = 0
				return s.Store.Reap(ctx, ids, certified, care)
			}),
		},
		"a reap is always patient": {
			[]string{
				"a reap says how long a session has left, at most its TTL",
				"a reap marks an expired session dead, not before its TTL and not long after",
			},
			reaping(func(ctx context.Context, s *store, ids, certified []driver.ID, _ driver.Caution) (fates, error) {
				return s.Store.Reap(ctx, ids, certified, driver.Caution{Known: 1})
			}),
		},
		"a clock that stepped is believed": {
			[]string{"a clock that reads later than it can proves nobody dead"},
			reaping(func(ctx context.Context, s *store, ids, certified []driver.ID, care driver.Caution) (fates, error) {
				return s.Store.Reap(ctx, ids, certified, driver.Caution{Known: care.Known})
			}),
		},
		"a missing session counts as dead": {
			[]string{"a missing session has an unknown fate, also if certified"},
			reaping(func(ctx context.Context, s *store, ids, certified []driver.ID, care driver.Caution) (fates, error) {
				found, err := s.Store.Reap(ctx, ids, certified, care)
				for id, f := range found {
					if f.Kind == driver.FateUnknown {
						found[id] = driver.Fate{Kind: driver.FateDead}
					}
				}
				return found, err
			}),
		},
		"a reap leaves out who is missing": {
			[]string{"a missing session has an unknown fate, also if certified", "a reap answers for every id of both lists"},
			reaping(func(ctx context.Context, s *store, ids, certified []driver.ID, care driver.Caution) (fates, error) {
				found, err := s.Store.Reap(ctx, ids, certified, care)
				maps.DeleteFunc(found, func(_ driver.ID, f driver.Fate) bool { return f.Kind == driver.FateUnknown })
				return found, err
			}),
		},
		"a certified session is not marked": {
			[]string{"a certified session is dead at once and for good"},
			reaping(func(ctx context.Context, s *store, ids, certified []driver.ID, care driver.Caution) (fates, error) {
				found, err := s.Store.Reap(ctx, ids, nil, care)
				for _, id := range certified {
					found[id] = driver.Fate{Kind: driver.FateDead}
				}
				return found, err
			}),
		},
		"a reap marks whoever is late": {
			[]string{"a reap only asks about the ids it is given"},
			override(func(s *store) {
				var mu sync.Mutex
				var joined []driver.ID
				s.join = func(ctx context.Context, j driver.Session) (driver.Micros, error) {
					mu.Lock()
					defer mu.Unlock()
					joined = append(joined, j.ID)
					return s.Store.Join(ctx, j)
				}
				s.reap = func(ctx context.Context, ids, certified []driver.ID, care driver.Caution) (map[driver.ID]driver.Fate, error) {
					mu.Lock()
					all := slices.Clone(joined)
					mu.Unlock()
					found, err := s.Store.Reap(ctx, append(all, ids...), certified, care)
					for _, id := range all {
						if !slices.Contains(ids, id) {
							delete(found, id)
						}
					}
					return found, err
				}
			}),
		},
		"a beat in the future stays there": {
			[]string{"a beat in the future is set to now, and the session expires from there"},
			reaping(func(ctx context.Context, s *store, ids, certified []driver.ID, care driver.Caution) (fates, error) {
				rows, _ := s.Store.Sessions(ctx, ids)
				found, err := s.Store.Reap(ctx, ids, certified, care)
				for _, r := range rows {
					if r.Silent == 0 {
						found[r.ID] = driver.Fate{Kind: driver.FateAlive, Left: r.TTL + time.Hour}
					}
				}
				return found, err
			}),
		},
		"a beat accepts any nonce": {
			[]string{
				"a beat with a foreign nonce is refused and changes nothing",
				"a late beat from before the chain moved on is refused and changes nothing",
				"of 10 racing beats from one nonce exactly one is alive",
				"a beat moves the nonce on, and the same beat again is alive",
			},
			override(func(s *store) {
				var mu sync.Mutex
				nonces := map[driver.ID]driver.Nonce{}
				s.beat = func(ctx context.Context, id driver.ID, prev, next driver.Nonce) (driver.BeatReply, error) {
					mu.Lock()
					defer mu.Unlock()
					if last, found := nonces[id]; found {
						prev = last
					}
					reply, err := s.Store.Beat(ctx, id, prev, next)
					if reply.Alive {
						nonces[id] = next
					}
					return reply, err
				}
			}),
		},
		"a beat that ran twice is refused": {
			[]string{"a beat moves the nonce on, and the same beat again is alive"},
			override(func(s *store) {
				var mu sync.Mutex
				nonces := map[driver.ID]driver.Nonce{}
				s.beat = func(ctx context.Context, id driver.ID, prev, next driver.Nonce) (driver.BeatReply, error) {
					mu.Lock()
					defer mu.Unlock()
					if last, found := nonces[id]; found && last == next {
						return driver.BeatReply{}, nil
					}
					nonces[id] = next
					return s.Store.Beat(ctx, id, prev, next)
				}
			}),
		},
		"a dead session beats": {
			[]string{
				"a leave is final, may be repeated, and needs no row", "a join of a dead id is an error and does not revive it",
				"a late beat or notify does not revive a session that left", "a certified session is dead at once and for good",
			},
			override(func(s *store) {
				s.beat = func(ctx context.Context, id driver.ID, prev, next driver.Nonce) (driver.BeatReply, error) {
					reply, err := s.Store.Beat(ctx, id, prev, next)
					rows, _ := s.Store.Sessions(ctx, []driver.ID{id})
					reply.Alive = reply.Alive || len(rows) == 1 && rows[0].Dead
					return reply, err
				}
			}),
		},
		"a beat of an unknown session counts as alive": {
			[]string{"a beat of an unknown id is not alive and creates nothing"},
			override(func(s *store) {
				s.beat = func(ctx context.Context, id driver.ID, prev, next driver.Nonce) (driver.BeatReply, error) {
					reply, err := s.Store.Beat(ctx, id, prev, next)
					rows, _ := s.Store.Sessions(ctx, []driver.ID{id})
					reply.Alive = reply.Alive || len(rows) == 0
					return reply, err
				}
			}),
		},
		"a beat does not stamp": {
			[]string{
				"a beat is stamped by the clock of the database", "a reap says how long a session has left, at most its TTL",
				"a prune marks silent sessions dead and deletes them only later", "a reap never marks a session that beats",
			},
			override(func(s *store) {
				s.beat = func(ctx context.Context, id driver.ID, prev, next driver.Nonce) (driver.BeatReply, error) {
					rows, err := s.Store.Sessions(ctx, []driver.ID{id})
					if err != nil || len(rows) == 0 || rows[0].Dead {
						return driver.BeatReply{}, err
					}
					return driver.BeatReply{Alive: true}, nil
				}
			}),
		},
		"a beat resets the notice": {
			[]string{"a notify raises the notice by one and needs no row", "10 racing notifies are all counted"},
			override(func(s *store) {
				s.notify = func(ctx context.Context, id driver.ID) error {
					rows, err := s.Store.Sessions(ctx, []driver.ID{id})
					if err != nil || len(rows) == 0 {
						return err
					}
					return nil
				}
			}),
		},
		"a join that ran twice renews the beat": {
			[]string{"a join that runs twice counts as joined and does not renew the beat"},
			override(func(s *store) {
				s.join = func(ctx context.Context, j driver.Session) (driver.Micros, error) {
					now, err := s.Store.Join(ctx, j)
					if err == nil {
						_, err = s.Store.Beat(ctx, j.ID, j.Nonce, j.Nonce)
					}
					return now, err
				}
			}),
		},
		"a join takes over a row": {
			[]string{
				"a join of an id that is there with another nonce is an error",
				"a join of a dead id is an error and does not revive it",
			},
			override(func(s *store) {
				s.join = func(ctx context.Context, j driver.Session) (driver.Micros, error) {
					now, err := s.Store.Join(ctx, j)
					if ctx.Err() == nil && err != nil {
						return time.Now().UnixMicro(), nil
					}
					return now, err
				}
			}),
		},
		"the clock is in milliseconds": {
			[]string{"a join and a beat answer the clock of the database in microseconds"},
			override(func(s *store) {
				s.beat = func(ctx context.Context, id driver.ID, prev, next driver.Nonce) (driver.BeatReply, error) {
					reply, err := s.Store.Beat(ctx, id, prev, next)
					reply.Now /= 1000
					return reply, err
				}
			}),
		},
		"sessions are read in the order of the table": {
			[]string{"sessions are read with every field, in the order of the question"},
			override(func(s *store) {
				s.sessions = func(ctx context.Context, ids []driver.ID) ([]driver.Session, error) {
					rows, err := s.Store.Sessions(ctx, ids)
					slices.SortFunc(rows, func(a, b driver.Session) int { return strings.Compare(a.Label, b.Label) })
					return rows, err
				}
			}),
		},
		"a start time becomes a float": {
			[]string{"sessions are read with every field, in the order of the question"},
			override(func(s *store) {
				s.join = func(ctx context.Context, j driver.Session) (driver.Micros, error) {
					j.Local.Started = uint64(float64(j.Local.Started))
					return s.Store.Join(ctx, j)
				}
			}),
		},
	}
}
