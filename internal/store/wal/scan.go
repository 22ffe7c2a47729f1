package wal

import (
	"bytes"
	"io"

	"vigil/internal/vfs"
)

// scanBytes is how much of a segment is read at a time.
const scanBytes = 128 << 10

// scanner reads the groups of a segment from front to back. It holds one window of the file in
// memory, as large as the largest group but at least scanBytes, if the file is.
type scanner struct {
	file vfs.File
	seed uint32
	size int64
	buf  []byte
	off  int64 // of buf in the file
	n    int   // valid bytes of buf
}

// pointAt points the scanner at a segment. It keeps its memory.
func (s *scanner) pointAt(g *segment) *scanner {
	*s = scanner{file: g.file, seed: g.seed, size: g.size, buf: s.buf}
	return s
}

// readWindow returns the n bytes at off, which lie inside the file. They stay valid until the next
// call.
func (s *scanner) readWindow(off int64, n int) ([]byte, error) {
	if off < s.off || off+int64(n) > s.off+int64(s.n) {
		if want := max(n, int(min(scanBytes, s.size))); len(s.buf) < want {
			s.buf = make([]byte, want)
		}
		s.off, s.n = off, 0
		m, err := s.file.ReadAt(s.buf[:min(int64(len(s.buf)), s.size-off)], off)
		s.n = m
		if m < n {
			if err == nil || err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return nil, err
		}
	}
	at := int(off - s.off)
	return s.buf[at : at+n : at+n], nil
}

// readGroup returns the group at off and its items, or false if there is no valid group.
func (s *scanner) readGroup(off int64) (groupHeader, []byte, bool, error) {
	if off+groupHeaderSize > s.size {
		return groupHeader{}, nil, false, nil
	}
	b, err := s.readWindow(off, groupHeaderSize)
	if err != nil {
		return groupHeader{}, nil, false, err
	}
	g, ok := parseGroupHeader(b, s.seed, off, s.size)
	if !ok {
		return g, nil, false, nil
	}
	b, err = s.readWindow(off, groupHeaderSize+int(g.length))
	if err != nil {
		return g, nil, false, err
	}
	if groupCRC(b, s.seed, off) != g.crc {
		return g, nil, false, nil
	}
	return g, b[groupHeaderSize:], true, nil
}

// searchGroups searches for valid groups anywhere after off, where there is none. It returns where
// the last of them ends, 0 if there are none. If a group records that the segment had been synced
// beyond off, it returns that offset instead.
func (s *scanner) searchGroups(off int64) (synced, end int64, err error) {
	var magic [4]byte
	le.PutUint32(magic[:], groupMagic(s.seed))
	bad := off
	for off += groupAlign; off+groupHeaderSize <= s.size; {
		n := s.off + int64(s.n) - off
		if n < groupHeaderSize {
			n = min(scanBytes, s.size-off)
		}
		b, err := s.readWindow(off, int(n))
		if err != nil {
			return 0, 0, err
		}
		i := bytes.Index(b[4:], magic[:])
		if i < 0 {
			// The magic may begin in the last bytes.
			off += max(int64(len(b)-groupHeaderSize)&^(groupAlign-1), groupAlign)
			continue
		}
		off += int64(i) &^ (groupAlign - 1)
		if i%groupAlign == 0 {
			g, _, ok, err := s.readGroup(off)
			if err != nil {
				return 0, 0, err
			}
			if ok && g.synced > bad {
				return g.synced, 0, nil
			}
			if ok {
				off += groupSize(int(g.length))
				end = off
				continue
			}
		}
		off += groupAlign
	}
	return 0, end, nil
}
