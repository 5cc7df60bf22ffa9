package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfastdb/holdfast"
)

func (inv *invocation) breakCommand() *cobra.Command {
	var wait duration
	var force, yes, verbose bool
	cmd := &cobra.Command{
		Use:   "break [--wait D] [--force] [--yes] NAME",
		Short: "Ask the holders of a name to give way",
		Long: `Ask all holders of a name to give way, wait until they have, and print who did. Exit with 1 if one of them does not in
time. A holder gives way once its command is gone: "holdfast run" ends it with TERM and KILL, and exits with 76. The next
in the queue is granted then, not before.

The request stands when the wait is over: a holder that was asked still gives way as soon as it learns of it. One that
ended, but is kept by its --min-hold, cannot be asked and is not waited for: break says until when it is kept, and exits
with 1.

Without --yes it asks on the terminal first; without a terminal --yes is needed.

With --force the entries are removed at once and nobody is waited for. That is unsafe: the old holder may still be at
work, and two may hold the name, unless all their work is checked by token or guarded transaction. It is safe for a name
that is only kept.

Exit status: 0 everybody gave way, or nobody holds the name; 1 somebody did not, or you did not confirm; 64 usage;
69 the database is not there, or cannot be reached or used; 74 stdout cannot be written.`,
		Args:              oneName,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			o := &holdfast.BreakOptions{Wait: wait.d, Force: force}
			if wait.set && wait.d == 0 {
				o.Wait = -1 // for the library 0 is the default
			}
			return inv.breakHolders(cmd.Context(), args[0], o, yes, verbose || isTerminal(inv.stderr))
		},
	}
	cmd.Flags().Var(&wait, "wait", "how long to wait for them; 0: not at all (default: two TTLs, 30s)")
	cmd.Flags().BoolVar(&force, "force", false, "remove their entries at once (unsafe)")
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask first")
	cmd.Flags().BoolVarP(&verbose, "verbose", "v", false, "say who was asked and how long is waited, also if stderr is no terminal")
	return cmd
}

func (inv *invocation) breakHolders(ctx context.Context, name string, o *holdfast.BreakOptions, yes, verbose bool) error {
	if !yes && !isTerminal(inv.stdin) {
		return &ending{statusUsage, fmt.Errorf("break %q: stdin is no terminal to ask on: add --yes", name)}
	}
	client, done, err := inv.connectExisting(ctx)
	if err != nil {
		return err
	}
	defer done()
	rec, err := client.Inspect(ctx, name)
	switch {
	case err != nil:
		return end(err)
	case len(rec.Holders) == 0:
		_, err := fmt.Fprintf(inv.stdout, "nobody holds %s\n", plain(name))
		return printed(err)
	case !o.Force && onlyKept(rec, rec.Holders):
		return stillKept(rec)
	case !yes:
		if err := inv.confirm(rec, o.Force); err != nil {
			return err
		}
	}
	signals := catch()
	defer signals.stop()
	ctx, stop := signals.endOnSignal(ctx)
	defer stop()
	if verbose && !o.Force && o.Wait >= 0 {
		inv.sayAsked(rec, o.Wait)
	}
	gone, err := askToGiveWay(ctx, client, rec, o)
	verb := "gave way"
	if o.Force {
		verb = "was removed"
	}
	for _, h := range gone {
		if _, err := fmt.Fprintf(inv.stdout, "%s %s\n", plain(h.String()), verb); err != nil {
			return printed(err)
		}
	}
	if errors.Is(err, holdfast.ErrHeld) {
		return &ending{statusBusy, fmt.Errorf("%w: the request stands", err)}
	}
	return signalled(ctx, err)
}

func (inv *invocation) sayAsked(rec *holdfast.Record, wait time.Duration) {
	limit := "two of its TTLs"
	if wait > 0 {
		limit = short(wait)
	}
	for _, h := range rec.Holders {
		if !kept(h) {
			inv.say("asking %s to give way, waiting up to %s", h, limit)
		}
	}
}

// askToGiveWay breaks the holders of rec. It is Break, but for the entries that nobody is left to give up: when there
// are no others, it ends with stillKept.
func askToGiveWay(ctx context.Context, c *holdfast.Client, rec *holdfast.Record, o *holdfast.BreakOptions) ([]holdfast.Holder, error) {
	if o.Force {
		return c.Break(ctx, rec.Name, o)
	}
	limited, stop := context.WithCancel(ctx)
	var last *holdfast.Record // what the watch ended the wait for
	var watch sync.WaitGroup
	watch.Go(func() {
		for {
			select {
			case <-limited.Done():
				return
			case <-time.After(200 * time.Millisecond):
			}
			if now, err := inspect(limited, c, rec.Name); err == nil && onlyKept(now, rec.Holders) {
				last = now
				stop()
			}
		}
	})
	gone, err := c.Break(limited, rec.Name, o)
	stop()
	watch.Wait()
	if errors.Is(err, holdfast.ErrHeld) {
		if now, lookErr := inspect(ctx, c, rec.Name); lookErr == nil && onlyKept(now, rec.Holders) {
			last = now
		}
	}
	if err == nil || last == nil {
		return gone, err
	}
	for _, h := range rec.Holders { // whose commands are over, though Break still waits for their entries
		if !kept(h) && !slices.ContainsFunc(gone, func(g holdfast.Holder) bool { return g.Lease == h.Lease }) {
			gone = append(gone, h)
		}
	}
	return gone, stillKept(last)
}

// kept reports whether a holder is over and its name still kept, by its MinHold.
func kept(h holdfast.Holder) bool { return h.Session.IsZero() }

// onlyKept reports whether, of the holders asked and of all that were told to give way, only kept ones are left.
func onlyKept(now *holdfast.Record, asked []holdfast.Holder) bool {
	found := false
	for _, h := range now.Holders {
		was := slices.ContainsFunc(asked, func(a holdfast.Holder) bool { return a.Lease == h.Lease })
		if !kept(h) && (was || h.Broken) {
			return false
		}
		found = found || was
	}
	return found
}

// stillKept is the ending of a break that has nobody left to ask.
func stillKept(rec *holdfast.Record) error {
	var last holdfast.Holder
	for _, h := range rec.Holders {
		if kept(h) && h.EndsIn >= last.EndsIn {
			last = h
		}
	}
	return &ending{statusBusy, fmt.Errorf("break %q: nobody is left to ask, but the name is kept until %s by the --min-hold of %s: --force frees it",
		rec.Name, instant(time.Now().Add(last.EndsIn)), who(last.Entry))}
}

// confirm asks on the terminal. Anything but yes is no. Nothing is held yet, so a signal may end the program here.
func (inv *invocation) confirm(rec *holdfast.Record, force bool) error {
	for _, h := range rec.Holders {
		fmt.Fprintf(inv.stderr, "%s is held by %s\n", plain(rec.Name), plain(h.String()))
	}
	question := "Ask to give way? [y/N] "
	if force {
		question = "Remove at once, although they may still be at work? [y/N] "
	}
	fmt.Fprint(inv.stderr, question)
	text, _ := bufio.NewReader(inv.stdin).ReadString('\n') // the end of input is a no
	switch strings.ToLower(strings.TrimSpace(text)) {
	case "y", "yes":
		return nil
	}
	return &ending{statusBusy, fmt.Errorf("break %q: not confirmed, nothing changed", rec.Name)}
}
