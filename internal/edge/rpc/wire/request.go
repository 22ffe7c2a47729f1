package wire

import (
	"vigil/client/pbfield"
	"vigil/internal/kv"
)

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
	// maxOps limits the operations that are decoded on one level.
	maxOps int
}

// LimitOps lets Decode stop after n+1 compares, or operations of a branch, on each level. A request
// with more must not be executed.
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
	return decodeTxn(b, &m.TxnRequest, pbfield.MaxDepth, m.maxOps)
}

// Decode implements Decoder.
func (m *CompactionRequest) Decode(b []byte) error {
	r := pbfield.Read(b)
	for r.Next() {
		pbfield.Int(&r, 1, &m.Revision)
		r.Bool(2, &m.Physical)
	}
	return r.Err()
}

func decodeRange(b []byte, m *kv.RangeRequest) error {
	r := pbfield.Read(b)
	for r.Next() {
		r.Bytes(1, &m.Key)
		r.Bytes(2, &m.End)
		if r.AtEnd() {
			break
		}
		pbfield.Int(&r, 3, &m.Limit)
		pbfield.Int(&r, 4, &m.Revision)
		pbfield.Int(&r, 5, &m.Order)
		pbfield.Int(&r, 6, &m.Sort)
		r.Bool(7, &m.Serializable)
		r.Bool(8, &m.KeysOnly)
		r.Bool(9, &m.CountOnly)
		pbfield.Int(&r, 10, &m.MinModRevision)
		pbfield.Int(&r, 11, &m.MaxModRevision)
		pbfield.Int(&r, 12, &m.MinCreateRevision)
		pbfield.Int(&r, 13, &m.MaxCreateRevision)
	}
	return r.Err()
}

func decodePut(b []byte, m *kv.PutRequest) error {
	r := pbfield.Read(b)
	for r.Next() {
		r.Bytes(1, &m.Key)
		r.Bytes(2, &m.Value)
		pbfield.Int(&r, 3, &m.Lease)
		r.Bool(4, &m.PrevKV)
		r.Bool(5, &m.IgnoreValue)
		r.Bool(6, &m.IgnoreLease)
	}
	return r.Err()
}

func decodeDelete(b []byte, m *kv.DeleteRangeRequest) error {
	r := pbfield.Read(b)
	for r.Next() {
		r.Bytes(1, &m.Key)
		r.Bytes(2, &m.End)
		r.Bool(3, &m.PrevKV)
	}
	return r.Err()
}
