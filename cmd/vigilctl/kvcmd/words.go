package kvcmd

import (
	"fmt"
	"regexp"
	"strconv"
)

// wordPattern matches one word of a line: in double quotes, in single quotes, or without blanks.
var wordPattern = regexp.MustCompile(`"(?:[^"\\]|\\.)*"|'[^']*'|[^'"\s]\S*[^'"\s]?`)

// splitWords splits a line into words. Single quotes take their content literally, double quotes
// like Go.
func splitWords(line string) ([]string, error) {
	words := wordPattern.FindAllString(line, -1)
	for i, w := range words {
		switch w[0] {
		case '\'':
			words[i] = w[1 : len(w)-1]
		case '"':
			s, err := strconv.Unquote(w)
			if err != nil {
				return nil, fmt.Errorf("%s is not a quoted word: %w", w, err)
			}
			words[i] = s
		}
	}
	return words, nil
}
