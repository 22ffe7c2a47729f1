package kv

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
