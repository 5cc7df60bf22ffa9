package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/driver"
)

// runOptions are the flags of run.
type runOptions struct {
	noWait, shared, verbose            bool
	wait, ttl, maxHold, minHold, grace duration
	permits                            permits
	conflict                           exitStatus
	label                              string
}

func (inv *invocation) runCommand() *cobra.Command {
	o := &runOptions{conflict: statusBusy}
	cmd := &cobra.Command{
		Use:   "run [flags] NAME [--] CMD [ARG...]",
		Short: "Run a command while holding a lock",
		Long:  runHelp,
		Args:  runArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			args = withoutDashes(args)
			return inv.run(cmd.Context(), o, args[0], args[1:])
		},
	}
	f := cmd.Flags()
	f.SetInterspersed(false) // options end at NAME: what follows belongs to CMD
	f.BoolVarP(&o.noWait, "no-wait", "n", false, "do not wait: fail at once if the lock is held")
	f.VarP(&o.wait, "wait", "w", "wait so long at most, as in 1.5 (seconds) or 90s; 0: do not wait")
	f.BoolVarP(&o.shared, "shared", "s", false, "hold the lock as one of any number of readers")
	f.Var(&o.permits, "permits", "hold N of K permits instead of the whole")
	f.VarP(&o.conflict, "conflict-exit-code", "E", "exit status if the lock was held, or the wait ran out")
	f.Var(&o.ttl, "ttl", "how long the lock stays taken when holdfast cannot renew it (it hangs, is stopped, cannot reach the database), 1s to 1h (default 15s)")
	f.Var(&o.maxHold, "max-hold", "end CMD so long after the lock was taken")
	f.Var(&o.minHold, "min-hold", "keep the lock at least so long after it was taken, though CMD ends earlier")
	f.Var(&o.grace, "grace", "time between TERM and KILL when the lock is lost; default and most: a twentieth of --ttl, at least 50ms")
	f.StringVar(&o.label, "label", "", "what others see as the holder (default: the name of CMD)")
	f.BoolVarP(&o.verbose, "verbose", "v", false, "say what is waited for, who holds it, and when it was acquired")
	return cmd
}

const runHelp = `Run CMD while holding the lock NAME, waiting for it first come, first served. Options come before NAME: what follows
NAME is CMD. A program of the Go library finds its name under NAME too, with its Namespace and a slash before it.

CMD is looked up before the lock is taken. It inherits stdin, stdout and stderr, runs in a process group of its own, and
finds HOLDFAST_NAME, HOLDFAST_TOKEN (the fencing token) and HOLDFAST_LEASE in its environment. HUP, INT, QUIT, TERM,
USR1, USR2 and WINCH are forwarded to the group; while still waiting they end the wait (WINCH does not).

The lock is held until every process of the group is gone, like a lock of flock(1) that they inherit. A daemon that is
not to keep it leaves the group, as by setsid(1).

A lock is not re-entrant. A run inside a run of the same NAME, which would wait for itself, exits with 64 at once; readers
inside readers (-s), and permits that fit beside those of the outer run, are fine.

If the lock is lost (the database was out of reach for too long, or somebody broke it) the group gets TERM, and KILL
after --grace, before anybody else can hold the lock.

Exit status:
  CMD's own, or 128 + N if it died of signal N, or if signal N ended the wait
  1    the lock was held, or the wait ran out (-E sets another number)
  64   usage
  69   the database cannot be opened, reached or used
  76   the lock was lost or broken while CMD ran, whatever CMD's own status
  126  CMD cannot be run
  127  CMD was not found`

// runArgs wants NAME and CMD. A CMD that looks like an option is most likely one that came too late; one that is really
// called so can stand after the --.
func runArgs(cmd *cobra.Command, args []string) error {
	switch {
	case len(args) > 1 && args[1] != "--" && strings.HasPrefix(args[1], "-"):
		return usage("run: %q stands after NAME, where CMD begins: options come before NAME, as in: holdfast run -n backup -- ./backup.sh", args[1])
	case len(withoutDashes(args)) < 2:
		return usage("run: want NAME and CMD, as in: holdfast run backup -- ./backup.sh")
	}
	return checkName(cmd, args[0])
}

// withoutDashes takes out the -- that may stand after NAME.
func withoutDashes(args []string) []string {
	if len(args) > 1 && args[1] == "--" {
		return slices.Delete(slices.Clone(args), 1, 2)
	}
	return args
}

func (inv *invocation) run(ctx context.Context, o *runOptions, name string, argv []string) error {
	opts := &holdfast.Options{TTL: o.ttl.d, Label: o.label}
	err := o.check()
	if err == nil {
		err = rehearse(ctx, opts, func(c *holdfast.Client) error { _, err := o.try(ctx, c, name); return err })
	}
	if err != nil {
		return err
	}
	path, err := lookup(argv[0], inv.getenv("PATH"))
	if err != nil {
		return err
	}
	if opts.Label == "" {
		opts.Label = defaultLabel(argv[0])
	}
	if most := o.mostGrace(); o.grace.d > most {
		inv.say("run: --grace %s is cut to %s, a twentieth of --ttl, by when the lock may be another's", short(o.grace.d), short(most))
	}

	signals := catch()
	defer signals.stop()
	waiting, stop := signals.endOnSignal(ctx)
	defer stop()
	var client *holdfast.Client
	var tellers sync.WaitGroup
	defer tellers.Wait()
	if o.verbose {
		opts.Events = &holdfast.Events{Waiting: func(name string) {
			tellers.Go(func() { inv.tellWaiting(waiting, client, name) })
		}}
	}
	client, done, err := inv.connect(waiting, opts)
	if err != nil {
		return signalled(waiting, err)
	}
	defer done()
	if err := inv.refuseNested(waiting, o, client, name); err != nil {
		return signalled(waiting, err)
	}
	lease, err := inv.acquire(waiting, o, client, name)
	stop()
	if lease != nil && !errors.Is(context.Cause(waiting), context.Canceled) {
		err = context.Cause(waiting) // a signal came just as the lock did: the child does not start
		if released := lease.Release(ctx); released != nil {
			inv.say("%s", released)
		}
	}
	if err != nil {
		return signalled(waiting, err)
	}
	if o.verbose {
		inv.say("acquired %q, token %d", name, lease.Token())
	}
	return inv.hold(ctx, lease, &job{
		path: path, argv: argv, env: inv.childEnv(lease),
		stdin: inv.stdin, stdout: inv.stdout, stderr: inv.stderr,
		lease: lease, signals: signals.all, grace: o.patience(), say: inv.say, verbose: o.verbose,
	})
}

// check refuses, by the names of the flags, what the library would refuse by its own.
func (o *runOptions) check() error {
	ttl := o.sessionTTL()
	switch {
	case o.shared && o.permits.limit > 0:
		return usage("run: --shared and --permits exclude each other")
	case o.noWait && o.wait.set:
		return usage("run: --no-wait and --wait exclude each other")
	case ttl < holdfast.MinTTL || ttl > holdfast.MaxTTL: // 0 too, which for the library is the default
		return usage("run: --ttl is %s to %s, not %s", short(holdfast.MinTTL), short(holdfast.MaxTTL), short(ttl))
	case o.maxHold.set && o.maxHold.d < ttl:
		return usage("run: --max-hold %s is shorter than --ttl, %s", short(o.maxHold.d), short(ttl))
	case len(o.label) > driver.MaxLabelBytes || !utf8.ValidString(o.label):
		return usage("run: --label is at most %d bytes of UTF-8", driver.MaxLabelBytes)
	}
	return nil
}

// sessionTTL is --ttl or its default.
func (o *runOptions) sessionTTL() time.Duration {
	if o.ttl.set {
		return o.ttl.d
	}
	return holdfast.DefaultTTL
}

// options are those of the one call.
func (o *runOptions) options() []holdfast.Option {
	var opts []holdfast.Option
	if o.maxHold.set {
		opts = append(opts, holdfast.MaxHold(o.maxHold.d))
	}
	if o.minHold.set {
		opts = append(opts, holdfast.MinHold(o.minHold.d))
	}
	return opts
}

func (o *runOptions) try(ctx context.Context, c *holdfast.Client, name string) (*holdfast.Lease, error) {
	switch {
	case o.permits.limit > 0:
		return c.Semaphore(name, o.permits.limit).TryAcquire(ctx, o.permits.n, o.options()...)
	case o.shared:
		return c.TryRLock(ctx, name, o.options()...)
	}
	return c.TryLock(ctx, name, o.options()...)
}

func (o *runOptions) await(ctx context.Context, c *holdfast.Client, name string) (*holdfast.Lease, error) {
	switch {
	case o.permits.limit > 0:
		return c.Semaphore(name, o.permits.limit).Acquire(ctx, o.permits.n, o.options()...)
	case o.shared:
		return c.RLock(ctx, name, o.options()...)
	}
	return c.Lock(ctx, name, o.options()...)
}

// patience is the time between TERM and KILL. The lease ends for its holder a margin before others may have it, and the
// group must be gone by then: half the margin is for dying.
func (o *runOptions) patience() time.Duration {
	half := o.mostGrace()
	if o.grace.set {
		return min(o.grace.d, half)
	}
	return half
}

func (o *runOptions) mostGrace() time.Duration {
	return max(o.sessionTTL()/10, 100*time.Millisecond) / 2
}

// acquire takes the lock; an error is the program's ending but for a signal's.
func (inv *invocation) acquire(ctx context.Context, o *runOptions, c *holdfast.Client, name string) (*holdfast.Lease, error) {
	if !o.waits() {
		lease, err := o.try(ctx, c, name)
		return lease, o.refused(err)
	}
	limited := ctx
	if o.wait.set {
		var cancel context.CancelFunc
		limited, cancel = context.WithTimeout(ctx, o.wait.d)
		defer cancel()
	}
	lease, err := o.await(limited, c, name)
	if err != nil && o.wait.set && limited.Err() != nil && ctx.Err() == nil {
		return nil, &ending{int(o.conflict), inv.ranOut(ctx, o, c, name, err)}
	}
	return lease, o.refused(err)
}

func (o *runOptions) refused(err error) error {
	if errors.Is(err, holdfast.ErrHeld) || errors.Is(err, holdfast.ErrFull) {
		return &ending{int(o.conflict), err}
	}
	return err
}

// ranOut says who still held the name when the wait was over; err if nobody can tell.
func (inv *invocation) ranOut(ctx context.Context, o *runOptions, c *holdfast.Client, name string, err error) error {
	rec, lookErr := inspect(ctx, c, name)
	if lookErr != nil {
		return err
	}
	return fmt.Errorf("waited %v: %s", o.wait.d, taken(name, rec))
}

// inspect looks at a name for a message, and not for long.
func inspect(ctx context.Context, c *holdfast.Client, name string) (*holdfast.Record, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	return c.Inspect(ctx, name)
}

// taken says who holds a name and how many others wait for it.
func taken(name string, rec *holdfast.Record) string {
	others := slices.DeleteFunc(slices.Clone(rec.Waiters), func(w holdfast.Waiter) bool { return w.Here })
	held := &holdfast.HeldError{Name: name, Holders: rec.Holders, Waiting: len(others)}
	return strings.TrimPrefix(held.Error(), "holdfast: ")
}

// tellWaiting says what is waited for, unless the wait is over by then.
func (inv *invocation) tellWaiting(ctx context.Context, c *holdfast.Client, name string) {
	rec, err := inspect(ctx, c, name)
	switch {
	case ctx.Err() != nil:
	case err != nil:
		inv.say("waiting for %q", name)
	default:
		inv.say("waiting: %s", taken(name, rec))
	}
}

// hold runs the job and gives the lock back once every process of it is gone.
func (inv *invocation) hold(ctx context.Context, lease *holdfast.Lease, j *job) error {
	status, failed := j.run()
	released := lease.Release(ctx)
	switch {
	case errors.Is(released, holdfast.ErrLost):
		return &ending{statusLost, fmt.Errorf("run %q: %w", lease.Name(), errors.Unwrap(released))}
	case released != nil:
		inv.say("%s", released)
	}
	if failed == nil && status == 0 {
		return nil
	}
	if failed != nil {
		return end(failed)
	}
	return &ending{status: status}
}

// childEnv is the environment as it was, with what tells the child of its lock. A URL given by --url is not in it.
func (inv *invocation) childEnv(lease *holdfast.Lease) []string {
	env := slices.DeleteFunc(slices.Clone(inv.env), func(v string) bool {
		key, _, _ := strings.Cut(v, "=")
		return slices.Contains([]string{"HOLDFAST_NAME", "HOLDFAST_TOKEN", "HOLDFAST_LEASE"}, key)
	})
	return append(env,
		"HOLDFAST_NAME="+lease.Name(),
		"HOLDFAST_TOKEN="+strconv.FormatInt(lease.Token(), 10),
		"HOLDFAST_LEASE="+lease.ID().String())
}

// defaultLabel is the command's own name, without its arguments, which may hold secrets.
func defaultLabel(command string) string {
	label := strings.ToValidUTF8(filepath.Base(command), "?")
	return strings.ToValidUTF8(label[:min(len(label), driver.MaxLabelBytes)], "")
}
