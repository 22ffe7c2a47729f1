package fsm

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"vigil/internal/kv"
	"vigil/internal/state/auth"
	"vigil/internal/state/cluster"
)

// strangers are identities that may do nothing that requires a right. rev is the auth revision.
func strangers(rev uint64) map[string]auth.Identity {
	return map[string]auth.Identity{
		"nobody":                     {},
		"a deleted user":             {User: "ghost", Revision: rev - 1},
		"a user of an old revision":  {User: "alice", Revision: 1},
		"an administrator of before": {User: "root", Revision: 1},
	}
}

// Every kind of request is judged when it is applied, except those that no client can cause. A new field of Request needs a line here.
func TestEveryRequestIsJudged(t *testing.T) {
	b := secured(t)
	rev := b.m.Auth().Revision()
	members := []string{"LeaseCheckpoint", "LeaseExpire", "Attributes", "Claim", "Archive"}
	// root: only the role root may do it. Others are for every user.
	samples := map[string]struct {
		request func() *Request
		root    bool
	}{
		"Put":         {func() *Request { return put("x", "v") }, true},
		"DeleteRange": {func() *Request { return &Request{DeleteRange: &kv.DeleteRangeRequest{Key: []byte("x")}} }, true},
		"Txn": {func() *Request {
			return &Request{Txn: &kv.TxnRequest{Success: []kv.Op{{Put: &kv.PutRequest{Key: []byte("x")}}}}}
		}, true},
		"Compact":     {func() *Request { return &Request{Compact: &kv.CompactRequest{Revision: 1}} }, true},
		"LeaseGrant":  {func() *Request { return grant(1, 60) }, false},
		"LeaseRevoke": {func() *Request { return revoke(1) }, false},
		"Alarm": {func() *Request {
			return &Request{Alarm: &kv.AlarmChange{Alarm: kv.Alarm{MemberID: 1, Type: kv.AlarmCorrupt}}}
		}, true},
		"Version": {func() *Request { return &Request{Version: &kv.VersionChange{Op: kv.DowngradeEnd}} }, true},
		"Auth":    {func() *Request { return change(kv.AuthRequest{Op: kv.RoleAdd, Role: "new"}) }, true},
	}
	typ := reflect.TypeFor[Request]()
	for i := range typ.NumField() {
		name := typ.Field(i).Name
		if typ.Field(i).Type.Kind() != reflect.Pointer || slices.Contains(members, name) {
			continue
		}
		sample, ok := samples[name]
		if !ok {
			t.Errorf("no sample of a request with %s", name)
			continue
		}
		who := strangers(rev)
		if sample.root {
			who["a user without the right"] = auth.Identity{User: "alice", Revision: rev}
		}
		for what, id := range who {
			if name == "LeaseRevoke" {
				// A lease without keys, which every user may revoke.
				if err := b.do(by("alice", rev, grant(1, 60))); err != nil {
					t.Fatal(err)
				}
			}
			r := sample.request()
			r.Identity = id
			if err := b.do(r); !errors.Is(err, kv.ErrUserEmpty) && !errors.Is(err, kv.ErrAuthOldRevision) && !errors.Is(err, kv.ErrPermissionDenied) && !errors.Is(err, kv.ErrUserNotFound) {
				t.Errorf("%s of %s: %v", name, what, err)
			}
			if name == "LeaseRevoke" {
				if err := b.do(by("alice", rev, revoke(1))); err != nil {
					t.Fatal(err)
				}
			}
		}
		if r := sample.request(); !r.NeedsIdentity() {
			t.Errorf("%s is proposed without an identity", name)
		}
	}
	for name, want := range map[string]auth.Identity{"the member itself": {Member: true}, "root": {User: "root", Revision: rev}} {
		r := &Request{Alarm: &kv.AlarmChange{Alarm: kv.Alarm{MemberID: 1, Type: kv.AlarmCorrupt}}, Identity: want}
		if err := b.do(r); err != nil {
			t.Errorf("an alarm of %s: %v", name, err)
		}
	}
}

// do applies one request and returns its error.
func (b *box) do(r *Request) error {
	b.t.Helper()
	return b.entry(raftpb.EntryNormal, group(b.t, GroupHeader{}, r), true).Results[0].Err
}

// A change of the membership is judged too. For raft, one that its proposer may not make is an empty entry.
func TestMembershipChangesAreJudged(t *testing.T) {
	b := secured(t)
	rev := b.m.Auth().Revision()
	self := b.m.Members().IDs()[0]
	reconfigure := func(c cluster.Change, who auth.Identity) outcome {
		t.Helper()
		cc, err := ConfChange(GroupHeader{Proposer: 1, Sequence: 2}, c, who)
		if err != nil {
			t.Fatal(err)
		}
		data, err := proto.Marshal(cc)
		if err != nil {
			t.Fatal(err)
		}
		return b.entry(raftpb.EntryConfChangeV2, data, true)
	}
	learner := func(id uint64) cluster.Change {
		return cluster.Change{Op: cluster.Add, Member: cluster.Member{ID: id, PeerURLs: []string{fmt.Sprintf("http://m%d:1", id)}, Learner: true}, MaxLearners: 9}
	}
	if out := reconfigure(learner(5), auth.Identity{Member: true}); out.ConfChange == nil || out.Results[0].Err != nil {
		t.Errorf("by a member: %+v", out)
	}
	before := b.m.ConfState()
	for what, id := range strangers(rev) {
		for _, c := range []cluster.Change{
			learner(6), {Op: cluster.Remove, Member: cluster.Member{ID: 5}}, {Op: cluster.Promote, Member: cluster.Member{ID: 5}},
			{Op: cluster.Update, Member: cluster.Member{ID: self, PeerURLs: []string{"http://x:1"}}},
		} {
			if out := reconfigure(c, id); out.ConfChange != nil || out.Results[0].Err == nil || !proto.Equal(b.m.ConfState(), before) {
				t.Errorf("change %d by %s: %+v, %v", c.Op, what, out, b.m.ConfState())
			}
		}
	}
	if m := b.m.Members(); len(m.Members()) != 2 || m.Removed(5) {
		t.Errorf("the members are %v", m.Members())
	}
	for i, id := range []auth.Identity{{User: "root", Revision: rev}, {Member: true}} {
		if out := reconfigure(learner(uint64(7+i)), id); out.ConfChange == nil || out.Results[0].Err != nil {
			t.Errorf("a change by %+v: %+v", id, out)
		}
	}
}
