package pages

import (
	"fmt"
	"regexp"
	"strings"
)

var (
	blanks = regexp.MustCompile(`[ \t]+`)
	dashes = regexp.MustCompile(`-{2,}`)
	id     = regexp.MustCompile(`\b[0-9a-f]{14,16}\b`)
)

// ids maps an id on the page to the id in the run.
type ids map[string]string

// even removes what is not compared: the number of spaces and dashes.
func even(line string) string {
	return dashes.ReplaceAllString(strings.TrimSpace(blanks.ReplaceAllString(line, " ")), "--")
}

// evenLines returns the lines of an output without the empty ones at its end.
func evenLines(text string) string {
	lines := strings.Split(text, "\n")
	for i := range lines {
		lines[i] = even(lines[i])
	}
	return strings.TrimRight(strings.Join(lines, "\n"), "\n") + "\n"
}

// inRun replaces the ids of the page by those of the run.
func (known ids) inRun(command string) string {
	return id.ReplaceAllStringFunc(command, func(s string) string {
		if run, ok := known[s]; ok {
			return run
		}
		return s
	})
}

// expression returns the pattern of one line and the ids of the page that its groups stand for.
func (known ids) expression(line string) (pattern string, groups []string) {
	quote := func(s string) string {
		return strings.ReplaceAll(regexp.QuoteMeta(s), `\.\.\.`, `.*`)
	}
	var b strings.Builder
	at := 0
	for _, m := range id.FindAllStringIndex(line, -1) {
		b.WriteString(quote(line[at:m[0]]))
		name := line[m[0]:m[1]]
		if run, ok := known[name]; ok {
			b.WriteString(run)
		} else {
			b.WriteString(`([0-9a-f]{8,16})`)
			groups = append(groups, name)
		}
		at = m[1]
	}
	b.WriteString(quote(line[at:]))
	return b.String(), groups
}

// matches compares an output with that of the page, and keeps the ids that are new. The output of a
// program that still runs may be longer.
func (known ids) matches(want []string, got string, longer bool) bool {
	for len(want) > 0 && strings.TrimSpace(want[len(want)-1]) == "" {
		want = want[:len(want)-1]
	}
	var whole strings.Builder
	var groups []string
	whole.WriteString(`\A`)
	for _, line := range want {
		line = even(line)
		if line == "..." {
			whole.WriteString(`(?:.*\n)*?`)
			continue
		}
		pattern, ofLine := known.expression(line)
		whole.WriteString(pattern + `\n`)
		groups = append(groups, ofLine...)
	}
	if len(want) == 0 {
		whole.WriteString(`\n?`)
	}
	if !longer {
		whole.WriteString(`\z`)
	}
	return known.keep(whole.String(), groups, evenLines(got))
}

// contains reports whether the lines are in a log in this order.
func (known ids) contains(want []string, log string) bool {
	var whole strings.Builder
	var groups []string
	for _, line := range want {
		if line = even(line); line == "..." || line == "" {
			continue
		}
		pattern, ofLine := known.expression(line)
		fmt.Fprintf(&whole, `(?:.*\n)*?.*%s.*\n`, pattern)
		groups = append(groups, ofLine...)
	}
	return known.keep(whole.String(), groups, evenLines(log))
}

// keep matches and keeps the ids.
func (known ids) keep(pattern string, groups []string, got string) bool {
	m := regexp.MustCompile(pattern).FindStringSubmatch(got)
	if m == nil {
		return false
	}
	for i, name := range groups {
		if _, ok := known[name]; !ok {
			known[name] = m[i+1]
		}
	}
	return true
}
