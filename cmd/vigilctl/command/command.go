// Package command has parts of command definitions: groups, arguments and completion.
package command

import (
	"github.com/spf13/cobra"

	"vigil/cmd/vigilctl/exit"
)

// Group returns a command that only has subcommands.
func Group(use, short, long string, commands ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{Use: use, Short: short, Long: long, Args: OnlySubcommands,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() }}
	c.AddCommand(commands...)
	return c
}

// ExactlyOne requires exactly one argument, with this name.
func ExactlyOne(name string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) != 1 {
			return exit.Usage("%s requires exactly one argument, not %d; see vigilctl %s --help",
				name, len(args), name)
		}
		return nil
	}
}

// CompleteFlag lets the shell complete a flag with words.
func CompleteFlag(c *cobra.Command, flag string, words []string) {
	_ = c.RegisterFlagCompletionFunc(flag,
		cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
}
