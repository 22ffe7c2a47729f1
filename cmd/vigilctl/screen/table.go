package screen

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/mattn/go-runewidth"
)

// Column is a column of a table.
type Column struct {
	Title string
	// Right aligns the cells to the right.
	Right bool
	// Weight decides which columns are omitted first if not all fit: the smallest weights. Columns
	// of weight 0 stay.
	Weight int
	// Least is the smallest width to which a column of weight 0 may shrink.
	Least int
}

// gap is the space between columns.
const gap = "  "

// Table returns the lines of a table with at most width columns of text, 0 for no limit. It first
// omits table columns that do not fit, and then cuts texts. Each cell passes Safe.
func Table(width int, columns []Column, rows [][]string) []string {
	widths := make([]int, len(columns))
	for i, c := range columns {
		widths[i] = runewidth.StringWidth(c.Title)
		for _, r := range rows {
			widths[i] = max(widths[i], runewidth.StringWidth(Safe(r[i])))
		}
	}
	shown := fitColumns(width, columns, widths)
	lines := make([]string, 0, len(rows)+1)
	titles := make([]string, len(columns))
	for i, c := range columns {
		titles[i] = c.Title
	}
	for _, r := range append([][]string{titles}, rows...) {
		var b strings.Builder
		for n, i := range shown {
			if n > 0 {
				b.WriteString(gap)
			}
			cell := Cut(Safe(r[i]), widths[i])
			pad := strings.Repeat(" ", widths[i]-runewidth.StringWidth(cell))
			switch {
			case columns[i].Right:
				b.WriteString(pad + cell)
			case n < len(shown)-1:
				b.WriteString(cell + pad)
			default:
				b.WriteString(cell)
			}
		}
		lines = append(lines, strings.TrimRight(b.String(), " "))
	}
	if width > 0 {
		for i := range lines {
			lines[i] = Cut(lines[i], width)
		}
	}
	return lines
}

// fitColumns returns the columns to show, and reduces their widths.
func fitColumns(width int, columns []Column, widths []int) []int {
	var shown []int
	for i := range columns {
		shown = append(shown, i)
	}
	total := func() int {
		n := len(gap) * (len(shown) - 1)
		for _, i := range shown {
			n += widths[i]
		}
		return n
	}
	for width > 0 && total() > width {
		// Cut texts to their smallest width before omitting a column.
		over := total() - width
		room := 0
		for _, i := range shown {
			if least := columns[i].Least; least > 0 {
				room += max(0, widths[i]-least)
			}
		}
		if room >= over {
			break
		}
		first := -1
		for n, i := range shown {
			if columns[i].Weight > 0 &&
				(first < 0 || columns[i].Weight < columns[shown[first]].Weight) {
				first = n
			}
		}
		if first < 0 {
			break
		}
		shown = append(shown[:first], shown[first+1:]...)
	}
	// Cut the widest column first.
	for width > 0 && total() > width {
		widest := -1
		for _, i := range shown {
			if columns[i].Least > 0 && widths[i] > columns[i].Least &&
				(widest < 0 || widths[i] > widths[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			break
		}
		widths[widest]--
	}
	return shown
}

// Cut shortens a text to a width, with an ellipsis at the end.
func Cut(s string, width int) string {
	if runewidth.StringWidth(s) <= width {
		return s
	}
	return runewidth.Truncate(s, width, "…")
}

// Safe replaces the characters that Steers reports and bytes that are not UTF-8 with U+FFFD: a
// terminal with an 8-bit character set may act on such bytes.
func Safe(s string) string {
	if strings.IndexFunc(s, Steers) < 0 && utf8.ValidString(s) {
		return s
	}
	return strings.Map(func(r rune) rune {
		if Steers(r) {
			return utf8.RuneError
		}
		return r
	}, s)
}

// Steers reports whether a terminal may act on a character instead of showing it. These are the
// control characters of both sets (such as ESC, and U+009B, which starts a sequence by itself),
// line and paragraph separators, and format characters, which hide text or reverse its direction.
// The joiners U+200C and U+200D are allowed: scripts and emoji need them.
func Steers(r rune) bool {
	return r != '\u200c' && r != '\u200d' &&
		unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp)
}
