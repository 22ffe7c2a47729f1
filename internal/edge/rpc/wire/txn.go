package wire

import "vigil/internal/kv"

// decodeTxn merges an encoding into m. depth is how many levels of messages may follow, this one
// included. Of more than maxOps compares or operations on one level only the first maxOps+1 are decoded: a
// request with more is rejected, and an empty one takes 50 times its bytes in memory. 0 is no limit.
func decodeTxn(b []byte, m *kv.TxnRequest, depth, maxOps int) error {
	if depth--; depth < 0 {
		return ErrTooDeep
	}
	for len(b) > 0 {
		tag, n := takeVarint(b)
		if n <= 0 {
			return ErrInvalid
		}
		b = b[n:]
		var err error
		switch tag {
		case 1<<3 | typeBytes:
			var body []byte
			if body, n = takeBytes(b); n > 0 && !beyond(len(m.Compare), maxOps) {
				m.Compare = append(m.Compare, kv.Compare{})
				err = decodeCompare(body, &m.Compare[len(m.Compare)-1], depth)
			}
		case 2<<3 | typeBytes:
			m.Success, n, err = decodeOp(b, m.Success, depth, maxOps)
		case 3<<3 | typeBytes:
			m.Failure, n, err = decodeOp(b, m.Failure, depth, maxOps)
		default:
			n, err = skipField(tag, b)
		}
		if err != nil {
			return err
		}
		if n <= 0 {
			return ErrInvalid
		}
		b = b[n:]
	}
	return nil
}

// beyond reports whether a list of n elements is too long already.
func beyond(n, maxOps int) bool { return maxOps > 0 && n > maxOps }

// decodeOp appends one RequestOp to ops.
func decodeOp(b []byte, ops []kv.Op, depth, maxOps int) ([]kv.Op, int, error) {
	body, taken := takeBytes(b)
	if taken <= 0 {
		return ops, 0, ErrInvalid
	}
	if beyond(len(ops), maxOps) {
		return ops, taken, nil
	}
	if depth--; depth < 0 {
		return ops, 0, ErrTooDeep
	}
	ops = append(ops, kv.Op{})
	op := &ops[len(ops)-1]
	for len(body) > 0 {
		tag, n := takeVarint(body)
		if n <= 0 {
			return ops, 0, ErrInvalid
		}
		body = body[n:]
		var inner []byte
		var err error
		switch tag {
		case 1<<3 | typeBytes, 2<<3 | typeBytes, 3<<3 | typeBytes, 4<<3 | typeBytes:
			if inner, n = takeBytes(body); n > 0 {
				err = decodeUnion(tag>>3, inner, op, depth, maxOps)
			}
		default:
			n, err = skipField(tag, body)
		}
		if err != nil {
			return ops, 0, err
		}
		if n <= 0 {
			return ops, 0, ErrInvalid
		}
		body = body[n:]
	}
	return ops, taken, nil
}

// decodeUnion merges one member of the oneof into op; another member that was there is dropped.
func decodeUnion(field uint64, b []byte, op *kv.Op, depth, maxOps int) error {
	if field != 4 && depth < 1 {
		return ErrTooDeep
	}
	switch field {
	case 1:
		if op.Range == nil {
			*op = kv.Op{Range: new(kv.RangeRequest)}
		}
		return decodeRange(b, op.Range)
	case 2:
		if op.Put == nil {
			*op = kv.Op{Put: new(kv.PutRequest)}
		}
		return decodePut(b, op.Put)
	case 3:
		if op.Delete == nil {
			*op = kv.Op{Delete: new(kv.DeleteRangeRequest)}
		}
		return decodeDelete(b, op.Delete)
	default:
		if op.Txn == nil {
			*op = kv.Op{Txn: new(kv.TxnRequest)}
		}
		return decodeTxn(b, op.Txn, depth, maxOps)
	}
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
	if depth < 1 {
		return ErrTooDeep
	}
	union := uint64(0)
	for len(b) > 0 {
		tag, n := takeVarint(b)
		if n <= 0 {
			return ErrInvalid
		}
		b = b[n:]
		var err error
		switch tag {
		case 1<<3 | typeVarint:
			n = takeInt32(b, &m.Result)
		case 2<<3 | typeVarint:
			n = takeInt32(b, &m.Target)
		case 3<<3 | typeBytes:
			m.Key, n = takeBytes(b)
		case unionVersion<<3 | typeVarint, unionCreate<<3 | typeVarint, unionMod<<3 | typeVarint, unionLease<<3 | typeVarint:
			n = takeInt64(b, &m.Number)
			union = tag >> 3
		case unionValue<<3 | typeBytes:
			m.Value, n = takeBytes(b)
			union = tag >> 3
		case 64<<3 | typeBytes:
			m.End, n = takeBytes(b)
		default:
			n, err = skipField(tag, b)
		}
		if err != nil || n <= 0 {
			return ErrInvalid
		}
		b = b[n:]
	}
	settleUnion(m, union)
	return nil
}

// settleUnion keeps only the operand that the target looks at: a client that sends another member
// of the oneof than the target's compares with zero or with the empty value.
func settleUnion(m *kv.Compare, union uint64) {
	wanted := uint64(0)
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
