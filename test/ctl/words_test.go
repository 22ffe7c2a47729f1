package ctl

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// next takes the first word off a line.
func next(s string) (word, rest string, err error) {
	for s != "" && s[0] != ' ' {
		switch s[0] {
		case '"':
			q, err := strconv.QuotedPrefix(s)
			if err != nil {
				return "", "", fmt.Errorf("a quote is not closed")
			}
			text, err := strconv.Unquote(q)
			if err != nil {
				return "", "", err
			}
			word, s = word+text, s[len(q):]
		case '\'':
			text, tail, ok := strings.Cut(s[1:], "'")
			if !ok {
				return "", "", fmt.Errorf("a quote is not closed")
			}
			word, s = word+text, tail
		default:
			word, s = word+s[:1], s[1:]
		}
	}
	return word, s, nil
}

func TestSplit(t *testing.T) {
	got := split(t, `put k 'two words' "tab\there" a'b'c '' --x="y z"`)
	want := []string{"put", "k", "two words", "tab\there", "abc", "", "--x=y z"}
	if !slices.Equal(got, want) {
		t.Fatalf("got %q, want %q", got, want)
	}
}
