package world

import (
	"bytes"
	"testing"
)

// Memory that is used again has what new memory has, whatever processes wrote to it.
func TestMemoryIsUsedAgain(t *testing.T) {
	const limit, size = 1 << 20, 300 << 10
	parts := []segmentOfData{{4 << 10, bytes.Repeat([]byte{1}, 5000)},
		{64 << 10, bytes.Repeat([]byte{2}, 4096)}}
	want := make([]byte, limit)
	for _, p := range parts {
		copy(want[p.at:], p.bytes)
	}
	first := reserve(limit, parts)
	if !bytes.Equal(first.bytes, want) {
		t.Error("new memory differs from the image")
	}
	b := first.Reallocate(size)
	for n := range b {
		b[n] = 0xff
	}
	first.Free()
	again := reserve(limit, parts)
	defer again.Free()
	if &again.bytes[0] != &first.bytes[0] {
		t.Error("the memory is not used again")
	}
	if !bytes.Equal(again.bytes, want) {
		t.Error("memory that is used again differs from the image")
	}
	if again.Reallocate(limit+1) != nil {
		t.Error("it grew above its limit")
	}
}
