package abuse

import (
	"bytes"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"vigil/test/proc"
)

// TestNeighborOnStream: a client that does not read for a moment, and then reads as fast as one of
// its watchers has events, gets the event of the other watcher of the stream, although its queue
// never becomes empty.
func TestNeighborOnStream(t *testing.T) {
	s := proc.Start(t, proc.Config{Memory: true})
	kvs := pb.NewKVClient(s.Dial())
	put := func(key string, size int) {
		if _, err := kvs.Put(t.Context(),
			&pb.PutRequest{Key: []byte(key), Value: bytes.Repeat([]byte("v"), size)}); err != nil {
			t.Fatal(err)
		}
	}
	st, err := pb.NewWatchClient(s.Dial()).Watch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"hot", "cold"} {
		create := &pb.WatchCreateRequest{Key: []byte(key)}
		if err := st.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: create}}); err != nil {
			t.Fatal(err)
		}
		if _, err := st.Recv(); err != nil {
			t.Fatal(err)
		}
	}
	// There is room for some hot events more, but not for the cold one. What the connection takes
	// is not in the queue.
	for range 1_350 {
		put("hot", 1_000)
	}
	put("cold", 700_000)
	const step, most = 50, 20_000
	for hot, cold := 0, false; !cold; {
		if hot > most {
			t.Fatalf("the client received %d events of one watcher, and not the event of the other",
				hot)
		}
		for range step { // as much is written as is read
			put("hot", 1_000)
		}
		for end := hot + step; hot < end && !cold; {
			r, err := st.Recv()
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range r.Events {
				if string(e.Kv.Key) == "cold" {
					cold = true
					t.Logf("after %d events of the other watcher", hot)
				} else {
					hot++
				}
			}
		}
	}
}
