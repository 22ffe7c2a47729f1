package server

import (
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/status"
)

// TestHash asks a member for hashes whose values a stock etcd has given.
func TestHash(t *testing.T) {
	_, addr := member(t, Config{})
	cc := dial(t, addr)
	kvs, maintenance := etcdserverpb.NewKVClient(cc), etcdserverpb.NewMaintenanceClient(cc)
	for _, pair := range []string{"k1", "k2", "l1"} {
		if _, err := kvs.Put(timeout(t),
			&etcdserverpb.PutRequest{Key: []byte(pair[:1]), Value: []byte(pair[1:])}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := kvs.DeleteRange(timeout(t),
		&etcdserverpb.DeleteRangeRequest{Key: []byte("l")}); err != nil {
		t.Fatal(err)
	}
	if _, err := kvs.Put(timeout(t),
		&etcdserverpb.PutRequest{Key: []byte("k"), Value: []byte("3")}); err != nil {
		t.Fatal(err)
	}
	check := func(revision int64, hash uint32, compacted, hashed int64) {
		t.Helper()
		res, err := maintenance.HashKV(timeout(t), &etcdserverpb.HashKVRequest{Revision: revision})
		if err != nil {
			t.Fatal(err)
		}
		if res.Hash != hash || res.CompactRevision != compacted || res.HashRevision != hashed ||
			res.Header.Revision != 6 {
			t.Errorf("hash at %d: %v", revision, res)
		}
	}
	check(0, 80883903, -1, 6)
	check(3, 2308752286, -1, 3)
	if _, err := kvs.Compact(timeout(t), &etcdserverpb.CompactionRequest{Revision: 5}); err != nil {
		t.Fatal(err)
	}
	check(0, 3601968962, 5, 6)
	check(5, 2859698132, -1, 5)
	_, err := maintenance.HashKV(timeout(t), &etcdserverpb.HashKVRequest{Revision: 4})
	if status.Convert(err).Message() != status.Convert(rpctypes.ErrGRPCCompacted).Message() {
		t.Errorf("below the compaction: %v", err)
	}
	whole, err := maintenance.Hash(timeout(t), &etcdserverpb.HashRequest{})
	if err != nil || whole.Hash != 3601968962 || whole.Header.Revision != 6 {
		t.Errorf("whole: %v, %v", whole, err)
	}
	_, body := get(t, "http://"+addr+"/metrics")
	for _, want := range []string{"etcd_mvcc_hash_duration_seconds_count 1",
		"etcd_mvcc_hash_rev_duration_seconds_count 4"} {
		if !strings.Contains(body, "\n"+want+"\n") {
			t.Errorf("/metrics lacks %q", want)
		}
	}
}
