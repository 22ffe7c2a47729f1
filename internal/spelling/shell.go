package spelling

import (
	"regexp"
	"strings"
)

// bare matches words that all shells take as they are: zsh expands brackets and a word that begins
// with an equals sign.
var bare = regexp.MustCompile(`^[A-Za-z0-9/._:@%+,-][A-Za-z0-9/._:@%+=,-]*$`)

// outside are the characters that no shell takes in single quotes: a quote, and a backslash, which
// fish takes as an escape there.
var outside = strings.NewReplacer(`'`, `'\''`, `\`, `'\\'`)

// QuoteWords returns words as a shell takes them: one of POSIX, zsh or fish.
func QuoteWords(words ...string) string {
	list := make([]string, len(words))
	for i, w := range words {
		if list[i] = w; !bare.MatchString(w) {
			list[i] = "'" + outside.Replace(w) + "'"
		}
	}
	return strings.Join(list, " ")
}
