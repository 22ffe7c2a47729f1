package diff

import (
	"cmp"
	"slices"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"
)

func init() {
	methods["etcdserverpb.MemberAddRequest"] = "etcdserverpb.Cluster/MemberAdd"
	methods["etcdserverpb.MemberRemoveRequest"] = "etcdserverpb.Cluster/MemberRemove"
	methods["etcdserverpb.MemberUpdateRequest"] = "etcdserverpb.Cluster/MemberUpdate"
	methods["etcdserverpb.MemberPromoteRequest"] = "etcdserverpb.Cluster/MemberPromote"
	methods["etcdserverpb.MoveLeaderRequest"] = "etcdserverpb.Maintenance/MoveLeader"
}

// second replaces the id of the second member, which each side derives from the time, in an answer.
// It returns the id, 0 if there is no second member.
func (s *Side) second(o Outcome) (id uint64) {
	mark := func(m *pb.Member) {
		if m != nil && m.ID != s.ids.member {
			id, m.ID = m.ID, 1
		}
	}
	if m, ok := o.Resp.(interface{ GetMember() *pb.Member }); ok {
		mark(m.GetMember())
	}
	if m, ok := o.Resp.(interface{ GetMembers() []*pb.Member }); ok {
		for _, m := range m.GetMembers() {
			mark(m)
		}
		slices.SortFunc(m.GetMembers(),
			func(a, b *pb.Member) int { return cmp.Compare(a.ID, b.ID) })
	}
	return id
}

// TestMembers adds, changes and removes members of a single one that never run, with URLs of every
// kind.
func TestMembers(t *testing.T) {
	t.Parallel()
	p := NewPair(t)
	ids := map[*Side]uint64{} // of the second member
	do := func(req func(second uint64) proto.Message) {
		var out [2]Outcome
		for i, s := range []*Side{p.Etcd, p.Subject} {
			out[i] = invoke(t.Context(), s.Conn, NewCall(req(ids[s])))
			if id := s.second(out[i]); id != 0 {
				ids[s] = id
			}
		}
		p.Calls++
		p.note(NewCall(req(1)).String(), compare(out[0], p.Etcd.ids, out[1], p.Subject.ids))
	}
	always := func(m proto.Message) { do(func(uint64) proto.Message { return m }) }
	remove := func(id uint64) proto.Message { return &pb.MemberRemoveRequest{ID: id} }
	promote := func(id uint64) proto.Message { return &pb.MemberPromoteRequest{ID: id} }
	lead := func(id uint64) proto.Message { return &pb.MoveLeaderRequest{TargetID: id} }
	update := func(urls ...string) func(uint64) proto.Message {
		return func(id uint64) proto.Message {
			return &pb.MemberUpdateRequest{ID: id,
				PeerURLs: urls}
		}
	}
	self := p.Etcd.ids.member
	learner := func(urls ...string) *pb.MemberAddRequest {
		return &pb.MemberAddRequest{PeerURLs: urls, IsLearner: true}
	}
	// No URLs are added twice: within a second the second member would have the id of the first
	// one, and etcd rejects the id of a removed member.
	for _, urls := range [][]string{
		nil, {""}, {"x"}, {"http://"}, {"http://x"}, {"http://127.0.0.1"}, {"127.0.0.1:1"},
		{"http://127.0.0.1:1/path"}, {"http://127.0.0.1:1/"},
		{"http://127.0.0.1:99999"}, {"http://127.0.0.1:0"}, {"http://a:b"}, {"ftp://127.0.0.1:1"},
		{"http://user@127.0.0.1:1"}, {"http://127.0.0.1:1?x"},
		{"unix://x"}, {"unix://x:1"}, {"http://[::1]:1", "bad"}, {"http://127.0.0.1:2380"},
		{"http://localhost:2380"},
		{"http://127.0.0.1:11", "http://127.0.0.1:11"},
		{"http://127.0.0.1:13", "http://127.0.0.1:12"}, {"http://%zz:1"}, {"http://exa mple:1"},
		{" http://127.0.0.1:14"}, {"HTTP://127.0.0.1:15\n"}, {"http://unresolvable.invalid:1"},
	} {
		always(&pb.MemberUpdateRequest{ID: 1, PeerURLs: urls})
		always(learner(urls...))
		always(&pb.MemberListRequest{})
		do(remove)
	}
	for _, id := range []uint64{0, 1, self} {
		always(promote(id))
		always(lead(id))
		if id != self {
			always(remove(id))
		}
	}
	do(promote)
	always(remove(self)) // the only one
	always(update("http://127.0.0.1:6666", "http://127.0.0.1:7777")(self))
	p.PeerHTTP(Request{Path: "/members"})
	always(learner("http://127.0.0.1:21"))
	always(learner("http://127.0.0.1:22"))
	always(learner("http://127.0.0.1:21", "http://127.0.0.1:22"))
	always(&pb.MemberAddRequest{PeerURLs: []string{"http://127.0.0.1:21", "http://127.0.0.1:22"}})
	do(promote)
	do(lead)
	do(update("http://127.0.0.1:7777"))
	do(update("http://127.0.0.1:2"))
	do(remove)
	do(remove)
	do(update("http://127.0.0.1:1"))
	do(promote)
	always(&pb.MemberListRequest{Linearizable: true})
	// A voter that does not run takes the quorum away.
	always(&pb.MemberAddRequest{PeerURLs: []string{"http://127.0.0.1:31"}})
	always(&pb.MemberAddRequest{PeerURLs: []string{"http://127.0.0.1:32"}})
	always(remove(self))
	p.Finish(t, &tally)
}
