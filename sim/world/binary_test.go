package world

import (
	"bytes"
	"testing"
)

// TestFunctions: a function that begins with a table of jumps jumps to its beginning directly, and all others are as they were.
func TestFunctions(t *testing.T) {
	const table = "\x20\x00\x0e\x02\x00\x01\x02"
	for name, c := range map[string]struct{ locals, code, want string }{
		"table":             {"\x01\x02\x7f", "\x23\x00\x21\x01\x02\x40\x03\x40\x02\x40\x02\x40" + table + "\x0b", "\x23\x00\x21\x01\x02\x40\x03\x40\x02\x40\x02\x40\x20\x00\x45\x0d\x00" + table + "\x0b"},
		"no loop":           {"\x00", "\x23\x00\x21\x01\x02\x40" + table, "\x23\x00\x21\x01\x02\x40\x20\x00\x45\x0d\x00" + table},
		"one place":         {"\x00", "\x23\x00\x21\x01\x02\x40\x20\x00\x0e\x00\x00\x0b", "\x23\x00\x21\x01\x02\x40\x20\x00\x45\x0d\x00\x20\x00\x0e\x00\x00\x0b"},
		"another first":     {"\x00", "\x23\x00\x21\x01\x02\x40\x20\x00\x0e\x01\x01\x00\x0b", ""},
		"another argument":  {"\x00", "\x23\x00\x21\x01\x02\x40\x20\x02\x0e\x01\x00\x00\x0b", ""},
		"table after code":  {"\x00", "\x23\x00\x21\x01\x01\x02\x40" + table, ""},
		"no table":          {"\x00", "\x23\x00\x21\x01\x02\x40\x0b", ""},
		"cut off":           {"\x00", "\x23\x00\x21\x01\x02\x40\x20\x00\x0e\x01", ""},
		"without a pointer": {"\x00", "\x02\x40" + table, ""},
	} {
		f := func(code string) []byte { return append([]byte{byte(len(c.locals) + len(code))}, c.locals+code...) }
		want := c.want
		if want == "" {
			want = c.code
		}
		// A function after it shows that its length is right.
		const next = "\x02\x00\x0b"
		r := &reader{b: append(append([]byte{2}, f(c.code)...), next...)}
		if got := r.functions(); r.failed || !bytes.Equal(got, append(append([]byte{2}, f(want)...), next...)) {
			t.Errorf("%s: got %x, failed %t, want %x", name, got, r.failed, want)
		}
	}
	r := &reader{b: []byte{2, 2, 0, 0x0b}}
	if r.functions(); !r.failed {
		t.Error("a missing function is not noticed")
	}
}
