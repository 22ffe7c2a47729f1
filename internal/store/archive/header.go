package archive

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash/crc32"
	"time"
)

// docs/formats/archive.md has the bytes.
const (
	magic = "VARC"
	// HeaderSize is the size of the header of an object that is not in JSON.
	HeaderSize = 188
	// MaxObject limits the bytes of an object, MaxContent the bytes of its content before
	// compression.
	MaxObject  = 1 << 30
	MaxContent = 1 << 30
	// PartBytes is the approximate size of the content at which a part should end, LogBytes the
	// same for a log object.
	PartBytes = 32 << 20
	LogBytes  = 8 << 20

	flagEncrypted byte = 1
)

var (
	le         = binary.LittleEndian
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
)

// Kind says what an object holds.
type Kind byte

// The kinds of objects that are not in JSON.
const (
	KindRecords Kind = 1
	KindLive    Kind = 2
	KindMeta    Kind = 3
	KindLog     Kind = 4
)

func (k Kind) String() string {
	switch k {
	case KindRecords:
		return RecordsPart
	case KindLive:
		return LivePart
	case KindMeta:
		return MetaPart
	case KindLog:
		return "log"
	}
	return fmt.Sprintf("kind %d", byte(k))
}

// Header describes an object.
type Header struct {
	Kind      Kind
	Encrypted bool
	Cluster   uint64
	Archive   ID
	// First and Last are the first and the last index of a log object; of a part they are After and
	// Through.
	First, Last uint64
	// FirstTerm and LastTerm are the terms of the first and the last entry.
	FirstTerm, LastTerm uint64
	// Before and After are the revision before the first entry and after the last one.
	Before, After int64
	// FirstTime and LastTime are when the sender applied the first and the last entry, by its
	// clock, in milliseconds since 1970.
	FirstTime, LastTime int64
	// Sender is the id of the member that sent a log object. In a part it is a random number, so
	// that no two parts share a name: a part that a prune removes, or that is damaged, is never
	// taken for a part that is written later.
	Sender uint64
	// Items is the number of entries, records, revisions or meta records.
	Items uint64
	// Content is the size of the content before compression, Body the size of everything after the
	// header.
	Content, Body int64
	// Claim is the newest claim that the sender of a log object had applied when it made the
	// object. It is zero in a part.
	Claim Claim
	// Sum is the SHA-256 of the body.
	Sum [32]byte
}

// Times returns FirstTime and LastTime.
func (h *Header) Times() (first, last time.Time) {
	return time.UnixMilli(h.FirstTime).UTC(), time.UnixMilli(h.LastTime).UTC()
}

// put encodes h into the first HeaderSize bytes of b.
func (h *Header) put(b []byte) {
	flags := byte(0)
	if h.Encrypted {
		flags = flagEncrypted
	}
	b = append(append(b[:0:HeaderSize], magic...), Version, byte(h.Kind), flags, 0)
	b = le.AppendUint64(b, h.Cluster)
	b = append(b, h.Archive[:]...)
	for _, v := range [...]uint64{h.First, h.Last, h.FirstTerm, h.LastTerm, uint64(h.Before),
		uint64(h.After),
		uint64(h.FirstTime), uint64(h.LastTime), h.Sender, h.Items, uint64(h.Content),
		uint64(h.Body)} {
		b = le.AppendUint64(b, v)
	}
	b = append(le.AppendUint64(b, uint64(h.Claim.Term)), h.Claim.ID[:]...)
	b = append(b, h.Sum[:]...)
	le.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// parseHeader decodes what put has encoded.
func parseHeader(b []byte) (h Header, err error) {
	switch {
	case len(b) < HeaderSize:
		return h, damaged("%d bytes, a header has %d", len(b), HeaderSize)
	case string(b[:4]) != magic:
		return h, damaged("it is not an object of an archive")
	case le.Uint32(b[HeaderSize-4:]) != crc32.Checksum(b[:HeaderSize-4], castagnoli):
		return h, damaged("the checksum of the header does not match")
	case b[4] > Version:
		return h, fmt.Errorf("%w: %d, this program reads %d", ErrVersion, b[4], Version)
	case b[4] != Version || b[6]&^flagEncrypted != 0 || b[7] != 0:
		return h, damaged("version and flags %x", b[4:8])
	}
	h = Header{Kind: Kind(b[5]), Encrypted: b[6]&flagEncrypted != 0, Cluster: le.Uint64(b[8:]),
		Archive: ID(b[16:32])}
	v := func(i int) uint64 { return le.Uint64(b[32+8*i:]) }
	h.First, h.Last, h.FirstTerm, h.LastTerm = v(0), v(1), v(2), v(3)
	h.Before, h.After, h.FirstTime, h.LastTime = int64(v(4)), int64(v(5)), int64(v(6)), int64(v(7))
	h.Sender, h.Items, h.Content, h.Body = v(8), v(9), int64(v(10)), int64(v(11))
	h.Claim = Claim{Hex64(v(12)), ID(b[136:152])}
	h.Sum = [32]byte(b[152:184])
	return h, h.check()
}

// PeekHeader decodes the first HeaderSize bytes of an object of any archive.
func PeekHeader(b []byte) (Header, error) { return parseHeader(b) }

// check checks what a reader relies on.
func (h *Header) check() error {
	bad := h.Content < 0 || h.Content > MaxContent || h.Body < 0 || h.Body > MaxObject-HeaderSize ||
		h.First > 1<<62 || h.Last > 1<<62
	switch h.Kind {
	case KindLog:
		bad = bad || h.First == 0 || h.Last < h.First || h.Items != h.Last-h.First+1 ||
			h.FirstTerm == 0 || h.LastTerm < h.FirstTerm ||
			h.Before < 0 || h.After < h.Before || !h.Claim.covers(h.LastTerm)
	case KindRecords:
		bad = bad || h.Last < h.First
	case KindLive, KindMeta:
	default:
		return damaged("%s", h.Kind)
	}
	if bad {
		return damaged("the header of %s %d to %d has impossible values", h.Kind, h.First, h.Last)
	}
	return nil
}

// checkName checks that an object has the name of its content. sum is the SHA-256 of the whole
// object; nil if only the header is known.
func (h *Header) checkName(name string, sum *[32]byte) error {
	if h.Kind == KindLog {
		if first, last, ok := ParseLogName(name); !ok || first != h.First || last != h.Last {
			return fmt.Errorf("%w: it holds the entries %d to %d", ErrForeign, h.First, h.Last)
		}
		return nil
	}
	if !IsPartName(name) {
		return fmt.Errorf("%w: it is a part", ErrForeign)
	}
	if sum != nil && partName(*sum) != name {
		return fmt.Errorf("%w: its name was %s", ErrForeign, partName(*sum))
	}
	return nil
}

// sumText returns the SHA-256 of an object as manifests have it.
func sumText(object []byte) string {
	sum := sha256.Sum256(object)
	return hex.EncodeToString(sum[:])
}
