package audit

import (
	"encoding/binary"
	"errors"
	"fmt"

	"vigil/internal/kv"
)

// The first byte of a call is the question:
//
//	1  index u64, revision i64, compact i64: the hash at a revision, with a compact revision,
//	   after the index is applied; answered by answerKind u8, revision i64, compact i64,
//	   hash u32, and the position of the member: index u64, newest revision i64
//	2  the hashes of compactions; answered by revision i64, compact i64, hash u32 of each
//	3  like 1 without the hash, which is 0: whether the member has the revision at all
//
// All numbers are little endian.
const (
	askHash        byte = 1
	askCompactions byte = 2
	askRevision    byte = 3

	questionSize   = 1 + 3*8
	answerSize     = 1 + 8 + 8 + 4 + 8 + 8
	compactionSize = 8 + 8 + 4
	// maxCompactions limits the hashes that a member takes from an answer.
	maxCompactions = 64
)

var le = binary.LittleEndian

// question names a point at which every member can compute its hash.
type question struct {
	// index is a position of the raft log at which the revision exists.
	index             uint64
	revision, compact int64
	// revisionOnly leaves out the hash.
	revisionOnly bool
}

func (q question) encode() []byte {
	b := append(make([]byte, 0, questionSize), askHash)
	if q.revisionOnly {
		b[0] = askRevision
	}
	b = le.AppendUint64(b, q.index)
	b = le.AppendUint64(b, uint64(q.revision))
	return le.AppendUint64(b, uint64(q.compact))
}

func decodeQuestion(b []byte) (question, error) {
	if len(b) != questionSize || b[0] != askHash && b[0] != askRevision {
		return question{}, errMalformed
	}
	return question{le.Uint64(b[1:]), int64(le.Uint64(b[9:])), int64(le.Uint64(b[17:])),
		b[0] == askRevision}, nil
}

// answerKind tells which data a member has at a point. The numbers are part of the protocol.
type answerKind byte

const (
	// kindHash: the hash at the revision and the compact revision of the question.
	kindHash answerKind = 1
	// kindLags: the member has not applied the index yet.
	kindLags answerKind = 2
	// kindShort: the member has applied the index, but its newest revision is below the question's.
	kindShort answerKind = 3
	// kindCompacted: the member has been compacted at compact, above the compact revision of the
	// question.
	kindCompacted answerKind = 4
)

// position says that a member had a revision when it had applied no more than an index. Every
// member that has applied the index has that revision too.
type position struct {
	index    uint64
	revision int64
}

// answer describes the data of a member. Members with the same data give equal answers.
type answer struct {
	kind              answerKind
	revision, compact int64
	hash              uint32
}

func (a answer) encode(at position) []byte {
	b := append(make([]byte, 0, answerSize), byte(a.kind))
	b = le.AppendUint64(b, uint64(a.revision))
	b = le.AppendUint64(b, uint64(a.compact))
	b = le.AppendUint32(b, a.hash)
	b = le.AppendUint64(b, at.index)
	return le.AppendUint64(b, uint64(at.revision))
}

// comparable reports whether the answer says anything about the data.
func (a answer) comparable() bool { return a.kind == kindHash || a.kind == kindShort }

func (a answer) String() string {
	if a.kind == kindShort {
		return fmt.Sprintf("none, its newest revision is %d", a.revision)
	}
	return fmt.Sprintf("%08x", a.hash)
}

var errMalformed = errors.New("audit: malformed question or answer about hashes")

func decodeAnswer(b []byte) (answer, position, error) {
	if len(b) != answerSize || b[0] < byte(kindHash) || b[0] > byte(kindCompacted) {
		return answer{}, position{}, errMalformed
	}
	return answer{answerKind(b[0]), int64(le.Uint64(b[1:])), int64(le.Uint64(b[9:])),
			le.Uint32(b[17:])},
		position{le.Uint64(b[21:]), int64(le.Uint64(b[29:]))}, nil
}

func encodeCompactions(list []kv.HashResult) []byte {
	var b []byte
	for _, h := range list {
		b = le.AppendUint64(b, uint64(h.HashRevision))
		b = le.AppendUint64(b, uint64(h.CompactRevision))
		b = le.AppendUint32(b, h.Hash)
	}
	return b
}

func decodeCompactions(b []byte) ([]kv.HashResult, error) {
	if len(b)%compactionSize != 0 || len(b) > maxCompactions*compactionSize {
		return nil, errMalformed
	}
	var list []kv.HashResult
	for ; len(b) > 0; b = b[compactionSize:] {
		list = append(list, kv.HashResult{HashRevision: int64(le.Uint64(b)),
			CompactRevision: int64(le.Uint64(b[8:])), Hash: le.Uint32(b[16:])})
	}
	return list, nil
}
