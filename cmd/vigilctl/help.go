package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"vigil/internal/kv"
	"vigil/internal/release"
)

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the compatible version of etcdctl, the version of the API, and its own version",
		RunE: func(c *cobra.Command, _ []string) error {
			_, err := fmt.Fprintf(c.OutOrStdout(), "etcdctl version: %s\nAPI version: %s\nvigilctl version: %s\n", release.APIVersion, kv.APIVersion, release.Version)
			return err
		},
	}
}

func optionsCommand(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:   "options",
		Short: "Print the global flags",
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
		ValidArgs:             []string{"bash", "zsh", "fish", "powershell"},
		Args:                  cobra.MatchAll(cobra.ExactArgs(1), cobra.OnlyValidArgs),
		RunE: func(c *cobra.Command, args []string) error {
			root, out := c.Root(), c.OutOrStdout()
			switch args[0] {
			case "bash":
				return root.GenBashCompletionV2(out, true)
			case "zsh":
				return root.GenZshCompletion(out)
			case "fish":
				return root.GenFishCompletion(out, true)
			}
			return root.GenPowerShellCompletionWithDesc(out)
		},
	}
}
