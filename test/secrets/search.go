package secrets

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
)

// window is how many bytes of a secret are enough to be a leak.
const window = 8

// search finds secrets, whole and in parts, as they are and as texts that stand for them.
type search struct {
	// patterns are what is looked for, by their first bytes, with the name of the secret.
	patterns map[[window]byte][]pattern
}

type pattern struct {
	text   []byte
	secret string
}

func newSearch() *search { return &search{map[[window]byte][]pattern{}} }

// add adds a secret: each part of it in bytes, in hexadecimal, and in base64 at each of the three
// offsets in a longer text.
func (s *search) add(t testing.TB, name string, secret []byte) {
	t.Helper()
	if len(secret) < window {
		t.Fatalf("the secret %s has %d bytes: at least %d are needed", name, len(secret), window)
	}
	for i := range len(secret) - window + 1 {
		w := secret[i : i+window]
		s.pattern(name, w)
		s.pattern(name, []byte(hex.EncodeToString(w)))
		s.pattern(name, []byte(strings.ToUpper(hex.EncodeToString(w))))
		for offset := range 3 {
			// The digits that do not depend on the bytes around.
			first, last := (offset*8+5)/6, (offset+window)*8/6
			for _, enc := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
				s.pattern(name, []byte(enc.EncodeToString(append(make([]byte, offset),
					w...))[first:last]))
			}
		}
	}
}

func (s *search) pattern(name string, text []byte) {
	key := [window]byte(text)
	for _, p := range s.patterns[key] {
		if bytes.Equal(p.text, text) {
			return
		}
	}
	s.patterns[key] = append(s.patterns[key], pattern{bytes.Clone(text), name})
}

// in reports the secrets in data.
func (s *search) in(t testing.TB, where string, data []byte) {
	t.Helper()
	found := map[string]bool{}
	for i := 0; i+window <= len(data); i++ {
		key := [window]byte(data[i:])
		if key == ([window]byte{}) {
			continue // space that was allocated in advance
		}
		for _, p := range s.patterns[key] {
			if bytes.HasPrefix(data[i:], p.text) && !found[p.secret] {
				found[p.secret] = true
				t.Errorf("%s has a part of %s at byte %d: %q", where, p.secret, i, p.text)
			}
		}
	}
}

// unzip returns what the compressed parts of an object hold.
func unzip(t testing.TB, object []byte) (out []byte) {
	t.Helper()
	magic := []byte{0x28, 0xb5, 0x2f, 0xfd}
	d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1))
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	for rest := object; ; rest = rest[1:] {
		i := bytes.Index(rest, magic)
		if i < 0 {
			return out
		}
		rest = rest[i:]
		if plain, err := d.DecodeAll(rest, nil); err == nil || len(plain) > 0 {
			out = append(out, plain...)
		}
	}
}
