package fsm

import (
	"errors"
	"testing"

	"vigil/internal/kv"
)

// TestEmptyKeys: no entry, however it has come into the log, makes a key with an empty name or deletes from it.
func TestEmptyKeys(t *testing.T) {
	b := newBox(t)
	none := &kv.PutRequest{Value: []byte("v")}
	requests := map[string]*Request{
		"put": {Put: none}, "delete": {DeleteRange: &kv.DeleteRangeRequest{End: []byte{0}}}, "compare": {Txn: &kv.TxnRequest{Compare: []kv.Compare{{}}}},
		"put on the side that does not run": {Txn: &kv.TxnRequest{Failure: []kv.Op{{Put: none}}}},
		"range":                             {Txn: &kv.TxnRequest{Success: []kv.Op{{Range: &kv.RangeRequest{}}}}},
		"nested":                            {Txn: &kv.TxnRequest{Success: []kv.Op{{Txn: &kv.TxnRequest{Success: []kv.Op{{Delete: &kv.DeleteRangeRequest{}}}}}}}},
	}
	before := b.m.Revision()
	for name, r := range requests {
		if err := b.do(r); !errors.Is(err, kv.ErrEmptyKey) || b.m.Revision() != before {
			t.Errorf("%s: %v at revision %d, want %d", name, err, b.m.Revision(), before)
		}
	}
}
