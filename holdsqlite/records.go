package holdsqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/holdfastdb/holdfast/driver"
)

// Grab takes free names, see driver.Store.
func (s *Store) Grab(ctx context.Context, asks []driver.Ask) (taken []bool, err error) {
	taken = make([]bool, len(asks))
	if len(asks) == 0 {
		return taken, nil
	}
	on := s.writes
	args := make([][]any, len(asks))
	for i, ask := range asks {
		ask.Holder.Rev = ask.Seed
		args[i] = []any{ask.Name, ask.Seed, string(driver.EncodeState([]driver.Entry{ask.Holder}, nil))}
		if outlives(ask.Holder) {
			on = s.durable
		}
	}
	err = s.call(ctx, func() error {
		return on.apply(ctx, taken, []string{grab}, func(i int) (string, []any) { return grab, args[i] })
	})
	if err != nil {
		clear(taken)
	}
	return taken, err
}

// Swap replaces records, see driver.Store. It cannot push, so the signals of the changes are dropped.
func (s *Store) Swap(ctx context.Context, changes []driver.Change) (done []bool, err error) {
	done = make([]bool, len(changes))
	if len(changes) == 0 {
		return done, nil
	}
	on, urgent, durable := s.writes, true, false
	args := make([][]any, len(changes))
	statement := make([]string, len(changes))
	for i, c := range changes {
		free := len(c.Holders) == 0 && len(c.Tickets) == 0
		statement[i] = swap
		args[i] = []any{c.New, free, string(driver.EncodeState(c.Holders, c.Tickets)), c.Name, c.Old}
		if c.Note != nil {
			statement[i] = swapNote
			args[i] = append(args[i], blob(c.Note.Data), c.Note.Token)
		}
		urgent = urgent && c.Urgent
		durable = durable || c.Note != nil || outlives(c.Holders...)
	}
	switch {
	case durable:
		on = s.durable
	case urgent:
		on = s.urgent
	}
	err = s.call(ctx, func() error {
		return on.apply(ctx, done, []string{swap, swapNote}, func(i int) (string, []any) { return statement[i], args[i] })
	})
	if err != nil {
		clear(done)
	}
	return done, err
}

// outlives reports whether an entry stands for more than a process of this machine. Then a power cut must not take its
// write back: the other holders of a name die with the machine, but a MinHold and a detached lease go on.
func outlives(entries ...driver.Entry) bool {
	for _, e := range entries {
		if e.MinHold > 0 || e.Session.IsZero() {
			return true
		}
	}
	return false
}

// blob keeps an empty note apart from none.
func blob(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

// apply runs one statement for each element of applied and notes which changed a row: alone in autocommit mode, several
// in one transaction.
func (l *lane) apply(ctx context.Context, applied []bool, statements []string, at func(i int) (string, []any)) error {
	if len(applied) == 1 {
		statement, args := at(0)
		n, err := l.exec(ctx, statement, args...)
		applied[0] = n == 1
		return err
	}
	return l.write(ctx, func(t *transaction) error {
		for i := range applied {
			statement, args := at(i)
			n, err := t.exec(statement, args...)
			if err != nil {
				return err
			}
			applied[i] = n == 1
		}
		return nil
	}, statements...)
}

// Post appends to an inbox, see driver.Store.
func (s *Store) Post(ctx context.Context, name string, ops []byte, before driver.Micros) (applied bool, err error) {
	err = s.call(ctx, func() error {
		n, err := s.writes.exec(ctx, post, name, string(ops), before, driver.MaxInboxBytes)
		applied = n == 1
		return err
	})
	return applied && err == nil, err
}

// Load reads records, see driver.Store.
func (s *Store) Load(ctx context.Context, known []driver.Known) ([]driver.Record, error) {
	if len(known) == 0 {
		return nil, nil
	}
	pairs := make([][2]any, len(known))
	for i, k := range known {
		pairs[i] = [2]any{k.Name, k.Revision}
	}
	return s.read(ctx, load, jsonOf(pairs))
}

// List reads records by prefix, see driver.Store.
func (s *Store) List(ctx context.Context, q driver.Query) ([]driver.Record, error) {
	most := q.Max
	if most <= 0 || most > driver.PageSize {
		most = driver.PageSize
	}
	return s.read(ctx, list, q.Prefix, []byte(after(q.Prefix)), q.After, q.Busy, q.Before, most)
}

// after is the least string greater than every one with the prefix; empty if there is none.
func after(prefix string) string {
	b := []byte(prefix)
	for i := len(b) - 1; i >= 0; i-- {
		if b[i] < 0xff {
			b[i]++
			return string(b[:i+1])
		}
	}
	return ""
}

func (s *Store) read(ctx context.Context, statement string, args ...any) (records []driver.Record, err error) {
	var damaged []error
	err = s.call(ctx, func() error {
		return s.reads.query(ctx, func(rows *sql.Rows) error {
			r, err := scanRecord(rows)
			var d *driver.DamagedError
			if errors.As(err, &d) {
				damaged = append(damaged, err)
				return nil
			}
			records = append(records, r)
			return err
		}, statement, args...)
	})
	if err != nil {
		return nil, err
	}
	return records, errors.Join(damaged...)
}

// scanRecord takes the columns as they come, since a row edited by hand may hold anything.
func scanRecord(rows *sql.Rows) (driver.Record, error) {
	var name string
	var revision, free, state, inbox, note, token any
	if err := rows.Scan(&name, &revision, &free, &state, &inbox, &note, &token); err != nil {
		return driver.Record{}, err
	}
	r := driver.Record{Name: name}
	if revision == nil && free == nil && state == nil {
		return r, nil // absent
	}
	damaged := func(err error) (driver.Record, error) {
		return driver.Record{}, &driver.DamagedError{Name: name, Err: err}
	}
	var ok bool
	if r.Revision, ok = revision.(int64); !ok || r.Revision < 0 {
		return damaged(fmt.Errorf("revision: %v", revision))
	}
	text, ok := bytesOf(state)
	if !ok {
		return damaged(fmt.Errorf("state: %v", state))
	}
	var err error
	if r.Holders, r.Tickets, err = driver.DecodeState(text); err != nil {
		return damaged(err)
	}
	if r.Inbox, ok = bytesOf(inbox); !ok {
		return damaged(fmt.Errorf("inbox: %v", inbox))
	}
	if len(r.Inbox) == 0 {
		r.Inbox = nil
	}
	if free != boolean(r.Free()) {
		return damaged(fmt.Errorf("free is %v, which its state is not", free))
	}
	if note != nil {
		n := driver.Note{}
		if n.Data, ok = bytesOf(note); !ok {
			return damaged(fmt.Errorf("note: %v", note))
		}
		if n.Token, ok = token.(int64); !ok {
			return damaged(fmt.Errorf("note_token: %v", token))
		}
		r.Note = &n
	}
	return r, nil
}

func boolean(b bool) any {
	if b {
		return int64(1)
	}
	return int64(0)
}

func bytesOf(v any) ([]byte, bool) {
	switch v := v.(type) {
	case []byte:
		return v, true
	case string:
		return []byte(v), true
	}
	return nil, false
}

// jsonOf encodes what cannot fail to encode: lists of valid UTF-8 and numbers.
func jsonOf(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic("holdsqlite: " + err.Error())
	}
	return string(b)
}
