package diff

import (
	"strings"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
)

const mib = 1 << 20

func sizes(t *testing.T, p *Pair) {
	const limit = 3 * mib / 2
	value := func(n int) *pb.PutRequest { return put("z/a", strings.Repeat("v", n)) }
	for _, n := range []int{1000, 64 * 1024, mib, limit - 1024, limit - 200,
		limit + 1, limit + 1024,
		limit + mib/2 - 100, limit + mib/2, limit + mib/2 + 100, 3 * mib, 5 * mib} {
		p.Do(value(n))
		p.Do(with(get("z/a"), func(r *pb.RangeRequest) { r.KeysOnly = true }))
	}
	p.Do(get("z/a"))
	p.Do(del("z/a", ""))
	for _, n := range []int{1000, 100_000, limit - 1024, limit + 1, limit + mib/2 + 1} {
		key := strings.Repeat("k", n)
		p.Do(get(key))
		p.Do(put(key, "v"))
		p.Do(get(key))
		p.Do(del(key, ""))
		p.Do(scan(key, "l"))
		p.Do(then(get(key)))
		p.Do(then(put(key, "v"), get(key)))
		p.Do(&pb.TxnRequest{Compare: []*pb.Compare{cmpMod(key, pb.Compare_EQUAL, 0)}})
		p.Do(&pb.TxnRequest{Compare: []*pb.Compare{cmpValue("z/a", pb.Compare_EQUAL, key)},
			Failure: ops(put("z/b", "1"))})
		p.Do(del(key, "l"))
		// A request that is invalid and too large at once.
		p.Do(&pb.PutRequest{Key: []byte(key), Value: []byte("v"), IgnoreValue: true})
		p.Do(then(put(key, "1"), put(key, "2")))
	}
	// A large answer.
	for _, k := range []string{"z/1", "z/2", "z/3", "z/4", "z/5"} {
		p.Do(put(k, strings.Repeat(k, mib/4)))
	}
	p.Do(scan("z/", "z0"))
	p.Do(then(scan("z/", "z0"), scan("z/", "z0")))
	p.Do(with(scan("z/", "z0"), func(r *pb.RangeRequest) { r.Limit = 2 }))
	p.Do(with(del("z/", "z0"), func(r *pb.DeleteRangeRequest) { r.PrevKv = true }))

	// The largest value that each side takes. The limit counts the request as it goes into the
	// log, so the two may differ by what their encodings add.
	largest := func(s *Side) int {
		lo, hi := limit-1024, limit+1024
		for lo+1 < hi {
			mid := (lo + hi) / 2
			o := invoke(t.Context(), s.Conn, NewCall(value(mid)))
			switch {
			case o.Resp != nil:
				lo = mid
			case o.Status.Code() == codes.InvalidArgument:
				hi = mid
			default:
				t.Fatalf("put of %d bytes: %v", mid, o.Status)
			}
		}
		return lo
	}
	want, got := largest(p.Etcd), largest(p.Subject)
	if d := want - got; d > 64 || d < -64 {
		t.Errorf("largest value: etcd %d, got %d", want, got)
	}
	// The searches took different numbers of accepted puts; even the sides out again.
	p.Do(del("z/a", ""))
	p.level(t)
}

// level writes on the side that lags until both are at one revision.
func (p *Pair) level(t *testing.T) {
	rev := func(s *Side) int64 {
		o := invoke(t.Context(), s.Conn, NewCall(get("level")))
		if o.Resp == nil {
			t.Fatal(o.Status)
		}
		return headerOf(o.Resp).GetRevision()
	}
	for {
		e, s := rev(p.Etcd), rev(p.Subject)
		switch {
		case e == s:
			p.Differences = nil
			p.Call(NewCall(get("level")))
			return
		case e < s:
			invoke(t.Context(), p.Etcd.Conn, NewCall(put("level", "")))
		default:
			invoke(t.Context(), p.Subject.Conn, NewCall(put("level", "")))
		}
	}
}

func binaryKeys(_ *testing.T, p *Pair) {
	keys := []string{"\x00", "\x00\x00", "\x00\x01", "\x01", "\x7f", "\x80", "\xc3\x28", "\xff",
		"\xff\xff", "\xff\xff\x00", "é", "a\x00", "a\x00b", " ", "\n"}
	for _, k := range keys {
		p.Do(put(k, k))
	}
	for _, k := range keys {
		p.Do(get(k))
		for _, end := range keys {
			p.Do(with(scan(k, end), func(r *pb.RangeRequest) { r.KeysOnly = true }))
		}
	}
	p.Do(scan("\x00", "\x00"))
	p.Do(with(scan("\xff", "\x00"),
		func(r *pb.RangeRequest) { r.SortOrder = pb.RangeRequest_DESCEND }))
	p.Do(with(del("\xff", "\x00"), func(r *pb.DeleteRangeRequest) { r.PrevKv = true }))
	for _, k := range keys {
		p.Do(with(del(k, ""), func(r *pb.DeleteRangeRequest) { r.PrevKv = true }))
	}
}

func statuses(_ *testing.T, p *Pair) {
	p.Do(&pb.StatusRequest{})
	p.Do(&pb.MemberListRequest{})
	p.Do(&pb.MemberListRequest{Linearizable: true})
	p.Do(&pb.AlarmRequest{})
	p.Do(&pb.AlarmRequest{Alarm: pb.AlarmType_NOSPACE})
	p.Do(&pb.AlarmRequest{Action: pb.AlarmRequest_DEACTIVATE,
		Alarm: pb.AlarmType_CORRUPT, MemberID: 1})
}
