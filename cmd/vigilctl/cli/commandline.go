package cli

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"vigil/cmd/vigilctl/command"
)

// secrets are the flags whose values must not be printed.
var secrets = []string{"user", "password", "auth-jwt-token"}

// otherEndpoints are the flags that choose members in addition to --endpoints.
var otherEndpoints = []string{"discovery-srv", "discovery-srv-name", "insecure-discovery"}

// CommandAt returns the command line that runs the same command at one endpoint.
func (e *Env) CommandAt(c *cobra.Command, args []string, endpoint string) string {
	words := []string{}
	fromVariable := e.given["endpoints"] != ""
	if fromVariable {
		words = append(words, prefixes[0]+"ENDPOINTS="+command.QuoteWords(endpoint))
	}
	words = append(words, c.CommandPath())
	arguments := command.QuoteArgs(args...)
	flagsFirst := strings.HasPrefix(arguments, "-- ")
	if len(args) > 0 && !flagsFirst {
		words = append(words, arguments)
	}
	c.Flags().Visit(func(f *pflag.Flag) {
		switch {
		case f.Name == "endpoints" || e.given[f.Name] != "" ||
			slices.Contains(otherEndpoints, f.Name):
		case slices.Contains(secrets, f.Name):
			words = append(words, "--"+f.Name+"=...")
		default:
			words = append(words, "--"+f.Name+"="+command.QuoteWords(f.Value.String()))
		}
	})
	if !fromVariable {
		words = append(words, "--endpoints="+command.QuoteWords(endpoint))
	}
	if flagsFirst {
		words = append(words, arguments)
	}
	return strings.Join(words, " ")
}
