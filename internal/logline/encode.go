package logline

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"math"
	"strconv"
	"time"
	"unicode/utf8"
)

// MaxString is the number of bytes that a line has of a message, a key or a value, MaxErrorString of those of a
// line at level error, which may hold a stack. What is longer is cut and its length is given.
const (
	MaxString      = 1 << 10
	MaxErrorString = 8 << 10
)

// cut is how many bytes of a text a line has.
type cut int

func cutAt(l slog.Level) cut {
	if l >= slog.LevelError {
		return MaxErrorString
	}
	return MaxString
}

// of returns s, or its beginning and its length.
func (c cut) of(s string) string {
	if len(s) <= int(c) {
		return s
	}
	end := int(c)
	for end > int(c)-utf8.UTFMax && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + "... (" + strconv.Itoa(len(s)) + " bytes)"
}

// appendAttr appends an attribute, after a comma unless it is the first of a group. Empty ones, and errors
// that are nil, are left out.
func (c cut) appendAttr(b []byte, a slog.Attr) []byte {
	v := a.Value.Resolve()
	switch {
	case a.Equal(slog.Attr{}):
		return b
	case v.Kind() == slog.KindGroup:
		return c.appendGroup(b, a.Key, v.Group())
	case v.Kind() == slog.KindAny && v.Any() == nil && a.Key == "error":
		return b
	}
	return c.appendValue(c.appendKey(b, a.Key), v)
}

func (c cut) appendKey(b []byte, key string) []byte {
	if len(b) == 0 || b[len(b)-1] != '{' {
		b = append(b, ',')
	}
	return append(appendString(b, c.of(key)), ':')
}

// appendGroup appends attributes as an object, or as they are if they have no name.
func (c cut) appendGroup(b []byte, name string, attrs []slog.Attr) []byte {
	if len(attrs) == 0 {
		return b
	}
	if name != "" {
		b = append(c.appendKey(b, name), '{')
	}
	for _, a := range attrs {
		b = c.appendAttr(b, a)
	}
	if name != "" {
		b = append(b, '}')
	}
	return b
}

func (c cut) appendValue(b []byte, v slog.Value) []byte {
	switch v.Kind() {
	case slog.KindString:
		return appendString(b, c.of(v.String()))
	case slog.KindInt64:
		return strconv.AppendInt(b, v.Int64(), 10)
	case slog.KindUint64:
		return strconv.AppendUint(b, v.Uint64(), 10)
	case slog.KindBool:
		return strconv.AppendBool(b, v.Bool())
	case slog.KindDuration:
		return appendString(b, v.Duration().String())
	case slog.KindTime:
		b = append(b, '"')
		return append(v.Time().Round(0).AppendFormat(b, timeFormat), '"')
	case slog.KindFloat64:
		if f := v.Float64(); !math.IsNaN(f) && !math.IsInf(f, 0) {
			return strconv.AppendFloat(b, f, 'g', -1, 64)
		}
		return appendString(b, strconv.FormatFloat(v.Float64(), 'g', -1, 64))
	}
	return c.appendAny(b, v.Any())
}

func (c cut) appendAny(b []byte, v any) []byte {
	switch v := v.(type) {
	case nil:
		return append(b, "null"...)
	case error:
		return appendString(b, c.of(text(v.Error)))
	case time.Duration:
		return appendString(b, v.String())
	case json.Marshaler:
	case fmt.Stringer:
		return appendString(b, c.of(text(v.String)))
	}
	var buf bytes.Buffer
	e := json.NewEncoder(&buf)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return appendString(b, c.of(fmt.Sprintf("%+v", v)))
	}
	if buf.Len() > int(c) {
		return appendString(b, c.of(buf.String()))
	}
	return append(b, bytes.TrimSuffix(buf.Bytes(), []byte{'\n'})...)
}

// text calls a method of a value from anywhere: one that panics, as on a nil pointer, must not end who
// logs it.
func text(f func() string) (s string) {
	defer func() {
		if p := recover(); p != nil {
			s = fmt.Sprintf("!PANIC: %v", p)
		}
	}()
	return f()
}

// appendString appends a string of JSON.
func appendString(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c >= 0x7f || c == '"' || c == '\\' {
			var buf bytes.Buffer
			e := json.NewEncoder(&buf)
			e.SetEscapeHTML(false)
			_ = e.Encode(s) // a string can be encoded
			return append(b, bytes.TrimSuffix(buf.Bytes(), []byte{'\n'})...)
		}
	}
	return append(append(append(b, '"'), s...), '"')
}
