package request

import (
	"google.golang.org/grpc/mem"

	"vigil/client/pbfield"
)

// fieldSlack is more than the tags, lengths and numbers of a message with a key, a range and a
// value take.
const fieldSlack = 96

// Range is etcdserverpb.RangeRequest.
type Range struct {
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

// Marshal implements Encoder.
func (r *Range) Marshal() (mem.BufferSlice, error) {
	return r.buffers(r.append(make([]byte, 0, len(r.Key)+len(r.End)+fieldSlack)))
}

func (r *Range) append(b []byte) []byte {
	b = pbfield.AppendBytes(b, 1, r.Key)
	b = pbfield.AppendBytes(b, 2, r.End)
	b = pbfield.AppendInt(b, 3, r.Limit)
	b = pbfield.AppendInt(b, 4, r.Revision)
	b = pbfield.AppendInt(b, 5, r.Order)
	b = pbfield.AppendInt(b, 6, r.Target)
	b = pbfield.AppendBool(b, 7, r.Serializable)
	b = pbfield.AppendBool(b, 8, r.KeysOnly)
	b = pbfield.AppendBool(b, 9, r.CountOnly)
	b = pbfield.AppendInt(b, 10, r.MinModRevision)
	b = pbfield.AppendInt(b, 11, r.MaxModRevision)
	b = pbfield.AppendInt(b, 12, r.MinCreateRevision)
	return pbfield.AppendInt(b, 13, r.MaxCreateRevision)
}

// Put is etcdserverpb.PutRequest.
type Put struct {
	Attempt
	Key         string
	Value       []byte
	Lease       int64
	PrevKV      bool
	IgnoreValue bool
	IgnoreLease bool
}

// Marshal implements Encoder.
func (r *Put) Marshal() (mem.BufferSlice, error) {
	return r.buffers(r.append(make([]byte, 0, len(r.Key)+len(r.Value)+fieldSlack/2)))
}

func (r *Put) append(b []byte) []byte {
	b = pbfield.AppendBytes(b, 1, r.Key)
	b = pbfield.AppendBytes(b, 2, r.Value)
	b = pbfield.AppendInt(b, 3, r.Lease)
	b = pbfield.AppendBool(b, 4, r.PrevKV)
	b = pbfield.AppendBool(b, 5, r.IgnoreValue)
	return pbfield.AppendBool(b, 6, r.IgnoreLease)
}

// Delete is etcdserverpb.DeleteRangeRequest.
type Delete struct {
	Attempt
	Key, End string
	PrevKV   bool
}

// Marshal implements Encoder.
func (r *Delete) Marshal() (mem.BufferSlice, error) {
	return r.buffers(r.append(make([]byte, 0, len(r.Key)+len(r.End)+fieldSlack/2)))
}

func (r *Delete) append(b []byte) []byte {
	b = pbfield.AppendBytes(b, 1, r.Key)
	b = pbfield.AppendBytes(b, 2, r.End)
	return pbfield.AppendBool(b, 3, r.PrevKV)
}

// Txn is etcdserverpb.TxnRequest.
type Txn struct {
	Attempt
	Compare          []Compare
	Success, Failure []Op
}

// Op is etcdserverpb.RequestOp; one field is set.
type Op struct {
	Get    *Range
	Put    *Put
	Delete *Delete
	Txn    *Txn
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

// Marshal implements Encoder.
func (r *Txn) Marshal() (mem.BufferSlice, error) {
	return r.buffers(r.append(make([]byte, 0, r.roughSize())))
}

// ReadOnly reports whether no operation writes.
func (r *Txn) ReadOnly() bool {
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
func (r *Txn) roughSize() int {
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

func (r *Txn) append(b []byte) []byte {
	var at int
	for i := range r.Compare {
		b, at = pbfield.BeginMessage(b, 1)
		b = pbfield.EndMessage(r.Compare[i].append(b), at)
	}
	for i := range r.Success {
		b, at = pbfield.BeginMessage(b, 2)
		b = pbfield.EndMessage(r.Success[i].append(b), at)
	}
	for i := range r.Failure {
		b, at = pbfield.BeginMessage(b, 3)
		b = pbfield.EndMessage(r.Failure[i].append(b), at)
	}
	return b
}

func (c *Compare) append(b []byte) []byte {
	b = pbfield.AppendInt(b, 1, c.Result)
	b = pbfield.AppendInt(b, 2, c.Target)
	b = pbfield.AppendBytes(b, 3, c.Key)
	// The operand is a oneof: its member is written even if it is zero.
	field := int(c.Target) + 4
	if c.Target == CompareValue {
		b = pbfield.AppendPresent(b, field, c.Value)
	} else {
		b = pbfield.AppendPresentInt(b, field, c.Number)
	}
	return pbfield.AppendBytes(b, 64, c.End)
}

func (op *Op) append(b []byte) []byte {
	var at int
	switch {
	case op.Get != nil:
		b, at = pbfield.BeginMessage(b, 1)
		return pbfield.EndMessage(op.Get.append(b), at)
	case op.Put != nil:
		b, at = pbfield.BeginMessage(b, 2)
		return pbfield.EndMessage(op.Put.append(b), at)
	case op.Delete != nil:
		b, at = pbfield.BeginMessage(b, 3)
		return pbfield.EndMessage(op.Delete.append(b), at)
	case op.Txn != nil:
		b, at = pbfield.BeginMessage(b, 4)
		return pbfield.EndMessage(op.Txn.append(b), at)
	}
	return b
}
