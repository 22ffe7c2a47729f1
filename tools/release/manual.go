package main

import (
	"cmp"
	"context"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"
)

// manual is what the programs say about themselves.
type manual struct {
	vigil       string // output of vigil --help
	bucket      string // output of vigil-bucket --help
	options     string // output of vigilctl options: its global flags
	commands    []command
	completions map[string][]byte // of vigilctl, by shell
}

// command is a command of vigilctl with its help. The first one is vigilctl itself.
type command struct{ name, help string }

var shells = []string{"bash", "fish", "zsh"}

// readManual runs the programs for their help.
func readManual(ctx context.Context, vigil, vigilctl, bucket string) (*manual, error) {
	m := &manual{completions: map[string][]byte{}}
	// The help has default values of the environment: ETCDCTL_ENDPOINTS is one.
	ask := func(program string, args ...string) (string, error) {
		return output(ctx, "", nil, "env", append([]string{"-i", program}, args...)...)
	}
	var err error
	if m.vigil, err = ask(vigil, "--help"); err != nil {
		return nil, err
	}
	if m.bucket, err = ask(bucket, "--help"); err != nil {
		return nil, err
	}
	if m.options, err = ask(vigilctl, "options"); err != nil {
		return nil, err
	}
	for _, shell := range shells {
		script, err := ask(vigilctl, "completion", shell)
		if err != nil {
			return nil, err
		}
		m.completions[shell] = []byte(script + "\n")
	}
	open := [][]string{{}}
	for len(open) > 0 {
		words := open[0]
		open = open[1:]
		help, err := ask(vigilctl, append(words, "--help")...)
		if err != nil {
			return nil, err
		}
		m.commands = append(m.commands,
			command{strings.Join(append([]string{"vigilctl"}, words...), " "), help})
		for _, sub := range subcommands(help) {
			open = append(open, append(slices.Clone(words), sub))
		}
	}
	slices.SortFunc(m.commands, func(a, b command) int { return cmp.Compare(a.name, b.name) })
	return m, nil
}

// block is a paragraph or a list of a help text, with the heading above it.
type block struct {
	heading string
	lines   []string
}

var headingLine = regexp.MustCompile(`^[A-Z][\w ,]*:$`)

// blocks divides a help text at its headings and empty lines.
func blocks(help string) []block {
	var out []block
	heading, fresh := "", true
	for _, line := range strings.Split(strings.TrimRight(help, "\n"), "\n") {
		switch {
		case strings.TrimSpace(line) == "":
			fresh = true
			continue
		case headingLine.MatchString(line):
			heading, fresh = strings.TrimSuffix(line, ":"), true
			continue
		case !strings.HasPrefix(line, " ") && fresh:
			heading = "" // a paragraph ends a section
		}
		if fresh {
			out = append(out, block{heading: heading})
			fresh = false
		}
		last := &out[len(out)-1]
		last.lines = append(last.lines, line)
	}
	return out
}

// entry is a line of a list: a flag or a command, and its description.
var entry = regexp.MustCompile(`^ {2,}(\S.*?)(?: {2,}(\S.*))?$`)

var commandName = regexp.MustCompile(`^  ([a-z][a-z-]*) +\S`)

// isText reports whether the lines below a heading are shown as they are.
func isText(heading string) bool {
	return slices.Contains([]string{"", "Usage", "Examples", "Aliases"}, heading)
}

// subcommands returns the commands that a help text lists.
func subcommands(help string) []string {
	var out []string
	for _, b := range blocks(help) {
		if isText(b.heading) || strings.Contains(b.heading, "Flags") {
			continue
		}
		for _, line := range b.lines {
			if m := commandName.FindStringSubmatch(line); m != nil && m[1] != "help" {
				out = append(out, m[1])
			}
		}
	}
	return out
}

// pages returns the manual pages by file name, without compression.
func (m *manual) pages(version string, date time.Time) map[string][]byte {
	out := map[string][]byte{}
	first := strings.TrimSuffix(strings.SplitN(m.vigil, "\n", 2)[0], ".")
	p := newPage("vigil", "8", version, date, strings.TrimPrefix(first, "Vigil is a "))
	p.body(blocks(m.vigil))
	p.also("vigilctl(1)")
	out["vigil.8"] = p.bytes()
	for _, c := range m.commands {
		all := blocks(c.help)
		p := newPage(strings.ReplaceAll(c.name, " ", "-"), "1", version, date,
			strings.TrimSuffix(all[0].lines[0], "."))
		seeAlso := []string{"vigil(8)"}
		root := c.name == "vigilctl"
		all = slices.DeleteFunc(all,
			func(b block) bool {
				return b.heading == "Global Flags" ||
					root && b.heading == "Flags"
			})
		p.body(all)
		if root {
			p.body(blocks("Global flags:\n" +
				strings.Join(strings.Split(m.options, "\n")[1:], "\n")))
		} else {
			p.text(".SH \"GLOBAL FLAGS\"\nThe flags of vigilctl(1) can be given too.\n")
			seeAlso = append([]string{strings.ReplaceAll(path.Dir(strings.ReplaceAll(c.name, " ",
				"/")), "/", "-") + "(1)"}, seeAlso...)
		}
		for _, sub := range subcommands(c.help) {
			seeAlso = append(seeAlso, strings.ReplaceAll(c.name, " ", "-")+"-"+sub+"(1)")
		}
		p.also(seeAlso...)
		out[strings.ReplaceAll(c.name, " ", "-")+".1"] = p.bytes()
	}
	return out
}

// bucketPage is the file of the page of vigil-bucket, which has a package of its own.
const bucketPage = "vigil-bucket.8"

// bucketPage returns the page of vigil-bucket.
func (m *manual) bucketPage(version string, date time.Time) []byte {
	first := strings.TrimSuffix(strings.SplitN(m.bucket, "\n", 2)[0], ".")
	p := newPage("vigil-bucket", "8", version, date, first)
	p.body(blocks(m.bucket))
	p.also("vigil(8)", "vigilctl-archive(1)")
	return p.bytes()
}

// page is a manual page in the language of man(7).
type page struct {
	b       strings.Builder
	heading string
}

func newPage(name, section, version string, date time.Time, purpose string) *page {
	p := &page{}
	p.text(fmt.Sprintf(".TH %q %q %q %q\n.SH NAME\n%s \\- %s\n", strings.ToUpper(name), section,
		date.Format(time.DateOnly), "Vigil "+version, name, roff(purpose)))
	return p
}

func (p *page) text(s string) { p.b.WriteString(s) }
func (p *page) bytes() []byte { return []byte(p.b.String()) }
func (p *page) also(l ...string) {
	p.text(".SH \"SEE ALSO\"\n" + roff(strings.Join(l, ", ")) + "\n")
}

// body appends blocks of a help text.
func (p *page) body(all []block) {
	for _, b := range all {
		heading := b.heading
		if heading == "" {
			heading = "Description"
		}
		if heading != p.heading {
			p.text(".SH " + fmt.Sprintf("%q", strings.ToUpper(roff(heading))) + "\n")
			p.heading = heading
		}
		switch {
		case isText(b.heading) && strings.HasPrefix(b.lines[0], " "):
			p.text(".PP\n.nf\n")
			for _, line := range b.lines {
				p.text(roff(line) + "\n")
			}
			p.text(".fi\n")
		case isText(b.heading):
			p.text(".PP\n")
			for _, line := range b.lines {
				p.text(roff(line) + "\n")
			}
		default:
			p.list(b.lines)
		}
	}
}

// list appends flags or commands. A description is in the line of its term or below it, indented
// further.
func (p *page) list(lines []string) {
	for _, line := range lines {
		m := entry.FindStringSubmatch(line)
		indent := len(line) - len(strings.TrimLeft(line, " "))
		switch {
		case m == nil:
			p.text(".PP\n" + roff(line) + "\n")
		case indent >= 8 || indent > 2 && !strings.HasPrefix(m[1], "-"):
			p.text(roff(strings.TrimSpace(line)) + "\n")
		default:
			p.text(".TP\n\\fB" + roff(m[1]) + "\\fR\n")
			if m[2] != "" {
				p.text(roff(m[2]) + "\n")
			}
		}
	}
}

// roff escapes a line of text.
func roff(s string) string {
	s = strings.NewReplacer(`\`, `\e`, "-", `\-`, "'", `\(aq`, "`", "\\(ga", "^", `\(ha`, "~",
		`\(ti`, `"`, `\(dq`).Replace(s)
	if strings.HasPrefix(s, ".") {
		s = `\&` + s
	}
	return s
}
