package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/driver"
	"github.com/holdfastdb/holdfast/openurl"
)

// Exit statuses, after sysexits(3), flock(1) and what a POSIX shell does. A child's own status and 128 + the number of a
// signal come beside them.
const (
	statusBusy        = 1   // the lock is held, or the wait ran out; show: no record; break: somebody did not give way
	statusUsage       = 64  // EX_USAGE
	statusCannotPrint = 74  // EX_IOERR: stdout cannot be written
	statusUnavailable = 69  // EX_UNAVAILABLE: the database cannot be opened, reached or used
	statusLost        = 76  // EX_PROTOCOL: the lease was lost or broken while the command ran
	statusCannotRun   = 126 // the command was found, but cannot be run
	statusNotFound    = 127 // there is no such command
	statusSignal      = 128 // plus the number of the signal
)

// openTimeout bounds opening the database and creating its tables.
const openTimeout = 15 * time.Second

// invocation is one call of the program, and all it knows of the world.
type invocation struct {
	args, env             []string
	stdin, stdout, stderr *os.File
	url                   string        // --url, else HOLDFAST_URL, else empty
	urlSource             func() string // which of the two; empty: neither
}

// Main is the program: it does what args (args[0] is the program's own name) say and returns the exit status. ctx ends
// whatever it waits for. While run has a child, Main reaps every child of the process and handles its signals, so run is
// for a process of its own.
func Main(ctx context.Context, args, env []string, stdin, stdout, stderr *os.File) int {
	inv := &invocation{args: args, env: env, stdin: stdin, stdout: stdout, stderr: stderr}
	out := &printer{Writer: stdout}
	root := inv.command(out)
	root.SetArgs(args[1:])
	err := root.ExecuteContext(ctx)
	if err == nil {
		err = printed(out.err)
	}
	if err == nil {
		return 0
	}
	var end *ending
	if !errors.As(err, &end) { // cobra's own, about commands, flags and the number of arguments
		end = &ending{statusUsage, err}
	}
	if end.err != nil {
		inv.say("%s", end.err)
	}
	return end.status
}

// ending is a status other than 0, and what is still to be said about it, if anything.
type ending struct {
	status int
	err    error
}

func (e *ending) Error() string { return fmt.Sprintf("exit status %d", e.status) }

// end makes an error the program's ending: wrong arguments are usage, whatever is left to the database is unavailable.
func end(err error) error {
	var already *ending
	var signalled *signalError
	switch {
	case err == nil || errors.As(err, &already):
		return err
	case errors.As(err, &signalled):
		return &ending{statusSignal + int(signalled.Signal), nil}
	case errors.Is(err, holdfast.ErrName), errors.Is(err, holdfast.ErrArgument), errors.Is(err, openurl.ErrURL):
		return &ending{statusUsage, err}
	}
	return &ending{statusUnavailable, err}
}

// command is the tree of commands. What cobra itself prints, help and completions, goes to out.
func (inv *invocation) command(out io.Writer) *cobra.Command {
	root := &cobra.Command{
		Use:   "holdfast",
		Short: "Locks on the database you already run",
		Long: `Holdfast runs a command while it holds a lock, so that it never runs twice at the same time on one machine. This version
does not lock across machines.

The locks live in a database, named by --url, else by HOLDFAST_URL (not shown by ps, so better for passwords; empty counts
as unset), else a SQLite file in your state directory:

  sqlite:PATH   a SQLite file, for the processes of one machine
  mem:          the memory of this one process, for trying things out: it excludes nobody else

The file in your state directory is yours alone. Jobs of several users, or with other values of XDG_STATE_HOME, exclude
each other only if all of them name one file that all can write.

"run" makes the file if it is not there, in a directory that is. "ls", "show" and "break" make nothing: they exit with 69
if there is no database at the URL. Without a URL, and before the first run, they find that nothing is held.`,
		Version:       version(),
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetIn(inv.stdin)
	root.SetOut(out)
	root.SetErr(inv.stderr)
	root.SetVersionTemplate("{{.Version}}\n")
	root.PersistentFlags().StringVar(&inv.url, "url", inv.getenv("HOLDFAST_URL"), "database `URL` (default: HOLDFAST_URL, else a SQLite file)")
	root.PersistentFlags().Lookup("url").DefValue = "" // help must not show a password
	inv.urlSource = func() string {
		switch {
		case root.PersistentFlags().Changed("url"): // --url "$UNSET" must not fall back to another database in silence
			return "--url"
		case inv.url != "":
			return "HOLDFAST_URL"
		}
		return ""
	}
	root.AddCommand(inv.runCommand(), inv.lsCommand(), inv.showCommand(), inv.breakCommand(), inv.versionCommand())
	inv.addGuard(root)
	inv.ownWords(root)
	return root
}

// getenv returns the last value of a variable, as a shell would see it.
func (inv *invocation) getenv(key string) string {
	for i := len(inv.env) - 1; i >= 0; i-- {
		if value, found := strings.CutPrefix(inv.env[i], key+"="); found {
			return value
		}
	}
	return ""
}

// say writes one line to stderr.
func (inv *invocation) say(format string, args ...any) {
	text := strings.TrimPrefix(fmt.Sprintf(format, args...), "holdfast: ")
	fmt.Fprintf(inv.stderr, "holdfast: %s\n", plain(strings.ReplaceAll(text, "\n", "; ")))
}

// connect opens the database, which is created if it is not there, and makes a client of it. done closes both.
func (inv *invocation) connect(ctx context.Context, opts *holdfast.Options) (client *holdfast.Client, done func(), err error) {
	return inv.client(ctx, opts, openurl.Default, openurl.Open)
}

// connectExisting is connect for the commands that look: it creates nothing. If no URL is given and the default file is
// not there, nothing was ever locked, and an empty database tells the same.
func (inv *invocation) connectExisting(ctx context.Context) (client *holdfast.Client, done func(), err error) {
	return inv.client(ctx, nil, openurl.DefaultExisting, func(ctx context.Context, url string) (driver.Store, func() error, error) {
		store, done, err := openurl.OpenExisting(ctx, url)
		if inv.urlSource() == "" && errors.Is(err, openurl.ErrNoDatabase) {
			return openurl.Open(ctx, "mem:")
		}
		return store, done, err
	})
}

type (
	locator func(getenv func(string) string) (url string, err error)
	opener  func(ctx context.Context, url string) (store driver.Store, done func() error, err error)
)

func (inv *invocation) client(ctx context.Context, opts *holdfast.Options, locate locator, open opener) (client *holdfast.Client, done func(), err error) {
	store, closeStore, err := inv.open(ctx, locate, open)
	if err != nil {
		return nil, nil, end(err)
	}
	client = holdfast.New(store, opts)
	return client, func() {
		_ = client.Close(ctx) // always nil
		if err := closeStore(); err != nil {
			inv.say("close the database: %s", err)
		}
	}, nil
}

func (inv *invocation) open(ctx context.Context, locate locator, open opener) (store driver.Store, done func() error, err error) {
	url, source := inv.url, inv.urlSource()
	if source == "" {
		if url, err = locate(inv.getenv); err != nil {
			return nil, nil, fmt.Errorf("open the database: %w: pass --url or set HOLDFAST_URL", err)
		}
	}
	limited, cancel := context.WithTimeoutCause(ctx, openTimeout, fmt.Errorf("it did not answer in %v", openTimeout))
	defer cancel()
	if store, done, err = open(limited, url); err != nil {
		switch cause := context.Cause(limited); {
		case errors.Is(err, openurl.ErrURL):
			return nil, nil, fmt.Errorf("%s: %w", source, err)
		case errors.Is(err, openurl.ErrNoDatabase):
			return nil, nil, err
		case cause != nil:
			err = cause
		}
		return nil, nil, fmt.Errorf("open the database: %w", err)
	}
	return store, done, nil
}

// rehearse runs call on an empty database in memory, so that wrong arguments, of which the library is the judge, are
// refused before the real database is opened or created.
func rehearse(ctx context.Context, opts *holdfast.Options, call func(*holdfast.Client) error) error {
	store, done, err := openurl.Open(ctx, "mem:")
	if err != nil {
		return end(err)
	}
	client := holdfast.New(store, opts)
	err = call(client)
	_ = client.Close(ctx) // always nil
	return end(errors.Join(err, done()))
}
