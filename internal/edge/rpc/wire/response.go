package wire

import "vigil/internal/kv"

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
// As in etcd, the headers inside have only a revision, and that of a nested transaction not even
// this.
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
func (m *DeleteRangeResponse) AppendTo(b []byte) []byte { return appendDelete(b, m.Header, m.Result) }

// Size implements Encoder.
func (m *TxnResponse) Size() int { return sizeTxn(m.Header, m.Result) }

// AppendTo implements Encoder.
func (m *TxnResponse) AppendTo(b []byte) []byte { return appendTxn(b, m.Header, m.Result) }

// Size implements Encoder.
func (m *CompactionResponse) Size() int { return 1 + sizeBytes(sizeHeader(m.Header)) }

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
func (m *RangeStreamResponse) Size() int { return 1 + sizeBytes(m.inner()) }

// AppendTo implements Encoder.
func (m *RangeStreamResponse) AppendTo(b []byte) []byte {
	b = appendLen(b, 1, m.inner())
	if m.Last {
		return appendRange(b, m.Header, m.Result)
	}
	return appendRecords(b, 2, &m.Result.KVs)
}

func (m *RangeStreamResponse) inner() int {
	if m.Last {
		return sizeRange(m.Header, m.Result)
	}
	return sizeRecords(&m.Result.KVs)
}

func sizeHeader(h kv.Header) int {
	return sizeUint(h.ClusterID) + sizeUint(h.MemberID) + sizeUint(uint64(h.Revision)) + sizeUint(h.Term)
}

// appendHeader appends a header as field 1, which it is in every response.
func appendHeader(b []byte, h kv.Header) []byte {
	b = appendLen(b, 1, sizeHeader(h))
	b = appendUint(b, 1, h.ClusterID)
	b = appendUint(b, 2, h.MemberID)
	b = appendUint(b, 3, uint64(h.Revision))
	return appendUint(b, 4, h.Term)
}

// RecordKey returns the key of an encoded mvccpb.KeyValue, nil if there is none. It aliases b.
func RecordKey(b []byte) (key []byte) {
	for len(b) > 0 {
		tag, n := takeVarint(b)
		if n <= 0 {
			return nil
		}
		b = b[n:]
		var err error
		if tag == 1<<3|typeBytes {
			key, n = takeBytes(b)
		} else {
			n, err = skipField(tag, b)
		}
		if err != nil || n <= 0 {
			return nil
		}
		b = b[n:]
	}
	return key
}

func sizeRecords(r *kv.Records) int {
	if r.Long != nil {
		return r.Long.Bytes
	}
	n, from := 0, 0
	for _, to := range r.Ends {
		n += 1 + sizeBytes(to-from)
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
		b = appendBytes(b, field, r.Buf[from:to])
		from = to
	}
	return b
}

func sizeRange(h kv.Header, r *kv.RangeResult) int {
	return 1 + sizeBytes(sizeHeader(h)) + sizeRecords(&r.KVs) + sizeBool(r.More) + sizeUint(uint64(r.Count))
}

func appendRange(b []byte, h kv.Header, r *kv.RangeResult) []byte {
	b = appendHeader(b, h)
	b = appendRecords(b, 2, &r.KVs)
	b = appendBool(b, 3, r.More)
	return appendUint(b, 4, uint64(r.Count))
}

func sizePut(h kv.Header, r *kv.PutResult) int {
	n := 1 + sizeBytes(sizeHeader(h))
	if r.PrevKV != nil {
		n += 1 + sizeBytes(len(r.PrevKV))
	}
	return n
}

func appendPut(b []byte, h kv.Header, r *kv.PutResult) []byte {
	b = appendHeader(b, h)
	if r.PrevKV != nil {
		b = appendBytes(b, 2, r.PrevKV)
	}
	return b
}

func sizeDelete(h kv.Header, r *kv.DeleteRangeResult) int {
	return 1 + sizeBytes(sizeHeader(h)) + sizeUint(uint64(r.Deleted)) + sizeRecords(&r.PrevKVs)
}

func appendDelete(b []byte, h kv.Header, r *kv.DeleteRangeResult) []byte {
	b = appendHeader(b, h)
	b = appendUint(b, 2, uint64(r.Deleted))
	return appendRecords(b, 3, &r.PrevKVs)
}

func sizeTxn(h kv.Header, r *kv.TxnResult) int {
	n := 1 + sizeBytes(sizeHeader(h)) + sizeBool(r.Succeeded)
	for i := range r.Responses {
		n += 1 + sizeBytes(sizeOp(&r.Responses[i]))
	}
	return n
}

func appendTxn(b []byte, h kv.Header, r *kv.TxnResult) []byte {
	b = appendHeader(b, h)
	b = appendBool(b, 2, r.Succeeded)
	for i := range r.Responses {
		op := &r.Responses[i]
		b = appendOp(appendLen(b, 3, sizeOp(op)), op)
	}
	return b
}

// sizeOp returns the size of a ResponseOp without the tag and length of its own.
func sizeOp(op *kv.OpResult) int {
	n := sizeUnion(op)
	if n < 0 {
		return 0
	}
	return 1 + sizeBytes(n)
}

// sizeUnion returns the size of the content of a ResponseOp, -1 for an empty one.
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
		return appendRange(appendLen(b, 1, n), kv.Header{Revision: op.Range.Revision}, op.Range)
	case op.Put != nil:
		return appendPut(appendLen(b, 2, n), kv.Header{Revision: op.Put.Revision}, op.Put)
	case op.Delete != nil:
		return appendDelete(appendLen(b, 3, n), kv.Header{Revision: op.Delete.Revision}, op.Delete)
	case op.Txn != nil:
		return appendTxn(appendLen(b, 4, n), kv.Header{}, op.Txn)
	}
	return b
}
