package format

import (
	"crypto/rand"
	"errors"
	"hash/crc32"
)

// Header begins every segment. Its checksum is the seed of all later checksums, so that no part of
// another segment or member, or of an earlier use of the file, passes for a part of this segment.
type Header struct {
	Version   uint32
	ClusterID uint64
	MemberID  uint64
	ID        uint64
	// Salt is random, so that no client can write a value that looks like a batch of this segment.
	Salt uint64
	Sum  uint32
}

// NewHeader returns the header of a new segment of a member, with a random salt.
func NewHeader(member Identity, id uint64) Header {
	var salt [8]byte
	_, _ = rand.Read(salt[:]) // documented never to fail
	return Header{Version: Version, ClusterID: member.ClusterID, MemberID: member.MemberID, ID: id,
		Salt: LE.Uint64(salt[:])}
}

// Encode returns the encoded header and sets its checksum.
func (h *Header) Encode() []byte {
	b := make([]byte, HeaderSize)
	copy(b, headerMagic)
	LE.PutUint32(b[8:], h.Version)
	LE.PutUint64(b[16:], h.ClusterID)
	LE.PutUint64(b[24:], h.MemberID)
	LE.PutUint64(b[32:], h.ID)
	LE.PutUint64(b[40:], h.Salt)
	h.Sum = crc32.Checksum(b[:HeaderSize-4], Castagnoli)
	LE.PutUint32(b[HeaderSize-4:], h.Sum)
	return b
}

var (
	errHeaderMagic = errors.New("this is not a history segment")
	ErrHeaderSum   = errors.New("the checksum of the header does not match")
)

// DecodeHeader decodes a header of any version: the first 64 bytes keep their layout, so that a
// newer format is distinguished from damage.
func DecodeHeader(b []byte) (Header, error) {
	if len(b) < HeaderSize || string(b[:8]) != headerMagic {
		return Header{}, errHeaderMagic
	}
	h := Header{
		Version:   LE.Uint32(b[8:]),
		ClusterID: LE.Uint64(b[16:]),
		MemberID:  LE.Uint64(b[24:]),
		ID:        LE.Uint64(b[32:]),
		Salt:      LE.Uint64(b[40:]),
		Sum:       LE.Uint32(b[HeaderSize-4:]),
	}
	if h.Sum != crc32.Checksum(b[:HeaderSize-4], Castagnoli) {
		return Header{}, ErrHeaderSum
	}
	return h, nil
}
