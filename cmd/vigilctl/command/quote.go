package command

import (
	"regexp"
	"slices"
	"strings"
)

// bare matches words that all shells take as they are: zsh expands brackets and a word that begins with an equals sign.
var bare = regexp.MustCompile(`^[A-Za-z0-9/._:@%+,-][A-Za-z0-9/._:@%+=,-]*$`)

// QuoteArgs returns the arguments of a command as a shell takes them. If one of them begins with a dash, "--" comes first, and no flag can
// follow.
func QuoteArgs(args ...string) string {
	text := QuoteWords(args...)
	if slices.ContainsFunc(args, func(s string) bool { return strings.HasPrefix(s, "-") && s != "-" }) {
		return "-- " + text
	}
	return text
}

// QuoteWords returns words as a shell takes them.
func QuoteWords(words ...string) string {
	var list []string
	for _, w := range words {
		list = append(list, quoteWord(w))
	}
	return strings.Join(list, " ")
}

// outside are the characters that no shell takes in single quotes: a quote, and a backslash, which fish takes as an escape there.
var outside = strings.NewReplacer(`'`, `'\''`, `\`, `'\\'`)

// quoteWord returns a word as one for a shell: those of POSIX, zsh and fish.
func quoteWord(s string) string {
	if bare.MatchString(s) {
		return s
	}
	return "'" + outside.Replace(s) + "'"
}
