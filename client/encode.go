package client

import (
	"encoding/binary"
	"math/bits"

	"google.golang.org/grpc/mem"
)

// Hot messages are encoded and decoded by hand: those of the KV and Watch services and keep-alives. An
// encoding, decoded by the generated code, equals the message that was meant (model_test.go).

// Wire types of protocol buffers.
const (
	typeVarint  = 0
	typeFixed64 = 1
	typeBytes   = 2
	typeFixed32 = 5
)

func appendTag(b []byte, field, typ int) []byte {
	return binary.AppendUvarint(b, uint64(field)<<3|uint64(typ))
}

// appendInt appends a varint field; a zero is left out.
func appendInt(b []byte, field int, v int64) []byte {
	if v == 0 {
		return b
	}
	return binary.AppendUvarint(appendTag(b, field, typeVarint), uint64(v))
}

func appendBool(b []byte, field int, v bool) []byte {
	if !v {
		return b
	}
	return append(appendTag(b, field, typeVarint), 1)
}

// appendData appends a field of bytes or text; an empty one is left out.
func appendData[T ~string | ~[]byte](b []byte, field int, v T) []byte {
	if len(v) == 0 {
		return b
	}
	b = binary.AppendUvarint(appendTag(b, field, typeBytes), uint64(len(v)))
	return append(b, v...)
}

// begin starts an embedded message, which the caller appends; end completes it. It leaves room for a length
// below 128 and end makes more, so that no size need be computed beforehand.
func begin(b []byte, field int) (out []byte, at int) {
	b = append(appendTag(b, field, typeBytes), 0)
	return b, len(b)
}

func end(b []byte, at int) []byte {
	size := len(b) - at
	if size < 0x80 {
		b[at-1] = byte(size)
		return b
	}
	var room [binary.MaxVarintLen64]byte
	more := sizeVarint(uint64(size)) - 1
	b = append(b, room[:more]...)
	copy(b[at+more:], b[at:at+size])
	binary.PutUvarint(b[at-1:], uint64(size))
	return b
}

func sizeVarint(v uint64) int { return (bits.Len64(v|1) + 6) / 7 }

// fieldSlack is more than what the tags, lengths and numbers of a message with a key, a range and a value
// can take.
const fieldSlack = 96

// request is a message that is sent.
type request interface {
	marshal() (mem.BufferSlice, error)
}

// once is embedded by requests. It remembers whether gRPC has asked for the encoding since begin, which it does only
// when it has a stream to send it on: a request that was not encoded has reached no server. The rest saves allocations.
type once struct {
	encoded bool
	out     outgoing // the context of the first attempt
	data    sliceBuffer
	one     [1]mem.Buffer
}

// sliceBuffer is a mem.SliceBuffer in place.
type sliceBuffer struct{ mem.SliceBuffer }

func (o *once) sent() bool { return o.encoded }

// begin begins another attempt.
func (o *once) begin() { o.encoded = false }

// first returns where the context of the first attempt goes.
func (o *once) first() *outgoing { return &o.out }

// buffers hands an encoding to gRPC. Its pools are not used: what is small they do not pool, and what is large
// would be rounded up.
func (o *once) buffers(b []byte) (mem.BufferSlice, error) {
	o.encoded = true
	if o.one[0] != nil {
		return mem.BufferSlice{mem.SliceBuffer(b)}, nil // an earlier attempt may still be using the place
	}
	o.data.SliceBuffer = b
	o.one[0] = &o.data
	return o.one[:], nil
}

// rangeRequest is etcdserverpb.RangeRequest.
type rangeRequest struct {
	once
	key, end             string
	limit, revision      int64
	order                SortOrder
	target               SortTarget
	serializable         bool
	keysOnly, countOnly  bool
	minMod, maxMod       int64
	minCreate, maxCreate int64
}

func (r *rangeRequest) marshal() (mem.BufferSlice, error) {
	return r.buffers(r.appendTo(make([]byte, 0, len(r.key)+len(r.end)+fieldSlack)))
}

func (r *rangeRequest) appendTo(b []byte) []byte {
	b = appendData(b, 1, r.key)
	b = appendData(b, 2, r.end)
	b = appendInt(b, 3, r.limit)
	b = appendInt(b, 4, r.revision)
	b = appendInt(b, 5, int64(r.order))
	b = appendInt(b, 6, int64(r.target))
	b = appendBool(b, 7, r.serializable)
	b = appendBool(b, 8, r.keysOnly)
	b = appendBool(b, 9, r.countOnly)
	b = appendInt(b, 10, r.minMod)
	b = appendInt(b, 11, r.maxMod)
	b = appendInt(b, 12, r.minCreate)
	return appendInt(b, 13, r.maxCreate)
}

// putRequest is etcdserverpb.PutRequest.
type putRequest struct {
	once
	key         string
	value       []byte
	lease       LeaseID
	prevKV      bool
	ignoreValue bool
	ignoreLease bool
}

func (r *putRequest) marshal() (mem.BufferSlice, error) {
	return r.buffers(r.appendTo(make([]byte, 0, len(r.key)+len(r.value)+fieldSlack/2)))
}

func (r *putRequest) appendTo(b []byte) []byte {
	b = appendData(b, 1, r.key)
	b = appendData(b, 2, r.value)
	b = appendInt(b, 3, int64(r.lease))
	b = appendBool(b, 4, r.prevKV)
	b = appendBool(b, 5, r.ignoreValue)
	return appendBool(b, 6, r.ignoreLease)
}

// deleteRequest is etcdserverpb.DeleteRangeRequest.
type deleteRequest struct {
	once
	key, end string
	prevKV   bool
}

func (r *deleteRequest) marshal() (mem.BufferSlice, error) {
	return r.buffers(r.appendTo(make([]byte, 0, len(r.key)+len(r.end)+fieldSlack/2)))
}

func (r *deleteRequest) appendTo(b []byte) []byte {
	b = appendData(b, 1, r.key)
	b = appendData(b, 2, r.end)
	return appendBool(b, 3, r.prevKV)
}

// txnRequest is etcdserverpb.TxnRequest.
type txnRequest struct {
	once
	compare       []Cmp
	success, fail []Op
}

func (r *txnRequest) marshal() (mem.BufferSlice, error) {
	return r.buffers(r.appendTo(make([]byte, 0, r.roughSize())))
}

// roughSize saves growing the buffer; it need not be exact.
func (r *txnRequest) roughSize() int {
	n := 0
	for i := range r.compare {
		c := &r.compare[i]
		n += len(c.key) + len(c.end) + len(c.value) + fieldSlack/2
	}
	for _, list := range [2][]Op{r.success, r.fail} {
		for i := range list {
			op := &list[i]
			switch {
			case op.put != nil:
				n += len(op.put.key) + len(op.put.value)
			case op.get != nil:
				n += len(op.get.key) + len(op.get.end)
			case op.delete != nil:
				n += len(op.delete.key) + len(op.delete.end)
			case op.txn != nil:
				n += op.txn.roughSize()
			}
			n += fieldSlack / 2
		}
	}
	return n
}

func (r *txnRequest) appendTo(b []byte) []byte {
	var at int
	for i := range r.compare {
		b, at = begin(b, 1)
		b = end(r.compare[i].appendTo(b), at)
	}
	for i := range r.success {
		b, at = begin(b, 2)
		b = end(r.success[i].appendTo(b), at)
	}
	for i := range r.fail {
		b, at = begin(b, 3)
		b = end(r.fail[i].appendTo(b), at)
	}
	return b
}

func (c *Cmp) appendTo(b []byte) []byte {
	b = appendInt(b, 1, int64(c.result))
	b = appendInt(b, 2, int64(c.target))
	b = appendData(b, 3, c.key)
	// The operand is a oneof: its member is written even if it is zero.
	field := int(c.target) + 4
	if c.target == cmpValue {
		b = binary.AppendUvarint(appendTag(b, field, typeBytes), uint64(len(c.value)))
		b = append(b, c.value...)
	} else {
		b = binary.AppendUvarint(appendTag(b, field, typeVarint), uint64(c.number))
	}
	return appendData(b, 64, c.end)
}

func (op *Op) appendTo(b []byte) []byte {
	var at int
	switch {
	case op.get != nil:
		b, at = begin(b, 1)
		return end(op.get.appendTo(b), at)
	case op.put != nil:
		b, at = begin(b, 2)
		return end(op.put.appendTo(b), at)
	case op.delete != nil:
		b, at = begin(b, 3)
		return end(op.delete.appendTo(b), at)
	case op.txn != nil:
		b, at = begin(b, 4)
		return end(op.txn.appendTo(b), at)
	}
	return b
}

// watchRequest is etcdserverpb.WatchRequest; what is set first of create, cancel and progress counts.
type watchRequest struct {
	once
	create *watchCreate
	cancel int64 // a watch id, if not 0
}

// watchCreate is etcdserverpb.WatchCreateRequest. Fragments are always asked for.
type watchCreate struct {
	key, end        string
	start           int64
	id              int64
	progress        bool
	noPut, noDelete bool
	prevKV          bool
}

func (r *watchRequest) marshal() (mem.BufferSlice, error) {
	n := 16
	if r.create != nil {
		n = len(r.create.key) + len(r.create.end) + fieldSlack
	}
	return r.buffers(r.appendTo(make([]byte, 0, n)))
}

func (r *watchRequest) appendTo(b []byte) []byte {
	var at int
	switch {
	case r.create != nil:
		b, at = begin(b, 1)
		return end(r.create.appendTo(b), at)
	case r.cancel != 0:
		b, at = begin(b, 2)
		return end(appendInt(b, 1, r.cancel), at)
	default:
		b, at = begin(b, 3)
		return end(b, at)
	}
}

func (r *watchCreate) appendTo(b []byte) []byte {
	b = appendData(b, 1, r.key)
	b = appendData(b, 2, r.end)
	b = appendInt(b, 3, r.start)
	b = appendBool(b, 4, r.progress)
	if r.noPut || r.noDelete {
		var at int
		b, at = begin(b, 5)
		if r.noPut {
			b = append(b, 0)
		}
		if r.noDelete {
			b = append(b, 1)
		}
		b = end(b, at)
	}
	b = appendBool(b, 6, r.prevKV)
	b = appendInt(b, 7, r.id)
	return appendBool(b, 8, true)
}

// leaseRequest is etcdserverpb.LeaseKeepAliveRequest.
type leaseRequest struct {
	once
	id LeaseID
}

func (r *leaseRequest) marshal() (mem.BufferSlice, error) {
	return r.buffers(appendInt(make([]byte, 0, 16), 1, int64(r.id)))
}
