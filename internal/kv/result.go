package kv

// Records is a list of encoded mvccpb.KeyValue messages. They are concatenated in one buffer, so
// that a result costs few allocations; a long list is in pieces. The zero value is an empty list.
type Records struct {
	// Buf holds the encodings one after another.
	Buf []byte
	// Ends holds, for each record, the offset in Buf after its last byte.
	Ends []int
	// Long, if set, holds the records; Buf and Ends are empty then.
	Long *LongRecords
}

// LongRecords is a list of records in lent memory: its last owner returns every piece, or reports
// the pieces as abandoned.
type LongRecords struct {
	// Pieces, concatenated, are the records framed as the elements of field 2 of a message, like in
	// a RangeResponse: the byte 0x12, the length as a varint, the encoding. A record may continue
	// in the next piece.
	Pieces []*[]byte
	// Bytes is the sum of the pieces' lengths, N the number of records.
	Bytes, N int
	// Last is the key of the last record.
	Last string
	// Lender receives the pieces after use.
	Lender Lender
}

// Lender lends the memory of a long list. It is safe for concurrent use.
type Lender interface {
	// Return takes back a piece that is no longer used.
	Return(piece *[]byte)
	// Abandon leaves all pieces that were not returned to the garbage collector.
	Abandon()
	// Held returns how many bytes the lender counts as lent; 0 if the list is too short to be
	// counted.
	Held() int64
}

// Len returns the number of records.
func (r *Records) Len() int {
	if r.Long != nil {
		return r.Long.N
	}
	return len(r.Ends)
}

// Size returns approximately how many bytes the records take.
func (r *Records) Size() int {
	if r.Long != nil {
		return r.Long.Bytes
	}
	return len(r.Buf)
}

// At returns the encoding of record i, which aliases Buf. Long must be nil.
func (r *Records) At(i int) []byte {
	from := 0
	if i > 0 {
		from = r.Ends[i-1]
	}
	return r.Buf[from:r.Ends[i]:r.Ends[i]]
}

// Close completes the record whose bytes were appended to Buf since the last Close.
func (r *Records) Close() { r.Ends = append(r.Ends, len(r.Buf)) }

// RangeResult answers a RangeRequest. The receiver owns it.
type RangeResult struct {
	// Revision is the store's newest revision at the time of the read, even if the request read an
	// older one.
	Revision int64
	KVs      Records
	// Count is the number of keys in the range, without limit and filters.
	Count int64
	// More is set if Limit cut the result.
	More bool
}

// GetResult is memory for the result of a range of one key.
type GetResult struct {
	RangeResult
	end [1]int
}

// SetRecord sets the only record.
func (g *GetResult) SetRecord(b []byte) {
	g.Count, g.end[0] = 1, len(b)
	g.KVs = Records{Buf: b[:len(b):len(b)], Ends: g.end[:]}
}

// Abandon gives up a dropped result: its lender leaves the memory to the garbage collector.
func (r *RangeResult) Abandon() {
	if r.KVs.Long != nil {
		r.KVs.Long.Lender.Abandon()
	}
}

// PutResult answers a PutRequest.
type PutResult struct {
	Revision int64
	// PrevKV is the previous mvccpb.KeyValue, encoded; nil if there was none or it was not
	// requested.
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

// Abandon calls RangeResult.Abandon for all ranges of the transaction.
func (r *TxnResult) Abandon() {
	for i := range r.Responses {
		switch op := &r.Responses[i]; {
		case op.Range != nil:
			op.Range.Abandon()
		case op.Txn != nil:
			op.Txn.Abandon()
		}
	}
}

// CompactResult answers a CompactRequest.
type CompactResult struct {
	Revision int64
}

// Receiver receives the outcomes of started requests.
type Receiver interface {
	// Receive receives outcomes that are available at the same time. The caller owns the list. It
	// calls Receive concurrently, on goroutines that must not wait.
	Receive([]Outcome)
}

// Completion says who receives the outcome of a started request.
type Completion struct {
	To Receiver
	// Tag comes back in the Outcome, so that the receiver knows which request it belongs to.
	Tag any
}

// Outcome is the result of a started request that was completed later: the field that matches the
// request, or an error.
type Outcome struct {
	// Tag is the tag of the request's Completion.
	Tag any
	// Declined: the request had no effect, and must be processed like a request that was not
	// started.
	Declined    bool
	Range       *RangeResult
	Put         *PutResult
	DeleteRange *DeleteRangeResult
	Txn         *TxnResult
	Lease       *LeaseResult
	Err         error
}
