package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"vigil/cmd/vigilctl/cli"
	"vigil/cmd/vigilctl/command"
	"vigil/cmd/vigilctl/complete"
	"vigil/cmd/vigilctl/show"
	"vigil/internal/kv"
	"vigil/internal/release"
)

func versionCommand(env *cli.Env) *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Example: "  vigilctl version\n  vigilctl version -w json",
		// The help needs no connection: do not check the flags for one.
		PersistentPreRunE: func(*cobra.Command, []string) error { return nil },
		Short:             "Print the compatible version of etcdctl, the version of the API, and its own version and commit",
		RunE: func(c *cobra.Command, _ []string) error {
			commit, tree := release.Source()
			if env.Format == string(show.JSON) {
				return json.NewEncoder(c.OutOrStdout()).Encode(struct {
					Etcdctl  string `json:"etcdctl"`
					API      string `json:"api"`
					Vigilctl string `json:"vigilctl"`
					Commit   string `json:"commit"`
					Tree     string `json:"tree"`
				}{release.APIVersion, kv.APIVersion.String(), release.Version, commit, tree})
			}
			_, err := fmt.Fprintf(c.OutOrStdout(), "etcdctl version: %s\nAPI version: %s\n"+
				"vigilctl version: %s\nGit SHA: %s\nGit Tree: %s\n",
				release.APIVersion, kv.APIVersion, release.Version, commit, tree)
			return err
		},
	}
}

// helpCommand returns the command that prints the help of another one.
func helpCommand() *cobra.Command {
	return &cobra.Command{
		Use:               "help [command]",
		Short:             "Print the help of a command",
		Example:           "  vigilctl help member add",
		PersistentPreRunE: func(*cobra.Command, []string) error { return nil },
		ValidArgsFunction: func(c *cobra.Command, args []string, word string) ([]string,
			cobra.ShellCompDirective) {
			var list []string
			if of, rest, err := c.Root().Find(args); err == nil && len(rest) == 0 {
				for _, sub := range of.Commands() {
					if sub.IsAvailableCommand() && strings.HasPrefix(sub.Name(), word) {
						list = append(list, sub.Name()+"\t"+sub.Short)
					}
				}
			}
			return list, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(c *cobra.Command, args []string) error {
			of, rest, err := c.Root().Find(args)
			if err == nil && len(rest) > 0 && of.HasSubCommands() {
				err = command.Unknown(of, rest[0])
			}
			if err != nil {
				return err
			}
			of.InitDefaultHelpFlag()
			return of.Help()
		},
	}
}

// mistakenHelp returns the error for a request for help on a command that does not exist: cobra
// prints the help of the group.
func mistakenHelp(root *cobra.Command, args []string) error {
	if !slices.Contains(args, "--help") && !slices.Contains(args, "-h") {
		return nil
	}
	c, rest, err := root.Find(args)
	if err != nil || !c.HasSubCommands() {
		return nil
	}
	c.InitDefaultHelpFlag()
	if err := c.ParseFlags(rest); err != nil {
		return nil // the execution of the command reports it
	}
	if words := c.Flags().Args(); len(words) > 0 {
		return c.ValidateArgs(words)
	}
	return nil
}

// ignored are the commands that ignore further arguments, as in etcdctl, with the number of
// arguments that they use.
var ignored = map[string]struct {
	most int
	next string
}{
	"put": {2, "quote a value with blanks"}, "get": {2, ""}, "member list": {0, ""},
	"lease list": {0, ""}, "defrag": {0, chooseEndpoints}, "endpoint health": {0, chooseEndpoints},
	"endpoint status": {0, chooseEndpoints}, "endpoint hashkv": {0, chooseEndpoints},
	"check perf": {0, ""}, "check datascale": {0, ""}, "version": {0, ""}, "options": {0, ""},
	"role grant-permission": {4, ""}, "role revoke-permission": {3, ""},
}

const chooseEndpoints = "choose members with --endpoints or --cluster"

// noteIgnored makes commands tell a person that they ignore arguments.
func noteIgnored(root *cobra.Command, env *cli.Env) {
	for path, x := range ignored {
		c, _, err := root.Find(strings.Fields(path))
		if err != nil {
			continue
		}
		run := c.RunE
		c.RunE = func(c *cobra.Command, args []string) error {
			if len(args) > x.most {
				text := fmt.Sprintf("%s ignores %q", c.CommandPath(), args[x.most:])
				if x.next != "" {
					text += ": " + x.next
				}
				env.Note("%s", text)
			}
			return run(c, args)
		}
	}
}

// foldGlobalFlags removes the global flags from the help of commands. The help names the command
// that prints them.
func foldGlobalFlags(root *cobra.Command) {
	template := root.UsageTemplate()
	const flags = "{{.LocalFlags.FlagUsages | trimTrailingWhitespaces}}"
	template = strings.Replace(template, flags,
		"{{if .HasParent}}"+flags+"{{else}}  -h, --help   print the help{{end}}", 1)
	const global = "{{.InheritedFlags.FlagUsages | trimTrailingWhitespaces}}"
	template = strings.Replace(template, "Global Flags:\n"+global,
		"{{groupFlags .}}Flags of all commands: vigilctl options", 1)
	if strings.Contains(template, global) || strings.Count(template, "{{else}}  -h") != 1 {
		panic("cobra has another template")
	}
	cobra.AddTemplateFunc("groupFlags", groupFlags)
	root.SetUsageTemplate(template)
}

// groupFlags returns the flags that a command inherits from its group, not from the program.
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
			_, err := fmt.Fprintf(c.OutOrStdout(),
				"The following options can be passed to any command:\n\n%s",
				root.PersistentFlags().FlagUsages())
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
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 || !slices.Contains(complete.Shells, args[0]) {
				return fmt.Errorf("completion takes the name of one shell, %s, not %q",
					strings.Join(complete.Shells, ", "), args)
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			script, err := complete.Script(args[0])
			if err == nil {
				_, err = c.OutOrStdout().Write(script)
			}
			return err
		},
	}
}
