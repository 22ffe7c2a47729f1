package times

import (
	"errors"
	"testing"
	"time"
)

func TestParseSpans(t *testing.T) {
	got, err := parseSpans([]byte{0x0a, 4, 0x08, 1, 0x10, 2, 0x0a, 0, 0x12, 1, 7})
	if err != nil || len(got) != 2 || !got[0].After.Equal(time.UnixMilli(1)) ||
		!got[0].At.Equal(time.UnixMilli(2)) || got[1] != (Span{}) {
		t.Errorf("%v, %v", got, err)
	}
	for _, b := range [][]byte{{0x0a}, {0x0a, 4, 1}, {0x0a, 1, 0x80}, {0x80}} {
		if _, err := parseSpans(b); !errors.Is(err, errMalformed) {
			t.Errorf("%x: %v", b, err)
		}
	}
}

func FuzzParseSpans(f *testing.F) {
	f.Add([]byte{0x0a, 4, 0x08, 1, 0x10, 2, 0x0a, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		if s, err := parseSpans(b); err == nil && len(s) > len(b) {
			t.Errorf("%d spans in %d bytes", len(s), len(b))
		}
	})
}
