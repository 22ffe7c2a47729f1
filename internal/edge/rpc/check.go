package rpc

import (
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"vigil/internal/kv"
)

// What a request must be before the member sees it. Order and errors are etcd's: of several things
// wrong with a request, a client is told the same one.

func checkRange(r *kv.RangeRequest) error {
	switch {
	case len(r.Key) == 0:
		return rpctypes.ErrGRPCEmptyKey
	case r.Order < kv.SortNone || r.Order > kv.SortDescend, r.Sort < kv.SortByKey || r.Sort > kv.SortByValue:
		return rpctypes.ErrGRPCInvalidSortOption
	}
	return nil
}

func checkRangeStream(r *kv.RangeRequest) error {
	if err := checkRange(r); err != nil {
		return err
	}
	if r.Order == kv.SortDescend || r.Order == kv.SortAscend && r.Sort != kv.SortByKey {
		return status.Error(codes.Unimplemented, "RangeStream does not support custom sort orders")
	}
	if r.MinModRevision != 0 || r.MaxModRevision != 0 || r.MinCreateRevision != 0 || r.MaxCreateRevision != 0 {
		return status.Error(codes.Unimplemented, "RangeStream does not support revision filters")
	}
	return nil
}

func checkPut(r *kv.PutRequest) error {
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

func checkDelete(r *kv.DeleteRangeRequest) error {
	if len(r.Key) == 0 {
		return rpctypes.ErrGRPCEmptyKey
	}
	return nil
}

// checkTxn checks a transaction with everything nested in it. maxOps is how many operations this
// level may have.
func checkTxn(r *kv.TxnRequest, maxOps int) error {
	if err := checkTxnLevel(r, maxOps); err != nil {
		return err
	}
	// Only now, since looking for overlaps costs more than linear time.
	for _, list := range [2][]kv.Op{r.Success, r.Failure} {
		if mayOverlap(list) {
			if _, err := overlap(list); err != nil {
				return err
			}
		}
	}
	return nil
}

func checkTxnLevel(r *kv.TxnRequest, maxOps int) error {
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
			if err := checkOp(&list[i], maxOps-ops); err != nil {
				return err
			}
		}
	}
	return nil
}

func checkOp(op *kv.Op, maxOps int) error {
	switch {
	case op.Range != nil:
		return checkRange(op.Range)
	case op.Put != nil:
		return checkPut(op.Put)
	case op.Delete != nil:
		return checkDelete(op.Delete)
	case op.Txn != nil:
		return checkTxnLevel(op.Txn, maxOps)
	}
	// An operation that is none.
	return rpctypes.ErrGRPCKeyNotFound
}

// readOnly reports whether a transaction can be answered without a proposal. One with another
// nested in it is not, whatever that does.
func readOnly(r *kv.TxnRequest) bool {
	for _, list := range [2][]kv.Op{r.Success, r.Failure} {
		for i := range list {
			if list[i].Range == nil {
				return false
			}
		}
	}
	return true
}

// checkSize refuses a request that would be too large as a raft entry. etcd measures the entry as
// it encodes it: the request behind a tag and a length, and a header with an id of up to ten bytes.
func (s *service) checkSize(encoded int) error {
	const header = 2 + 1 + 11
	length := 1
	for n := encoded; n >= 0x80; n >>= 7 {
		length++
	}
	if header+1+length+encoded > s.cfg.MaxRequestBytes {
		return rpctypes.ErrGRPCRequestTooLarge
	}
	return nil
}
