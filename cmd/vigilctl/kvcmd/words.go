package kvcmd

import (
	"fmt"
	"regexp"
	"strconv"
)

// wordPattern finds the words of a line that is typed: quoted ones of either kind, or without blanks.
var wordPattern = regexp.MustCompile(`"(?:[^"\\]|\\.)*"|'[^']*'|[^'"\s]\S*[^'"\s]?`)

// splitWords cuts a line into words. What is between single quotes is taken as it is, and between double quotes as in Go.
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
