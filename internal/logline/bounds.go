package logline

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strconv"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

const (
	// MaxString is the limit of a message, a key or a value of a line, in bytes with its escapes,
	// and MaxErrorString the limit in a line at level error, which may hold a stack. A longer text
	// is cut, and followed by its length without escapes.
	MaxString      = 1 << 10
	MaxErrorString = 8 << 10
	// MaxFields is the number of bytes of attributes after which a line omits further attributes.
	MaxFields = 16 << 10
)

// bound limits the texts of one line.
type bound struct {
	text  int // limit of one text
	bytes int // of texts so far
}

func newBound(l slog.Level) bound {
	if l >= slog.LevelError {
		return bound{text: MaxErrorString}
	}
	return bound{text: MaxString}
}

// cut returns s, or its beginning and its length.
func (b *bound) cut(s string) string {
	end, written := fitting(s, b.text)
	b.bytes += written
	if end < len(s) {
		s = s[:end] + "... (" + strconv.Itoa(len(s)) + " bytes)"
	}
	return s
}

// fitting returns the length of the longest beginning of s that takes at most limit bytes in a
// line, and these bytes.
func fitting(s string, limit int) (end, written int) {
	for end < len(s) {
		r, n := utf8.DecodeRuneInString(s[end:])
		size := n
		switch {
		case r == '"', r == '\\', r == '\n', r == '\r', r == '\t':
			size = len(`\n`)
		case r < ' ', r == utf8.RuneError && n == 1:
			size = len(`\u0000`)
		case !unicode.IsPrint(r):
			size = len(`\u0000`) * utf16.RuneLen(r)
		}
		if written+size > limit {
			break
		}
		end, written = end+n, written+size
	}
	return end, written
}

// attr returns the bounded form of an attribute, and false for an empty attribute, an empty group
// and a nil error.
func (b *bound) attr(a slog.Attr) (slog.Attr, bool) {
	v := a.Value.Resolve()
	switch kind := v.Kind(); {
	case a.Equal(slog.Attr{}), kind == slog.KindAny && v.Any() == nil && a.Key == "error":
		return a, false
	case kind == slog.KindGroup:
		group := b.attrs(v.Group())
		return slog.Attr{Key: b.cut(a.Key), Value: slog.GroupValue(group...)}, len(group) > 0
	}
	return slog.Attr{Key: b.cut(a.Key), Value: b.value(v)}, true
}

func (b *bound) attrs(list []slog.Attr) (out []slog.Attr) {
	for _, a := range list {
		if a, ok := b.attr(a); ok {
			out = append(out, a)
		}
	}
	return out
}

// value returns the bounded text of a value, or the value itself if it needs no bound.
func (b *bound) value(v slog.Value) slog.Value {
	switch v.Kind() {
	case slog.KindString:
		return slog.StringValue(b.cut(v.String()))
	case slog.KindAny:
	default:
		b.bytes += 8
		return v
	}
	switch x := v.Any().(type) {
	case nil:
		return v
	case error:
		return slog.StringValue(b.cut(callText(x.Error)))
	case json.Marshaler:
	case fmt.Stringer:
		return slog.StringValue(b.cut(callText(x.String)))
	}
	var buf bytes.Buffer
	e := json.NewEncoder(&buf)
	e.SetEscapeHTML(false)
	if err := e.Encode(v.Any()); err != nil {
		return slog.StringValue(b.cut(fmt.Sprintf("%+v", v.Any())))
	}
	if buf.Len() > b.text {
		return slog.StringValue(b.cut(buf.String()))
	}
	b.bytes += buf.Len()
	return slog.AnyValue(json.RawMessage(bytes.TrimSuffix(buf.Bytes(), []byte{'\n'})))
}

// callText calls a method of a logged value. A method that panics, as on a nil pointer, must not
// end the program.
func callText(f func() string) (s string) {
	defer func() {
		if p := recover(); p != nil {
			s = fmt.Sprintf("!PANIC: %v", p)
		}
	}()
	return f()
}
