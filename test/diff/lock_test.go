package diff

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	epb "go.etcd.io/etcd/server/v3/etcdserver/api/v3election/v3electionpb"
	lpb "go.etcd.io/etcd/server/v3/etcdserver/api/v3lock/v3lockpb"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"

	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
)

// The services of etcd's server that are no part of its API module.
func init() {
	for name, method := range map[protoreflect.FullName]string{
		"v3lockpb.LockRequest":         "v3lockpb.Lock/Lock",
		"v3lockpb.UnlockRequest":       "v3lockpb.Lock/Unlock",
		"v3electionpb.CampaignRequest": "v3electionpb.Election/Campaign",
		"v3electionpb.ProclaimRequest": "v3electionpb.Election/Proclaim",
		"v3electionpb.LeaderRequest":   "v3electionpb.Election/Leader",
		"v3electionpb.ResignRequest":   "v3electionpb.Election/Resign",
	} {
		methods[name] = method
	}
}

func lock(name string, lease int64) *lpb.LockRequest {
	return &lpb.LockRequest{Name: []byte(name), Lease: lease}
}

func unlock(key string) *lpb.UnlockRequest { return &lpb.UnlockRequest{Key: []byte(key)} }

func campaign(name, value string, lease int64) *epb.CampaignRequest {
	return &epb.CampaignRequest{Name: []byte(name), Value: []byte(value), Lease: lease}
}

// waiting is a call that is under way on both sides.
type waiting struct {
	p      *Pair
	call   Call
	cancel context.CancelFunc
	done   sync.WaitGroup
	want   Outcome
	got    Outcome
}

// begin makes a call that waits, and returns when a key of it is there on both sides.
func (p *Pair) begin(req proto.Message, key string) *waiting {
	p.t.Helper()
	ctx, cancel := context.WithCancel(p.t.Context())
	w := &waiting{p: p, call: NewCall(req), cancel: cancel}
	w.done.Go(func() { w.want = invoke(ctx, p.Etcd.Conn, w.call) })
	w.done.Go(func() { w.got = invoke(ctx, p.Subject.Conn, w.call) })
	p.t.Cleanup(func() { cancel(); w.done.Wait() })
	p.await(key, 1)
	return w
}

// end waits for the answers and compares them.
func (w *waiting) end() {
	w.p.t.Helper()
	w.done.Wait()
	w.p.Calls++
	w.p.note("(waiting) "+w.call.String(), compare(w.want, w.p.Etcd.ids, w.got, w.p.Subject.ids))
}

// await waits until a key is there, or not, on both sides.
func (p *Pair) await(key string, count int64) {
	p.t.Helper()
	for _, s := range []*Side{p.Etcd, p.Subject} {
		deadline := time.Now().Add(callTimeout)
		for {
			o := invoke(p.t.Context(), s.Conn,
				NewCall(&pb.RangeRequest{Key: []byte(key), CountOnly: true}))
			if r, ok := o.Resp.(*pb.RangeResponse); ok && r.Count == count {
				break
			}
			if time.Now().After(deadline) {
				p.t.Fatalf("%s: key %q has not come to count %d: %v",
					s.Server.Addr(), key, count, o)
			}
			time.Sleep(time.Millisecond)
		}
	}
}

// everything compares all keys.
func (p *Pair) everything() { p.Do(&pb.RangeRequest{Key: []byte{0}, RangeEnd: []byte{0}}) }

func TestLocks(t *testing.T) {
	t.Parallel()
	p := NewPair(t)
	for id := range int64(6) {
		p.Do(grant(0x100+id, 600))
	}
	p.Do(lock("l", 0x100))
	p.everything()
	p.Do(lock("l", 0x100)) // again
	second := p.begin(lock("l", 0x101), "l/101")
	third := p.begin(lock("l", 0x102), "l/102")
	fourth := p.begin(lock("l", 0x103), "l/103")
	// One leaves the middle of the line, another loses its lease there.
	third.cancel()
	third.end()
	p.await("l/102", 0)
	p.Do(revoke(0x103))
	p.everything()
	p.Do(unlock("l/100"))
	second.end()
	p.Do(unlock("l/101"))
	fourth.end()
	p.Do(unlock("l/101"))
	p.everything()

	// A lease that ends with the lock lets the next one in.
	p.Do(lock("m", 0x100))
	next := p.begin(lock("m", 0x101), "m/101")
	p.Do(revoke(0x100))
	next.end()
	p.everything()

	// Names and leases of all kinds.
	p.Do(lock("", 0x104))
	p.Do(lock("\xff\xff", 0x104))
	p.Do(lock("a/b/", 0x104))
	p.Do(lock("x", 0x9999))
	p.Do(lock("x", -1))
	p.Do(lock("x", -0x7fffffffffffffff-1))
	p.Do(lock(strings.Repeat("n", 500<<10), 0x104))
	p.Do(unlock(""))
	p.Do(unlock("nobody's"))
	p.everything()
	p.Do(&pb.CompactionRequest{Revision: p.Rev})
	p.Do(lock("l", 0x105))
	p.everything()
	p.Finish(t, &tally)

	// Without a lease one is granted, whose id is random.
	for _, s := range []*Side{p.Etcd, p.Subject} {
		r, err := lpb.NewLockClient(s.Conn).Lock(t.Context(), lock("free", 0))
		if err != nil {
			t.Fatal(err)
		}
		var id int64
		if n, err := fmt.Sscanf(string(r.Key), "free/%x", &id); n != 1 || err != nil || id <= 0 {
			t.Errorf("%s: key %q", s.Server.Addr(), r.Key)
		}
		ttl, err := pb.NewLeaseClient(s.Conn).LeaseTimeToLive(t.Context(), left(id))
		if err != nil || ttl.GrantedTTL != 60 {
			t.Errorf("%s: lease %v, %v", s.Server.Addr(), ttl, err)
		}
	}
}

func TestElections(t *testing.T) {
	t.Parallel()
	p := NewPair(t)
	for id := range int64(6) {
		p.Do(grant(0x100+id, 600))
	}
	name := &epb.LeaderRequest{Name: []byte("e")}
	key := func(k string, rev, lease int64) *epb.LeaderKey {
		return &epb.LeaderKey{Name: []byte("e"), Key: []byte(k), Rev: rev, Lease: lease}
	}
	proclaim := func(value string, k *epb.LeaderKey) *epb.ProclaimRequest {
		return &epb.ProclaimRequest{Leader: k, Value: []byte(value)}
	}
	p.Do(name)
	first, ok := p.Do(campaign("e", "one", 0x100)).Resp.(*epb.CampaignResponse)
	if !ok {
		t.Fatal("etcd: no leader is elected")
	}
	p.Do(name)
	p.Do(campaign("e", "one", 0x100))  // again
	p.Do(campaign("e", "one!", 0x100)) // with another value
	p.Do(name)
	second := p.begin(campaign("e", "two", 0x101), "e/101")
	third := p.begin(campaign("e", "three", 0x102), "e/102")
	fourth := p.begin(campaign("e", "four", 0x103), "e/103")
	third.cancel()
	third.end()
	p.await("e/102", 0)
	p.Do(revoke(0x103))
	p.Do(proclaim("uno", first.Leader))
	p.Do(proclaim("no", key("e/100", first.Leader.Rev+1, 0x100)))
	p.Do(proclaim("no", key("e/104", first.Leader.Rev, 0x104)))
	p.Do(proclaim("no", key("", 0, 0x104)))
	p.Do(proclaim("no", nil))
	p.Do(proclaim("no", key("e/100", first.Leader.Rev, 0x9999)))
	p.everything()
	p.Do(&epb.ResignRequest{Leader: first.Leader})
	second.end()
	p.Do(name)
	p.Do(&epb.ResignRequest{Leader: first.Leader})
	p.Do(&epb.ResignRequest{Leader: key("e/101", 1, 0x101)})
	p.Do(&epb.ResignRequest{Leader: key("", 0, 0x101)})
	p.Do(&epb.ResignRequest{})
	p.Do(unlock("e/101"))
	fourth.end()
	p.Do(name)
	p.Do(campaign("", "", 0x104))
	p.Do(&epb.LeaderRequest{})
	p.Do(campaign("e", "v", 0x9999))
	p.Do(campaign("e", strings.Repeat("v", 1<<20), 0x104))
	p.Do(name) // a long value
	p.Do(campaign("e", strings.Repeat("v", 3<<20), 0x104))
	p.everything()
	p.Finish(t, &tally)
}

// TestObserve: an observer receives the first leaders of an election.
func TestObserve(t *testing.T) {
	p := NewPair(t)
	for id := range int64(3) {
		p.Do(grant(0x100+id, 600))
	}
	observers := map[*Side]epb.Election_ObserveClient{}
	for _, s := range []*Side{p.Etcd, p.Subject} {
		ctx, cancel := context.WithTimeout(t.Context(), callTimeout)
		t.Cleanup(cancel)
		o, err := epb.NewElectionClient(s.Conn).Observe(ctx, &epb.LeaderRequest{Name: []byte("e")})
		if err != nil {
			t.Fatal(err)
		}
		observers[s] = o
	}
	receive := func(step string) {
		t.Helper()
		var out [2]Outcome
		for i, s := range []*Side{p.Etcd, p.Subject} {
			r, err := observers[s].Recv()
			if err != nil {
				t.Fatalf("%s: %s: %v", s.Server.Addr(), step, err)
			}
			out[i] = Outcome{Resp: r, Status: status.New(0, "")}
		}
		p.Calls++
		p.note("Election/Observe "+step, compare(out[0], p.Etcd.ids, out[1], p.Subject.ids))
	}
	first := p.Do(campaign("e", "one", 0x100)).Resp.(*epb.CampaignResponse)
	receive("the first leader")
	p.Do(&epb.ProclaimRequest{Leader: first.Leader, Value: []byte("uno")})
	receive("another value")
	p.Do(put("e/100", "by put"))
	receive("a value that was put")
	second := p.begin(campaign("e", "two", 0x101), "e/101")
	p.Do(&epb.ResignRequest{Leader: first.Leader})
	second.end()
	receive("the second leader")
	p.Do(&pb.DeleteRangeRequest{Key: []byte("e/"), RangeEnd: []byte("e0")})
	p.Do(put("other", "key"))
	p.Do(put("e/x", "a key of no lease"))
	receive("a key that somebody put there")
	p.Finish(t, &tally)
	for s, o := range observers {
		// An observer who goes away.
		if err := o.CloseSend(); err != nil {
			t.Errorf("%s: %v", s.Server.Addr(), err)
		}
	}
}

// TestObserveEnds: a call ends when its user may no longer read.
func TestObserveEnds(t *testing.T) {
	p := NewPair(t)
	for _, s := range []*Side{p.Etcd, p.Subject} {
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		o, err := epb.NewElectionClient(s.Conn).Observe(ctx, &epb.LeaderRequest{Name: []byte("e")})
		if err != nil {
			t.Fatal(err)
		}
		r, err := o.Recv()
		if status.Code(err).String() != "DeadlineExceeded" {
			t.Errorf("%s: %v, %v", s.Server.Addr(), r, err)
		}
		cancel()
	}
}

// TestReflection: Vigil describes the services of locks and elections as etcd's server defines
// them, and everything that they import. A stock etcd has no reflection.
func TestReflection(t *testing.T) {
	p := NewPair(t)
	stream, err := reflectionpb.NewServerReflectionClient(p.Subject.Conn).ServerReflectionInfo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ask := func(r *reflectionpb.ServerReflectionRequest) *reflectionpb.ServerReflectionResponse {
		t.Helper()
		if err := stream.Send(r); err != nil {
			t.Fatal(err)
		}
		res, err := stream.Recv()
		if err != nil || res.GetErrorResponse() != nil {
			t.Fatalf("%v: %v, %v", r, res, err)
		}
		return res
	}
	services := ask(&reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{}}).GetListServicesResponse().Service
	files := map[string]*descriptorpb.FileDescriptorProto{}
	for _, s := range services {
		res := ask(&reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: s.Name}})
		for _, b := range res.GetFileDescriptorResponse().FileDescriptorProto {
			f := &descriptorpb.FileDescriptorProto{}
			if err := proto.Unmarshal(b, f); err != nil {
				t.Fatal(err)
			}
			files[f.GetName()] = f
		}
	}
	set := &descriptorpb.FileDescriptorSet{}
	for _, f := range files {
		set.File = append(set.File, f)
	}
	linked, err := protodesc.NewFiles(set)
	if err != nil {
		t.Fatalf("the files of reflection cannot be linked: %v", err)
	}
	for _, s := range services {
		if _, err := linked.FindDescriptorByName(protoreflect.FullName(s.Name)); err != nil {
			t.Errorf("%s: %v", s.Name, err)
		}
	}
	for _, f := range []protoreflect.FileDescriptor{lpb.File_v3lock_proto,
		epb.File_v3election_proto} {
		if want := protodesc.ToFileDescriptorProto(f); !proto.Equal(files[f.Path()], want) {
			t.Errorf("%s is %v, want %v", f.Path(), files[f.Path()], want)
		}
	}
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("the end of the stream: %v", err)
	}
}
