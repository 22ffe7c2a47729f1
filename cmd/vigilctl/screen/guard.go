package screen

import (
	"io"
	"unicode/utf8"
)

// SafeText returns a text of several lines as Safe does, and also replaces bytes that are no UTF-8.
// Line feeds and tabs stay.
func SafeText(b []byte) []byte {
	out := make([]byte, 0, len(b))
	for len(b) > 0 {
		r, n := utf8.DecodeRune(b)
		switch {
		case r == utf8.RuneError && n == 1, r != '\n' && r != '\t' && Steers(r):
			out = utf8.AppendRune(out, utf8.RuneError)
		default:
			out = append(out, b[:n]...)
		}
		b = b[n:]
	}
	return out
}

// Guard returns a writer for text that may contain what others have stored: on a terminal it passes
// SafeText, and any other output gets the same bytes. Each write must be whole characters.
func Guard(w io.Writer) io.Writer {
	if _, _, terminal := Size(w); !terminal {
		return w
	}
	return guard{w}
}

type guard struct{ to io.Writer }

// Write implements io.Writer.
func (g guard) Write(b []byte) (int, error) {
	if _, err := g.to.Write(SafeText(b)); err != nil {
		return 0, err
	}
	return len(b), nil
}

// Unwrap returns the writer below.
func (g guard) Unwrap() io.Writer { return g.to }

// Unguarded returns the writer below a Guard, for pictures and for other programs.
func Unguarded(w io.Writer) io.Writer {
	if g, ok := w.(guard); ok {
		return g.to
	}
	return w
}
