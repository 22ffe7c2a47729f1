package wal

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"go.etcd.io/raft/v3/raftpb"
)

// Version is the version of the format that this package reads and writes. Each segment records its
// own.
const Version = 1

const (
	headerSize      = 4096
	headerMagic     = "VIGILWAL"
	groupHeaderSize = 24
	groupAlign      = 8
	entryHeadSize   = 24
	hardStateSize   = 32
	resetSize       = 24
	// A write ends at a multiple of this, so that the kernel need not read the rest of a page of
	// a file that is used again.
	writeAlign = 4096
)

// The kinds of items in a group.
const (
	kindEntry     = 1
	kindHardState = 2
	kindReset     = 3
)

// The flags of an entry: which of its optional fields are present.
const (
	flagData = 1 << 0
	flagType = 1 << 1
)

var (
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
	le         = binary.LittleEndian
)

// segmentHeader is the first block of a segment.
type segmentHeader struct {
	version uint32
	id      uint64
	owner   Identity
	// start is the last position of the log when the segment began.
	start Start
	// prevEnd is where the segment before ends; 0 in the first of a log.
	prevEnd int64
	// hard is the hard state when the segment began.
	hard hardState
	// salt is random. All segments of a log have the same.
	salt uint64
}

// hardState is a raftpb.HardState without pointers. The zero value means none.
type hardState struct {
	term, vote, commit uint64
}

func (h *segmentHeader) encode() []byte {
	b := make([]byte, headerSize)
	copy(b, headerMagic)
	le.PutUint32(b[8:], h.version)
	for i, v := range []uint64{h.id, h.owner.ClusterID, h.owner.MemberID,
		h.start.Index, h.start.Term,
		uint64(h.prevEnd), h.hard.term, h.hard.vote, h.hard.commit, h.salt} {
		le.PutUint64(b[16+8*i:], v)
	}
	le.PutUint32(b[12:], headerCRC(b))
	return b
}

// headerCRC covers the whole block except the checksum itself. The checksum, the magic and the
// place of the version are the same in every version, so that a flipped bit never passes for a
// newer version.
func headerCRC(b []byte) uint32 {
	return crc32.Update(crc32.Checksum(b[:12], castagnoli), castagnoli, b[16:headerSize])
}

var errNoHeader = errors.New("no valid header")

// decodeHeader returns errNoHeader for a block that is not a header, and ErrVersion, wrapped, with
// nothing but the version and the id for one of a version that this program does not read.
func decodeHeader(b []byte) (segmentHeader, error) {
	var h segmentHeader
	if len(b) < headerSize || string(b[:8]) != headerMagic || le.Uint32(b[12:]) != headerCRC(b) {
		return h, errNoHeader
	}
	h.version = le.Uint32(b[8:])
	u := func(i int) uint64 { return le.Uint64(b[16+8*i:]) }
	h.id = u(0)
	if h.version != Version {
		return h, fmt.Errorf("%w: it is in version %d, this program reads version %d", ErrVersion,
			h.version, Version)
	}
	h.owner = Identity{u(1), u(2)}
	h.start = Start{u(3), u(4)}
	h.prevEnd = int64(u(5))
	h.hard = hardState{u(6), u(7), u(8)}
	h.salt = u(9)
	return h, nil
}

// groupSeed is the initial value of the checksums of the groups of a segment. Segment ids are never
// used twice in a log, and seeds of ids that differ only in their lower half always differ, so a
// group from an earlier use of the file never has a right checksum. Clients know the owner and may
// guess the id, but not the salt: no value that they write passes for a group.
func groupSeed(owner Identity, id, salt uint64) uint32 {
	b := make([]byte, 0, 32)
	for _, v := range [...]uint64{owner.ClusterID, owner.MemberID, id, salt} {
		b = le.AppendUint64(b, v)
	}
	return crc32.Checksum(b, castagnoli)
}

// newSalt returns a random salt.
func newSalt() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // documented never to fail
	return le.Uint64(b[:])
}

// groupMagic marks where a group of this segment may begin. It is not a linear function of the
// seed, which would cancel out in the checksum that begins with the seed and covers the magic.
func groupMagic(seed uint32) uint32 { return seed * 0x9e3779b1 }

// groupHeader precedes the items of a group.
type groupHeader struct {
	crc    uint32
	length uint32 // of the items
	count  uint32 // of the items
	synced int64  // below this offset the segment was durable when the group was written
}

// groupSize is the size of a group with that many bytes of items.
func groupSize(length int) int64 {
	return (int64(groupHeaderSize) + int64(length) + groupAlign - 1) &^ (groupAlign - 1)
}

// sealGroup writes the header of a group whose items are already in b after room for it. The
// group will lie at offset off.
func sealGroup(b []byte, seed uint32, off int64, count int, synced int64) {
	le.PutUint32(b[4:], groupMagic(seed))
	le.PutUint32(b[8:], uint32(len(b)-groupHeaderSize))
	le.PutUint32(b[12:], uint32(count))
	le.PutUint64(b[16:], uint64(synced))
	le.PutUint32(b, groupCRC(b, seed, off))
}

// groupCRC begins with the seed and the offset, so that a group counts only where it was written.
func groupCRC(b []byte, seed uint32, off int64) uint32 {
	return crc32.Update(seed^uint32(off/groupAlign), castagnoli, b[4:])
}

// parseGroupHeader reads the header of a group at offset off of a segment of size bytes; false if
// there cannot be one.
func parseGroupHeader(b []byte, seed uint32, off, size int64) (groupHeader, bool) {
	g := groupHeader{crc: le.Uint32(b), length: le.Uint32(b[8:]), count: le.Uint32(b[12:]),
		synced: int64(le.Uint64(b[16:]))}
	ok := le.Uint32(b[4:]) == groupMagic(seed) &&
		groupSize(int(g.length)) <= size-off &&
		g.synced >= headerSize && g.synced <= off
	return g, ok
}

// item is one decoded item of a group.
type item struct {
	kind byte
	// for kindEntry
	flags byte
	typ   raftpb.EntryType
	term  uint64
	index uint64
	data  []byte // aliases the input
	// for kindHardState
	hard hardState
	// for kindReset
	start Start
}

var errItem = errors.New("malformed item")

// parseItem decodes the first item of b and returns its size. It allocates nothing.
func parseItem(b []byte) (it item, size int, err error) {
	if len(b) < entryHeadSize {
		return it, 0, errItem
	}
	it.kind = b[0]
	switch it.kind {
	case kindEntry:
		n := le.Uint32(b[4:])
		it.flags, it.typ = b[1], raftpb.EntryType(b[2])
		if b[3] != 0 || it.flags&^(flagData|flagType) != 0 || n > MaxEntryBytes ||
			int(n) > len(b)-entryHeadSize || it.flags&flagData == 0 && n != 0 ||
			it.flags&flagType == 0 && b[2] != 0 {
			return it, 0, errItem
		}
		it.term, it.index = le.Uint64(b[8:]), le.Uint64(b[16:])
		size = entryHeadSize + int(n)
		it.data = b[entryHeadSize:size:size]
		return it, size, nil
	case kindHardState:
		if len(b) < hardStateSize || le.Uint64(b) != kindHardState {
			return it, 0, errItem
		}
		it.hard = hardState{le.Uint64(b[8:]), le.Uint64(b[16:]), le.Uint64(b[24:])}
		return it, hardStateSize, nil
	case kindReset:
		if le.Uint64(b) != kindReset {
			return it, 0, errItem
		}
		it.start = Start{le.Uint64(b[8:]), le.Uint64(b[16:])}
		return it, resetSize, nil
	}
	return it, 0, errItem
}

func appendEntry(b []byte, e *raftpb.Entry) []byte {
	var flags byte
	if e.Data != nil {
		flags |= flagData
	}
	if e.Type != nil {
		flags |= flagType
	}
	b = append(b, kindEntry, flags, byte(e.GetType()), 0)
	b = le.AppendUint32(b, uint32(len(e.Data)))
	b = le.AppendUint64(b, e.GetTerm())
	b = le.AppendUint64(b, e.GetIndex())
	return append(b, e.Data...)
}

func appendHardState(b []byte, h hardState) []byte {
	for _, v := range [...]uint64{kindHardState, h.term, h.vote, h.commit} {
		b = le.AppendUint64(b, v)
	}
	return b
}

func appendReset(b []byte, s Start) []byte {
	for _, v := range [...]uint64{kindReset, s.Index, s.Term} {
		b = le.AppendUint64(b, v)
	}
	return b
}

// entrySlab is an entry with room for its optional fields, so that decoding many costs one
// allocation.
type entrySlab struct {
	entry       raftpb.Entry
	term, index uint64
	typ         raftpb.EntryType
}

// setItem sets the slab's entry to the entry of the item. It aliases the item's data.
func (s *entrySlab) setItem(it *item) *raftpb.Entry {
	s.term, s.index, s.typ = it.term, it.index, it.typ
	s.entry.Term, s.entry.Index = &s.term, &s.index
	if it.flags&flagType != 0 {
		s.entry.Type = &s.typ
	}
	if it.flags&flagData != 0 {
		s.entry.Data = it.data
	}
	return &s.entry
}
