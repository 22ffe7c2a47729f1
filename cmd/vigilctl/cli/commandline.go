package cli

import (
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// secrets are the flags whose values are not printed.
var secrets = []string{"user", "password", "auth-jwt-token"}

// bare matches words that a shell takes as they are.
var bare = regexp.MustCompile(`^[A-Za-z0-9/._:@%+=,\[\]-]+$`)

// CommandAt returns the command line to type for the same command at one endpoint.
func (e *Env) CommandAt(c *cobra.Command, args []string, endpoint string) string {
	words := []string{}
	fromVariable := e.given["endpoints"] != ""
	if fromVariable {
		words = append(words, prefixes[0]+"ENDPOINTS="+quoteWord(endpoint))
	}
	words = append(words, c.CommandPath())
	if len(args) > 0 {
		words = append(words, QuoteWords(args...))
	}
	c.Flags().Visit(func(f *pflag.Flag) {
		switch {
		case f.Name == "endpoints" || e.given[f.Name] != "":
		case slices.Contains(secrets, f.Name):
			words = append(words, "--"+f.Name+"=...")
		default:
			words = append(words, "--"+f.Name+"="+quoteWord(f.Value.String()))
		}
	})
	if !fromVariable {
		words = append(words, "--endpoints="+quoteWord(endpoint))
	}
	return strings.Join(words, " ")
}

// QuoteWords returns words as a shell takes them.
func QuoteWords(words ...string) string {
	var list []string
	for _, w := range words {
		list = append(list, quoteWord(w))
	}
	return strings.Join(list, " ")
}

// quoteWord returns a word as one for a shell.
func quoteWord(s string) string {
	if bare.MatchString(s) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
