package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/holdfastdb/holdfast/driver"
)

// usage is the ending of a call that cannot be meant so.
func usage(format string, args ...any) error {
	return &ending{statusUsage, fmt.Errorf(format, args...)}
}

// ownWords makes the errors and the help of cobra the program's: one sentence on stderr and the program's statuses.
func (inv *invocation) ownWords(root *cobra.Command) {
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		if errors.Is(err, pflag.ErrHelp) {
			return err
		}
		return usage("%s%w", verb(cmd), err)
	})
	// Runnable, or cobra would answer an unknown command in its own way.
	root.Args = func(_ *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		return noCommand(root, args[0])
	}
	root.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	root.DisableFlagsInUseLine = true
	root.SuggestionsMinimumDistance = 2
	root.SetHelpCommand(&cobra.Command{
		Use:   "help [COMMAND]",
		Short: "Show the help of a command",
		RunE: func(_ *cobra.Command, args []string) error {
			cmd, rest, err := root.Find(args)
			if err != nil || len(rest) > 0 {
				return noCommand(root, strings.Join(args, " "))
			}
			cmd.InitDefaultHelpFlag()
			return cmd.Help()
		},
	})
	root.InitDefaultCompletionCmd()
	completion, _, _ := root.Find([]string{"completion"}) // always there
	completion.Args = cobra.ArbitraryArgs
	completion.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			return usage("completion: there is none for %q, only for bash, fish, powershell and zsh", args[0])
		}
		return cmd.Help()
	}
	for _, shell := range completion.Commands() {
		shell.Args = noArgs
	}
}

// verb is how an error of a command begins.
func verb(cmd *cobra.Command) string {
	if !cmd.HasParent() {
		return ""
	}
	return strings.TrimPrefix(cmd.CommandPath(), cmd.Root().Name()+" ") + ": "
}

func noCommand(root *cobra.Command, name string) error {
	hint := ""
	if similar := root.SuggestionsFor(name); len(similar) > 0 {
		hint = ", did you mean " + strings.Join(similar, " or ") + "?"
	}
	return usage("there is no command %q%s (see: holdfast help)", name, hint)
}

func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usage("%swants no argument, but there is %q", verb(cmd), args[0])
	}
	return nil
}

func oneName(cmd *cobra.Command, args []string) error {
	if len(args) != 1 {
		return usage("%swant one NAME, as in: holdfast %s backup", verb(cmd), cmd.Name())
	}
	return checkName(cmd, args[0])
}

func atMostOnePrefix(cmd *cobra.Command, args []string) error {
	if len(args) > 1 {
		return usage("%swant one PREFIX at most, as in: holdfast %s jobs/", verb(cmd), cmd.Name())
	}
	return nil
}

// checkName refuses a bad name before the database is opened.
func checkName(cmd *cobra.Command, name string) error {
	if err := driver.CheckName(name); err != nil {
		return usage("%s%w", verb(cmd), err)
	}
	return nil
}

// printer writes what cobra prints, and remembers the first error, which cobra does not.
type printer struct {
	io.Writer
	err error
}

func (p *printer) Write(data []byte) (int, error) {
	if p.err == nil {
		_, p.err = p.Writer.Write(data)
	}
	return len(data), nil
}
