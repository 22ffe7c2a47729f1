package fsm

import (
	"slices"

	"vigil/internal/kv"
)

// touchesKeys reports whether r reads or changes the key space, or grants a lease: etcd rejects
// both alike.
func (r *Request) touchesKeys() bool {
	return r.Put != nil || r.DeleteRange != nil || r.Txn != nil || r.Compact != nil ||
		r.LeaseGrant != nil || r.LeaseRevoke != nil || r.LeaseExpire != nil
}

// Grows reports whether r may add to the key space or to the leases: a put, a grant, and a
// transaction with a put in any branch. All other requests are applied even while there is no
// space.
func (r *Request) Grows() bool {
	return r.Put != nil || r.LeaseGrant != nil || r.Txn != nil && txnGrows(r.Txn)
}

// recordBytes is the largest size of a record in the store without key and value: a header,
// revisions, an entry in a table, and the header of a batch if it is the only record of the batch.
const recordBytes = 128

// Cost returns about how many bytes r adds to the store, 0 if it does not grow. For a transaction
// it is the cost of the more expensive branch.
func (r *Request) Cost() int64 {
	switch {
	case r.Put != nil:
		return putCost(r.Put)
	case r.LeaseGrant != nil:
		return recordBytes
	case r.Txn != nil:
		return txnCost(r.Txn)
	}
	return 0
}

func putCost(p *kv.PutRequest) int64 { return int64(len(p.Key)+len(p.Value)) + recordBytes }

func txnCost(t *kv.TxnRequest) (most int64) {
	for _, ops := range [...][]kv.Op{t.Success, t.Failure} {
		sum := int64(0)
		for i := range ops {
			switch op := &ops[i]; {
			case op.Put != nil:
				sum += putCost(op.Put)
			case op.Txn != nil:
				sum += txnCost(op.Txn)
			}
		}
		most = max(most, sum)
	}
	return most
}

func txnGrows(t *kv.TxnRequest) bool {
	grows := func(op kv.Op) bool { return op.Put != nil || op.Txn != nil && txnGrows(op.Txn) }
	return slices.ContainsFunc(t.Success, grows) || slices.ContainsFunc(t.Failure, grows)
}
