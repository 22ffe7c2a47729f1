package wal

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"testing"

	"vigil/internal/vfs"
)

// block is a file in memory that is only read.
type block struct {
	vfs.File
	b []byte
}

func (f *block) ReadAt(p []byte, off int64) (int, error) {
	return bytes.NewReader(f.b).ReadAt(p, off)
}

// whole reads a segment like scanner, from memory that has all of it.
type whole struct {
	b    []byte
	seed uint32
}

func (s whole) group(off int64) (g groupHeader, items []byte, ok bool) {
	size := int64(len(s.b))
	if off+groupHeaderSize > size {
		return g, nil, false
	}
	g, ok = parseGroupHeader(s.b[off:], s.seed, off, size)
	if !ok {
		return g, nil, false
	}
	b := s.b[off : off+groupHeaderSize+int64(g.length)]
	return g, b[groupHeaderSize:], groupCRC(b, s.seed, off) == g.crc
}

func (s whole) beyond(bad int64) (synced, end int64) {
	for off := bad + groupAlign; off < int64(len(s.b)); off += groupAlign {
		if g, _, ok := s.group(off); ok {
			if g.synced > bad {
				return g.synced, 0
			}
			end = off + groupSize(int(g.length))
			off = end - groupAlign
		}
	}
	return 0, end
}

// randomSegment returns a segment of groups of all sizes, many of which end about where a step of
// the scanner that begins with them does, and the places of the groups.
func randomSegment(rng *rand.Rand, seed uint32) (b []byte, places []int64) {
	b = make([]byte, headerSize)
	synced := int64(headerSize)
	for range 3 + rng.IntN(8) {
		n := rng.IntN(200)
		switch rng.IntN(4) {
		case 0:
			n = rng.IntN(3 * scanBytes)
		case 1, 2:
			n = scanBytes - groupHeaderSize - rng.IntN(48)
		}
		off := int64(len(b))
		group := make([]byte, groupHeaderSize+n)
		for i := groupHeaderSize; i < len(group); i++ {
			group[i] = byte(rng.Uint32())
		}
		if n > 100 { // what looks like a group where none is
			le.PutUint32(group[groupHeaderSize+rng.IntN(n-8):], groupMagic(seed))
		}
		sealGroup(group, seed, off, 1, synced)
		if rng.IntN(3) == 0 {
			synced = off
		}
		places = append(places, off)
		b = append(b, group...)
		b = append(b, make([]byte, groupSize(n)-int64(len(group)))...)
	}
	return append(b, make([]byte, rng.IntN(2*scanBytes)&^(groupAlign-1))...), places
}

// A segment that is read in steps is the same as one that is read at once, whatever lies on the
// border of two steps: whole, with flipped bits, and with a torn tail. Where the file has become
// shorter there is an error, never the end of the log.
func TestScanInSteps(t *testing.T) {
	run := rand.Uint64()
	for i := range uint64(60) {
		rng := rand.New(rand.NewPCG(run, i))
		seed := rng.Uint32()
		b, places := randomSegment(rng, seed)
		for range rng.IntN(4) {
			at := places[rng.IntN(len(places))] + rng.Int64N(2*groupHeaderSize)
			switch rng.IntN(3) {
			case 0:
				b[at] ^= 1 << rng.IntN(8)
			case 1:
				clear(b[at:min(at+512, int64(len(b)))])
			case 2:
				clear(b[at:min(at+rng.Int64N(int64(len(b))), int64(len(b)))])
			}
		}
		size, present := int64(len(b)), b
		if rng.IntN(4) == 0 {
			present = b[:headerSize+rng.IntN(len(b)-headerSize)]
		}
		var sc scanner
		sc.pointAt(&segment{file: &block{b: present}, seed: seed, size: size})
		model := whole{b, seed}
		short := func(err error) bool {
			if err != nil && (len(present) == len(b) || !errors.Is(err, io.ErrUnexpectedEOF)) {
				t.Fatalf("seed %d, %d: %v", run, i, err)
			}
			return err != nil
		}
		for off := int64(headerSize); ; {
			g, items, ok, err := sc.readGroup(off)
			if short(err) {
				break
			}
			g2, items2, ok2 := model.group(off)
			if ok != ok2 || ok && (g != g2 || !bytes.Equal(items, items2)) {
				t.Fatalf("seed %d, %d: at %d the group is %+v, %v, want %+v, %v", run, i, off,
					g, ok, g2, ok2)
			}
			if ok {
				off += groupSize(int(g.length))
				continue
			}
			synced, end, err := sc.searchGroups(off)
			if short(err) {
				break
			}
			if synced2, end2 := model.beyond(off); synced != synced2 || end != end2 {
				t.Fatalf("seed %d, %d: after %d: %d, %d, want %d, %d", run, i, off, synced,
					end, synced2, end2)
			}
			if len(present) < len(b) && synced == 0 && len(present) < len(b)-groupHeaderSize {
				t.Fatalf("seed %d, %d: the file has %d bytes of %d, and the log ends at %d", run, i,
					len(present), len(b), off)
			}
			break
		}
	}
}
