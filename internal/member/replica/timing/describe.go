package timing

import (
	"fmt"

	"vigil/internal/kv"
	"vigil/internal/state/fsm"
)

// describe describes a request for the log: bounded, and without values.
func describe(r *fsm.Request) string {
	switch {
	case r.Put != nil:
		return r.Put.Describe()
	case r.DeleteRange != nil:
		return r.DeleteRange.Describe()
	case r.Txn != nil:
		return r.Txn.Describe()
	case r.Compact != nil:
		return r.Compact.Describe()
	}
	return classNames[classOf(r)]
}

// describeResult describes the size of a result for the log.
func describeResult(r *fsm.Result) string {
	switch {
	case r.Put != nil:
		return fmt.Sprintf("size:%d", len(r.Put.PrevKV))
	case r.DeleteRange != nil:
		return fmt.Sprintf("deleted:%d size:%d", r.DeleteRange.Deleted,
			r.DeleteRange.PrevKVs.Size())
	case r.Txn != nil:
		return describeTxn(r.Txn)
	}
	return ""
}

func describeTxn(r *kv.TxnResult) string {
	if r == nil {
		return ""
	}
	size := 0
	for i := range r.Responses {
		switch op := &r.Responses[i]; {
		case op.Range != nil:
			size += op.Range.KVs.Size()
		case op.Delete != nil:
			size += op.Delete.PrevKVs.Size()
		case op.Put != nil:
			size += len(op.Put.PrevKV)
		}
	}
	return fmt.Sprintf("succeeded:%v responses:%d size:%d", r.Succeeded, len(r.Responses), size)
}

func describeRange(r *kv.RangeResult) string {
	if r == nil {
		return ""
	}
	return fmt.Sprintf("range_response_count:%d size:%d", r.KVs.Len(), r.KVs.Size())
}
