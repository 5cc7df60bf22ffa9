package drivertest_test

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfastdb/holdfast/driver"
)

func brokenRecords() map[string]brokenStore {
	return map[string]brokenStore{
		"a grab ignores the seed": {
			[]string{
				"a grab of a free record needs a seed above its revision",
				"the same grab again is refused, also after the release",
				"a late grab is refused once the record has passed its seed",
				"tokens of a name strictly increase through grabs, releases, prunes and re-creations",
			},
			eachGrab(func(ctx context.Context, s *store, a driver.Ask) (bool, error) {
				if rec := s.current(ctx, a.Name); rec.Free() {
					a.Seed = max(a.Seed, rec.Revision+1)
				}
				return s.grabOne(ctx, a)
			}),
		},
		"a grab clears the note": {
			[]string{"a grab leaves the note"},
			eachGrab(func(ctx context.Context, s *store, a driver.Ask) (bool, error) {
				taken, err := s.grabOne(ctx, a)
				if rec := s.current(ctx, a.Name); taken && rec.Note != nil {
					_, err = s.force(ctx, driver.Change{Name: a.Name, Holders: rec.Holders, Note: &driver.Note{}})
				}
				return taken, err
			}),
		},
		"a grab looks first and writes later": {
			[]string{
				"of 40 racing grabs of an absent record exactly one is taken",
				"of 40 racing grabs of a free record exactly one is taken",
				"of racing batches of grabs in any order each name is taken exactly once",
				"30 clients at once on first use all set up and join and exactly one takes the name",
			},
			eachGrab(func(ctx context.Context, s *store, a driver.Ask) (bool, error) {
				rec := s.current(ctx, a.Name)
				if !rec.Free() || rec.Revision >= a.Seed {
					return false, nil
				}
				wait(ctx, time.Millisecond)
				if taken, err := s.grabOne(ctx, a); taken || err != nil {
					return taken, err
				}
				return s.force(ctx, driver.Change{Name: a.Name, New: a.Seed, Holders: []driver.Entry{a.Holder}})
			}),
		},
		"a grab looks at holders only": {
			[]string{"a grab of a record with only tickets is refused"},
			eachGrab(func(ctx context.Context, s *store, a driver.Ask) (bool, error) {
				if rec := s.current(ctx, a.Name); len(rec.Tickets) > 0 && len(rec.Holders) == 0 {
					return s.force(ctx, driver.Change{Name: a.Name, New: a.Seed, Holders: []driver.Entry{a.Holder}})
				}
				return s.grabOne(ctx, a)
			}),
		},
		"a grab takes held names": {
			[]string{"a grab of a held record is refused and changes nothing", "a random history is answered as the law says"},
			eachGrab(func(ctx context.Context, s *store, a driver.Ask) (bool, error) {
				if rec := s.current(ctx, a.Name); rec.Revision > 0 && rec.Revision < a.Seed {
					return s.force(ctx, driver.Change{Name: a.Name, New: a.Seed, Holders: []driver.Entry{a.Holder}})
				}
				return s.grabOne(ctx, a)
			}),
		},
		"a refused grab raises the revision": {
			[]string{"a grab of a held record is refused and changes nothing"},
			eachGrab(func(ctx context.Context, s *store, a driver.Ask) (bool, error) {
				taken, err := s.grabOne(ctx, a)
				if rec := s.current(ctx, a.Name); !taken && err == nil {
					_, err = s.force(ctx, driver.Change{Name: a.Name, Holders: rec.Holders, Tickets: rec.Tickets})
				}
				return taken, err
			}),
		},
		"a swap ignores the old revision": {
			[]string{
				"a swap applies only from its own revision", "no post is lost while swaps run",
				"of 20 racing swaps from one revision exactly one is done", "a swap delivered late does not undo a post",
				"the same swap again is refused and so is a late one",
			},
			eachSwap(func(ctx context.Context, s *store, c driver.Change) (bool, error) { return s.force(ctx, c) }),
		},
		"a swap keeps the inbox": {
			[]string{"a swap stores an empty inbox"},
			eachSwap(func(ctx context.Context, s *store, c driver.Change) (bool, error) {
				inbox := s.current(ctx, c.Name).Inbox
				done, err := s.swapOne(ctx, c)
				if done && len(inbox) > 0 {
					_, err = s.Store.Post(ctx, c.Name, inbox, 1<<62)
				}
				return done, err
			}),
		},
		"a swap creates records": {
			[]string{"a swap never creates a record"},
			eachSwap(func(ctx context.Context, s *store, c driver.Change) (bool, error) {
				if s.current(ctx, c.Name).Revision == 0 {
					return s.grabOne(ctx, driver.Ask{Name: c.Name, Seed: c.New, Holder: c.Holders[0]})
				}
				return s.swapOne(ctx, c)
			}),
		},
		"a swap without a note clears it": {
			[]string{"a swap without a note leaves the note and one with a note replaces it"},
			eachSwap(func(ctx context.Context, s *store, c driver.Change) (bool, error) {
				if c.Note == nil {
					c.Note = &driver.Note{}
				}
				return s.swapOne(ctx, c)
			}),
		},
		"an empty note counts as none": {
			[]string{"a swap without a note leaves the note and one with a note replaces it"},
			eachSwap(func(ctx context.Context, s *store, c driver.Change) (bool, error) {
				if c.Note != nil && len(c.Note.Data) == 0 {
					c.Note = nil
				}
				return s.swapOne(ctx, c)
			}),
		},
		"a swap cuts long states": {
			[]string{"a record at its caps is kept whole"},
			eachSwap(func(ctx context.Context, s *store, c driver.Change) (bool, error) {
				c.Holders = c.Holders[:min(len(c.Holders), 300)]
				return s.swapOne(ctx, c)
			}),
		},
		"a swap forgets an entry's limits": {
			[]string{"a swap keeps every field of every entry and their order"},
			eachSwap(func(ctx context.Context, s *store, c driver.Change) (bool, error) {
				c.Tickets = slices.Clone(c.Tickets)
				for i := range c.Tickets {
					c.Tickets[i].Limit = driver.All
				}
				return s.swapOne(ctx, c)
			}),
		},
		"a post ignores its fence": {
			[]string{
				"a post at or past its fence is refused", "a late post does not reach the next holder past its fence",
				"the same post again is appended again below its fence and never past it",
			},
			override(func(s *store) {
				s.post = func(ctx context.Context, name string, ops []byte, _ driver.Micros) (bool, error) {
					return s.Store.Post(ctx, name, ops, 1<<62)
				}
			}),
		},
		"a post to a free record is accepted": {
			[]string{"a post to a free record is refused", "a random history is answered as the law says"},
			override(func(s *store) {
				s.post = func(ctx context.Context, name string, ops []byte, before driver.Micros) (bool, error) {
					if rec := s.current(ctx, name); rec.Revision > 0 && rec.Free() && rec.Revision < before {
						return s.force(ctx, driver.Change{Name: name})
					}
					return s.Store.Post(ctx, name, ops, before)
				}
			}),
		},
		"a post creates records": {
			[]string{"a post to an absent record is refused"},
			override(func(s *store) {
				s.post = func(ctx context.Context, name string, ops []byte, before driver.Micros) (bool, error) {
					if s.current(ctx, name).Revision == 0 {
						holder := driver.Entry{Lease: driver.NewID(), Weight: driver.All, Limit: driver.All}
						return s.grabOne(ctx, driver.Ask{Name: name, Seed: before, Holder: holder})
					}
					return s.Store.Post(ctx, name, ops, before)
				}
			}),
		},
		"a post that was posted before is dropped": {
			[]string{"the same post again is appended again below its fence and never past it"},
			override(func(s *store) {
				s.post = func(ctx context.Context, name string, ops []byte, before driver.Micros) (bool, error) {
					if rec := s.current(ctx, name); rec.Revision < before && bytes.Contains(rec.Inbox, ops) {
						return true, nil
					}
					return s.Store.Post(ctx, name, ops, before)
				}
			}),
		},
		"a post reads, appends and writes back": {
			[]string{"racing posts raise the revision one by one and keep every operation", "no post is lost while swaps run"},
			override(func(s *store) {
				var mu sync.Mutex // makes each call atomic, but not the read with the write
				inboxes := map[string][]byte{}
				s.post = func(ctx context.Context, name string, ops []byte, before driver.Micros) (bool, error) {
					mu.Lock()
					read := bytes.Clone(inboxes[name])
					mu.Unlock()
					wait(ctx, time.Millisecond)
					posted, err := s.Store.Post(ctx, name, ops, before)
					mu.Lock()
					defer mu.Unlock()
					if posted {
						inboxes[name] = append(read, ops...)
					}
					return posted, err
				}
				s.load = func(ctx context.Context, known []driver.Known) ([]driver.Record, error) {
					recs, err := s.Store.Load(ctx, known)
					mu.Lock()
					defer mu.Unlock()
					for i := range recs {
						recs[i].Inbox = bytes.Clone(inboxes[recs[i].Name])
					}
					return recs, err
				}
				s.swap = func(ctx context.Context, cs []driver.Change) ([]bool, error) {
					mu.Lock()
					defer mu.Unlock()
					done, err := s.Store.Swap(ctx, cs)
					for i := range done {
						if done[i] {
							delete(inboxes, cs[i].Name)
						}
					}
					return done, err
				}
			}),
		},
		"a post needs a holder": {
			[]string{"a post to a record with only tickets is appended"},
			override(func(s *store) {
				s.post = func(ctx context.Context, name string, ops []byte, before driver.Micros) (bool, error) {
					if len(s.current(ctx, name).Holders) == 0 {
						return false, nil
					}
					return s.Store.Post(ctx, name, ops, before)
				}
			}),
		},
		"a grab stores a token of its own": {
			[]string{"a grab creates an absent record with the seed as revision and token"},
			eachGrab(func(ctx context.Context, s *store, a driver.Ask) (bool, error) {
				token := a.Holder.Rev
				taken, err := s.grabOne(ctx, a)
				if taken {
					a.Holder.Rev = token
					_, err = s.force(ctx, driver.Change{Name: a.Name, Holders: []driver.Entry{a.Holder}})
				}
				return taken, err
			}),
		},
		"a post has no cap": {
			[]string{"a post that takes the inbox over its cap is refused"},
			override(func(s *store) {
				s.post = func(ctx context.Context, name string, ops []byte, before driver.Micros) (bool, error) {
					posted, err := s.Store.Post(ctx, name, ops, before)
					rec := s.current(ctx, name)
					return posted || !rec.Free() && rec.Revision < before, err
				}
			}),
		},
		"names are folded to lower case": {
			[]string{"names are compared byte by byte"}, renaming(strings.ToLower),
		},
		"trailing blanks of names are cut": {
			[]string{"names are compared byte by byte"},
			renaming(func(name string) string { return "x" + strings.TrimRight(name, " ") }),
		},
		"names are cut at 254 bytes": {
			[]string{"names are compared byte by byte"},
			renaming(func(name string) string { return strings.ToValidUTF8(name[:min(len(name), 254)], "") }),
		},
	}
}

// renaming makes a store that grabs another name than it was asked for.
func renaming(file func(string) string) func(driver.Store) driver.Store {
	return override(func(s *store) {
		s.grab = func(ctx context.Context, asks []driver.Ask) ([]bool, error) {
			taken := make([]bool, len(asks))
			for i, a := range asks {
				a.Name = file(a.Name)
				var err error
				if taken[i], err = s.grabOne(ctx, a); err != nil {
					return nil, err
				}
			}
			return taken, nil
		}
	})
}
