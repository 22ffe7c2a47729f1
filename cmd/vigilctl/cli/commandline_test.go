package cli

import (
	"io"
	"testing"

	"github.com/spf13/cobra"
)

// TestCommandAt: the line is for the same arguments and flags, without secrets, and for one
// endpoint alone.
func TestCommandAt(t *testing.T) {
	for want, args := range map[string][]string{
		"do a --user=... --endpoints='http://[::1]:2379'":        {"a", "--user=root:secret"},
		"do --yes=true --endpoints='http://[::1]:2379' -- -file": {"--yes", "--", "-file"},
		"do - 'b c' --endpoints='http://[::1]:2379'": {"--endpoints=a:1,b:2", "-",
			"b c"},
		"do 'm$(1)' --endpoints='http://[::1]:2379'": {"--discovery-srv=example.com",
			"--discovery-srv-name=x", "--insecure-discovery=false", "m$(1)"},
	} {
		e, yes := &Env{Stdout: NewOutput(io.Discard)}, Yes(false)
		var got string
		c := &cobra.Command{Use: "do", RunE: func(c *cobra.Command, args []string) error {
			got = e.CommandAt(c, args, "http://[::1]:2379")
			return nil
		}}
		yes.AddFlag(c)
		e.AddFlags(c.Flags())
		c.SetArgs(args)
		if err := c.Execute(); err != nil || got != want {
			t.Errorf("%v\n got %s\nwant %s", err, got, want)
		}
	}
}
