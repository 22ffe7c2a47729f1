package wire

import (
	"vigil/client/pbfield"
	"vigil/internal/kv"
)

// decodeTxn merges an encoding into m. depth is how many levels of messages may follow, including
// this one. If one level has more than maxOps compares or operations, it decodes only the first
// maxOps+1: the request is rejected anyway, and an empty operation needs 50 times its encoded size
// in memory. 0 means no limit.
func decodeTxn(b []byte, m *kv.TxnRequest, depth, maxOps int) error {
	if depth--; depth < 0 {
		return pbfield.ErrTooDeep
	}
	r := pbfield.Read(b)
	var body []byte
	for r.Next() {
		for r.Message(1, &body) {
			if !isTooLong(len(m.Compare), maxOps) {
				m.Compare = append(m.Compare, kv.Compare{})
				r.Check(decodeCompare(body, &m.Compare[len(m.Compare)-1], depth))
			}
		}
		for r.Message(2, &body) {
			r.Check(decodeOp(body, &m.Success, depth, maxOps))
		}
		for r.Message(3, &body) {
			r.Check(decodeOp(body, &m.Failure, depth, maxOps))
		}
	}
	return r.Err()
}

// isTooLong reports whether a list of n elements is too long already.
func isTooLong(n, maxOps int) bool { return maxOps > 0 && n > maxOps }

// decodeOp appends one RequestOp to ops. The last member of its oneof counts, and a repeated member
// is merged.
func decodeOp(b []byte, ops *[]kv.Op, depth, maxOps int) error {
	if isTooLong(len(*ops), maxOps) {
		return nil
	}
	if depth--; depth < 0 {
		return pbfield.ErrTooDeep
	}
	*ops = append(*ops, kv.Op{})
	op := &(*ops)[len(*ops)-1]
	r := pbfield.Read(b)
	var body []byte
	for r.Next() {
		if r.Message(1, &body) {
			if op.Range == nil {
				*op = kv.Op{Range: new(kv.RangeRequest)}
			}
			r.Check(unlessTooDeep(depth, decodeRange(body, op.Range)))
		}
		if r.Message(2, &body) {
			if op.Put == nil {
				*op = kv.Op{Put: new(kv.PutRequest)}
			}
			r.Check(unlessTooDeep(depth, decodePut(body, op.Put)))
		}
		if r.Message(3, &body) {
			if op.Delete == nil {
				*op = kv.Op{Delete: new(kv.DeleteRangeRequest)}
			}
			r.Check(unlessTooDeep(depth, decodeDelete(body, op.Delete)))
		}
		if r.Message(4, &body) {
			if op.Txn == nil {
				*op = kv.Op{Txn: new(kv.TxnRequest)}
			}
			r.Check(decodeTxn(body, op.Txn, depth, maxOps))
		}
	}
	return r.Err()
}

// unlessTooDeep returns the error for a message at this depth that embeds no others.
func unlessTooDeep(depth int, err error) error {
	if depth < 1 {
		return pbfield.ErrTooDeep
	}
	return err
}

// The members of Compare's oneof, by their field numbers.
const (
	unionVersion = 4
	unionCreate  = 5
	unionMod     = 6
	unionValue   = 7
	unionLease   = 8
)

// decodeCompare decodes into the zero value of m.
func decodeCompare(b []byte, m *kv.Compare, depth int) error {
	r := pbfield.Read(b)
	union := 0
	for r.Next() {
		pbfield.Int(&r, 1, &m.Result)
		pbfield.Int(&r, 2, &m.Target)
		r.Bytes(3, &m.Key)
		for _, num := range [...]int{unionVersion, unionCreate, unionMod, unionLease} {
			if v, ok := r.Varint(num); ok {
				m.Number, union = int64(v), num
			}
		}
		if r.Message(unionValue, &m.Value) {
			union = unionValue
		}
		r.Bytes(64, &m.End)
	}
	keepOperand(m, union)
	return unlessTooDeep(depth, r.Err())
}

// keepOperand keeps only the operand of the target. A client that sends another member of the oneof
// compares with zero or with the empty value.
func keepOperand(m *kv.Compare, union int) {
	wanted := 0
	switch m.Target {
	case kv.CompareVersion:
		wanted = unionVersion
	case kv.CompareCreate:
		wanted = unionCreate
	case kv.CompareMod:
		wanted = unionMod
	case kv.CompareValue:
		wanted = unionValue
	case kv.CompareLease:
		wanted = unionLease
	}
	if union != wanted || wanted == unionValue {
		m.Number = 0
	}
	if union != wanted || wanted != unionValue {
		m.Value = nil
	}
}
