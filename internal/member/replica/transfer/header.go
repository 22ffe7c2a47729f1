package transfer

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"vigil/internal/store/history"
)

// docs/formats/snapshot.md has the bytes of everything here.

const (
	snapshotMagic   = "VSNP"
	snapshotVersion = 1
	headerSize      = 72
	offerSize       = 24
	answerSize      = 24
)

var (
	le         = binary.LittleEndian
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
)

// errStream: the bytes are not a snapshot, or not the one that was sent.
var errStream = errors.New("transfer: damaged snapshot stream")

func badStream(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errStream, fmt.Sprintf(format, args...))
}

// Header describes the content of a stream. The receiver knows the base from its answer to the
// offer.
type Header struct {
	Cluster uint64
	// Term is the term of the leader that sends.
	Term uint64
	At   history.Applied
	// Revision and Compact are the store's.
	Revision, Compact int64
	// Incremental: the stream holds only the records after Base, for a receiver whose history up to
	// there has the hash.
	Incremental bool
	Base        int64
	Hash        uint32
}

// Encode returns the bytes of h.
func (h *Header) Encode() []byte {
	b := append(make([]byte, 0, headerSize), snapshotMagic...)
	kind := byte(0)
	if h.Incremental {
		kind = 1
	}
	b = append(b, snapshotVersion, kind, 0, 0)
	for _, v := range [...]uint64{h.Cluster, h.Term, h.At.Term, h.At.Index, uint64(h.Revision),
		uint64(h.Compact), uint64(h.Base)} {
		b = le.AppendUint64(b, v)
	}
	b = le.AppendUint32(b, h.Hash)
	return le.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// DecodeHeader decodes the bytes of Header.Encode.
func DecodeHeader(b []byte) (h Header, err error) {
	switch {
	case len(b) < 8 || string(b[:4]) != snapshotMagic:
		return h, badStream("no header")
	case b[4] != snapshotVersion:
		return h, fmt.Errorf("transfer: snapshot stream of version %d, this program reads %d", b[4],
			snapshotVersion)
	case len(b) != headerSize ||
		le.Uint32(b[headerSize-4:]) != crc32.Checksum(b[:headerSize-4], castagnoli):
		return h, badStream("checksum of the header")
	case b[5] > 1 || b[6] != 0 || b[7] != 0:
		return h, badStream("kind %x", b[5:8])
	}
	v := func(i int) uint64 { return le.Uint64(b[8+8*i:]) }
	h = Header{
		Incremental: b[5] == 1,
		Cluster:     v(0), Term: v(1),
		At:       history.Applied{Term: v(2), Index: v(3)},
		Revision: int64(v(4)), Compact: int64(v(5)), Base: int64(v(6)),
		Hash: le.Uint32(b[64:]),
	}
	switch {
	case h.Term == 0 || h.At.Index == 0 || h.At.Term == 0 || h.At.Term > h.Term:
		return h, badStream("position %d of term %d, sent in term %d", h.At.Index,
			h.At.Term, h.Term)
	case h.Revision < 1 || h.Compact < -1 || h.Compact > h.Revision || h.Base < 0 ||
		h.Base > h.Revision:
		return h, badStream("revision %d, compacted at %d, from %d", h.Revision, h.Compact, h.Base)
	}
	return h, nil
}

// Offer is the question that the sender asks before it sends a state: the position and compact
// revision of the state.
type Offer struct {
	Index   uint64
	Compact int64
}

// Answer describes the state of the receiver.
type Answer struct {
	// Have: the receiver has put aside its history up to Revision. Hash is the hash of that history
	// there, at the compact revision of the offer.
	Have     bool
	Revision int64
	Hash     uint32
	// Ahead: the receiver has applied the position of the offer, and needs nothing.
	Ahead bool
}

// Encode returns the bytes of o.
func (o Offer) Encode() []byte {
	b := append(make([]byte, 0, offerSize), snapshotVersion, 0, 0, 0, 0, 0, 0, 0)
	return le.AppendUint64(le.AppendUint64(b, o.Index), uint64(o.Compact))
}

func decodeOffer(b []byte) (Offer, error) {
	if len(b) != offerSize || b[0] != snapshotVersion {
		return Offer{}, fmt.Errorf("transfer: snapshot offer %x", b[:min(len(b), offerSize)])
	}
	return Offer{Index: le.Uint64(b[8:]), Compact: int64(le.Uint64(b[16:]))}, nil
}

// Encode returns the bytes of a.
func (a Answer) Encode() []byte {
	b := append(make([]byte, 0, answerSize), snapshotVersion, 0, 0, 0, 0, 0, 0, 0)
	switch {
	case a.Have:
		b[1] = 1
	case a.Ahead:
		b[1] = 2
	}
	b = le.AppendUint64(b, uint64(a.Revision))
	return le.AppendUint64(b, uint64(a.Hash))
}

// DecodeAnswer decodes the bytes of Answer.Encode.
func DecodeAnswer(b []byte) (Answer, error) {
	if len(b) != answerSize || b[0] != snapshotVersion || b[1] > 2 {
		return Answer{}, fmt.Errorf("transfer: the answer to a snapshot offer cannot be read: %x",
			b[:min(len(b), answerSize)])
	}
	return Answer{Have: b[1] == 1, Ahead: b[1] == 2, Revision: int64(le.Uint64(b[8:])),
		Hash: uint32(le.Uint64(b[16:]))}, nil
}
