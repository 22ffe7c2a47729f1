package pages

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// block is a part of a page: a fenced block, a hidden one in a comment, or a comment that directs
// the run.
type block struct {
	line     int    // of the fence or the comment
	language string // of a fenced block; "run" for a comment that directs the run
	words    []string
	lines    []string
	notRun   string // the reason in the comment before the block
}

// step is one command with its output.
type step struct {
	line    int
	command string
	want    []string
}

var (
	fence     = regexp.MustCompile("^( *)```(.*)$")
	direction = regexp.MustCompile(`^ *<!-- run: (.+) -->$`)
	hidden    = regexp.MustCompile(`^ *<!-- (console.*)$`)
	notRun    = regexp.MustCompile(`^ *<!-- not run: (.+) -->$`)
	hereDoc   = regexp.MustCompile(`<<'?(\w+)'?`)
)

// blocks returns the fenced and the hidden blocks and the directions of a page in order.
func blocks(text string) (out []block, err error) {
	var open *block
	indent, inComment, reason := "", false, ""
	begin := func(i int, words string) {
		fields := append(strings.Fields(words), "")
		open = &block{line: i + 1, language: fields[0], words: fields[1:max(1, len(fields)-1)],
			notRun: reason}
		reason = ""
	}
	for i, line := range strings.Split(text, "\n") {
		m := fence.FindStringSubmatch(line)
		switch {
		case open != nil && (inComment && strings.TrimSpace(line) == "-->" ||
			!inComment && m != nil):
			out = append(out, *open)
			open = nil
		case open != nil:
			open.lines = append(open.lines, strings.TrimPrefix(line, indent))
		case m != nil:
			indent, inComment = m[1], false
			begin(i, m[2])
		case hidden.MatchString(line):
			indent, inComment = "", true
			begin(i, hidden.FindStringSubmatch(line)[1])
		case notRun.MatchString(line):
			reason = notRun.FindStringSubmatch(line)[1]
		case direction.MatchString(line):
			out = append(out, block{line: i + 1, language: "run",
				words: strings.Fields(direction.FindStringSubmatch(line)[1])})
		case strings.TrimSpace(line) != "":
			if reason != "" {
				return nil, fmt.Errorf("line %d: the reason before it belongs to no block", i+1)
			}
		}
	}
	switch {
	case open != nil:
		return nil, fmt.Errorf("the block of line %d does not end", open.line)
	case reason != "":
		return nil, errors.New("the last reason belongs to no block")
	}
	return out, nil
}

// has reports whether the word follows the language.
func (b block) has(word string) bool { return slices.Contains(b.words, word) }

// steps returns the commands of a block.
func (b block) steps() (out []step, err error) {
	for i := 0; i < len(b.lines); i++ {
		command, ok := strings.CutPrefix(b.lines[i], "$ ")
		if !ok {
			if len(out) == 0 {
				return nil, fmt.Errorf("line %d: output before the first command", b.line+1+i)
			}
			last := &out[len(out)-1]
			last.want = append(last.want, b.lines[i])
			continue
		}
		s := step{line: b.line + 1 + i, command: command}
		for strings.HasSuffix(b.lines[i], `\`) && i+1 < len(b.lines) {
			i++
			s.command += "\n" + b.lines[i]
		}
		if m := hereDoc.FindStringSubmatch(s.command); m != nil {
			for i+1 < len(b.lines) {
				i++
				s.command += "\n" + b.lines[i]
				if b.lines[i] == m[1] {
					break
				}
			}
		}
		out = append(out, s)
	}
	return out, nil
}
