package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/holdfastdb/holdfast"
)

func (inv *invocation) breakCommand() *cobra.Command {
	var wait duration
	var force, yes bool
	cmd := &cobra.Command{
		Use:   "break [--wait D] [--force] [--yes] NAME",
		Short: "Ask the holders of a name to give way",
		Long: `Ask all holders of a name to give way, wait until they have, and print who did. Exit with 1 if one of them does not in
time. A holder gives way once its command is gone: "holdfast run" ends it with TERM and KILL, and exits with 76. The next
in the queue is granted then, not before.

Without --yes it asks on the terminal first; without a terminal --yes is needed.

With --force the entries are removed at once and nobody is waited for. That is unsafe: the old holder may still be at
work, and two may hold the name, unless all their work is checked by token or guarded transaction.`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			o := &holdfast.BreakOptions{Wait: wait.d, Force: force}
			if wait.set && wait.d == 0 {
				o.Wait = -1 // for the library 0 is the default
			}
			return inv.breakHolders(cmd.Context(), args[0], o, yes)
		},
	}
	cmd.Flags().Var(&wait, "wait", "how long to wait for them; 0: not at all (default: two TTLs, 30s)")
	cmd.Flags().BoolVar(&force, "force", false, "remove their entries at once (unsafe)")
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask first")
	return cmd
}

func (inv *invocation) breakHolders(ctx context.Context, name string, o *holdfast.BreakOptions, yes bool) error {
	if err := rehearseName(ctx, name); err != nil {
		return err
	}
	if !yes && !isTerminal(inv.stdin) {
		return &ending{statusUsage, fmt.Errorf("break %q: stdin is no terminal to ask on: add --yes", name)}
	}
	client, done, err := inv.connect(ctx, nil)
	if err != nil {
		return err
	}
	defer done()
	rec, err := client.Inspect(ctx, name)
	if err != nil {
		return end(err)
	}
	if len(rec.Holders) == 0 {
		_, err := fmt.Fprintf(inv.stdout, "nobody holds %s\n", plain(name))
		return printed(err)
	}
	if !yes {
		if err := inv.confirm(rec, o.Force); err != nil {
			return err
		}
	}
	signals := catch()
	defer signals.stop()
	ctx, stop := signals.endOnSignal(ctx)
	defer stop()
	gone, err := client.Break(ctx, name, o)
	for _, h := range gone {
		verb := "gave way"
		if o.Force {
			verb = "was removed"
		}
		if _, err := fmt.Fprintf(inv.stdout, "%s %s\n", plain(h.String()), verb); err != nil {
			return printed(err)
		}
	}
	if errors.Is(err, holdfast.ErrHeld) {
		return &ending{statusBusy, err}
	}
	return signalled(ctx, err)
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
