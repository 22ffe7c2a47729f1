package fsm

import (
	"encoding/binary"
	"fmt"

	"vigil/internal/kv"
	"vigil/internal/state/cluster"
	"vigil/internal/state/lineage"
)

// Decoder decodes the requests of a group one by one. Every byte slice of a request aliases the
// group, and the decoder owns the request: both are valid until the next call of Next or Reset. The
// zero value is ready for Reset.
//
// A transaction has many small parts; the decoder reuses their memory for the next request.
type Decoder struct {
	b   []byte
	bad bool

	left int
	req  Request

	put        slab[kv.PutRequest]
	del        slab[kv.DeleteRangeRequest]
	rng        slab[kv.RangeRequest]
	txn        slab[kv.TxnRequest]
	ops        arena[kv.Op]
	compares   arena[kv.Compare]
	compact    kv.CompactRequest
	attributes cluster.Member
	alarm      kv.AlarmChange
	version    kv.VersionChange
	auth       kv.AuthRequest
	leases     leaseRequests
	claim      lineage.Claim
	archive    lineage.Archive
}

// Reset begins a group and returns its header.
func (d *Decoder) Reset(group []byte) (GroupHeader, error) {
	h, err := ParseHeader(group)
	if err != nil {
		return h, err
	}
	d.b, d.bad, d.left = group[HeaderSize:], false, h.Count
	return h, nil
}

// Next returns the next request, nil after the last one.
func (d *Decoder) Next() (*Request, error) {
	d.put.reset()
	d.del.reset()
	d.rng.reset()
	d.txn.reset()
	d.ops.reset()
	d.compares.reset()
	if d.left == 0 {
		if len(d.b) != 0 {
			return nil, fmt.Errorf("%w: %d bytes after the last request", ErrFormat, len(d.b))
		}
		return nil, nil
	}
	d.left--
	if len(d.b) < requestHead {
		return nil, ErrFormat
	}
	n := uint64(binary.LittleEndian.Uint32(d.b))
	if n < requestHead-4 || n > uint64(len(d.b)-4) {
		return nil, ErrFormat
	}
	rest := d.b[4+n:]
	kind, flags := Kind(d.b[4]), d.b[5]
	d.b = d.b[requestHead : 4+n]
	d.req = Request{}
	var err error
	if d.req.Identity, err = d.readIdentity(flags); err != nil {
		return nil, err
	}
	switch kind {
	case KindPut:
		d.req.Put = d.readPut()
	case KindDeleteRange:
		d.req.DeleteRange = d.readDelete()
	case KindTxn:
		d.req.Txn = d.readTxn(maxDepth)
	case KindCompact:
		d.compact = kv.CompactRequest{Physical: d.flags(flagPhysical) != 0, Revision: d.varint()}
		d.req.Compact = &d.compact
	case KindLeaseGrant, KindLeaseRevoke, KindLeaseCheckpoint, KindLeaseExpire:
		d.readLease(kind)
	case KindAttributes:
		id := d.uvarint()
		m, err := cluster.DecodeMember(id, d.b)
		if err != nil || m.PeerURLs != nil || m.Learner {
			return nil, fmt.Errorf("%w: member attributes", ErrFormat)
		}
		d.b, d.attributes = nil, m
		d.req.Attributes = &d.attributes
	case KindAlarm:
		d.alarm = kv.AlarmChange{Clear: d.flags(flagClear) != 0}
		d.alarm.Alarm.Type = kv.AlarmType(d.enum())
		d.alarm.Alarm.MemberID = d.uvarint()
		d.req.Alarm = &d.alarm
	case KindVersion:
		d.readVersionChange()
	case KindClaim:
		d.readClaim()
	case KindArchive:
		d.readArchive()
	case KindAuth:
		d.readAuth()
	default:
		return nil, fmt.Errorf("%w: request kind %d, this program knows the requests of level %d",
			ErrVersion, kind, Level)
	}
	if d.bad || len(d.b) != 0 {
		return nil, fmt.Errorf("%w: body of request kind %d", ErrFormat, kind)
	}
	d.b = rest
	return &d.req, nil
}

func (d *Decoder) fail() { d.bad, d.b = true, nil }

func (d *Decoder) flags(known byte) byte {
	v := d.byte()
	if v&^known != 0 {
		d.fail()
	}
	return v
}

func (d *Decoder) byte() byte {
	if len(d.b) == 0 {
		d.fail()
		return 0
	}
	v := d.b[0]
	d.b = d.b[1:]
	return v
}

func (d *Decoder) uvarint() uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 || n > 1 && d.b[n-1] == 0 {
		d.fail()
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *Decoder) varint() int64 {
	v := d.uvarint()
	return int64(v>>1) ^ -int64(v&1)
}

func (d *Decoder) enum() int32 {
	v := d.varint()
	if !fitsInt32(v) {
		d.fail()
	}
	return int32(v)
}

// bytes returns nil for an empty slice.
func (d *Decoder) bytes() []byte {
	n := d.uvarint()
	if n > uint64(len(d.b)) {
		d.fail()
		return nil
	}
	if n == 0 {
		return nil
	}
	v := d.b[:n:n]
	d.b = d.b[n:]
	return v
}

// count reads the length of a list whose elements take at least one byte each.
func (d *Decoder) count() int { return d.countOf(1) }

// countOf reads the length of a list whose elements take at least size bytes each.
func (d *Decoder) countOf(size int) int {
	n := d.uvarint()
	if n > uint64(len(d.b)/size) {
		d.fail()
		return 0
	}
	return int(n)
}

func (d *Decoder) readPut() *kv.PutRequest {
	r := d.put.next()
	f := d.flags(flagPrevKV | flagIgnoreValue | flagIgnoreLease)
	r.PrevKV, r.IgnoreValue, r.IgnoreLease = f&flagPrevKV != 0, f&flagIgnoreValue != 0,
		f&flagIgnoreLease != 0
	r.Lease = d.varint()
	r.Key = d.bytes()
	r.Value = d.bytes()
	return r
}

func (d *Decoder) readDelete() *kv.DeleteRangeRequest {
	r := d.del.next()
	r.PrevKV = d.flags(flagPrevKV) != 0
	r.Key = d.bytes()
	r.End = d.bytes()
	return r
}

func (d *Decoder) readRange() *kv.RangeRequest {
	r := d.rng.next()
	f := d.flags(flagKeysOnly | flagCountOnly | flagSerializable | flagOptions)
	r.KeysOnly, r.CountOnly, r.Serializable = f&flagKeysOnly != 0, f&flagCountOnly != 0,
		f&flagSerializable != 0
	r.Key = d.bytes()
	r.End = d.bytes()
	if f&flagOptions == 0 {
		return r
	}
	r.Limit, r.Revision = d.varint(), d.varint()
	r.Sort, r.Order = kv.SortTarget(d.enum()), kv.SortOrder(d.enum())
	r.MinModRevision, r.MaxModRevision = d.varint(), d.varint()
	r.MinCreateRevision, r.MaxCreateRevision = d.varint(), d.varint()
	if r.Limit|r.Revision|int64(r.Sort)|int64(r.Order)|
		r.MinModRevision|r.MaxModRevision|r.MinCreateRevision|r.MaxCreateRevision == 0 {
		d.fail()
	}
	return r
}

func (d *Decoder) readTxn(depth int) *kv.TxnRequest {
	if depth == 0 {
		d.fail()
		return nil
	}
	r := d.txn.next()
	// Target, result, two lengths, and a number or another length.
	n := d.countOf(5)
	r.Compare = d.compares.next(n)
	for i := range r.Compare {
		c := &r.Compare[i]
		c.Target, c.Result = kv.CompareTarget(d.enum()), kv.CompareResult(d.enum())
		c.Key = d.bytes()
		c.End = d.bytes()
		if c.Target == kv.CompareValue {
			c.Value = d.bytes()
		} else {
			c.Number = d.varint()
		}
		if d.bad {
			return nil
		}
	}
	r.Success = d.readOps(depth)
	r.Failure = d.readOps(depth)
	return r
}

func (d *Decoder) readOps(depth int) []kv.Op {
	ops := d.ops.next(d.count())
	for i := range ops {
		op := &ops[i]
		switch Kind(d.byte()) {
		case 0:
		case KindPut:
			op.Put = d.readPut()
		case KindRange:
			op.Range = d.readRange()
		case KindDeleteRange:
			op.Delete = d.readDelete()
		case KindTxn:
			op.Txn = d.readTxn(depth - 1)
		default:
			d.fail()
		}
		if d.bad {
			return nil
		}
	}
	return ops
}
