package fsm

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"vigil/internal/kv"
	"vigil/internal/state/cluster"
)

// The content of an entry, version 1. Integers of fixed width are little endian; uvarint and varint
// (zigzag) are encoding/binary's, in their shortest form; bytes are a uvarint length and the bytes.
//
//	group    magic "VG" | version u8 = 1 | reserved u8 = 0 | count u32
//	         proposer u64 | sequence u64 | time u64
//	         count requests
//	request  length u32 of what follows | kind u8 | flags u8: 1 user, 2 a member makes the request
//	         [ user bytes | auth revision uvarint ]
//	         body
//	put      flags u8: 1 prev_kv, 2 ignore_value, 4 ignore_lease | lease varint |
//	         key bytes | value bytes
//	delete   flags u8: 1 prev_kv | key bytes | end bytes
//	range    flags u8: 1 keys_only, 2 count_only, 4 serializable, 8 options |
//	         key bytes | end bytes
//	         [ limit | revision | sort | order | min mod | max mod | min create | max create,
//	         all varints ]
//	txn      n uvarint, n compares | n uvarint, n ops | n uvarint, n ops
//	compare  target varint | result varint | key bytes | end bytes | number varint, or value bytes
//	op       kind u8 | body, nothing for kind 0
//	compact  flags u8: 1 physical | revision varint
//	grant    id varint | ttl varint
//	revoke   id varint
//	checkpt  term uvarint | n uvarint, n times id varint | granted uvarint | remaining varint
//	expire   term uvarint | n uvarint, n times id varint | granted uvarint
//	attrs    member id uvarint | member record of package cluster
//	alarm    flags u8: 1 clear | type varint | member id uvarint
//	version  op u8: 1 begin a downgrade, 2 end it, 3 set the version |
//	         major uvarint | minor uvarint
//	auth     op u8 | flags u8: 1 no password | user bytes | role bytes | hash bytes |
//	         token hash bytes | revision uvarint, or index uvarint of tokens that end |
//	         permission type varint | key bytes | end bytes
const (
	magic0, magic1 = 'V', 'G'
	version        = 1

	// HeaderSize is the size of the header of a group.
	HeaderSize = 32
	// requestHead is the least number of bytes before the body of a request.
	requestHead = 6

	// maxDepth is the limit for nested transactions.
	maxDepth = 1 << 10
	// MaxRequestBytes is the limit for the encoding of one request. A put of this size fits into a
	// record of the store.
	MaxRequestBytes = 255 << 20
)

const (
	flagUser   = 1 << 0
	flagMember = 1 << 1

	flagPrevKV      = 1 << 0
	flagIgnoreValue = 1 << 1
	flagIgnoreLease = 1 << 2

	flagKeysOnly     = 1 << 0
	flagCountOnly    = 1 << 1
	flagSerializable = 1 << 2
	flagOptions      = 1 << 3

	flagPhysical = 1 << 0

	flagClear = 1 << 0

	flagNoPassword = 1 << 0
)

var (
	// ErrFormat: the bytes are not a group of this format in its canonical form.
	ErrFormat = errors.New("fsm: malformed group")
	// ErrVersion: a newer program has written the group or a request of it.
	ErrVersion = errors.New("fsm: entry of a newer version")
)

// AppendHeader appends space for a header, which PutHeader fills.
func AppendHeader(dst []byte) []byte { return append(dst, make([]byte, HeaderSize)...) }

// PutHeader writes h into the first HeaderSize bytes of a group.
func PutHeader(group []byte, h GroupHeader) {
	group[0], group[1], group[2], group[3] = magic0, magic1, version, 0
	binary.LittleEndian.PutUint32(group[4:], uint32(h.Count))
	binary.LittleEndian.PutUint64(group[8:], h.Proposer)
	binary.LittleEndian.PutUint64(group[16:], h.Sequence)
	StampGroup(group, h.Time)
}

// SameGroup reports whether two beginnings of groups, with their headers, belong to one group,
// which may have been stamped in between.
func SameGroup(a, b []byte) bool {
	return len(a) >= HeaderSize && len(b) >= HeaderSize &&
		bytes.Equal(a[:timeOffset], b[:timeOffset])
}

// timeOffset is where the time is in the header of a group.
const timeOffset = 24

// StampGroup sets the time of a group.
func StampGroup(group []byte, ms int64) {
	binary.LittleEndian.PutUint64(group[timeOffset:], uint64(ms))
}

// AppendRequest appends the encoding of r to a group. On error it returns dst unchanged.
func AppendRequest(dst []byte, r *Request) ([]byte, error) {
	start := len(dst)
	kind := r.Kind()
	b := append(dst, 0, 0, 0, 0, byte(kind), 0)
	b[start+5] = identityFlags(r.Identity)
	b = appendUser(b, r.Identity)
	switch kind {
	case KindPut:
		b = appendPut(b, r.Put)
	case KindDeleteRange:
		b = appendDelete(b, r.DeleteRange)
	case KindTxn:
		var err error
		if b, err = appendTxn(b, r.Txn, maxDepth); err != nil {
			return dst, err
		}
	case KindCompact:
		b = append(b, flag(flagPhysical, r.Compact.Physical))
		b = binary.AppendVarint(b, r.Compact.Revision)
	case KindLeaseGrant, KindLeaseRevoke, KindLeaseCheckpoint, KindLeaseExpire:
		b = appendLease(b, r)
	case KindAttributes:
		b = binary.AppendUvarint(b, r.Attributes.ID)
		attributes := *r.Attributes
		attributes.PeerURLs, attributes.Learner = nil, false
		b = append(b, cluster.EncodeMember(attributes)...)
	case KindAlarm:
		b = append(b, flag(flagClear, r.Alarm.Clear))
		b = binary.AppendVarint(b, int64(r.Alarm.Alarm.Type))
		b = binary.AppendUvarint(b, r.Alarm.Alarm.MemberID)
	case KindVersion:
		b = appendVersionChange(b, r.Version)
	case KindClaim:
		b = appendClaim(b, r.Claim)
	case KindArchive:
		b = append(append(b, r.Archive.Place[:]...), r.Archive.ID[:]...)
	case KindAuth:
		b = appendAuth(b, r.Auth)
	default:
		return dst, errors.New("fsm: empty request")
	}
	n := len(b) - start - 4
	if n > MaxRequestBytes {
		return dst, kv.ErrRequestTooLarge
	}
	binary.LittleEndian.PutUint32(b[start:], uint32(n))
	return b, nil
}

func flag(bit byte, set bool) byte {
	if set {
		return bit
	}
	return 0
}

func appendBytes[T string | []byte](b []byte, v T) []byte {
	b = binary.AppendUvarint(b, uint64(len(v)))
	return append(b, v...)
}

func appendPut(b []byte, r *kv.PutRequest) []byte {
	b = append(b, flag(flagPrevKV, r.PrevKV)|flag(flagIgnoreValue,
		r.IgnoreValue)|flag(flagIgnoreLease, r.IgnoreLease))
	b = binary.AppendVarint(b, r.Lease)
	b = appendBytes(b, r.Key)
	return appendBytes(b, r.Value)
}

func appendDelete(b []byte, r *kv.DeleteRangeRequest) []byte {
	b = append(b, flag(flagPrevKV, r.PrevKV))
	b = appendBytes(b, r.Key)
	return appendBytes(b, r.End)
}

func appendRange(b []byte, r *kv.RangeRequest) []byte {
	options := [...]int64{
		r.Limit, r.Revision, int64(r.Sort), int64(r.Order),
		r.MinModRevision, r.MaxModRevision, r.MinCreateRevision, r.MaxCreateRevision,
	}
	any := options != [len(options)]int64{}
	b = append(b, flag(flagKeysOnly, r.KeysOnly)|flag(flagCountOnly, r.CountOnly)|
		flag(flagSerializable, r.Serializable)|flag(flagOptions, any))
	b = appendBytes(b, r.Key)
	b = appendBytes(b, r.End)
	if any {
		for _, v := range options {
			b = binary.AppendVarint(b, v)
		}
	}
	return b
}

func appendTxn(b []byte, r *kv.TxnRequest, depth int) ([]byte, error) {
	if depth == 0 {
		return b, fmt.Errorf("fsm: transactions nest deeper than %d: %w", maxDepth,
			kv.ErrRequestTooLarge)
	}
	b = binary.AppendUvarint(b, uint64(len(r.Compare)))
	for i := range r.Compare {
		c := &r.Compare[i]
		b = binary.AppendVarint(b, int64(c.Target))
		b = binary.AppendVarint(b, int64(c.Result))
		b = appendBytes(b, c.Key)
		b = appendBytes(b, c.End)
		if c.Target == kv.CompareValue {
			b = appendBytes(b, c.Value)
		} else {
			b = binary.AppendVarint(b, c.Number)
		}
	}
	b, err := appendOps(b, r.Success, depth)
	if err != nil {
		return b, err
	}
	return appendOps(b, r.Failure, depth)
}

func appendOps(b []byte, ops []kv.Op, depth int) ([]byte, error) {
	b = binary.AppendUvarint(b, uint64(len(ops)))
	for i := range ops {
		op := &ops[i]
		switch {
		case op.Put != nil:
			b = appendPut(append(b, byte(KindPut)), op.Put)
		case op.Range != nil:
			b = appendRange(append(b, byte(KindRange)), op.Range)
		case op.Delete != nil:
			b = appendDelete(append(b, byte(KindDeleteRange)), op.Delete)
		case op.Txn != nil:
			var err error
			if b, err = appendTxn(append(b, byte(KindTxn)), op.Txn, depth-1); err != nil {
				return b, err
			}
		default:
			b = append(b, 0)
		}
	}
	return b, nil
}

// ParseHeader reads the header of a group.
func ParseHeader(group []byte) (GroupHeader, error) {
	if len(group) < HeaderSize || group[0] != magic0 || group[1] != magic1 {
		return GroupHeader{}, ErrFormat
	}
	if group[2] != version {
		return GroupHeader{},
			fmt.Errorf("%w: %d, this program knows %d", ErrVersion, group[2], version)
	}
	h := GroupHeader{
		Proposer: binary.LittleEndian.Uint64(group[8:]),
		Sequence: binary.LittleEndian.Uint64(group[16:]),
		Time:     int64(binary.LittleEndian.Uint64(group[timeOffset:])),
		Count:    int(binary.LittleEndian.Uint32(group[4:])),
	}
	if group[3] != 0 || h.Time < 0 || h.Time > kv.MaxTime ||
		h.Count > (len(group)-HeaderSize)/requestHead {
		return GroupHeader{}, ErrFormat
	}
	return h, nil
}

// fitsInt32 reports whether the cast of an enumeration keeps its value.
func fitsInt32(v int64) bool { return v >= math.MinInt32 && v <= math.MaxInt32 }
