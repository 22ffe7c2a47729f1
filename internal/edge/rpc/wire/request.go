package wire

import "vigil/internal/kv"

// RangeRequest is etcdserverpb.RangeRequest.
type RangeRequest struct {
	kv.RangeRequest
	get *GetAnswer // nil if there is none
}

// PutRequest is etcdserverpb.PutRequest.
type PutRequest struct {
	kv.PutRequest
	// Len is the length of the encoding in bytes, here and below.
	Len int
}

// DeleteRangeRequest is etcdserverpb.DeleteRangeRequest.
type DeleteRangeRequest struct {
	kv.DeleteRangeRequest
	Len int
}

// TxnRequest is etcdserverpb.TxnRequest.
type TxnRequest struct {
	kv.TxnRequest
	Len int
	// maxOps bounds the operations that are decoded of one level.
	maxOps int
}

// LimitOps lets Decode stop after n+1 compares, or operations of a branch, on each level. Such a request
// cannot be carried out.
func (m *TxnRequest) LimitOps(n int) { m.maxOps = n }

// CompactionRequest is etcdserverpb.CompactionRequest.
type CompactionRequest struct{ kv.CompactRequest }

// Decode implements Decoder.
func (m *RangeRequest) Decode(b []byte) error { return decodeRange(b, &m.RangeRequest) }

// Decode implements Decoder.
func (m *PutRequest) Decode(b []byte) error {
	m.Len = len(b)
	return decodePut(b, &m.PutRequest)
}

// Decode implements Decoder.
func (m *DeleteRangeRequest) Decode(b []byte) error {
	m.Len = len(b)
	return decodeDelete(b, &m.DeleteRangeRequest)
}

// Decode implements Decoder.
func (m *TxnRequest) Decode(b []byte) error {
	m.Len = len(b)
	return decodeTxn(b, &m.TxnRequest, MaxDepth, m.maxOps)
}

// Decode implements Decoder.
func (m *CompactionRequest) Decode(b []byte) error {
	for len(b) > 0 {
		tag, n := takeVarint(b)
		if n <= 0 {
			return ErrInvalid
		}
		b = b[n:]
		var err error
		switch tag {
		case 1<<3 | typeVarint:
			n = takeInt64(b, &m.Revision)
		case 2<<3 | typeVarint:
			n = takeBool(b, &m.Physical)
		default:
			n, err = skipField(tag, b)
		}
		if err != nil || n <= 0 {
			return ErrInvalid
		}
		b = b[n:]
	}
	return nil
}

func decodeRange(b []byte, m *kv.RangeRequest) error {
	for len(b) > 0 {
		tag, n := takeVarint(b)
		if n <= 0 {
			return ErrInvalid
		}
		b = b[n:]
		var err error
		switch tag {
		case 1<<3 | typeBytes:
			m.Key, n = takeBytes(b)
		case 2<<3 | typeBytes:
			m.End, n = takeBytes(b)
		case 3<<3 | typeVarint:
			n = takeInt64(b, &m.Limit)
		case 4<<3 | typeVarint:
			n = takeInt64(b, &m.Revision)
		case 5<<3 | typeVarint:
			n = takeInt32(b, &m.Order)
		case 6<<3 | typeVarint:
			n = takeInt32(b, &m.Sort)
		case 7<<3 | typeVarint:
			n = takeBool(b, &m.Serializable)
		case 8<<3 | typeVarint:
			n = takeBool(b, &m.KeysOnly)
		case 9<<3 | typeVarint:
			n = takeBool(b, &m.CountOnly)
		case 10<<3 | typeVarint:
			n = takeInt64(b, &m.MinModRevision)
		case 11<<3 | typeVarint:
			n = takeInt64(b, &m.MaxModRevision)
		case 12<<3 | typeVarint:
			n = takeInt64(b, &m.MinCreateRevision)
		case 13<<3 | typeVarint:
			n = takeInt64(b, &m.MaxCreateRevision)
		default:
			n, err = skipField(tag, b)
		}
		if err != nil || n <= 0 {
			return ErrInvalid
		}
		b = b[n:]
	}
	return nil
}

func decodePut(b []byte, m *kv.PutRequest) error {
	for len(b) > 0 {
		tag, n := takeVarint(b)
		if n <= 0 {
			return ErrInvalid
		}
		b = b[n:]
		var err error
		switch tag {
		case 1<<3 | typeBytes:
			m.Key, n = takeBytes(b)
		case 2<<3 | typeBytes:
			m.Value, n = takeBytes(b)
		case 3<<3 | typeVarint:
			n = takeInt64(b, &m.Lease)
		case 4<<3 | typeVarint:
			n = takeBool(b, &m.PrevKV)
		case 5<<3 | typeVarint:
			n = takeBool(b, &m.IgnoreValue)
		case 6<<3 | typeVarint:
			n = takeBool(b, &m.IgnoreLease)
		default:
			n, err = skipField(tag, b)
		}
		if err != nil || n <= 0 {
			return ErrInvalid
		}
		b = b[n:]
	}
	return nil
}

func decodeDelete(b []byte, m *kv.DeleteRangeRequest) error {
	for len(b) > 0 {
		tag, n := takeVarint(b)
		if n <= 0 {
			return ErrInvalid
		}
		b = b[n:]
		var err error
		switch tag {
		case 1<<3 | typeBytes:
			m.Key, n = takeBytes(b)
		case 2<<3 | typeBytes:
			m.End, n = takeBytes(b)
		case 3<<3 | typeVarint:
			n = takeBool(b, &m.PrevKV)
		default:
			n, err = skipField(tag, b)
		}
		if err != nil || n <= 0 {
			return ErrInvalid
		}
		b = b[n:]
	}
	return nil
}
