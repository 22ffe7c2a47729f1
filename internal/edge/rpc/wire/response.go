package wire

import (
	"vigil/client/pbfield"
	"vigil/internal/kv"
)

// RangeResponse is etcdserverpb.RangeResponse.
type RangeResponse struct {
	Header kv.Header
	Result *kv.RangeResult
}

// PutResponse is etcdserverpb.PutResponse.
type PutResponse struct {
	Header kv.Header
	Result *kv.PutResult
}

// DeleteRangeResponse is etcdserverpb.DeleteRangeResponse.
type DeleteRangeResponse struct {
	Header kv.Header
	Result *kv.DeleteRangeResult
}

// TxnResponse is etcdserverpb.TxnResponse.
//
// As in etcd, the inner headers have only a revision, and the header of a nested transaction is
// empty.
type TxnResponse struct {
	Header kv.Header
	Result *kv.TxnResult
}

// CompactionResponse is etcdserverpb.CompactionResponse.
type CompactionResponse struct{ Header kv.Header }

// Size implements Encoder.
func (m *RangeResponse) Size() int { return sizeRange(m.Header, m.Result) }

// AppendTo implements Encoder.
func (m *RangeResponse) AppendTo(b []byte) []byte { return appendRange(b, m.Header, m.Result) }

// Size implements Encoder.
func (m *PutResponse) Size() int { return sizePut(m.Header, m.Result) }

// AppendTo implements Encoder.
func (m *PutResponse) AppendTo(b []byte) []byte { return appendPut(b, m.Header, m.Result) }

// Size implements Encoder.
func (m *DeleteRangeResponse) Size() int { return sizeDelete(m.Header, m.Result) }

// AppendTo implements Encoder.
func (m *DeleteRangeResponse) AppendTo(b []byte) []byte {
	return appendDelete(b, m.Header, m.Result)
}

// Size implements Encoder.
func (m *TxnResponse) Size() int { return sizeTxn(m.Header, m.Result) }

// AppendTo implements Encoder.
func (m *TxnResponse) AppendTo(b []byte) []byte { return appendTxn(b, m.Header, m.Result) }

// Size implements Encoder.
func (m *CompactionResponse) Size() int { return 1 + pbfield.SizeBytes(sizeHeader(m.Header)) }

// AppendTo implements Encoder.
func (m *CompactionResponse) AppendTo(b []byte) []byte { return appendHeader(b, m.Header) }

// RangeStreamResponse is etcdserverpb.RangeStreamResponse: one chunk. Only the last chunk has a
// header, more and a count.
type RangeStreamResponse struct {
	Header kv.Header
	Result *kv.RangeResult
	Last   bool
}

// Size implements Encoder.
func (m *RangeStreamResponse) Size() int { return 1 + pbfield.SizeBytes(m.innerSize()) }

// AppendTo implements Encoder.
func (m *RangeStreamResponse) AppendTo(b []byte) []byte {
	b = pbfield.AppendLen(b, 1, m.innerSize())
	if m.Last {
		return appendRange(b, m.Header, m.Result)
	}
	return appendRecords(b, 2, &m.Result.KVs)
}

func (m *RangeStreamResponse) innerSize() int {
	if m.Last {
		return sizeRange(m.Header, m.Result)
	}
	return sizeRecords(&m.Result.KVs)
}

func sizeHeader(h kv.Header) int {
	return sizeInt(h.ClusterID) + sizeInt(h.MemberID) + sizeInt(uint64(h.Revision)) +
		sizeInt(h.Term)
}

// appendHeader appends a header as field 1, its number in every response.
func appendHeader(b []byte, h kv.Header) []byte {
	b = pbfield.AppendLen(b, 1, sizeHeader(h))
	b = pbfield.AppendInt(b, 1, h.ClusterID)
	b = pbfield.AppendInt(b, 2, h.MemberID)
	b = pbfield.AppendInt(b, 3, h.Revision)
	return pbfield.AppendInt(b, 4, h.Term)
}

// RecordKey returns the key of an encoded mvccpb.KeyValue, nil if there is none. It aliases b.
func RecordKey(b []byte) (key []byte) {
	r := pbfield.Read(b)
	for r.Next() {
		r.Bytes(1, &key)
	}
	if r.Err() != nil {
		return nil
	}
	return key
}

func sizeRecords(r *kv.Records) int {
	if r.Long != nil {
		return r.Long.Bytes
	}
	n, from := 0, 0
	for _, to := range r.Ends {
		n += 1 + pbfield.SizeBytes(to-from)
		from = to
	}
	return n
}

func appendRecords(b []byte, field int, r *kv.Records) []byte {
	if r.Long != nil {
		for _, p := range r.Long.Pieces {
			b = append(b, *p...)
		}
		return b
	}
	from := 0
	for _, to := range r.Ends {
		b = pbfield.AppendPresent(b, field, r.Buf[from:to])
		from = to
	}
	return b
}

func sizeRange(h kv.Header, r *kv.RangeResult) int {
	return 1 + pbfield.SizeBytes(sizeHeader(h)) + sizeRecords(&r.KVs) + sizeBool(r.More) +
		sizeInt(uint64(r.Count))
}

func appendRange(b []byte, h kv.Header, r *kv.RangeResult) []byte {
	b = appendHeader(b, h)
	b = appendRecords(b, 2, &r.KVs)
	b = pbfield.AppendBool(b, 3, r.More)
	return pbfield.AppendInt(b, 4, r.Count)
}

func sizePut(h kv.Header, r *kv.PutResult) int {
	n := 1 + pbfield.SizeBytes(sizeHeader(h))
	if r.PrevKV != nil {
		n += 1 + pbfield.SizeBytes(len(r.PrevKV))
	}
	return n
}

func appendPut(b []byte, h kv.Header, r *kv.PutResult) []byte {
	b = appendHeader(b, h)
	if r.PrevKV != nil {
		b = pbfield.AppendPresent(b, 2, r.PrevKV)
	}
	return b
}

func sizeDelete(h kv.Header, r *kv.DeleteRangeResult) int {
	return 1 + pbfield.SizeBytes(sizeHeader(h)) + sizeInt(uint64(r.Deleted)) +
		sizeRecords(&r.PrevKVs)
}

func appendDelete(b []byte, h kv.Header, r *kv.DeleteRangeResult) []byte {
	b = appendHeader(b, h)
	b = pbfield.AppendInt(b, 2, r.Deleted)
	return appendRecords(b, 3, &r.PrevKVs)
}

func sizeTxn(h kv.Header, r *kv.TxnResult) int {
	n := 1 + pbfield.SizeBytes(sizeHeader(h)) + sizeBool(r.Succeeded)
	for i := range r.Responses {
		n += 1 + pbfield.SizeBytes(sizeOp(&r.Responses[i]))
	}
	return n
}

func appendTxn(b []byte, h kv.Header, r *kv.TxnResult) []byte {
	b = appendHeader(b, h)
	b = pbfield.AppendBool(b, 2, r.Succeeded)
	for i := range r.Responses {
		op := &r.Responses[i]
		b = appendOp(pbfield.AppendLen(b, 3, sizeOp(op)), op)
	}
	return b
}

// sizeOp returns the size of a ResponseOp without its tag and length.
func sizeOp(op *kv.OpResult) int {
	n := sizeUnion(op)
	if n < 0 {
		return 0
	}
	return 1 + pbfield.SizeBytes(n)
}

// sizeUnion returns the size of the content of a ResponseOp, -1 if it is empty.
func sizeUnion(op *kv.OpResult) int {
	switch {
	case op.Range != nil:
		return sizeRange(kv.Header{Revision: op.Range.Revision}, op.Range)
	case op.Put != nil:
		return sizePut(kv.Header{Revision: op.Put.Revision}, op.Put)
	case op.Delete != nil:
		return sizeDelete(kv.Header{Revision: op.Delete.Revision}, op.Delete)
	case op.Txn != nil:
		return sizeTxn(kv.Header{}, op.Txn)
	}
	return -1
}

func appendOp(b []byte, op *kv.OpResult) []byte {
	n := sizeUnion(op)
	switch {
	case op.Range != nil:
		return appendRange(pbfield.AppendLen(b, 1, n),
			kv.Header{Revision: op.Range.Revision}, op.Range)
	case op.Put != nil:
		return appendPut(pbfield.AppendLen(b, 2, n), kv.Header{Revision: op.Put.Revision}, op.Put)
	case op.Delete != nil:
		return appendDelete(pbfield.AppendLen(b, 3, n),
			kv.Header{Revision: op.Delete.Revision}, op.Delete)
	case op.Txn != nil:
		return appendTxn(pbfield.AppendLen(b, 4, n), kv.Header{}, op.Txn)
	}
	return b
}
