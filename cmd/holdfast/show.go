package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/holdfastdb/holdfast"
)

func (inv *invocation) showCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "show NAME",
		Short: "Show who holds a name and who waits for it",
		Long: `Show all that is known of a name. Exit with 1 if it has no record: it was never locked, or not for a day or more.

HOST and PID are where holdfast, or the program that uses the library, runs: not the command of "holdfast run", which
gets what kill sends to that PID. STATE is

  held        its session is alive
  giving way  an operator asked it to, by "holdfast break"; it holds until it has
  kept        it is over, but its --min-hold is not; nobody is at work
  dead        its session has ended; the next who looks at the name takes it out

With --json, print one object:

  {"name", "revision", "holders": [{"lease", "session", "label", "host", "pid", "weight", "limit", "token", "since",
   "ends_in_ms"}], "waiters": [{the same, "position"}], "note"}

since is RFC 3339 in UTC, note is base64 or null, ends_in_ms is null for a lease without an end of its own, token is
null for a waiter, session is empty for an entry that only its time ends (kept). weight and limit are the N and K of
--permits; 1073741824 stands for all: an exclusive holder has it as both, a shared one has weight 1 of that limit.

Exit status: 0; 1 no record; 64 usage; 69 the database is not there, or cannot be reached or used; 74 stdout cannot be
written.`,
		Args:              oneName,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			return inv.show(cmd.Context(), args[0], asJSON)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func (inv *invocation) show(ctx context.Context, name string, asJSON bool) error {
	client, done, err := inv.connectExisting(ctx)
	if err != nil {
		return err
	}
	defer done()
	rec, err := client.Inspect(ctx, name)
	if err != nil {
		return end(err)
	}
	if rec.Revision == 0 {
		return &ending{statusBusy, fmt.Errorf("show %q: it has no record", name)}
	}
	if asJSON {
		return printed(writeJSON(inv.stdout, encode(rec)))
	}
	out := bufio.NewWriter(inv.stdout)
	if err := showTables(out, rec); err != nil {
		return printed(err)
	}
	return printed(out.Flush())
}

func showTables(out io.Writer, rec *holdfast.Record) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "name\t%s\n", plain(rec.Name))
	fmt.Fprintf(table, "revision\t%d\n", rec.Revision)
	if rec.Note != nil {
		fmt.Fprintf(table, "note\t%q\n", rec.Note)
	}
	if len(rec.Holders)+len(rec.Waiters) == 0 {
		fmt.Fprintln(table, "state\tfree")
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if len(rec.Holders) > 0 {
		fmt.Fprintln(table, "\nHELD BY\tHOST\tPID\tMODE\tTOKEN\tSINCE\tENDS IN\tSTATE\tLEASE")
	}
	for _, h := range rec.Holders {
		host, pid := where(h.Entry)
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%d\t%s\t%s\t%s\t%s\n",
			who(h.Entry), host, pid, mode(h.Entry), h.Token, instant(h.Since), endsIn(h.EndsIn), state(h), h.Lease)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if len(rec.Waiters) > 0 {
		fmt.Fprintln(table, "\nWAITING\tPOSITION\tHOST\tPID\tMODE\tSINCE\tLEASE")
	}
	for _, w := range rec.Waiters {
		host, pid := where(w.Entry)
		fmt.Fprintf(table, "%s\t%d\t%s\t%s\t%s\t%s\t%s\n", who(w.Entry), w.Position, host, pid, mode(w.Entry), instant(w.Since), w.Lease)
	}
	return table.Flush()
}
