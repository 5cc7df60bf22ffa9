package holdsqlite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfastdb/holdfast/driver"
)

// DefaultTablePrefix begins the names of the tables unless Options says otherwise.
const DefaultTablePrefix = "holdfast_"

// Options adjusts a store. The zero value and nil are fine.
type Options struct {
	// TablePrefix begins the names of the tables; it matches [a-z][a-z0-9_]*, at most 40 bytes. Stores with different
	// prefixes have nothing to do with each other. Default: DefaultTablePrefix.
	TablePrefix string
}

// Store keeps locks in one SQLite file. It is safe for concurrent use.
type Store struct {
	path, dir string
	prefix    string
	clock     string

	// One connection each, so that none of these waits for another in the queue of this process: beats, releases and
	// cancels, the other changes, those that must survive a power cut, and reads, which never wait for a writer.
	beats, urgent, writes, durable, reads *lane

	guarded atomic.Int64 // when the last long guarded transaction ended, in nanoseconds since opened
	opened  time.Time

	file   atomic.Pointer[os.FileInfo] // the file as first opened
	known  atomic.Bool                 // the schema's version has been checked
	closed atomic.Bool
	once   sync.Once
	err    error // of Close, set once
}

// The optional interfaces a store of one machine has.
var (
	_ driver.Store       = (*Store)(nil)
	_ driver.Floor       = (*Store)(nil)
	_ driver.SameMachine = (*Store)(nil)
)

// Open returns a store on the SQLite file at path, which is made absolute and freed of symbolic links at once, so that
// processes with other working directories mean the same file. Open looks at the file system, and refuses with ErrPath
// or ErrNetworkFile what cannot hold locks; the database itself is opened by the first call, and created by Setup
// alone. Close the store when its client is closed.
func Open(path string, opts *Options) (*Store, error) {
	if opts == nil {
		opts = &Options{}
	}
	prefix := opts.TablePrefix
	if prefix == "" {
		prefix = DefaultTablePrefix
	}
	if !regexp.MustCompile(`^[a-z][a-z0-9_]{0,39}$`).MatchString(prefix) {
		return nil, fmt.Errorf("holdsqlite: open %q: the table prefix %q must be a lower-case letter and up to 39 of a-z, 0-9, _", path, prefix)
	}
	real, err := resolve(path)
	if err == nil {
		err = checkLocal(filepath.Dir(real))
	}
	if err != nil {
		return nil, fmt.Errorf("holdsqlite: open %q: %w", path, err)
	}
	s := &Store{path: real, dir: filepath.Dir(real), prefix: prefix, clock: clockName(driver.Here()), opened: time.Now()}
	// NORMAL is enough for what dies with the machine's processes, and ten times as fast; see the package comment.
	pen := make(chan struct{}, 1)
	for _, l := range []struct {
		lane        **lane
		pen         chan struct{}
		synchronous string
	}{
		{&s.beats, pen, "NORMAL"}, {&s.urgent, pen, "NORMAL"}, {&s.writes, pen, "NORMAL"}, {&s.durable, pen, "FULL"},
		{&s.reads, nil, "NORMAL"},
	} {
		if *l.lane, err = newLane(s, l.pen, l.synchronous); err != nil {
			return nil, errors.Join(err, s.Close())
		}
	}
	return s, nil
}

// Path is the absolute path of the file, without symbolic links.
func (s *Store) Path() string { return s.path }

// Close waits for the calls in flight and closes the file. Later calls fail with ErrClosed. It is idempotent.
func (s *Store) Close() error {
	s.once.Do(func() {
		s.closed.Store(true)
		var errs []error
		for _, l := range []*lane{s.beats, s.urgent, s.writes, s.durable, s.reads} {
			if l != nil {
				errs = append(errs, l.close())
			}
		}
		s.err = errors.Join(errs...)
	})
	return s.err
}

// SameMachine reports that all clients of the file run on this machine.
func (s *Store) SameMachine() bool { return true }

// Commit writes one small row with the durability of an ordinary change.
func (s *Store) Commit(ctx context.Context) error {
	return s.call(ctx, func() error {
		_, err := s.writes.exec(ctx, commitOne)
		return err
	})
}

// call wraps what every call has in common. The file is looked at after the work: what was done to a file that is no
// longer the one at the path has not been done at all, for other processes cannot see it.
func (s *Store) call(ctx context.Context, work func() error) error {
	if s.closed.Load() {
		return notApplied(ErrClosed)
	}
	if err := ctx.Err(); err != nil {
		return notApplied(err)
	}
	if !s.known.Load() {
		if err := s.checkSchema(ctx); err != nil {
			return s.explain(err)
		}
	}
	if err := work(); err != nil {
		return s.explain(err)
	}
	return s.sameFile(os.Stat(s.path))
}

// sameFile compares what os.Stat said of the path with the file that the store began with. Looking is all that is
// allowed: opening and closing the file would drop SQLite's locks on it.
func (s *Store) sameFile(now os.FileInfo, err error) error {
	first := s.file.Load()
	switch {
	case err != nil && first == nil:
		return err
	case err != nil:
		return fmt.Errorf("%w (%w)", ErrReplaced, err)
	case first == nil:
		os.SameFile(now, now) // Windows looks at the path at the first comparison, which has to be now
		if !s.file.CompareAndSwap(nil, &now) {
			return s.sameFile(now, nil)
		}
		return nil
	case !os.SameFile(*first, now):
		return fmt.Errorf("%w (%s is another file now)", ErrReplaced, s.path)
	}
	return nil
}
