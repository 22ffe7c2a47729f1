package sick

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// TestPage: the page has a row of each sickness, in the order of the table, and each view says the words of the table.
func TestPage(t *testing.T) {
	b, err := os.ReadFile(pagePath)
	if err != nil {
		t.Fatal(err)
	}
	var rows [][]string
	for line := range strings.SplitSeq(string(b), "\n") {
		if strings.HasPrefix(line, "| ") {
			rows = append(rows, strings.Split(strings.Trim(line, "| "), " | "))
		}
	}
	rows = slices.DeleteFunc(rows, func(r []string) bool { return r[0] == "sickness" })
	if len(rows) != len(table) {
		t.Fatalf("%d rows, and the table has %d: make sicknesses", len(rows), len(table))
	}
	for i, s := range table {
		r := rows[i]
		if len(r) != 6 || r[0] != s.name || r[1] != s.truth {
			t.Errorf("row %d is %q, the table has %q: make sicknesses", i, r, []string{s.name, s.truth})
			continue
		}
		for n, w := range s.words() {
			text := r[2+n]
			if strings.Contains(text, asDoctor) {
				text += lineBreak + r[2+doctor]
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
