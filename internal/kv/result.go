package kv

// Records is a list of encoded mvccpb.KeyValue messages. They are laid end to end in one buffer, so
// that a result costs few allocations, or if there are many, in pieces. The zero value is an empty
// list.
type Records struct {
	// Buf holds the encodings one after another.
	Buf []byte
	// Ends holds, for each record, the offset in Buf behind its last byte.
	Ends []int
	// Long, if it is set, holds the records, and Buf and Ends are empty.
	Long *LongRecords
}

// LongRecords is a list of records in memory that is lent: whoever has it at last gives every piece
// back, or else says that the pieces are lost.
type LongRecords struct {
	// Pieces, put together, are the records framed as the elements of field 2 of a message, which
	// they are in a RangeResponse: the byte 0x12, the length as a varint, the encoding. A record may
	// go from one piece into the next.
	Pieces []*[]byte
	// Bytes is the sum of the pieces' lengths, N the number of records.
	Bytes, N int
	// Last is the key of the last record.
	Last string
	// Lender takes the pieces back.
	Lender Lender
}

// Lender is where the memory of a long list comes from. It is safe for concurrent use.
type Lender interface {
	// Return takes back a piece that nobody uses any more.
	Return(piece *[]byte)
	// Abandon says that whatever was not given back is left to the garbage collector.
	Abandon()
	// Held is how many bytes the lender counts as lent; 0 if the list is too short to be counted.
	Held() int64
}

// Len returns the number of records.
func (r *Records) Len() int {
	if r.Long != nil {
		return r.Long.N
	}
	return len(r.Ends)
}

// Size returns the number of bytes that the records take, roughly.
func (r *Records) Size() int {
	if r.Long != nil {
		return r.Long.Bytes
	}
	return len(r.Buf)
}

// At returns the encoding of record i, which aliases Buf. The list must not be a long one.
func (r *Records) At(i int) []byte {
	from := 0
	if i > 0 {
		from = r.Ends[i-1]
	}
	return r.Buf[from:r.Ends[i]:r.Ends[i]]
}

// Close ends the record whose bytes were appended to Buf since the last Close.
func (r *Records) Close() { r.Ends = append(r.Ends, len(r.Buf)) }

// RangeResult answers a RangeRequest. The receiver owns it.
type RangeResult struct {
	// Revision is the store's newest revision when the range was read, also for a read of an
	// older one.
	Revision int64
	KVs      Records
	// Count is the number of keys in the range, whatever the limit and the filters.
	Count int64
	// More is set if Limit cut the result.
	More bool
}

// PutResult answers a PutRequest.
type PutResult struct {
	Revision int64
	// PrevKV is the encoded mvccpb.KeyValue from before, nil if there was none or it was not
	// asked for.
	PrevKV []byte
}

// DeleteRangeResult answers a DeleteRangeRequest.
type DeleteRangeResult struct {
	Revision int64
	Deleted  int64
	PrevKVs  Records
}

// OpResult answers an Op with the field that matches it.
type OpResult struct {
	Range  *RangeResult
	Put    *PutResult
	Delete *DeleteRangeResult
	Txn    *TxnResult
}

// TxnResult answers a TxnRequest.
type TxnResult struct {
	Revision  int64
	Succeeded bool
	Responses []OpResult
}

// CompactResult answers a CompactRequest.
type CompactResult struct {
	Revision int64
}
