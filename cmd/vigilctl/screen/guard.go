package screen

import (
	"io"
	"unicode/utf8"
)

// SafeText makes a text of several lines safe as Safe does, and replaces bytes that are not UTF-8.
// It keeps line feeds and tabs.
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

// Guard returns a writer for text that may contain stored data. On a terminal it applies SafeText;
// any other output gets the same bytes. Each write must consist of whole characters.
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

// Unwrap returns the underlying writer.
func (g guard) Unwrap() io.Writer { return g.to }

// Unguarded returns the writer below a Guard, for screens and for other programs.
func Unguarded(w io.Writer) io.Writer {
	if g, ok := w.(guard); ok {
		return g.to
	}
	return w
}
