package holdsqlite

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfastdb/holdfast/driver"
)

func TestOpenRefusesPathsThatCannotHoldLocks(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.Symlink("nothing", filepath.Join(dir, "dangling")); err != nil {
		t.Fatal(err)
	}
	for path, says := range map[string]string{
		"":                               "empty",
		":memory:":                       "holdmem",
		"file::memory:?cache=shared":     "holdmem",
		"file:locks.db":                  "URI",
		"FILE:///tmp/locks.db":           "URI",
		"a\x00b":                         "NUL",
		dir:                              "is a directory",
		filepath.Join(dir, "no", "lock"): "directory is not there",
		filepath.Join(dir, "dangling"):   "link to nothing",
		os.DevNull:                       "no regular file",
	} {
		s, err := Open(path, nil)
		if !errors.Is(err, ErrPath) || !strings.Contains(err.Error(), says) {
			t.Errorf("Open(%q) = %v, want ErrPath that says %q", path, err, says)
		}
		if err == nil {
			_ = s.Close()
		}
	}
	if names, _ := filepath.Glob(filepath.Join(dir, "*")); len(names) != 1 {
		t.Errorf("refused paths left %q behind", names)
	}
}

func TestOpenRefusesATablePrefixThatIsNoIdentifier(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "locks.db")
	for _, prefix := range []string{"A", "1a", "_a", "a-b", "a b", "a;drop", "a\n", "ä", strings.Repeat("a", 41)} {
		if _, err := Open(path, &Options{TablePrefix: prefix}); err == nil {
			t.Errorf("Open with prefix %q succeeded", prefix)
		}
	}
	for _, prefix := range []string{"a", "holdfast_", "app2_locks_", strings.Repeat("a", 40)} {
		s, err := Open(path, &Options{TablePrefix: prefix})
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(s.Setup(t.Context()), s.Commit(t.Context()), s.Close()); err != nil {
			t.Errorf("prefix %q: %v", prefix, err)
		}
	}
}

func TestAllWaysToNameAFileMeanOneFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	real := filepath.Join(dir, "odd name?#%20&ä.db")
	link := filepath.Join(dir, "link")
	if err := os.WriteFile(real, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(real, link); err != nil {
		t.Fatal(err)
	}
	cwd, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	relative, err := filepath.Rel(cwd, real)
	if err != nil {
		t.Fatal(err)
	}
	first := open(t, real)
	if err := first.Setup(t.Context()); err != nil {
		t.Fatal(err)
	}
	grant(t, first, "held", joinAs(t, first, time.Minute).ID)
	for _, path := range []string{link, relative, filepath.Join(dir, ".", "x", "..", filepath.Base(real))} {
		s := open(t, path)
		records, err := s.Load(t.Context(), []driver.Known{{Name: "held"}})
		if err != nil || len(records) != 1 || s.Path() != first.Path() {
			t.Errorf("%s: path %s, %d records, %v; want the file %s", path, s.Path(), len(records), err, first.Path())
		}
	}
}

func TestAFileThatIsNoDatabaseIsRefusedAndKept(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "notes.txt")
	content := bytes.Repeat([]byte("these are no locks but notes\n"), 1000)
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	s := open(t, path)
	for name, call := range map[string]func() error{
		"Setup": func() error { return s.Setup(t.Context()) },
		"Join":  func() error { _, err := s.Join(t.Context(), driver.Session{ID: driver.NewID()}); return err },
	} {
		if err := call(); !errors.Is(err, ErrNotDatabase) || s.Classify(err) != driver.FaultPermanent {
			t.Errorf("%s = %v (%v), want ErrNotDatabase, permanent", name, err, s.Classify(err))
		}
	}
	if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, content) {
		t.Errorf("the file was changed (%v)", err)
	}
}

func TestCallsBeforeSetupSaySoAndCreateNothing(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "locks.db")
	s := open(t, path)
	_, err := s.Grab(t.Context(), []driver.Ask{{Name: "n", Seed: 1, Holder: entry(driver.NewID())}})
	if !errors.Is(err, driver.ErrNotSetUp) || s.Classify(err) != driver.FaultPermanent {
		t.Errorf("Grab without a file = %v (%v), want ErrNotSetUp, permanent", err, s.Classify(err))
	}
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Grab made the file (%v)", err)
	}
	// An application's database that was not set up for locks.
	db := raw(t, path)
	run(t, db, `CREATE TABLE orders (id INTEGER)`)
	if err := s.Leave(t.Context(), driver.NewID()); !errors.Is(err, driver.ErrNotSetUp) {
		t.Errorf("Leave without tables = %v, want ErrNotSetUp", err)
	}
	var mode string
	if err := db.QueryRow(`PRAGMA journal_mode`).Scan(&mode); err != nil || mode != "delete" {
		t.Errorf("journal mode %q, %v; want it untouched", mode, err)
	}
	if err := errors.Join(s.Setup(t.Context()), s.Leave(t.Context(), driver.NewID())); err != nil {
		t.Errorf("after Setup: %v", err)
	}
}

func TestANewerSchemaIsRefusedAndKept(t *testing.T) {
	t.Parallel()
	s := fresh(t)
	db := raw(t, s.Path())
	run(t, db, `UPDATE holdfast_meta SET value = ? WHERE key = 'schema'`, schemaVersion+1)
	late := open(t, s.Path())
	for name, err := range map[string]error{
		"Setup": late.Setup(t.Context()), "Commit": late.Commit(t.Context()), "Setup of an open store": s.Setup(t.Context()),
	} {
		if !errors.Is(err, ErrNewerSchema) || late.Classify(err) != driver.FaultPermanent {
			t.Errorf("%s = %v (%v), want ErrNewerSchema, permanent", name, err, late.Classify(err))
		}
	}
	var version int
	if err := db.QueryRow(`SELECT value FROM holdfast_meta WHERE key = 'schema'`).Scan(&version); err != nil || version != schemaVersion+1 {
		t.Errorf("schema %d, %v; want it untouched", version, err)
	}
}

func TestADatabaseInUTF16IsRefused(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "wide.db")
	db := raw(t, path)
	db.SetMaxOpenConns(1)
	run(t, db, `PRAGMA encoding = 'UTF-16le'`)
	run(t, db, `CREATE TABLE t (a)`)
	s := open(t, path)
	if err := s.Setup(t.Context()); !errors.Is(err, ErrPath) || !strings.Contains(fmt.Sprint(err), "UTF-16") {
		t.Errorf("Setup = %v, want ErrPath that says UTF-16", err)
	}
}

func TestAFileDeletedOrReplacedWhileInUseEndsEverything(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(path string) error{
		"deleted": os.Remove,
		"replaced": func(path string) error {
			if err := os.Rename(path, path+".old"); err != nil {
				return err
			}
			return os.WriteFile(path, nil, 0o600)
		},
		"its directory moved": func(path string) error { return os.Rename(filepath.Dir(path), filepath.Dir(path)+".old") },
	} {
		dir := filepath.Join(t.TempDir(), "dir")
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		s := open(t, filepath.Join(dir, "locks.db"))
		if err := s.Setup(t.Context()); err != nil {
			t.Fatal(err)
		}
		session := joinAs(t, s, time.Minute)
		lease := grant(t, s, "held", session.ID)
		db := accounts(t, s)
		if err := spoil(s.Path()); err != nil {
			t.Fatal(err)
		}
		ctx := t.Context()
		calls := map[string]func() error{
			"Beat": func() error { _, err := s.Beat(ctx, session.ID, session.Nonce, session.Nonce); return err },
			"Grab": func() error {
				_, err := s.Grab(ctx, []driver.Ask{{Name: "new", Seed: time.Now().UnixMicro(), Holder: entry(session.ID)}})
				return err
			},
			"Swap": func() error {
				_, err := s.Swap(ctx, []driver.Change{{Name: "held", Old: lease.token, New: lease.token + 1}})
				return err
			},
			"Load":  func() error { _, err := s.Load(ctx, []driver.Known{{Name: "held"}}); return err },
			"Setup": func() error { return s.Setup(ctx) },
			"InTx":  func() error { return InTx(ctx, db, lease, insert) },
		}
		for call, do := range calls {
			if err := do(); !errors.Is(err, ErrReplaced) || s.Classify(err) != driver.FaultPermanent {
				t.Errorf("%s: %s = %v (%v), want ErrReplaced, permanent", name, call, err, s.Classify(err))
			}
		}
	}
}

func TestAfterCloseCallsSayClosed(t *testing.T) {
	t.Parallel()
	s := fresh(t)
	if err := errors.Join(s.Close(), s.Close()); err != nil {
		t.Fatal(err)
	}
	_, loadErr := s.Load(t.Context(), []driver.Known{{Name: "n"}})
	for _, err := range []error{s.Setup(t.Context()), s.Commit(t.Context()), s.Leave(t.Context(), driver.NewID()), loadErr} {
		if !errors.Is(err, ErrClosed) || s.Classify(err) != driver.FaultPermanent {
			t.Errorf("%v (%v), want ErrClosed, permanent", err, s.Classify(err))
		}
	}
}

func TestAFullFileRefusesWithoutLossAndHeals(t *testing.T) {
	t.Parallel()
	s := fresh(t)
	limit := func(pages int) { // of the connections; SQLite takes what there is for the least
		for _, l := range []*lane{s.writes, s.durable} {
			if _, err := l.db.Exec(fmt.Sprintf(`PRAGMA max_page_count = %d`, pages)); err != nil {
				t.Fatal(err)
			}
		}
	}
	checkFull(t, s, func() { limit(1) }, func() { limit(1 << 30) }, nil)
}

// checkFull fills and empties a disk under a store with a held lease.
func checkFull(t *testing.T, s *Store, fill, empty func(), whileFull func(session driver.Session)) {
	t.Helper()
	session := joinAs(t, s, time.Minute)
	lease := grant(t, s, "held", session.ID)
	grab := func(name string) error {
		h := entry(session.ID)
		h.Label = strings.Repeat("x", driver.MaxLabelBytes)
		_, err := s.Grab(t.Context(), []driver.Ask{{Name: name, Seed: time.Now().UnixMicro(), Holder: h}})
		return err
	}
	fill()
	var err error
	for i := 0; i < 1000 && err == nil; i++ {
		err = grab(fmt.Sprint("filler ", i))
	}
	if !errors.Is(err, ErrDiskFull) || s.Classify(err) != driver.FaultPermanent {
		t.Errorf("Grab = %v (%v), want ErrDiskFull, permanent", err, s.Classify(err))
	}
	if whileFull != nil {
		whileFull(session)
	}
	stillHeld(t, s, lease)
	empty()
	if err := grab("after"); err != nil {
		t.Errorf("Grab after room was made = %v", err)
	}
	if r, err := s.Beat(t.Context(), session.ID, session.Nonce, session.Nonce); err != nil || !r.Alive {
		t.Errorf("Beat after room was made = %+v, %v", r, err)
	}
	stillHeld(t, s, lease)
}

// stillHeld checks that a lease taken before a refusal is there.
func stillHeld(t *testing.T, s *Store, lease *fakeLease) {
	t.Helper()
	records, err := s.Load(t.Context(), []driver.Known{{Name: lease.name}})
	if err != nil || len(records) != 1 || len(records[0].Holders) != 1 || records[0].Holders[0].Lease != lease.id {
		t.Errorf("%+v, %v; want the lease held as before", records, err)
	}
}
