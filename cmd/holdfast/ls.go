package main

import (
	"bufio"
	"context"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/holdfastdb/holdfast"
)

func (inv *invocation) lsCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "ls [PREFIX]",
		Short: "List names, who holds them and how many wait",
		Long: `List the names that have a record and begin with PREFIX, in byte order. A record outlives its last holder by a day or
more, as "free". HELD BY is the first holder, HOST and PID are where its holdfast (not its command) runs, and MODE is what
it asked for: exclusive, shared, or N of K permits. "show NAME" tells the STATE of each holder: held, giving way, kept or
dead.

With --json, print one array of records, each as "show --json" prints it; a weight or limit of 1073741824 stands for all.

Exit status: 0, also if there are none; 64 usage; 69 the database is not there, or cannot be reached or used; 74 stdout
cannot be written.`,
		Args:              atMostOnePrefix,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			return inv.ls(cmd.Context(), strings.Join(args, ""), asJSON)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func (inv *invocation) ls(ctx context.Context, prefix string, asJSON bool) error {
	client, done, err := inv.connectExisting(ctx)
	if err != nil {
		return err
	}
	defer done()
	out := bufio.NewWriter(inv.stdout)
	write := listTable(out)
	if asJSON {
		write = listArray(out)
	}
	for rec, err := range client.List(ctx, prefix) {
		if err != nil {
			return end(err)
		}
		if err := write(rec); err != nil {
			return printed(err)
		}
	}
	if err := write(nil); err != nil {
		return printed(err)
	}
	return printed(out.Flush())
}

// listArray and listTable return a function that writes a record, and finishes if there is none.
func listArray(out *bufio.Writer) func(*holdfast.Record) error {
	separator := "["
	return func(rec *holdfast.Record) error {
		if rec == nil {
			if separator == "[" {
				_, err := out.WriteString("[]\n")
				return err
			}
			_, err := out.WriteString("]\n")
			return err
		}
		if _, err := out.WriteString(separator); err != nil {
			return err
		}
		separator = ","
		return writeJSON(out, encode(rec))
	}
}

func listTable(out *bufio.Writer) func(*holdfast.Record) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	rows := 0
	return func(rec *holdfast.Record) error {
		if rec == nil {
			return table.Flush()
		}
		if rows++; rows == 1 {
			fmt.Fprintln(table, "NAME\tHELD BY\tHOST\tPID\tMODE\tSINCE\tWAITING")
		}
		first, host, pid, kind, since := "free", "-", "-", "-", "-"
		if len(rec.Holders) > 0 {
			h := rec.Holders[0]
			first, kind, since = who(h.Entry), mode(h.Entry), instant(h.Since)
			host, pid = where(h.Entry)
		} else if len(rec.Waiters) > 0 {
			first = "nobody"
		}
		if more := len(rec.Holders) - 1; more > 0 {
			first += fmt.Sprintf(" and %d more", more)
		}
		_, err := fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%d\n", plain(rec.Name), first, host, pid, kind, since, len(rec.Waiters))
		return err
	}
}

// printed makes an error of writing to stdout the program's ending.
func printed(err error) error {
	if err == nil {
		return nil
	}
	return &ending{statusCannotPrint, fmt.Errorf("print: %w", err)}
}
