package wire

import (
	"encoding/binary"

	"google.golang.org/grpc/mem"
)

// fieldSlack is more than the tags, lengths and numbers of a message with a key, a range and a value take.
const fieldSlack = 96

// RangeRequest is etcdserverpb.RangeRequest.
type RangeRequest struct {
	Attempt
	Key, End            string
	Limit, Revision     int64
	Order, Target       uint8
	Serializable        bool
	KeysOnly, CountOnly bool
	MinModRevision      int64
	MaxModRevision      int64
	MinCreateRevision   int64
	MaxCreateRevision   int64
}

// Marshal implements Request.
func (r *RangeRequest) Marshal() (mem.BufferSlice, error) {
	return r.buffers(r.append(make([]byte, 0, len(r.Key)+len(r.End)+fieldSlack)))
}

func (r *RangeRequest) append(b []byte) []byte {
	b = appendBytes(b, 1, r.Key)
	b = appendBytes(b, 2, r.End)
	b = appendInt(b, 3, r.Limit)
	b = appendInt(b, 4, r.Revision)
	b = appendInt(b, 5, int64(r.Order))
	b = appendInt(b, 6, int64(r.Target))
	b = appendBool(b, 7, r.Serializable)
	b = appendBool(b, 8, r.KeysOnly)
	b = appendBool(b, 9, r.CountOnly)
	b = appendInt(b, 10, r.MinModRevision)
	b = appendInt(b, 11, r.MaxModRevision)
	b = appendInt(b, 12, r.MinCreateRevision)
	return appendInt(b, 13, r.MaxCreateRevision)
}

// PutRequest is etcdserverpb.PutRequest.
type PutRequest struct {
	Attempt
	Key         string
	Value       []byte
	Lease       int64
	PrevKV      bool
	IgnoreValue bool
	IgnoreLease bool
}

// Marshal implements Request.
func (r *PutRequest) Marshal() (mem.BufferSlice, error) {
	return r.buffers(r.append(make([]byte, 0, len(r.Key)+len(r.Value)+fieldSlack/2)))
}

func (r *PutRequest) append(b []byte) []byte {
	b = appendBytes(b, 1, r.Key)
	b = appendBytes(b, 2, r.Value)
	b = appendInt(b, 3, r.Lease)
	b = appendBool(b, 4, r.PrevKV)
	b = appendBool(b, 5, r.IgnoreValue)
	return appendBool(b, 6, r.IgnoreLease)
}

// DeleteRequest is etcdserverpb.DeleteRangeRequest.
type DeleteRequest struct {
	Attempt
	Key, End string
	PrevKV   bool
}

// Marshal implements Request.
func (r *DeleteRequest) Marshal() (mem.BufferSlice, error) {
	return r.buffers(r.append(make([]byte, 0, len(r.Key)+len(r.End)+fieldSlack/2)))
}

func (r *DeleteRequest) append(b []byte) []byte {
	b = appendBytes(b, 1, r.Key)
	b = appendBytes(b, 2, r.End)
	return appendBool(b, 3, r.PrevKV)
}

// TxnRequest is etcdserverpb.TxnRequest.
type TxnRequest struct {
	Attempt
	Compare          []Compare
	Success, Failure []Op
}

// Op is etcdserverpb.RequestOp; one field is set.
type Op struct {
	Get    *RangeRequest
	Put    *PutRequest
	Delete *DeleteRequest
	Txn    *TxnRequest
}

// Compare is etcdserverpb.Compare. Number is the operand of all targets but CompareValue.
type Compare struct {
	Key, End string
	Target   uint8
	Result   uint8
	Number   int64
	Value    []byte
}

// The targets of comparisons. Those but CompareValue compare with Number.
const (
	CompareVersion uint8 = iota
	CompareCreate
	CompareMod
	CompareValue
	CompareLease
)

// The results of comparisons.
const (
	Equal uint8 = iota
	Greater
	Less
	NotEqual
)

// Marshal implements Request.
func (r *TxnRequest) Marshal() (mem.BufferSlice, error) {
	return r.buffers(r.append(make([]byte, 0, r.roughSize())))
}

// ReadOnly reports whether no operation writes.
func (r *TxnRequest) ReadOnly() bool {
	for _, list := range [2][]Op{r.Success, r.Failure} {
		for _, op := range list {
			if op.Put != nil || op.Delete != nil || op.Txn != nil && !op.Txn.ReadOnly() {
				return false
			}
		}
	}
	return true
}

// roughSize estimates the size, so that the buffer seldom grows.
func (r *TxnRequest) roughSize() int {
	n := 0
	for i := range r.Compare {
		c := &r.Compare[i]
		n += len(c.Key) + len(c.End) + len(c.Value) + fieldSlack/2
	}
	for _, list := range [2][]Op{r.Success, r.Failure} {
		for i := range list {
			op := &list[i]
			switch {
			case op.Put != nil:
				n += len(op.Put.Key) + len(op.Put.Value)
			case op.Get != nil:
				n += len(op.Get.Key) + len(op.Get.End)
			case op.Delete != nil:
				n += len(op.Delete.Key) + len(op.Delete.End)
			case op.Txn != nil:
				n += op.Txn.roughSize()
			}
			n += fieldSlack / 2
		}
	}
	return n
}

func (r *TxnRequest) append(b []byte) []byte {
	var at int
	for i := range r.Compare {
		b, at = beginMessage(b, 1)
		b = endMessage(r.Compare[i].append(b), at)
	}
	for i := range r.Success {
		b, at = beginMessage(b, 2)
		b = endMessage(r.Success[i].append(b), at)
	}
	for i := range r.Failure {
		b, at = beginMessage(b, 3)
		b = endMessage(r.Failure[i].append(b), at)
	}
	return b
}

func (c *Compare) append(b []byte) []byte {
	b = appendInt(b, 1, int64(c.Result))
	b = appendInt(b, 2, int64(c.Target))
	b = appendBytes(b, 3, c.Key)
	// The operand is a oneof: its member is written even if it is zero.
	field := int(c.Target) + 4
	if c.Target == CompareValue {
		b = binary.AppendUvarint(appendTag(b, field, TypeBytes), uint64(len(c.Value)))
		b = append(b, c.Value...)
	} else {
		b = binary.AppendUvarint(appendTag(b, field, TypeVarint), uint64(c.Number))
	}
	return appendBytes(b, 64, c.End)
}

func (op *Op) append(b []byte) []byte {
	var at int
	switch {
	case op.Get != nil:
		b, at = beginMessage(b, 1)
		return endMessage(op.Get.append(b), at)
	case op.Put != nil:
		b, at = beginMessage(b, 2)
		return endMessage(op.Put.append(b), at)
	case op.Delete != nil:
		b, at = beginMessage(b, 3)
		return endMessage(op.Delete.append(b), at)
	case op.Txn != nil:
		b, at = beginMessage(b, 4)
		return endMessage(op.Txn.append(b), at)
	}
	return b
}
