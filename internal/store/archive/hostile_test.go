package archive

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"runtime"
	"testing"
	"time"
)

// Decoding takes memory in proportion to the bytes of an object: a part of two bytes would take more than a hundred.
func TestManifestTakesMemoryByBytes(t *testing.T) {
	id := NewIdentity(7, ID{1}, time.UnixMilli(1), nil)
	for what, list := range map[string]string{"parts": "{},", "members": "{},", "nested": "[{}],", "nothing": "null,"} {
		key := what
		if what == "nested" || what == "nothing" {
			key = "parts"
		}
		data := append([]byte(`{"version":1,"`+key+`":[`), bytes.Repeat([]byte(list), 1<<20)...)
		data = append(data[:len(data)-1], "]}"...)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := DecodeBase(&id, BaseName(1, 1), data)
		runtime.ReadMemStats(&after)
		if !errors.Is(err, ErrDamaged) {
			t.Errorf("%s: %v", what, err)
		}
		if took := after.TotalAlloc - before.TotalAlloc; took > 20*uint64(len(data)) {
			t.Errorf("%s: %d bytes took %d of memory", what, len(data), took)
		}
	}
}

// The smallest elements of lists are accepted.
func TestSmallestElements(t *testing.T) {
	id := NewIdentity(7, ID{1}, time.UnixMilli(1), nil)
	b := NewBase(&id)
	b.Index, b.Term, b.Revision, b.Claim = 1, 1, 1, Claim{1, ID{1}}
	b.Members = make([]Member, 10_000)
	sum := sha256.Sum256(nil)
	b.Parts = []Part{{Name: partName(sum), Kind: RecordsPart, Size: HeaderSize, SHA256: hex.EncodeToString(sum[:]), Through: 1}}
	b.Parts = append(b.Parts, b.Parts[0])
	b.Parts[1].Kind, b.Parts[1].Through = MetaPart, 0
	data, err := b.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := DecodeBase(&id, b.Name(), data); err != nil {
		t.Error(err)
	}
}
