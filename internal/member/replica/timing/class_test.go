package timing

import (
	"strings"
	"testing"

	"vigil/internal/kv"
	"vigil/internal/state/cluster"
	"vigil/internal/state/fsm"
)

// TestClasses: every kind of request has a class, and the names of classes differ.
func TestClasses(t *testing.T) {
	requests := []fsm.Request{
		{Put: &kv.PutRequest{}}, {DeleteRange: &kv.DeleteRangeRequest{}}, {Txn: &kv.TxnRequest{}},
		{Compact: &kv.CompactRequest{}},
		{LeaseGrant: &kv.LeaseGrantRequest{}}, {LeaseRevoke: &kv.LeaseRevokeRequest{}},
		{LeaseCheckpoint: &kv.LeaseCheckpointRequest{}},
		{LeaseExpire: &kv.LeaseExpireRequest{}}, {Attributes: &cluster.Member{}},
		{Alarm: &kv.AlarmChange{}},
	}
	for op := kv.AuthEnable; op <= kv.LastAuthOp; op++ {
		requests = append(requests, fsm.Request{Auth: &kv.AuthRequest{Op: op}})
	}
	seen := map[string]bool{"Unknown": true, "ReadonlyTxn": true, "Range": true, "": true}
	for _, r := range requests {
		name := classNames[classOf(&r)]
		if seen[name] {
			t.Errorf("%+v is called %q", r, name)
		}
		seen[name] = true
	}
	for _, r := range []fsm.Request{{}, {Auth: &kv.AuthRequest{}}} {
		if name := classNames[classOf(&r)]; name != "Unknown" {
			t.Errorf("%+v is called %q", r, name)
		}
	}
}

// A description contains no secret.
func TestDescribe(t *testing.T) {
	for _, r := range []fsm.Request{
		{Put: &kv.PutRequest{Key: []byte("k"), Value: []byte("hunter2")}},
		{Auth: &kv.AuthRequest{Op: kv.UserAdd, User: "u", Hash: "hunter2", TokenHash: "hunter2"}},
		{LeaseGrant: &kv.LeaseGrantRequest{}},
	} {
		if d := describe(&r); d == "" || strings.Contains(d, "hunter2") {
			t.Errorf("%+v: %q", r, d)
		}
	}
}
