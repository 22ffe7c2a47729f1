package server

import (
	"bytes"
	"context"
	"sync"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// What went wrong in etcd over the years, each as a test of its own. The matrix of all calls is
// compared with a stock etcd elsewhere.

// MemberList, Alarm, Status, the calls about leases and Compact were answered without a user, or to
// every user.
func TestAdvisoryCallsWithoutCheck(t *testing.T) {
	v := newVault(t, Config{})
	anonymous, alice := timeout(t), v.as("alice")
	lease, kv := pb.NewLeaseClient(v.cc), pb.NewKVClient(v.cc)
	root := v.as("root")
	if _, err := lease.LeaseGrant(root, &pb.LeaseGrantRequest{ID: 7, TTL: 60}); err != nil {
		t.Fatal(err)
	}
	if _, err := kv.Put(root, &pb.PutRequest{Key: []byte("x"), Lease: 7}); err != nil {
		t.Fatal(err)
	}
	keepAlive := func(ctx context.Context) error {
		s, err := lease.LeaseKeepAlive(ctx)
		if err != nil {
			return err
		}
		if err := s.Send(&pb.LeaseKeepAliveRequest{ID: 7}); err != nil {
			return err
		}
		_, err = s.Recv()
		return err
	}
	for _, c := range []struct {
		name string
		call func(context.Context) error
		// the answer to a user without permission; a call without a user is always rejected
		alice string
	}{
		{"MemberList", func(ctx context.Context) error {
			_, err := pb.NewClusterClient(v.cc).MemberList(ctx, &pb.MemberListRequest{})
			return err
		}, ""},
		{"Alarm", func(ctx context.Context) error {
			_, err := pb.NewMaintenanceClient(v.cc).Alarm(ctx,
				&pb.AlarmRequest{Action: pb.AlarmRequest_ACTIVATE, Alarm: pb.AlarmType_NOSPACE})
			return err
		}, denied},
		{"Status", func(ctx context.Context) error {
			_, err := pb.NewMaintenanceClient(v.cc).Status(ctx, &pb.StatusRequest{})
			return err
		}, ""},
		{"LeaseGrant", func(ctx context.Context) error {
			_, err := lease.LeaseGrant(ctx, &pb.LeaseGrantRequest{TTL: 60})
			return err
		}, ""},
		{"LeaseKeepAlive", keepAlive, denied},
		{"LeaseTimeToLive", func(ctx context.Context) error {
			_, err := lease.LeaseTimeToLive(ctx, &pb.LeaseTimeToLiveRequest{ID: 7, Keys: true})
			return err
		}, denied},
		{"LeaseLeases", func(ctx context.Context) error {
			_, err := lease.LeaseLeases(ctx, &pb.LeaseLeasesRequest{})
			return err
		}, denied},
		{"LeaseRevoke", func(ctx context.Context) error {
			_, err := lease.LeaseRevoke(ctx, &pb.LeaseRevokeRequest{ID: 7})
			return err
		}, denied},
		{"Compact", func(ctx context.Context) error {
			_, err := kv.Compact(ctx, &pb.CompactionRequest{Revision: 1})
			return err
		}, denied},
	} {
		fails(t, c.name+" without a user", c.call(anonymous), noUser)
		if err := c.call(alice); c.alice != "" {
			fails(t, c.name+" by alice", err, c.alice)
		} else if err != nil {
			t.Errorf("%s by alice: %v", c.name, err)
		}
	}
}

// Transactions inside of transactions were not looked at, so everyone could do everything.
func TestAdvisoryNestedTransactions(t *testing.T) {
	v := newVault(t, Config{})
	kv, alice := pb.NewKVClient(v.cc), v.as("alice")
	v.put("x")
	steal := &pb.TxnRequest{Success: []*pb.RequestOp{{Request: &pb.RequestOp_RequestRange{RequestRange: &pb.RangeRequest{Key: []byte("x")}}}}}
	spoil := &pb.TxnRequest{Failure: []*pb.RequestOp{{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: []byte("x")}}}}}
	probe := &pb.TxnRequest{Compare: []*pb.Compare{{Key: []byte("a"), RangeEnd: []byte{0},
		Target: pb.Compare_VERSION}}}
	for name, r := range map[string]*pb.TxnRequest{"a read": steal,
		"a write that does not run": spoil, "a compare": probe} {
		for range 3 {
			_, err := kv.Txn(alice, r)
			fails(t, name, err, denied)
			r = &pb.TxnRequest{Success: []*pb.RequestOp{{Request: &pb.RequestOp_RequestTxn{RequestTxn: r}}}}
		}
	}
}

// The previous value of a put or a deletion, and the lease that a put attaches, were not looked at
// in a transaction: what may only be written could be read, and another's lease be tied to one's
// own key.
func TestAdvisoryPreviousValueAndLease(t *testing.T) {
	v := newVault(t, Config{})
	kv, alice, root := pb.NewKVClient(v.cc), v.as("alice"), v.as("root")
	v.put("w")
	if _, err := pb.NewLeaseClient(v.cc).LeaseGrant(root,
		&pb.LeaseGrantRequest{ID: 7, TTL: 60}); err != nil {
		t.Fatal(err)
	}
	if _, err := kv.Put(root, &pb.PutRequest{Key: []byte("x"), Lease: 7}); err != nil {
		t.Fatal(err)
	}
	if _, err := kv.Put(alice, &pb.PutRequest{Key: []byte("w")}); err != nil {
		t.Fatalf("what may be written: %v", err)
	}
	for name, op := range map[string]*pb.RequestOp{
		"put": {Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: []byte("w"),
			PrevKv: true}}},
		"delete": {Request: &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: &pb.DeleteRangeRequest{Key: []byte("w"), PrevKv: true}}},
		"lease": {Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: []byte("a"),
			Lease: 7}}},
	} {
		_, err := kv.Txn(alice, &pb.TxnRequest{Success: []*pb.RequestOp{op}})
		fails(t, name+" in a transaction", err, denied)
		if p := op.GetRequestPut(); p != nil {
			_, err = kv.Put(alice, p)
		} else {
			_, err = kv.DeleteRange(alice, op.GetRequestDeleteRange())
		}
		fails(t, name, err, denied)
	}
}

// The right to one key was enough to watch from that key on.
func TestAdvisoryOpenEndedWatch(t *testing.T) {
	v := newVault(t, Config{})
	w := v.watch(v.as("alice"))
	for _, end := range []string{"\x00", "r\x00\x00", "s"} {
		w.create(createKey("r", end, 0))
		w.refused("rpc error: code = PermissionDenied desc = " + denied)
	}
	w.create(createKey("", "\x00", 0))
	w.refused("rpc error: code = PermissionDenied desc = " + denied)
	w.create(createKey("r", "", 0))
	w.made(0)
}

// A right that is lost while a request is under way must not be used: the check before the log is
// not enough.
func TestAdvisoryCheckedWhenApplied(t *testing.T) {
	v := newVault(t, Config{})
	alice, root := v.as("alice"), v.as("root")
	kv, admin := pb.NewKVClient(v.cc), pb.NewAuthClient(v.cc)
	var writers sync.WaitGroup
	stop := make(chan struct{})
	for range 4 {
		writers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					_, _ = kv.Put(alice, &pb.PutRequest{Key: []byte("a1")})
				}
			}
		})
	}
	for range 50 {
		if _, err := admin.UserRevokeRole(root,
			&pb.AuthUserRevokeRoleRequest{Name: "alice", Role: "r"}); err != nil {
			t.Fatal(err)
		}
		before, err := kv.Range(root, &pb.RangeRequest{Key: []byte("a1")})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := kv.Put(root, &pb.PutRequest{Key: []byte("x")}); err != nil {
			t.Fatal(err)
		}
		after, err := kv.Range(root, &pb.RangeRequest{Key: []byte("a1")})
		if err != nil {
			t.Fatal(err)
		}
		if len(after.Kvs) > 0 &&
			(len(before.Kvs) == 0 || after.Kvs[0].ModRevision != before.Kvs[0].ModRevision) {
			t.Fatalf("a write was applied after its right was gone: %v, %v", before, after)
		}
		if _, err := admin.UserGrantRole(root,
			&pb.AuthUserGrantRoleRequest{User: "alice", Role: "r"}); err != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	writers.Wait()
}

// lockedBuffer is where a log is written to.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
