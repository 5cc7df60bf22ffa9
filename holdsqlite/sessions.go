package holdsqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/holdfastdb/holdfast/driver"
)

// Join writes a session row, see driver.Store.
func (s *Store) Join(ctx context.Context, n driver.Session) (now driver.Micros, err error) {
	err = s.call(ctx, func() error {
		return s.beats.write(ctx, func(t *transaction) error {
			at := s.now()
			now = at.wallUS
			if _, err := t.exec(join, n.ID.String(), n.Nonce.String(), n.TTL.Microseconds(), n.Label, n.Host, n.PID, n.Program,
				n.Local.Boot, n.Local.PIDNS, n.Local.TimeNS, n.Local.PID, int64(n.Local.Started),
				at.clock, at.us, at.wallUS); err != nil {
				return err
			}
			var same bool
			err := t.query(func(rows *sql.Rows) error { return rows.Scan(&same) }, joined, n.ID.String(), n.Nonce.String())
			if err == nil && !same {
				err = fmt.Errorf("session %s: %w", n.ID, errJoined)
			}
			return err
		}, join, joined)
	})
	return now, err
}

// Beat gives a sign of life, see driver.Store.
func (s *Store) Beat(ctx context.Context, id driver.ID, prev, next driver.Nonce) (reply driver.BeatReply, err error) {
	err = s.call(ctx, func() error {
		return s.beats.write(ctx, func(t *transaction) error {
			at := s.now()
			reply.Now = at.wallUS
			return t.query(func(rows *sql.Rows) error {
				reply.Alive = true
				return rows.Scan(&reply.Notice)
			}, beat, id.String(), prev.String(), next.String(), at.clock, at.us, at.wallUS)
		}, beat)
	})
	if errors.Is(err, ErrReplaced) {
		err = fmt.Errorf("%w: %w", driver.ErrLost, err) // nobody will find this session at its path again
	}
	if err != nil {
		return driver.BeatReply{}, err
	}
	return reply, nil
}

// life is what decides about a session.
type life struct {
	id         string
	ttl        time.Duration
	beat, died stamp
	dead       bool
}

func scanLife(rows *sql.Rows) (l life, err error) {
	var ttlUS int64
	err = rows.Scan(&l.id, &ttlUS, &l.beat.clock, &l.beat.us, &l.beat.wallUS, &l.dead, &l.died.clock, &l.died.us, &l.died.wallUS)
	l.ttl = time.Duration(ttlUS) * time.Microsecond
	return l, err
}

// Reap marks sessions dead and tells the fate of others, see driver.Store.
func (s *Store) Reap(ctx context.Context, ids, certified []driver.ID, care driver.Caution) (map[driver.ID]driver.Fate, error) {
	fates := make(map[driver.ID]driver.Fate, len(ids)+len(certified))
	gone := make(map[string]bool, len(certified))
	var asked []string
	for _, id := range ids {
		fates[id] = driver.Fate{}
		asked = append(asked, id.String())
	}
	for _, id := range certified {
		fates[id] = driver.Fate{}
		asked = append(asked, id.String())
		gone[id.String()] = true
	}
	if len(asked) == 0 {
		return fates, nil
	}
	err := s.call(ctx, func() error {
		return s.beats.write(ctx, func(t *transaction) error {
			now := s.now()
			var lives []life
			if err := t.query(func(rows *sql.Rows) error {
				l, err := scanLife(rows)
				lives = append(lives, l)
				return err
			}, stamps, jsonOf(asked)); err != nil {
				return err
			}
			for _, l := range lives {
				id, err := driver.ParseID(l.id)
				if err != nil {
					return err
				}
				if fates[id], err = l.reap(t, now, gone[l.id], care); err != nil {
					return err
				}
			}
			return nil
		}, stamps, markDead, restamp)
	})
	if err != nil {
		return nil, err
	}
	return fates, nil
}

// reap decides about one session under the write lock, so that no beat can come between.
func (l life) reap(t *transaction, now stamp, certain bool, care driver.Caution) (driver.Fate, error) {
	if l.dead {
		return driver.Fate{Kind: driver.FateDead}, nil
	}
	elapsed, sameClock := now.since(l.beat)
	proof := driver.Caution{Known: care.Known} // CLOCK_BOOTTIME cannot step
	if !sameClock {
		proof = driver.Caution{Known: 1, Low: care.Low} // patiently: this clock is a stranger's
	}
	silence, ok := proof.Silence(l.ttl, now.wallUS)
	most, _ := driver.Caution{Known: care.Known}.Silence(l.ttl, 0)
	switch {
	case certain || ok && elapsed >= silence:
		_, err := t.exec(markDead, l.id, now.clock, now.us, now.wallUS)
		return driver.Fate{Kind: driver.FateDead}, err
	case elapsed < 0: // the clock stepped back: count from now, on this process's clock
		_, err := t.exec(restamp, l.id, now.clock, now.us, now.wallUS)
		return driver.Fate{Kind: driver.FateAlive, Left: most, TTL: l.ttl}, err
	case !ok:
		return driver.Fate{Kind: driver.FateAlive, Left: l.ttl, TTL: l.ttl}, nil
	}
	return driver.Fate{Kind: driver.FateAlive, Left: min(silence-elapsed, most), TTL: l.ttl}, nil
}

// Leave marks a session dead, see driver.Store.
func (s *Store) Leave(ctx context.Context, id driver.ID) error {
	return s.call(ctx, func() error {
		return s.beats.write(ctx, func(t *transaction) error {
			now := s.now()
			_, err := t.exec(markDead, id.String(), now.clock, now.us, now.wallUS)
			return err
		}, markDead)
	})
}

// Notify raises a session's notice counter, see driver.Store.
func (s *Store) Notify(ctx context.Context, id driver.ID) error {
	return s.call(ctx, func() error {
		_, err := s.beats.exec(ctx, notify, id.String())
		return err
	})
}

// Sessions reads session rows, see driver.Store.
func (s *Store) Sessions(ctx context.Context, ids []driver.ID) (sessions []driver.Session, err error) {
	if len(ids) == 0 {
		return nil, nil
	}
	asked := make([]string, len(ids))
	for i, id := range ids {
		asked[i] = id.String()
	}
	now := s.now()
	err = s.call(ctx, func() error {
		return s.reads.query(ctx, func(rows *sql.Rows) error {
			n, err := scanSession(rows, now)
			sessions = append(sessions, n)
			return err
		}, sessionsByID, jsonOf(asked))
	})
	if err != nil {
		return nil, err
	}
	return sessions, nil
}

func scanSession(rows *sql.Rows, now stamp) (n driver.Session, err error) {
	var id, nonce string
	var ttlUS, started int64
	var beat stamp
	if err := rows.Scan(&id, &nonce, &ttlUS, &n.Label, &n.Host, &n.PID, &n.Program,
		&n.Local.Boot, &n.Local.PIDNS, &n.Local.TimeNS, &n.Local.PID, &started,
		&beat.clock, &beat.us, &beat.wallUS, &n.Dead); err != nil {
		return n, err
	}
	if n.ID, err = driver.ParseID(id); err != nil {
		return n, err
	}
	if n.Nonce, err = driver.ParseID(nonce); err != nil {
		return n, err
	}
	n.TTL = time.Duration(ttlUS) * time.Microsecond
	n.Local.Started = uint64(started)
	elapsed, _ := now.since(beat)
	n.Silent = max(elapsed, 0)
	return n, nil
}

// Prune deletes what nobody needs any more, see driver.Store.
func (s *Store) Prune(ctx context.Context, p driver.Pruning) (deleted int, err error) {
	most := p.Max
	if most <= 0 {
		most = driver.MaxBatch
	}
	err = s.call(ctx, func() error {
		n, err := s.writes.exec(ctx, pruneRecords, p.Before, most)
		if err != nil {
			return err
		}
		m, err := s.pruneSessions(ctx, p.Silent, most)
		deleted = int(n) + m
		return err
	})
	return deleted, err
}

func (s *Store) pruneSessions(ctx context.Context, silent time.Duration, most int) (deleted int, err error) {
	err = s.beats.write(ctx, func(t *transaction) error {
		now := s.now()
		var lives []life
		if err := t.query(func(rows *sql.Rows) error {
			l, err := scanLife(rows)
			lives = append(lives, l)
			return err
		}, allStamps); err != nil {
			return err
		}
		deleted = 0
		marked := 0
		for _, l := range lives {
			switch {
			case l.dead && deleted < most:
				if elapsed, _ := now.since(l.died); elapsed < silent {
					continue
				}
				n, err := t.exec(deleteSession, l.id)
				if err != nil {
					return err
				}
				deleted += int(n)
			case !l.dead && marked < most:
				elapsed, sameClock := now.since(l.beat)
				patience := l.ttl
				if !sameClock {
					patience *= 2
				}
				if elapsed < max(silent, patience) {
					continue
				}
				if _, err := t.exec(markDead, l.id, now.clock, now.us, now.wallUS); err != nil {
					return err
				}
				marked++
			}
		}
		return nil
	}, allStamps, markDead, deleteSession)
	if err != nil {
		return 0, err
	}
	return deleted, nil
}
