// Package screen draws on terminals: full screens that redraw in place, tables that fit the width,
// short numbers.
package screen

import (
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"
)

// Style is a style of text on terminals with colors.
type Style string

// The styles.
const (
	Plain Style = ""
	Bold  Style = "1"
	Faint Style = "2"
	Good  Style = "32"
	Warn  Style = "33"
	Bad   Style = "31;1"
)

// Size returns the columns and lines of a terminal. ok is false if w is not a terminal. It finds
// the terminal below a writer that has a method Unwrap.
func Size(w io.Writer) (columns, lines int, ok bool) {
	for o, wraps := w.(interface{ Unwrap() io.Writer }); wraps; o,
		wraps = w.(interface{ Unwrap() io.Writer }) {
		w = o.Unwrap()
	}
	f, isFile := w.(*os.File)
	if !isFile || !term.IsTerminal(int(f.Fd())) {
		return 0, 0, false
	}
	columns, lines, err := term.GetSize(int(f.Fd()))
	if err != nil || columns <= 0 || lines <= 0 {
		return 80, 24, true
	}
	return columns, lines, true
}

// Paint colors texts, or returns them unchanged.
type Paint struct{ on bool }

// NewPaint returns a Paint that colors output to a terminal. It returns a plain one if NO_COLOR is
// set, the terminal is dumb, or the writer has a method NoColor that returns true.
func NewPaint(w io.Writer) Paint {
	_, _, ok := Size(w)
	if p, can := w.(interface{ NoColor() bool }); can && p.NoColor() {
		ok = false
	}
	return Paint{on: ok && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"}
}

// In returns a text in a style.
func (p Paint) In(s Style, text string) string {
	if !p.on || s == Plain {
		return text
	}
	return "\x1b[" + string(s) + "m" + text + "\x1b[0m"
}

// Screen takes over a terminal until Close.
type Screen struct{ w io.Writer }

// Open switches a terminal to an empty screen; Close restores the previous content.
func Open(w io.Writer) (*Screen, error) {
	_, err := io.WriteString(w, "\x1b[?1049h\x1b[?25l\x1b[2J")
	return &Screen{w}, err
}

// Draw replaces the content. It omits lines that do not fit, but never the last one, which often
// sums up the others.
func (s *Screen) Draw(lines []string) error {
	_, height, ok := Size(s.w)
	if most := max(height, 2); ok && len(lines) > most {
		omitted := fmt.Sprintf("… %d more lines", len(lines)-most+1)
		lines = append(lines[:most-2:most-2], omitted, lines[len(lines)-1])
	}
	// Write once, so that no partial screen is visible.
	_, err := io.WriteString(s.w, "\x1b[H"+strings.Join(lines, "\x1b[K\r\n")+"\x1b[K\x1b[J")
	return err
}

// Close restores the terminal.
func (s *Screen) Close() error {
	_, err := io.WriteString(s.w, "\x1b[?25h\x1b[?1049l")
	return err
}
