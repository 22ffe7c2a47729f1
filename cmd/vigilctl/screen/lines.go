package screen

import "strings"

// Flow puts pieces on as few lines as the width allows, on one line if width is 0.
func Flow(width int, pieces ...string) []string {
	const between = "  "
	var lines []string
	line := ""
	for _, p := range pieces {
		switch {
		case p == "":
		case line == "":
			line = p
		case width > 0 && len([]rune(line))+len(between)+len([]rune(p)) > width:
			lines = append(lines, line)
			line = p
		default:
			line += between + p
		}
	}
	if line != "" {
		lines = append(lines, line)
	}
	if width > 0 {
		for i := range lines {
			lines[i] = Cut(lines[i], width)
		}
	}
	return lines
}

// Wrap breaks a text between words, and cuts a word that is longer than the width.
func Wrap(text string, width int) []string {
	width = max(width, 10)
	var lines []string
	line := ""
	for _, word := range strings.Split(text, " ") {
		for len([]rune(word)) > width {
			if line != "" {
				lines, line = append(lines, line), ""
			}
			r := []rune(word)
			lines, word = append(lines, string(r[:width])), string(r[width:])
		}
		switch {
		case line == "":
			line = word
		case len([]rune(line))+1+len([]rune(word)) > width:
			lines, line = append(lines, line), word
		default:
			line += " " + word
		}
	}
	return append(lines, line)
}

// SafeLine makes an untrusted text safe with Safe, and cuts it to a width unless that is 0.
func SafeLine(width int, s string) string {
	s = Safe(s)
	if width > 0 {
		s = Cut(s, width)
	}
	return s
}
