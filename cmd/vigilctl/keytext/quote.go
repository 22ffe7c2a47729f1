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

// Quote returns a key unchanged if it is text on one line. Otherwise it quotes the key as Go quotes
// a string.
func Quote(key string) string {
	if IsText([]byte(key)) && !strings.ContainsAny(key, "\n\t") && key != "" {
		return key
	}
	return fmt.Sprintf("%q", key)
}

// Printable returns a text value unchanged. For any other value it returns the length and the first
// bytes.
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
