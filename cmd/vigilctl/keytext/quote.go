package keytext

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"strings"
	"unicode/utf8"

	"vigil/cmd/vigilctl/screen"
)

// IsText reports whether a value is UTF-8 that a terminal shows unchanged.
func IsText(b []byte) bool {
	return utf8.Valid(b) &&
		bytes.IndexFunc(b, func(r rune) bool {
			return r != '\n' && r != '\t' &&
				screen.Steers(r)
		}) < 0
}

// Quote returns a key unchanged if it is text on one line, otherwise quoted like a string in Go.
func Quote(key string) string {
	if IsText([]byte(key)) && !strings.ContainsAny(key, "\n\t") && key != "" {
		return key
	}
	return fmt.Sprintf("%q", key)
}

// Printable returns a value that is text unchanged, and the length and the first bytes of any
// other.
func Printable(value []byte) string {
	if IsText(value) {
		return strings.TrimSuffix(string(value), "\n")
	}
	return fmt.Sprintf("%d bytes: %s", len(value), Excerpt(value))
}

// Excerpt returns the first bytes in hexadecimal.
func Excerpt(b []byte) string {
	const limit = 32
	if len(b) > limit {
		return hex.EncodeToString(b[:limit]) + "..."
	}
	return hex.EncodeToString(b)
}
