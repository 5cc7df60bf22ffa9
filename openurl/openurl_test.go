package openurl

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/holdfastdb/holdfast/driver"
	"github.com/holdfastdb/holdfast/holdmem"
	"github.com/holdfastdb/holdfast/holdsqlite"
)

func TestOpenGivesTheBackendItselfSetUp(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	urls := map[string]string{
		"sqlite:" + filepath.Join(dir, "a.db"):   "a.db",
		"SQLite:" + filepath.Join(dir, "b:%.db"): "b:%.db", // literally
	}
	if runtime.GOOS != "windows" {
		urls["sqlite://"+filepath.Join(dir, "c.db")] = "c.db"
	}
	for url, file := range urls {
		store, done, err := Open(t.Context(), url)
		if err != nil {
			t.Errorf("%s: %v", url, err)
			continue
		}
		if _, ok := store.(*holdsqlite.Store); !ok {
			t.Errorf("%s: a %T hides what the backend can do", url, store)
		}
		if _, err := store.Load(t.Context(), []driver.Known{{Name: "x"}}); err != nil {
			t.Errorf("%s: not set up: %v", url, err)
		}
		if _, err := os.Stat(filepath.Join(dir, file)); err != nil {
			t.Errorf("%s: %v", url, err)
		}
		if err := done(); err != nil {
			t.Errorf("%s: close: %v", url, err)
		}
	}
	store, done, err := Open(t.Context(), "mem:")
	if _, ok := store.(*holdmem.Store); !ok || err != nil {
		t.Errorf("mem: %T, %v", store, err)
	} else if err := done(); err != nil {
		t.Errorf("mem: close: %v", err)
	}
}

func TestARelativePathIsOfTheWorkingDirectory(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	_, done, err := Open(t.Context(), "sqlite:r.db")
	if err != nil {
		t.Fatal(err)
	}
	if err := done(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "r.db")); err != nil {
		t.Error(err)
	}
}

func TestABadURLIsErrURLAndNeverShown(t *testing.T) {
	t.Parallel()
	for _, url := range []string{
		"", "hunter2", "hunter2.db", "/var/hunter2.db", "me hunter2:x", ":hunter2", "mem:hunter2", "sqlite:", "sqlite://hunter2.db",
		"sqlite:hunter2.db?mode=ro", "oracle://me:hunter2@host/db", "postgres://me:hunter2@host/db",
		"mysql://me:hunter2@host/db", "mongodb://me:hunter2@host/db", "mongodb+srv://me:hunter2@host/db",
	} {
		store, done, err := Open(t.Context(), url)
		if !errors.Is(err, ErrURL) || store != nil || done != nil {
			t.Errorf("%q: %v, want ErrURL and nothing open", url, err)
			continue
		}
		if text := err.Error(); strings.Contains(text, "hunter2") || !strings.Contains(text, "sqlite:") && !strings.Contains(text, "mem:") {
			t.Errorf("%q: %q shows the URL, or no way out", url, text)
		}
	}
}

func TestADatabaseThatCannotBeOpenedIsNotErrURLAndLeavesNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	text := filepath.Join(dir, "text")
	if err := os.WriteFile(text, []byte(strings.Repeat("no database ", 100)), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{dir, text, filepath.Join(dir, "no", "such.db")} {
		if _, _, err := Open(t.Context(), "sqlite:"+path); err == nil || errors.Is(err, ErrURL) {
			t.Errorf("%s: %v, want an error of the database", path, err)
		}
	}
	if files, err := os.ReadDir(dir); len(files) != 1 || err != nil {
		t.Errorf("something was created: %v, %v", files, err)
	}
}

func TestOpenExistingCreatesNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	empty := filepath.Join(dir, "empty.db")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{filepath.Join(dir, "a.db"), filepath.Join(dir, "no", "such.db"), empty} {
		store, done, err := OpenExisting(t.Context(), "sqlite:"+path)
		if !errors.Is(err, ErrNoDatabase) || store != nil || done != nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v, want ErrNoDatabase with the path, and nothing open", path, err)
		}
	}
	if files, err := os.ReadDir(dir); len(files) != 1 || err != nil {
		t.Errorf("something was created: %v, %v", files, err)
	}
	if _, _, err := OpenExisting(t.Context(), "sqlite:"+dir); err == nil || errors.Is(err, ErrNoDatabase) {
		t.Errorf("a directory: %v, want another error than ErrNoDatabase", err)
	}
	if _, _, err := OpenExisting(t.Context(), "oracle://x"); !errors.Is(err, ErrURL) {
		t.Errorf("a bad URL: %v, want ErrURL", err)
	}
}

func TestOpenExistingOpensWhatOpenHasMade(t *testing.T) {
	t.Parallel()
	file := "sqlite:" + filepath.Join(t.TempDir(), "a.db")
	if _, done, err := Open(t.Context(), file); err != nil {
		t.Fatal(err)
	} else if err := done(); err != nil {
		t.Fatal(err)
	}
	for _, url := range []string{file, "mem:"} {
		store, done, err := OpenExisting(t.Context(), url)
		if err != nil {
			t.Errorf("%s: %v", url, err)
			continue
		}
		if _, err := store.Load(t.Context(), []driver.Known{{Name: "x"}}); err != nil {
			t.Errorf("%s: %v", url, err)
		}
		if err := done(); err != nil {
			t.Errorf("%s: close: %v", url, err)
		}
	}
}

func TestTheStateDirectoryIsTheSystems(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		goos string
		env  map[string]string
		want string // empty: ErrURL
	}{
		{"linux", map[string]string{"HOME": "/home/me"}, "/home/me/.local/state"},
		{"linux", map[string]string{"HOME": "/home/me", "XDG_STATE_HOME": "/state"}, "/state"},
		{"linux", map[string]string{"HOME": "/home/me", "XDG_STATE_HOME": "relative"}, "/home/me/.local/state"},
		{"linux", map[string]string{"XDG_STATE_HOME": "/state"}, "/state"},
		{"darwin", map[string]string{"HOME": "/Users/me"}, "/Users/me/Library/Application Support"},
		{"windows", map[string]string{"LocalAppData": `C:\Users\me\AppData\Local`}, `C:\Users\me\AppData\Local`},
		{"linux", nil, ""},
		{"linux", map[string]string{"HOME": "relative"}, ""},
		{"darwin", nil, ""},
		{"windows", nil, ""},
	} {
		got, err := stateDir(c.goos, func(key string) string { return c.env[key] })
		if filepath.ToSlash(got) != filepath.ToSlash(c.want) || errors.Is(err, ErrURL) != (c.want == "") {
			t.Errorf("%s, %v: %q, %v; want %q", c.goos, c.env, got, err, c.want)
		}
	}
}

func TestDefaultMakesADirectoryForTheUserAlone(t *testing.T) {
	t.Parallel()
	home := filepath.Join(t.TempDir(), "new")
	getenv := func(key string) string {
		return map[string]string{"XDG_STATE_HOME": home, "LocalAppData": home}[key]
	}
	existing, err := DefaultExisting(getenv)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(home); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("DefaultExisting made the directory: %v", err)
	}
	url, err := Default(getenv)
	if existing != url {
		t.Errorf("DefaultExisting is %q, want that of Default, %q", existing, url)
	}
	dir := filepath.Join(home, "holdfast")
	if want := "sqlite:" + filepath.Join(dir, "holdfast.db"); url != want || err != nil {
		t.Fatalf("%q, %v; want %q", url, err, want)
	}
	fi, err := os.Stat(dir)
	if err != nil {
		t.Fatal(err)
	}
	if runtime.GOOS != "windows" && fi.Mode().Perm() != 0o700 {
		t.Errorf("mode %v, want 0700", fi.Mode().Perm())
	}
	if _, err := os.Stat(filepath.Join(dir, "holdfast.db")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the file is made by Open: %v", err)
	}
}
