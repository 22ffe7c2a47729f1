// Package screen draws what changes: pictures that take each other's place on a terminal, and tables that fit it.
package screen

import (
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"
)

// Style is how a piece of text is shown where there are colours.
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

// Size returns the columns and lines of a terminal; ok is false if w is none. A writer that only passes on to a
// terminal gives it by a method Unwrap.
func Size(w io.Writer) (columns, lines int, ok bool) {
	if o, wraps := w.(interface{ Unwrap() io.Writer }); wraps {
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

// Paint colours texts, or leaves them.
type Paint struct{ on bool }

// NewPaint returns one that colours what goes to a terminal, unless NO_COLOR is set or the terminal is a dumb one.
func NewPaint(w io.Writer) Paint {
	_, _, ok := Size(w)
	return Paint{on: ok && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"}
}

// In returns a text in a style.
func (p Paint) In(s Style, text string) string {
	if !p.on || s == Plain {
		return text
	}
	return "\x1b[" + string(s) + "m" + text + "\x1b[0m"
}

// Screen takes over a terminal until it is closed.
type Screen struct{ w io.Writer }

// Open takes over a terminal: what it showed comes back with Close.
func Open(w io.Writer) (*Screen, error) {
	_, err := io.WriteString(w, "\x1b[?1049h\x1b[?25l\x1b[2J")
	return &Screen{w}, err
}

// Draw shows lines in place of the ones before. The last of those that do not fit are left out.
func (s *Screen) Draw(lines []string) error {
	_, height, ok := Size(s.w)
	if ok && len(lines) > height {
		lines = append(lines[:height-1:height-1], fmt.Sprintf("… %d more lines", len(lines)-height+1))
	}
	// One write, so that no half picture is seen.
	_, err := io.WriteString(s.w, "\x1b[H"+strings.Join(lines, "\x1b[K\r\n")+"\x1b[K\x1b[J")
	return err
}

// Close gives the terminal back as it was.
func (s *Screen) Close() error {
	_, err := io.WriteString(s.w, "\x1b[?25h\x1b[?1049l")
	return err
}
