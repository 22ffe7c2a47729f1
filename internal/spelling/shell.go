package spelling

import (
	"regexp"
	"strings"
)

// bare matches words that need no quotes in any shell. zsh expands brackets and a word that begins
// with an equals sign.
var bare = regexp.MustCompile(`^[A-Za-z0-9/._:@%+,-][A-Za-z0-9/._:@%+=,-]*$`)

// outside holds the characters that cannot stand in single quotes in every shell: a quote, and a
// backslash, which is an escape there in fish.
var outside = strings.NewReplacer(`'`, `'\''`, `\`, `'\\'`)

// QuoteWords quotes words for a shell: POSIX, zsh and fish read them alike.
func QuoteWords(words ...string) string {
	list := make([]string, len(words))
	for i, w := range words {
		if list[i] = w; !bare.MatchString(w) {
			list[i] = "'" + outside.Replace(w) + "'"
		}
	}
	return strings.Join(list, " ")
}
