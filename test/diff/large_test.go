package diff

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"
)

// TestLargeRanges reads results of all sizes up to some tens of MiB, in every order, cut and
// filtered in every way, from servers that hold the same.
func TestLargeRanges(t *testing.T) {
	t.Parallel()
	p := NewPair(t, "--max-request-bytes=2000000")
	rng := rand.New(rand.NewPCG(1, 2))
	const keys = 1200
	for i := range 2 * keys {
		value := make([]byte, rng.IntN(1<<(4+rng.IntN(13))))
		for j := range value {
			value[j] = byte(rng.Uint32())
		}
		p.Do(put(fmt.Sprintf("key/%04d", rng.IntN(keys)), string(value)))
		switch i {
		case keys:
			p.Do(put("key/large", string(make([]byte, 1<<20))))
		case keys + 1:
			p.Do(del("key/03", "key/04"))
		}
	}
	all := scan("key/", "key0")
	p.Do(all)
	p.Do(scan("\x00", "\x00"))
	limits := []int64{0, 1, 100, 511, 512, 513, 900, keys + 5}
	if testing.Short() {
		limits = []int64{0, 100, 512, keys + 5}
	}
	for _, order := range []pb.RangeRequest_SortOrder{pb.RangeRequest_NONE, pb.RangeRequest_ASCEND,
		pb.RangeRequest_DESCEND} {
		for target := range pb.RangeRequest_SortTarget_name {
			for _, limit := range limits {
				p.Do(with(proto.Clone(all).(*pb.RangeRequest), func(r *pb.RangeRequest) {
					r.SortOrder, r.SortTarget, r.Limit = order,
						pb.RangeRequest_SortTarget(target), limit
					r.KeysOnly = rng.IntN(4) == 0
					if rng.IntN(3) == 0 {
						r.Revision = p.Rev - int64(rng.IntN(keys))
					}
					if rng.IntN(3) == 0 {
						r.MinModRevision = p.Rev - int64(rng.IntN(keys))
						r.MaxCreateRevision = p.Rev - int64(rng.IntN(keys))
					}
				}))
			}
		}
	}
	half := scan("key/05", "key0")
	p.Do(then(all, get("key/0001"), half, scan("nothing", "nothinh"),
		then(half, scan("key/", "key/01"))))
	p.Do(then(all, put("key/another", "one"), half))
	p.Do(&pb.TxnRequest{Compare: []*pb.Compare{{Key: []byte("key/"), RangeEnd: []byte("key0"),
		Target: pb.Compare_VERSION,
		Result: pb.Compare_GREATER, TargetUnion: &pb.Compare_Version{Version: 0}}},
		Success: ops(all), Failure: ops(half)})
	for _, r := range []*pb.RangeRequest{all, half,
		with(proto.Clone(all).(*pb.RangeRequest),
			func(r *pb.RangeRequest) { r.Limit, r.Revision = 700, p.Rev-500 })} {
		var got [2]*pb.RangeResponse
		for i, s := range []*Side{p.Etcd, p.Subject} {
			var err error
			if got[i], err = streamed(t.Context(), s, r); err != nil {
				t.Fatal(err)
			}
		}
		if !proto.Equal(got[0], got[1]) {
			t.Errorf("a streamed range of %d keys, etcd's has %d; count %d and %d", len(got[1].Kvs),
				len(got[0].Kvs), got[1].Count, got[0].Count)
		}
	}
	d := del("key/", "key0")
	d.PrevKv = true
	p.Do(d)
	p.Sweep()
	p.Finish(t, &tally)
}

// streamed puts the chunks of a streamed range together.
func streamed(ctx context.Context, s *Side, r *pb.RangeRequest) (*pb.RangeResponse, error) {
	st, err := pb.NewKVClient(s.Conn).RangeStream(ctx, r)
	if err != nil {
		return nil, err
	}
	all := &pb.RangeResponse{}
	for {
		m, err := st.Recv()
		if errors.Is(err, io.EOF) {
			all.Header = &pb.ResponseHeader{Revision: all.Header.GetRevision()}
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		proto.Merge(all, m.RangeResponse)
	}
}
