package kv

import "bytes"

// SortTarget is the field by which a range is sorted. The numbers are the API's.
type SortTarget int32

// The sort targets of the API.
const (
	SortByKey SortTarget = iota
	SortByVersion
	SortByCreate
	SortByMod
	SortByValue
)

// SortOrder is the direction of a sort. The numbers are the API's.
type SortOrder int32

// The sort orders of the API. SortNone sorts ascending when the target is not the key, and leaves
// key order otherwise.
const (
	SortNone SortOrder = iota
	SortAscend
	SortDescend
)

// RangeRequest reads the keys of [Key, End) at a revision.
//
// An empty End means the single key Key; an End of one zero byte means every key from Key on. An
// inverted range is empty.
type RangeRequest struct {
	Key, End []byte
	// Limit is the largest number of keys to return; 0 or less means no limit.
	Limit int64
	// Revision is the revision to read at; 0 or less means the newest.
	Revision int64
	// Sort and Order are the order of the result before Limit cuts it.
	Sort  SortTarget
	Order SortOrder
	// KeysOnly omits values. CountOnly omits everything but the count.
	KeysOnly, CountOnly bool
	// The revision filters: a bound of 0 does not filter. They do not change the count.
	MinModRevision, MaxModRevision       int64
	MinCreateRevision, MaxCreateRevision int64
	// Serializable allows an answer from the state of this member, which may lag behind the
	// cluster.
	Serializable bool
	// NoCount says that the caller does not use the count, which may then have any value. It is not
	// part of the API.
	NoCount bool
	// Steps is set if the request took long, as in the other requests.
	Steps *Steps
}

// Filters reports whether the request bounds revisions.
func (r *RangeRequest) Filters() bool {
	return r.MinModRevision != 0 || r.MaxModRevision != 0 || r.MinCreateRevision != 0 ||
		r.MaxCreateRevision != 0
}

// PutRequest writes one key.
type PutRequest struct {
	Key, Value []byte
	// Lease is the lease to attach the key to; 0 means none.
	Lease int64
	// PrevKV requests the previous key-value pair.
	PrevKV bool
	// IgnoreValue keeps the key's value and IgnoreLease its lease; the key must exist.
	IgnoreValue, IgnoreLease bool

	Steps *Steps
}

// DeleteRangeRequest deletes the keys of [Key, End); the range is read as in RangeRequest.
type DeleteRangeRequest struct {
	Key, End []byte
	// PrevKV requests the deleted key-value pairs.
	PrevKV bool

	Steps *Steps
}

// CompareTarget is the field of a key to compare. The numbers are the API's.
type CompareTarget int32

// The compare targets of the API.
const (
	CompareVersion CompareTarget = iota
	CompareCreate
	CompareMod
	CompareValue
	CompareLease
)

// CompareResult is the relation that a Compare requires. The numbers are the API's.
type CompareResult int32

// The relations of the API.
const (
	Equal CompareResult = iota
	Greater
	Less
	NotEqual
)

// Compare is one condition of a transaction. With an End it must be true for every key of the
// range. A key that does not exist, and a range without keys, has version, create revision, mod
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

// PrefixEnd returns the end of the range of all keys that begin with a prefix.
func PrefixEnd(prefix []byte) []byte {
	for i := len(prefix) - 1; i >= 0; i-- {
		if prefix[i] < 0xff {
			end := bytes.Clone(prefix[:i+1])
			end[i]++
			return end
		}
	}
	return []byte{0} // to the last key
}

// Op is one operation of a transaction: exactly one field is set. An Op without a field is legal on
// the wire; it does nothing and has an empty result.
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

// HasEmptyKey reports whether a compare or an operation of a transaction, at any depth, names no
// key.
func (r *TxnRequest) HasEmptyKey() bool {
	for i := range r.Compare {
		if len(r.Compare[i].Key) == 0 {
			return true
		}
	}
	for _, ops := range [...][]Op{r.Success, r.Failure} {
		for i := range ops {
			op := &ops[i]
			if op.Range != nil && len(op.Range.Key) == 0 || op.Put != nil && len(op.Put.Key) == 0 ||
				op.Delete != nil && len(op.Delete.Key) == 0 ||
				op.Txn != nil && op.Txn.HasEmptyKey() {
				return true
			}
		}
	}
	return false
}

// ReadOnly reports whether a transaction has nothing but ranges in either branch, and whether all
// of them are serializable. One without operations is both, as in etcd.
func (r *TxnRequest) ReadOnly() (reads, serializable bool) {
	serializable = true
	for _, ops := range [...][]Op{r.Success, r.Failure} {
		for i := range ops {
			if ops[i].Range == nil {
				return false, false
			}
			serializable = serializable && ops[i].Range.Serializable
		}
	}
	return true, serializable
}

// Write is a request of a client that goes through the raft log, unless it is a transaction that
// only reads. One field is set.
type Write struct {
	Put         *PutRequest
	DeleteRange *DeleteRangeRequest
	Txn         *TxnRequest
	Grant       *LeaseGrantRequest
}

// CompactRequest removes the versions of keys that only revisions below Revision can see.
type CompactRequest struct {
	Revision int64
	// Physical delays the answer until the space is reclaimed.
	Physical bool

	Steps *Steps
}
