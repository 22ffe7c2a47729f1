package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"vigil/cmd/vigilctl/complete"
	"vigil/internal/kv"
	"vigil/internal/release"
)

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Example: "  vigilctl version",
		// It has no connection: nothing is wrong with the flags for one.
		PersistentPreRunE: func(*cobra.Command, []string) error { return nil },
		Short:             "Print the compatible version of etcdctl, the version of the API, and its own version",
		RunE: func(c *cobra.Command, _ []string) error {
			_, err := fmt.Fprintf(c.OutOrStdout(), "etcdctl version: %s\nAPI version: %s\nvigilctl version: %s\n", release.APIVersion, kv.APIVersion, release.Version)
			return err
		},
	}
}

// foldGlobalFlags leaves the global flags out of the help of commands: it names the command that prints them.
func foldGlobalFlags(root *cobra.Command) {
	template := root.UsageTemplate()
	const flags = "{{.LocalFlags.FlagUsages | trimTrailingWhitespaces}}"
	template = strings.Replace(template, flags, "{{if .HasParent}}"+flags+"{{else}}  -h, --help   print the help{{end}}", 1)
	const global = "{{.InheritedFlags.FlagUsages | trimTrailingWhitespaces}}"
	template = strings.Replace(template, "Global Flags:\n"+global, "{{groupFlags .}}Flags of all commands: vigilctl options", 1)
	if strings.Contains(template, global) || strings.Count(template, "{{else}}  -h") != 1 {
		panic("cobra has another template")
	}
	cobra.AddTemplateFunc("groupFlags", groupFlags)
	root.SetUsageTemplate(template)
}

// groupFlags returns the flags that a command has from its group, not from the program.
func groupFlags(c *cobra.Command) string {
	own := pflag.NewFlagSet("", pflag.ContinueOnError)
	c.InheritedFlags().VisitAll(func(f *pflag.Flag) {
		if c.Root().PersistentFlags().Lookup(f.Name) == nil {
			own.AddFlag(f)
		}
	})
	if !own.HasFlags() {
		return ""
	}
	return own.FlagUsages() + "\n"
}

func optionsCommand(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:     "options",
		Short:   "Print the flags of all commands",
		Example: "  vigilctl options",
		RunE: func(c *cobra.Command, _ []string) error {
			_, err := fmt.Fprintf(c.OutOrStdout(), "The following options can be passed to any command:\n\n%s", root.PersistentFlags().FlagUsages())
			return err
		},
	}
}

const completionHelp = `Print a script that lets a shell complete commands and flags. To load it in every shell:

  bash        vigilctl completion bash > /etc/bash_completion.d/vigilctl
  zsh         vigilctl completion zsh > "${fpath[1]}/_vigilctl"
  fish        vigilctl completion fish > ~/.config/fish/completions/vigilctl.fish
  powershell  vigilctl completion powershell >> $PROFILE`

func completionCommand() *cobra.Command {
	return &cobra.Command{
		Use:                   "completion [bash|zsh|fish|powershell]",
		Short:                 "Print a completion script for a shell",
		Long:                  completionHelp,
		Example:               "  source <(vigilctl completion bash)",
		DisableFlagsInUseLine: true,
		ValidArgs:             complete.Shells,
		Args:                  cobra.MatchAll(cobra.ExactArgs(1), cobra.OnlyValidArgs),
		RunE: func(c *cobra.Command, args []string) error {
			script, err := complete.Script(args[0])
			if err == nil {
				_, err = c.OutOrStdout().Write(script)
			}
			return err
		},
	}
}
