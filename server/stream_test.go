package server

import (
	"bytes"
	"fmt"
	"io"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
)

// TestRangeStreamTarget streams a range with every target to sort by, which has no meaning without
// an order: each key comes once and in the order of keys.
func TestRangeStreamTarget(t *testing.T) {
	_, addr := member(t, Config{UnsafeNoSync: true})
	kvs := etcdserverpb.NewKVClient(dial(t, addr))
	const keys = 64
	for i := range keys {
		put := &etcdserverpb.PutRequest{Key: fmt.Appendf(nil, "k%02d", (i*37)%keys),
			Value: bytes.Repeat([]byte{byte(i * 91)}, 64<<10)}
		if _, err := kvs.Put(timeout(t), put); err != nil {
			t.Fatal(err)
		}
	}
	for target := range etcdserverpb.RangeRequest_SortTarget_name {
		stream, err := kvs.RangeStream(timeout(t),
			&etcdserverpb.RangeRequest{Key: []byte("k"), RangeEnd: []byte("l"),
				SortTarget: etcdserverpb.RangeRequest_SortTarget(target)})
		if err != nil {
			t.Fatal(err)
		}
		n, sent := 0, 0
		for {
			r, err := stream.Recv()
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range r.RangeResponse.Kvs {
				if want := fmt.Sprintf("k%02d", n); string(e.Key) != want && n < keys {
					t.Errorf("target %d: key %d is %s", target, n, e.Key)
				}
				n++
				sent += len(e.Value)
			}
		}
		if n != keys {
			t.Errorf("target %d: %d keys, %d bytes", target, n, sent)
		}
	}
}
