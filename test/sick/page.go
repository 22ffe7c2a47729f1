package sick

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// pagePath is the file that has the table.
const pagePath = "testdata/views.md"

// viewNames are the views in the order of the table.
var viewNames = [4]string{"doctor", "top", "console", "log"}

// The indexes of views.
const doctor, console = 0, 2

// The console has the findings of doctor; the page does not repeat them.
const lineBreak, asDoctor = "<br>", "(the same finding)"

// words are what a view must say, and what it must not: each is in one entry. Parts with "…"
// between them follow each other there.
type words struct{ has, not []string }

// says returns words that a view must say.
func says(has ...string) words { return words{has: has} }

// never adds words that a view must not say.
func (w words) never(not ...string) words {
	w.not = append(w.not, not...)
	return w
}

// wrong returns what a view does not say although it must, or says although it must not; empty if
// it is right.
func (w words) wrong(v view) string {
	for _, word := range w.has {
		if !slices.ContainsFunc(v, func(entry string) bool { return contains(entry, word) }) {
			return fmt.Sprintf("does not say %q", word)
		}
	}
	for _, word := range w.not {
		for _, entry := range v {
			if contains(entry, word) {
				return fmt.Sprintf("says %q: %s", word, entry)
			}
		}
	}
	return ""
}

// contains reports whether an entry has the parts of a word, one after the other.
func contains(entry, word string) bool {
	for part := range strings.SplitSeq(word, "…") {
		_, rest, ok := strings.Cut(entry, part)
		if !ok {
			return false
		}
		entry = rest
	}
	return true
}

// pick returns the entries of a view that have the words: for each word the last one.
func (w words) pick(v view) (out view) {
	var at []int
	for _, word := range w.has {
		for i := len(v) - 1; i >= 0; i-- {
			if contains(v[i], word) {
				if !slices.Contains(at, i) {
					at = append(at, i)
				}
				break
			}
		}
	}
	slices.Sort(at)
	for _, i := range at {
		out = append(out, v[i])
	}
	return out
}

// varies is what differs between two runs.
var varies = []struct {
	pattern *regexp.Regexp
	text    string
}{
	{regexp.MustCompile(`\b[0-9a-f]{14,16}\b`), "ID"},
	{regexp.MustCompile(`127\.0\.0\.1:\d{4,5}\b`), "ADDRESS"},
	{regexp.MustCompile(`\d{4}-\d\d-\d\dT[\d:.]+(Z|[+-]\d\d:?\d\d)`), "TIME"},
	{regexp.MustCompile(`\d{4}-\d\d-\d\d`), "DATE"},
	{regexp.MustCompile(`/(tmp|dev/shm)/[^/\s"]*(/[^/\s"]+)?/(m\d|volume|bucket|\d+|00\d)`),
		"/var/lib/$3"},
	{regexp.MustCompile(`\b\d\d:\d\d:\d\d\b`), "TIME"},
	{regexp.MustCompile(`\b\d+(\.\d+)?(µs|ms|s|m|h)(\d+(\.\d+)?(m|s))*\b`), "N$2"},
	{regexp.MustCompile(`\b\d{3,}\b`), "N"},
}

// constant returns a view without what varies.
func (g *group) constant(v view) (out view) {
	for _, entry := range v {
		entry = strings.ReplaceAll(entry, `\u003e`, ">")
		// Addresses are as in other pages, and dots of theirs are no decimal points.
		for n, m := range g.list {
			for port, addresses := range map[string][]string{"2379": {m.shown, m.Addr()},
				"2380": {m.peerURL[strings.Index(m.peerURL, "//")+2:], m.PeerAddr()}} {
				for _, a := range addresses {
					entry = strings.ReplaceAll(entry, a,
						fmt.Sprintf("\x00%c%s\x00", 'a'+n, port[3:]))
				}
			}
		}
		entry = strings.ReplaceAll(entry, g.dir, "/var/lib")
		for _, x := range varies {
			entry = x.pattern.ReplaceAllString(entry, x.text)
		}
		for n := range g.list {
			for digit, port := range map[string]string{"9": "2379", "0": "2380"} {
				entry = strings.ReplaceAll(entry, fmt.Sprintf("\x00%c%s\x00", 'a'+n, digit),
					fmt.Sprintf("10.0.0.%d:%s", n+1, port))
			}
		}
		if !slices.Contains(out, entry) {
			out = append(out, entry)
		}
	}
	return out
}

// page collects what the views say.
type page struct {
	mu   sync.Mutex
	seen map[string][4]string
}

func (p *page) add(s sickness, seen [4]view) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var row [4]string
	for i, v := range seen {
		cells := make([]string, len(v))
		for n, entry := range v {
			cells[n] = cell(entry)
		}
		if i == console {
			same := func(c string) bool {
				return slices.Contains(strings.Split(row[doctor],
					lineBreak), c)
			}
			if some := slices.ContainsFunc(cells, same); some {
				cells = append(slices.DeleteFunc(cells, same), asDoctor)
			}
		}
		row[i] = cmp.Or(strings.Join(cells, lineBreak), "-")
	}
	p.seen[s.name] = row
}

// special are the characters of an entry that mean something in a cell of Markdown, and how they
// are written there.
var special = []string{"|", "&#124;", "<", "&lt;", ">", "&gt;", "*", `\*`, "_", `\_`, "[", `\[`}

// cell returns an entry as a part of a cell of Markdown.
func cell(entry string) string {
	return strings.Replace(strings.NewReplacer(special...).Replace(entry), " next: ", " → ", 1)
}

const pageHead = `# What each view says of a sick cluster

A test makes clusters of real members sick, and reads what ` + "`vigilctl doctor`, `vigilctl top --once`" + `, the overview
of the console and the log of a member say. The tables have what they said of the sickness, without
their lines about the rest. The next step follows an arrow. N is a number, and times, ids and addresses are replaced. A dash means that
the view has nothing to say of it, or cannot be asked.

`

// pageTable begins the table of one sickness.
const pageTable = "| view | says |\n|---|---|\n"

// title returns a text as the beginning of a sentence.
func title(text string) string { return strings.ToUpper(text[:1]) + text[1:] }

// render returns the page.
func (p *page) render() string {
	var b strings.Builder
	b.WriteString(pageHead)
	for _, s := range table {
		fmt.Fprintf(&b, "## %s\n\nTruth: %s.\n\n%s", title(s.name), s.truth, pageTable)
		for i, text := range p.seen[s.name] {
			fmt.Fprintf(&b, "| %s | %s |\n", viewNames[i], text)
		}
		b.WriteString("\n")
	}
	return strings.TrimSuffix(b.String(), "\n")
}
