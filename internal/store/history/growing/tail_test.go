package growing

import (
	"bytes"
	"testing"

	"vigil/internal/store/history/format"
	"vigil/internal/vfs"
)

// counted is a file in memory that counts what is read.
type counted struct {
	vfs.File
	b    []byte
	read int64
}

func (f *counted) ReadAt(p []byte, off int64) (int, error) {
	f.read += int64(len(p))
	return bytes.NewReader(f.b).ReadAt(p, off)
}

// A torn batch may hold a value that a client has filled with what looks like headers of long
// batches. Not each of them is read.
func TestTailOfHeaders(t *testing.T) {
	f := &counted{b: make([]byte, 256<<10)}
	for off := format.HeaderSize; off+
		format.BatchHeaderSize <= len(f.b); off += format.BatchHeaderSize {
		copy(f.b[off+4:], format.BatchMagic)
		format.LE.PutUint32(f.b[off+8:], uint32(len(f.b)-off)&^7)
		format.LE.PutUint32(f.b[off+20:], 1<<31)
	}
	s := &Segment{File: f, Alloc: int64(len(f.b)), End: format.HeaderSize}
	if err := s.ExamineTail(); err != nil {
		t.Fatal(err)
	}
	if f.read > 8*s.Alloc {
		t.Errorf("%d bytes read of a tail of %d", f.read, s.Alloc)
	}
	if s.Torn() < s.Alloc-1024 {
		t.Errorf("%d bytes are torn", s.Torn())
	}
}
