package command

import (
	"slices"
	"strings"

	"vigil/internal/spelling"
)

// QuoteArgs quotes the arguments of a command for a shell. If one of them begins with a dash, "--"
// comes first, and no flag can follow.
func QuoteArgs(args ...string) string {
	text := QuoteWords(args...)
	if slices.ContainsFunc(args,
		func(s string) bool { return strings.HasPrefix(s, "-") && s != "-" }) {
		return "-- " + text
	}
	return text
}

// QuoteWords quotes words for a shell.
func QuoteWords(words ...string) string { return spelling.QuoteWords(words...) }
