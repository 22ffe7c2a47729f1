package diff

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"
)

func grant(id, ttl int64) *pb.LeaseGrantRequest { return &pb.LeaseGrantRequest{ID: id, TTL: ttl} }

func revoke(id int64) *pb.LeaseRevokeRequest { return &pb.LeaseRevokeRequest{ID: id} }

func left(id int64) *pb.LeaseTimeToLiveRequest {
	return &pb.LeaseTimeToLiveRequest{ID: id, Keys: true}
}

func leased(key string, id int64) *pb.PutRequest {
	return with(put(key, "v"), func(r *pb.PutRequest) { r.Lease = id })
}

// keepAlive sends ids on one stream of each side and compares the answers, and how it ends.
func (p *Pair) keepAlive(ids ...int64) {
	ask := func(s *Side) (out []Outcome) {
		ctx, cancel := context.WithTimeout(p.t.Context(), callTimeout)
		defer cancel()
		stream, err := pb.NewLeaseClient(s.Conn).LeaseKeepAlive(ctx)
		if err != nil {
			p.t.Fatal(err)
		}
		for _, id := range ids {
			if err := stream.Send(&pb.LeaseKeepAliveRequest{ID: id}); err != nil {
				p.t.Fatal(err)
			}
			r, err := stream.Recv()
			if err != nil {
				p.t.Fatalf("keep-alive of %d: %v", id, err)
			}
			out = append(out, Outcome{Resp: r})
		}
		stream.CloseSend()
		if r, err := stream.Recv(); !errors.Is(err, io.EOF) {
			p.t.Errorf("the end of a stream of keep-alives: %v, %v", r, err)
		}
		return out
	}
	want, got := ask(p.Etcd), ask(p.Subject)
	for i, id := range ids {
		p.Calls++
		p.note(fmt.Sprintf("Lease/LeaseKeepAlive {ID:%d}", id),
			compareMessages(nil, "", want[i].Resp, p.Etcd.ids, got[i].Resp, p.Subject.ids))
	}
}

func TestLeases(t *testing.T) {
	p := NewPair(t)
	list := &pb.LeaseLeasesRequest{}
	p.Do(list)
	for _, g := range []*pb.LeaseGrantRequest{grant(1, 100), grant(1, 100), grant(2, 0),
		grant(3, -5), grant(-4, 300), grant(math.MinInt64, 1000),
		grant(math.MaxInt64, 9_000_000_000), grant(5, 9_000_000_001), grant(1, 9_000_000_001),
		grant(6, math.MaxInt64), grant(7, math.MinInt64)} {
		p.Do(g)
		p.Do(left(g.ID))
	}
	for _, id := range []int64{2, 3, 7} {
		p.Do(revoke(id))
	}
	p.Do(list)
	p.Do(leased("a", 1))
	p.Do(leased("b", 1))
	p.Do(leased("c", -4))
	p.Do(leased("d", 99))
	p.Do(leased("b", -4)) // goes over
	p.Do(with(put("a", "w"), func(r *pb.PutRequest) { r.IgnoreLease = true }))
	p.Do(with(put("c", "w"), func(r *pb.PutRequest) { r.PrevKv = true })) // is free
	p.Do(then(leased("e", 1), leased("f", 98)))
	p.Do(then(leased("e", 1), leased("f", 1), del("a", "")))
	p.Do(&pb.TxnRequest{Compare: []*pb.Compare{cmpNumber("e", pb.Compare_LEASE, pb.Compare_EQUAL,
		1)}, Success: ops(leased("g", 1))})
	p.Sweep()
	for _, id := range []int64{0, 1, -4, 99, 5, math.MaxInt64, math.MinInt64} {
		p.Do(left(id))
		p.Do(&pb.LeaseTimeToLiveRequest{ID: id})
	}
	p.keepAlive(1, 0, 99, -4, -1, 1, math.MaxInt64)
	p.Do(revoke(0))
	p.Do(revoke(99))
	p.Do(revoke(1))
	p.Do(revoke(1))
	p.Do(left(1))
	p.keepAlive(1)
	p.Sweep()
	p.Do(grant(1, 50)) // again
	p.Do(left(1))
	p.Do(leased("z", 1))
	p.Do(del("", "\x00"))
	p.Do(del("a", "\x00"))
	p.Do(left(1))
	p.Do(revoke(1)) // without keys: no revision
	p.Do(put("last", ""))
	p.Restart()
	p.Do(left(-4))
	p.Do(list)
	p.keepAlive(-4)
	p.Do(revoke(-4))
	p.Sweep()
	p.Finish(t, &Tally{})
}

// TestLeaseEnds compares what watchers and readers see of leases that end by themselves.
func TestLeaseEnds(t *testing.T) {
	p := NewPair(t)
	p.Do(grant(1, 5))
	p.Do(grant(2, 7))
	p.Do(grant(3, 600))
	for i := range 10 {
		p.Do(leased(fmt.Sprintf("k%d", 9-i), 1+int64(i%2)))
	}
	p.Do(leased("stays", 3))
	p.Do(put("k3", "free"))
	from := p.Rev + 1
	events := func(s *Side) (out []proto.Message) {
		ctx, cancel := context.WithTimeout(t.Context(), callTimeout)
		defer cancel()
		w, err := pb.NewWatchClient(s.Conn).Watch(ctx)
		if err == nil {
			err = w.Send(create(&pb.WatchCreateRequest{Key: []byte("k"), RangeEnd: []byte("l"),
				StartRevision: from, PrevKv: true}))
		}
		for len(out) < 9 && err == nil {
			var r *pb.WatchResponse
			if r, err = w.Recv(); err == nil {
				for _, e := range r.Events {
					out = append(out, e)
				}
			}
		}
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	want, got := events(p.Etcd), events(p.Subject)
	for i := range want {
		p.Calls++
		p.note(fmt.Sprintf("event %d of leases that end", i),
			compareMessages(nil, "", want[i], p.Etcd.ids, got[i], p.Subject.ids))
	}
	p.Sweep()
	p.Do(left(1))
	p.keepAlive(1, 3)
	p.Do(&pb.LeaseLeasesRequest{})
	p.Finish(t, &Tally{})

	// Both count the same under the same names.
	var counted [2]string
	for deadline := time.Now().Add(callTimeout); ; time.Sleep(50 * time.Millisecond) {
		counted = [2]string{leaseMetrics(t, p.Etcd), leaseMetrics(t, p.Subject)}
		if counted[0] == counted[1] &&
			strings.Contains(counted[0], "etcd_debugging_server_lease_expired_total 2\n") {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("etcd counts\n%s\nand the subject\n%s", counted[0], counted[1])
		}
	}
}

// leaseMetrics returns what a server counts about leases.
func leaseMetrics(t *testing.T, s *Side) string {
	t.Helper()
	res, err := http.Get("http://" + s.Server.Addr() + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	for line := range strings.Lines(string(body)) {
		if strings.HasPrefix(line, "etcd_debugging_lease_") ||
			strings.HasPrefix(line, "etcd_debugging_server_lease_") ||
			strings.HasPrefix(line, "# TYPE etcd_debugging_lease_") {
			out.WriteString(line)
		}
	}
	return out.String()
}

// TestLeasesGenerated compares random calls about a few leases and keys.
func TestLeasesGenerated(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 4))
	p := NewPair(t)
	for range 1500 {
		id, key := rng.Int64N(7), fmt.Sprint(rng.IntN(12))
		switch rng.IntN(9) {
		case 0:
			p.Do(grant(1+rng.Int64N(6), 100+rng.Int64N(10_000)))
		case 1:
			p.Do(revoke(id))
		case 2:
			p.Do(left(id))
		case 3:
			p.keepAlive(id)
		case 4:
			p.Do(del(key, ""))
		case 5:
			p.Do(then(leased(key, id), del("x", "y"), leased("x"+key, rng.Int64N(7))))
		default:
			p.Do(leased(key, id))
		}
	}
	p.Do(&pb.LeaseLeasesRequest{})
	p.Sweep()
	p.Finish(t, &Tally{})
}

func TestAlikeSortsKeysAndRoundsTime(t *testing.T) {
	a := &pb.LeaseTimeToLiveResponse{TTL: 9, Keys: [][]byte{[]byte("b"), []byte("a")}}
	b := &pb.LeaseTimeToLiveResponse{TTL: 8, Keys: [][]byte{[]byte("a"), []byte("b")}}
	c := &pb.LeaseTimeToLiveResponse{TTL: 5, Keys: [][]byte{[]byte("a")}}
	if out := compareMessages(nil, "", a, ids{}, b, ids{}); len(out) != 0 ||
		!bytes.Equal(a.Keys[0], []byte("a")) {
		t.Errorf("%+v", out)
	}
	if out := compareMessages(nil, "", a, ids{}, c, ids{}); len(out) != 2 {
		t.Errorf("%+v", out)
	}
}
