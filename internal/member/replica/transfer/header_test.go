package transfer

import (
	"bytes"
	"strings"
	"testing"

	"vigil/internal/store/history"
)

// Every single bit of a header matters.
func TestFlippedBitsOfAHeader(t *testing.T) {
	h := Header{Cluster: 1, Term: 2, At: history.Applied{Term: 2, Index: 9}, Revision: 6,
		Compact: 3, Incremental: true, Base: 1, Hash: 7}
	header := h.Encode()
	if got, err := DecodeHeader(header); err != nil || got != h {
		t.Fatalf("%+v, %v", got, err)
	}
	for i := range 8 * len(header) {
		b := bytes.Clone(header)
		b[i/8] ^= 1 << (i % 8)
		if _, err := DecodeHeader(b); err == nil {
			t.Errorf("bit %d of the header does not matter", i)
		}
	}
}

// The header of a stream in the next version is refused with both versions, whatever its size.
func TestNextVersion(t *testing.T) {
	next := append([]byte(snapshotMagic), snapshotVersion+1, 7, 7, 7)
	if _, err := DecodeHeader(next); err == nil ||
		!strings.HasSuffix(err.Error(), "snapshot stream of version 2, this program reads 1") {
		t.Error(err)
	}
}

func FuzzHeaders(f *testing.F) {
	f.Add((&Header{Cluster: 1, Term: 2, At: history.Applied{Term: 2, Index: 9}, Revision: 6,
		Compact: 3}).Encode())
	f.Add(Offer{Index: 1, Compact: 2}.Encode())
	f.Add(Answer{Have: true, Revision: 3, Hash: 4}.Encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		_, _ = DecodeHeader(b)
		_, _ = decodeOffer(b)
		_, _ = DecodeAnswer(b)
	})
}
