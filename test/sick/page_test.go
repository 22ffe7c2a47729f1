package sick

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// TestPage: the page has a section for each sickness, in the order of the table, and each view says
// the words of the table.
func TestPage(t *testing.T) {
	b, err := os.ReadFile(pagePath)
	if err != nil {
		t.Fatal(err)
	}
	sections := strings.Split(string(b), "\n## ")[1:]
	if len(sections) != len(table) {
		t.Fatalf("%d sections, and the table has %d rows: make sicknesses",
			len(sections), len(table))
	}
	for i, s := range table {
		head, rest, _ := strings.Cut(sections[i], pageTable)
		if want := title(s.name) + "\n\nTruth: " + s.truth + ".\n\n"; head != want {
			t.Errorf("section %d begins %q, want %q: make sicknesses", i, head, want)
			continue
		}
		var r []string
		for line := range strings.SplitSeq(strings.TrimSpace(rest), "\n") {
			name, text, _ := strings.Cut(strings.Trim(line, "| "), " | ")
			if n := len(r); n >= len(viewNames) || name != viewNames[n] {
				t.Fatalf("%s: row %q", s.name, line)
			}
			r = append(r, text)
		}
		if len(r) != len(viewNames) {
			t.Fatalf("%s: %d rows", s.name, len(r))
		}
		for n, w := range s.words() {
			text := r[n]
			if strings.Contains(text, asDoctor) {
				text += lineBreak + r[doctor]
			}
			var said view
			for entry := range strings.SplitSeq(text, lineBreak) {
				said = append(said, plain(entry))
			}
			if wrong := w.wrong(said); w.has != nil && wrong != "" {
				t.Errorf("%s: %s %s: make sicknesses", s.name, viewNames[n], wrong)
			}
		}
	}
}

// plain is the inverse of cell.
func plain(text string) string {
	back := slices.Clone(special)
	for i := 0; i < len(back); i += 2 {
		back[i], back[i+1] = back[i+1], back[i]
	}
	return strings.NewReplacer(back...).Replace(text)
}
