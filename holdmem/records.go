package holdmem

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/holdfastdb/holdfast/driver"
)

// row is a record as stored. State is kept encoded, as in a database: no caller shares memory with the store or with
// another caller, and what the codec would refuse cannot get in.
type row struct {
	revision driver.Micros
	state    []byte
	occupied bool // holders or tickets in state
	inbox    []byte
	note     *driver.Note
}

func (r *row) free() bool { return !r.occupied && len(r.inbox) == 0 }

func (r *row) record(name string) (driver.Record, error) {
	holders, tickets, err := driver.DecodeState(r.state)
	if err != nil {
		return driver.Record{}, &driver.DamagedError{Name: name, Err: err}
	}
	return driver.Record{
		Name: name, Revision: r.revision, Holders: holders, Tickets: tickets,
		Inbox: bytes.Clone(r.inbox), Note: cloneNote(r.note),
	}, nil
}

func cloneNote(n *driver.Note) *driver.Note {
	if n == nil {
		return nil
	}
	return &driver.Note{Data: bytes.Clone(n.Data), Token: n.Token}
}

// encodeState refuses what DecodeState would call damage later, when it is too late to tell who wrote it.
func encodeState(name string, holders, tickets []driver.Entry) ([]byte, error) {
	state := driver.EncodeState(holders, tickets)
	if _, _, err := driver.DecodeState(state); err != nil {
		return nil, refuse("the new state of %q: %w", name, err)
	}
	return state, nil
}

// Grab takes free names; see [driver.Store]. Beside an error nothing is taken.
func (s *Store) Grab(ctx context.Context, asks []driver.Ask) ([]bool, error) {
	if err := alive(ctx); err != nil {
		return nil, err
	}
	if err := checkBatch(asks, func(a driver.Ask) string { return a.Name }); err != nil {
		return nil, err
	}
	states := make([][]byte, len(asks))
	for i, a := range asks {
		if a.Seed <= 0 {
			return nil, refuse("grab %q: seed %d is not positive", a.Name, a.Seed)
		}
		a.Holder.Rev = a.Seed
		var err error
		if states[i], err = encodeState(a.Name, []driver.Entry{a.Holder}, nil); err != nil {
			return nil, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	taken := make([]bool, len(asks))
	for i, a := range asks {
		r := s.records[a.Name]
		switch {
		case r == nil:
			r = &row{}
			s.records[a.Name] = r
		case !r.free() || r.revision >= a.Seed:
			continue
		}
		r.revision, r.state, r.occupied = a.Seed, states[i], true
		taken[i] = true
	}
	return taken, nil
}

// Load reads records; see [driver.Store]. The answer is the caller's own.
func (s *Store) Load(ctx context.Context, known []driver.Known) ([]driver.Record, error) {
	if err := alive(ctx); err != nil {
		return nil, err
	}
	if err := checkBatch(known, func(k driver.Known) string { return k.Name }); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var records []driver.Record
	var damage []error
	for _, k := range known {
		r := s.records[k.Name]
		switch {
		case r == nil && k.Revision != 0:
			records = append(records, driver.Record{Name: k.Name})
		case r != nil && r.revision != k.Revision:
			rec, err := r.record(k.Name)
			if err != nil {
				damage = append(damage, err)
				continue
			}
			records = append(records, rec)
		}
	}
	return records, errors.Join(damage...)
}

// Swap replaces records; see [driver.Store]. Beside an error nothing is done. Signals are dropped: the store cannot
// push.
func (s *Store) Swap(ctx context.Context, changes []driver.Change) ([]bool, error) {
	if err := alive(ctx); err != nil {
		return nil, err
	}
	if err := checkBatch(changes, func(c driver.Change) string { return c.Name }); err != nil {
		return nil, err
	}
	states := make([][]byte, len(changes))
	for i, c := range changes {
		if c.Old <= 0 || c.New <= c.Old {
			return nil, refuse("swap %q: revision %d to %d does not rise from a positive one", c.Name, c.Old, c.New)
		}
		var err error
		if states[i], err = encodeState(c.Name, c.Holders, c.Tickets); err != nil {
			return nil, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	done := make([]bool, len(changes))
	for i, c := range changes {
		r := s.records[c.Name]
		if r == nil || r.revision != c.Old {
			continue
		}
		r.revision, r.state, r.inbox = c.New, states[i], nil
		r.occupied = len(c.Holders) > 0 || len(c.Tickets) > 0
		if c.Note != nil {
			r.note = cloneNote(c.Note)
		}
		done[i] = true
	}
	return done, nil
}

// Post appends to the inbox; see [driver.Store].
func (s *Store) Post(ctx context.Context, name string, ops []byte, before driver.Micros) (bool, error) {
	if err := alive(ctx); err != nil {
		return false, err
	}
	if err := driver.CheckName(name); err != nil {
		return false, refuse("%w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.records[name]
	if r == nil || r.free() || r.revision >= before || len(r.inbox)+len(ops) > driver.MaxInboxBytes {
		return false, nil
	}
	r.revision++
	r.inbox = append(r.inbox, ops...)
	return true, nil
}

// List reads records in byte order of their names; see [driver.Store]. A damaged record is reported as Load does.
func (s *Store) List(ctx context.Context, q driver.Query) ([]driver.Record, error) {
	if err := alive(ctx); err != nil {
		return nil, err
	}
	most := q.Max
	if most <= 0 || most > driver.PageSize {
		most = driver.PageSize
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var records []driver.Record
	var damage []error
	for _, name := range slices.Sorted(maps.Keys(s.records)) {
		r := s.records[name]
		if !strings.HasPrefix(name, q.Prefix) || name <= q.After ||
			q.Busy && r.free() || q.Before != 0 && r.revision >= q.Before {
			continue
		}
		if len(records)+len(damage) == most {
			break
		}
		rec, err := r.record(name)
		if err != nil {
			damage = append(damage, err)
			continue
		}
		records = append(records, rec)
	}
	return records, errors.Join(damage...)
}

// pruneRecords deletes free records without a note; s.mu is held. Names go in order, so that a run can be repeated.
func (s *Store) pruneRecords(before driver.Micros, most int) int {
	deleted := 0
	for _, name := range slices.Sorted(maps.Keys(s.records)) {
		if deleted == most {
			break
		}
		if r := s.records[name]; r.free() && r.note == nil && r.revision < before {
			delete(s.records, name)
			deleted++
		}
	}
	return deleted
}
