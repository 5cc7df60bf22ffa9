package holdmem

import (
	"bytes"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/holdfastdb/holdfast/driver"
)

// sessionRow is a session as stored.
type sessionRow struct {
	joined driver.Session // as Join wrote it
	nonce  driver.Nonce   // as the last beat left it
	beat   driver.Micros
	died   driver.Micros // when it was marked; 0 while it is not dead
	notice int64
}

func (r *sessionRow) dead() bool { return r.died != 0 }

// silent is how long ago the last beat was; never negative, for a beat in the future says nothing.
func (r *sessionRow) silent(now driver.Micros) time.Duration {
	return time.Duration(max(0, now-r.beat)) * time.Microsecond
}

// mark ends the session. The clock may be stepped to any value, but 0 means alive.
func (r *sessionRow) mark(now driver.Micros) {
	if !r.dead() {
		r.died = max(1, now)
	}
}

// Join writes the session row; see [driver.Store]. A row of that id which is dead or has another nonce, a zero id and
// a TTL that is not positive are refused.
func (s *Store) Join(ctx context.Context, joining driver.Session) (driver.Micros, error) {
	if err := alive(ctx); err != nil {
		return 0, err
	}
	if joining.ID.IsZero() || joining.TTL < time.Microsecond {
		return 0, refuse("join: session %s with a TTL of %v", joining.ID, joining.TTL)
	}
	joining.TTL = joining.TTL.Truncate(time.Microsecond)
	joining.Silent, joining.Dead = 0, false
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	r := s.sessions[joining.ID]
	switch {
	case r == nil:
		s.sessions[joining.ID] = &sessionRow{joined: joining, nonce: joining.Nonce, beat: now}
	case r.dead():
		return 0, refuse("join: session %s is dead", joining.ID)
	case r.nonce != joining.Nonce:
		return 0, refuse("join: session %s is there already, with another nonce", joining.ID)
	}
	return now, nil
}

// Beat renews a session; see [driver.Store].
func (s *Store) Beat(ctx context.Context, id driver.ID, prev, next driver.Nonce) (driver.BeatReply, error) {
	if err := alive(ctx); err != nil {
		return driver.BeatReply{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	reply := driver.BeatReply{Now: s.now()}
	r := s.sessions[id]
	if r == nil || r.dead() || r.nonce != prev && r.nonce != next {
		return reply, nil
	}
	r.nonce, r.beat = next, reply.Now
	reply.Alive, reply.Notice = true, r.notice
	return reply, nil
}

// Reap marks expired sessions dead and says what is known of the others; see [driver.Store].
func (s *Store) Reap(ctx context.Context, ids, certified []driver.ID, care driver.Caution) (map[driver.ID]driver.Fate, error) {
	if err := alive(ctx); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	fates := make(map[driver.ID]driver.Fate, len(ids)+len(certified))
	for _, id := range certified {
		fates[id] = driver.Fate{}
		if r := s.sessions[id]; r != nil {
			r.mark(now)
			fates[id] = driver.Fate{Kind: driver.FateDead}
		}
	}
	for _, id := range ids {
		fates[id] = s.reap(id, now, care)
	}
	return fates, nil
}

func (s *Store) reap(id driver.ID, now driver.Micros, care driver.Caution) driver.Fate {
	r := s.sessions[id]
	if r == nil {
		return driver.Fate{}
	}
	r.beat = min(r.beat, now) // the clock stepped back: the session has a whole TTL from here
	silence, ok := care.Silence(r.joined.TTL, now)
	left := silence - r.silent(now)
	if !ok {
		left = r.joined.TTL
	}
	if left <= 0 {
		r.mark(now)
	}
	if r.dead() {
		return driver.Fate{Kind: driver.FateDead}
	}
	return driver.Fate{Kind: driver.FateAlive, Left: left, TTL: r.joined.TTL}
}

// Leave marks the session dead; see [driver.Store].
func (s *Store) Leave(ctx context.Context, id driver.ID) error {
	if err := alive(ctx); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.sessions[id]; r != nil {
		r.mark(s.now())
	}
	return nil
}

// Notify raises the session's notice counter by one; see [driver.Store].
func (s *Store) Notify(ctx context.Context, id driver.ID) error {
	if err := alive(ctx); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.sessions[id]; r != nil {
		r.notice++
	}
	return nil
}

// Sessions reads session rows; see [driver.Store].
func (s *Store) Sessions(ctx context.Context, ids []driver.ID) ([]driver.Session, error) {
	if err := alive(ctx); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	var found []driver.Session
	for _, id := range ids {
		if r := s.sessions[id]; r != nil {
			row := r.joined
			row.Silent, row.Dead = r.silent(now), r.dead()
			found = append(found, row)
		}
	}
	return found, nil
}

// Prune deletes old free records and long dead sessions, and marks silent ones; see [driver.Store].
func (s *Store) Prune(ctx context.Context, p driver.Pruning) (int, error) {
	if err := alive(ctx); err != nil {
		return 0, err
	}
	most := p.Max
	if most <= 0 {
		most = driver.MaxBatch
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pruneRecords(p.Before, most) + s.pruneSessions(p.Silent, most), nil
}

// pruneSessions handles at most that many sessions in the order of their ids; s.mu is held. A session marked by this
// call stays for another spell of silence, so that whoever looks for it finds it dead, not missing.
func (s *Store) pruneSessions(silent time.Duration, most int) int {
	now, deleted, marked := s.now(), 0, 0
	for _, id := range slices.SortedFunc(maps.Keys(s.sessions), compareIDs) {
		switch r := s.sessions[id]; {
		case r.dead():
			if deleted < most && now-r.died >= silent.Microseconds() {
				delete(s.sessions, id)
				deleted++
			}
		case marked < most && r.silent(now) >= max(silent, r.joined.TTL):
			r.mark(now)
			marked++
		}
	}
	return deleted
}

func compareIDs(a, b driver.ID) int { return bytes.Compare(a[:], b[:]) }
