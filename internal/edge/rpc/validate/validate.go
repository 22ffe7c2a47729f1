// Package validate checks requests before the member receives them. The order of the checks and the
// errors are etcd's: of several mistakes in a request, the client receives the same error as from
// etcd.
package validate

import (
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"vigil/internal/kv"
)

// Range checks a range.
func Range(r *kv.RangeRequest) error {
	switch {
	case len(r.Key) == 0:
		return rpctypes.ErrGRPCEmptyKey
	case r.Order < kv.SortNone || r.Order > kv.SortDescend, r.Sort < kv.SortByKey ||
		r.Sort > kv.SortByValue:
		return rpctypes.ErrGRPCInvalidSortOption
	}
	return nil
}

// RangeStream checks a range that is answered in chunks.
func RangeStream(r *kv.RangeRequest) error {
	if err := Range(r); err != nil {
		return err
	}
	if r.Order == kv.SortDescend || r.Order == kv.SortAscend && r.Sort != kv.SortByKey {
		return status.Error(codes.Unimplemented, "RangeStream does not support custom sort orders")
	}
	if r.Filters() {
		return status.Error(codes.Unimplemented, "RangeStream does not support revision filters")
	}
	return nil
}

// Put checks a put.
func Put(r *kv.PutRequest) error {
	switch {
	case len(r.Key) == 0:
		return rpctypes.ErrGRPCEmptyKey
	case r.IgnoreValue && len(r.Value) != 0:
		return rpctypes.ErrGRPCValueProvided
	case r.IgnoreLease && r.Lease != 0:
		return rpctypes.ErrGRPCLeaseProvided
	}
	return nil
}

// Delete checks the deletion of a range.
func Delete(r *kv.DeleteRangeRequest) error {
	if len(r.Key) == 0 {
		return rpctypes.ErrGRPCEmptyKey
	}
	return nil
}

// Txn checks a transaction with everything nested in it. maxOps is the largest number of operations
// on this level.
func Txn(r *kv.TxnRequest, maxOps int) error {
	if err := txnLevel(r, maxOps); err != nil {
		return err
	}
	// After the other checks: looking for overlaps takes more than linear time.
	for _, list := range [2][]kv.Op{r.Success, r.Failure} {
		if mayOverlap(list) {
			if _, err := overlap(list); err != nil {
				return err
			}
		}
	}
	return nil
}

func txnLevel(r *kv.TxnRequest, maxOps int) error {
	ops := max(len(r.Compare), len(r.Success), len(r.Failure))
	if ops > maxOps {
		return rpctypes.ErrGRPCTooManyOps
	}
	for i := range r.Compare {
		if len(r.Compare[i].Key) == 0 {
			return rpctypes.ErrGRPCEmptyKey
		}
	}
	for _, list := range [2][]kv.Op{r.Success, r.Failure} {
		for i := range list {
			if err := operation(&list[i], maxOps-ops); err != nil {
				return err
			}
		}
	}
	return nil
}

func operation(op *kv.Op, maxOps int) error {
	switch {
	case op.Range != nil:
		return Range(op.Range)
	case op.Put != nil:
		return Put(op.Put)
	case op.Delete != nil:
		return Delete(op.Delete)
	case op.Txn != nil:
		return txnLevel(op.Txn, maxOps)
	}
	return rpctypes.ErrGRPCKeyNotFound
}

// ReadOnly reports whether a transaction can be answered without a proposal. A transaction with a
// nested transaction never can.
func ReadOnly(r *kv.TxnRequest) bool {
	for _, list := range [2][]kv.Op{r.Success, r.Failure} {
		for i := range list {
			if list[i].Range == nil {
				return false
			}
		}
	}
	return true
}

// Size rejects a request of encoded bytes that would be too large as a raft entry. etcd measures
// the encoded entry: the request with a tag and a length, and a header with an id of up to ten
// bytes.
func Size(encoded, maxBytes int) error {
	const header = 2 + 1 + 11
	length := 1
	for n := encoded; n >= 0x80; n >>= 7 {
		length++
	}
	if header+1+length+encoded > maxBytes {
		return rpctypes.ErrGRPCRequestTooLarge
	}
	return nil
}
