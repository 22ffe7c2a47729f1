// Package kv is the vocabulary that every layer of Vigil speaks: requests, results, events and
// errors of the key-value model.
//
// It holds plain data and no behaviour beyond what follows from the data itself: it starts no
// goroutine, does no I/O and imports nothing of the project. Its names and meanings are those of
// the etcd v3 API; the wire encodings live elsewhere (internal/edge/rpc/wire for clients, fsm for the raft log).
//
// Byte slices in requests and results are never modified by whoever receives them. Who may keep
// one is said where it is handed over.
package kv

// Rev is the place of one record in history: Main is the revision of the transaction that wrote
// it, Sub its position inside that transaction, from 0.
type Rev struct {
	Main int64
	Sub  int64
}

// Less reports whether r comes before o in history.
func (r Rev) Less(o Rev) bool {
	return r.Main < o.Main || r.Main == o.Main && r.Sub < o.Sub
}

// Header says who answered and when in the life of the store.
type Header struct {
	ClusterID uint64
	MemberID  uint64
	Revision  int64
	Term      uint64
}

// SortTarget names the field a range is sorted by. The numbers are those of the API.
type SortTarget int32

// The sort targets of the API.
const (
	SortByKey SortTarget = iota
	SortByVersion
	SortByCreate
	SortByMod
	SortByValue
)

// SortOrder is the direction of a sort. The numbers are those of the API.
type SortOrder int32

// The sort orders of the API. SortNone sorts ascending when the target is not the key, and leaves
// key order otherwise.
const (
	SortNone SortOrder = iota
	SortAscend
	SortDescend
)

// RangeRequest asks for the keys of [Key, End) as they were at a revision.
//
// An empty End means the single key Key; an End of one zero byte means every key from Key on. An
// inverted range is empty.
type RangeRequest struct {
	Key, End []byte
	// Limit is the largest number of keys to return; 0 or less means no limit.
	Limit int64
	// Revision is the revision to read at; 0 or less means the newest.
	Revision int64
	// Sort and Order say how the result is ordered before Limit cuts it.
	Sort  SortTarget
	Order SortOrder
	// KeysOnly leaves values out, CountOnly leaves everything but the count out.
	KeysOnly, CountOnly bool
	// The revision filters: a bound of 0 does not filter. They do not influence the count.
	MinModRevision, MaxModRevision       int64
	MinCreateRevision, MaxCreateRevision int64
	// Serializable allows an answer from this member's state without asking the cluster how new
	// that is.
	Serializable bool
	// NoCount says that nobody looks at the count, which may then be anything. It is no part of
	// the API.
	NoCount bool
	// Steps is set if the request took long, as in the other requests.
	Steps *Steps
}

// PutRequest writes one key.
type PutRequest struct {
	Key, Value []byte
	// Lease is the lease to attach the key to; 0 means none.
	Lease int64
	// PrevKV asks for the key-value pair as it was before.
	PrevKV bool
	// IgnoreValue keeps the key's value and IgnoreLease its lease; the key must exist.
	IgnoreValue, IgnoreLease bool

	Steps *Steps
}

// DeleteRangeRequest deletes the keys of [Key, End); the range is read as in RangeRequest.
type DeleteRangeRequest struct {
	Key, End []byte
	// PrevKV asks for the deleted key-value pairs.
	PrevKV bool

	Steps *Steps
}

// CompareTarget is the field of a key that a Compare looks at. The numbers are those of the API.
type CompareTarget int32

// The compare targets of the API.
const (
	CompareVersion CompareTarget = iota
	CompareCreate
	CompareMod
	CompareValue
	CompareLease
)

// CompareResult is the relation that a Compare demands. The numbers are those of the API.
type CompareResult int32

// The relations of the API.
const (
	Equal CompareResult = iota
	Greater
	Less
	NotEqual
)

// Compare is one condition of a transaction. With an End it must hold for every key of the range. A
// key that does not exist, and likewise a range without keys, has version, create revision, mod
// revision and lease 0, and fails every comparison of values.
type Compare struct {
	Key, End []byte
	Target   CompareTarget
	Result   CompareResult
	// Number is compared for every target but the value.
	Number int64
	// Value is compared for CompareValue.
	Value []byte
}

// Op is one operation of a transaction: exactly one field is set. An Op with no field set is legal
// on the wire; it does nothing and has an empty result.
type Op struct {
	Range  *RangeRequest
	Put    *PutRequest
	Delete *DeleteRangeRequest
	Txn    *TxnRequest
}

// TxnRequest runs Success if every Compare holds and Failure otherwise, as one revision.
type TxnRequest struct {
	Compare          []Compare
	Success, Failure []Op

	Steps *Steps
}

// CompactRequest drops what only revisions below Revision can see.
type CompactRequest struct {
	Revision int64
	// Physical asks for the answer only when the space is reclaimed.
	Physical bool

	Steps *Steps
}

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

// Event is one change of one key, as a watcher sees it.
type Event struct {
	Rev Rev
	// Delete tells a deletion from a put.
	Delete bool
	// Create is set on a put that made the key exist: its create revision is its mod revision.
	Create bool
	// Key aliases KV.
	Key []byte
	// KV is the encoded mvccpb.KeyValue of the event: the pair that was put, or only the key and
	// the mod revision of a deletion. It is immutable and may be kept.
	KV []byte
}

// EventBuffer is memory that a reader of events uses again from call to call. The zero value is empty.
// The events of one call are valid until the next.
type EventBuffer struct {
	Events []Event
	Data   []byte
}
