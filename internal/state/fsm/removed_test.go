package fsm

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"vigil/internal/kv"
	"vigil/internal/state/auth"
	"vigil/internal/state/cluster"
)

// gone is an id whose bytes are in nothing by chance.
const gone = 0x9d3f_a1c7_55e2_6b81

func (b *box) change(c cluster.Change) {
	b.t.Helper()
	cc, err := ConfChange(GroupHeader{Proposer: 1, Sequence: 2}, c, auth.Identity{})
	if err != nil {
		b.t.Fatal(err)
	}
	data, err := proto.Marshal(cc)
	if err != nil {
		b.t.Fatal(err)
	}
	if out := b.entry(raftpb.EntryConfChangeV2, data, true); out.Results[0].Err != nil {
		b.t.Fatal(out.Results[0].Err)
	}
}

// named returns where the state machine names an id: the records of the store by bucket, and what is in memory.
func (b *box) named(id uint64) (places []string) {
	var forms [][]byte
	forms = append(forms, binary.BigEndian.AppendUint64(nil, id), binary.LittleEndian.AppendUint64(nil, id), binary.AppendUvarint(nil, id),
		binary.AppendVarint(nil, int64(id)), fmt.Appendf(nil, "%x", id), fmt.Appendf(nil, "%d", id))
	for bucket := range 256 {
		for k, v := range b.log.Meta(byte(bucket)) {
			for _, f := range forms {
				if bytes.Contains(k, f) || bytes.Contains(v, f) {
					places = append(places, fmt.Sprintf("bucket %q", byte(bucket)))
				}
			}
		}
	}
	memory := fmt.Sprintf("%+v", []any{b.m.Alarms(), b.m.Members().Members(), b.m.ConfState(), b.m.Versions(), b.m.Lineage()})
	if strings.Contains(memory, fmt.Sprint(id)) {
		places = append(places, "memory: "+memory)
	}
	return places
}

// naming are requests that name a member, by the field of Request.
func naming(id uint64) map[string]*Request {
	return map[string]*Request{
		"Alarm":      {Alarm: &kv.AlarmChange{Alarm: kv.Alarm{MemberID: id, Type: kv.AlarmNoSpace}}},
		"Attributes": {Attributes: &cluster.Member{ID: id, Name: "gone", ClientURLs: []string{"http://c:1"}, Level: Level}},
	}
}

// A removed member leaves nothing behind but the note that its id was removed: not its alarms, whatever their kind, nor its name, URLs
// and level. That note is its own record and nothing else, and what comes late names the member no more.
func TestARemovedMemberIsNamedNowhere(t *testing.T) {
	b := newBox(t)
	b.change(cluster.Change{Op: cluster.Add, Member: cluster.Member{ID: gone, PeerURLs: []string{"http://b:1"}, Learner: true}})
	for name, r := range naming(gone) {
		if res := b.request(gone, r); res.Err != nil {
			t.Fatalf("%s: %v", name, res.Err)
		}
	}
	b.alarm(kv.AlarmCorrupt, gone, false)
	b.alarm(kv.AlarmNoSpace, 1, false)
	b.commit()
	if len(b.named(gone)) < 4 {
		t.Fatalf("named in %q only: the search does not find it", b.named(gone))
	}
	b.change(cluster.Change{Op: cluster.Remove, Member: cluster.Member{ID: gone}})
	b.commit()
	check := func(when string) {
		t.Helper()
		if places := b.named(gone); len(places) != 1 || places[0] != fmt.Sprintf("bucket %q", memberBucket) {
			t.Errorf("%s the member is named in %q", when, places)
		}
		if a := b.m.Alarms(); len(a) != 1 || a[0].MemberID != 1 {
			t.Errorf("%s the alarms are %v", when, a)
		}
	}
	check("after its removal")
	for name, r := range naming(gone) {
		t.Logf("%s, late: %v", name, b.request(gone, r).Err)
	}
	b.commit()
	check("after late requests")
	b.reopen()
	check("after reopening")
}

// Every field of a request that can hold the id of a member is among those that name one.
func TestRequestsThatNameAMember(t *testing.T) {
	// What holds a number of 64 bits that is something else.
	other := map[string]string{
		"Identity": "an auth revision", "Put": "a lease", "Txn": "a lease", "LeaseGrant": "a lease, an index", "LeaseRevoke": "a lease",
		"LeaseCheckpoint": "leases", "LeaseExpire": "leases, a term", "Compact": "a revision", "DeleteRange": "a revision",
		"Claim": "a term", "Archive": "an index", "Auth": "an auth revision", "Version": "versions",
	}
	names := naming(gone)
	for i := range reflect.TypeFor[Request]().NumField() {
		f := reflect.TypeFor[Request]().Field(i).Name
		if names[f] == nil && other[f] == "" {
			t.Errorf("does the field %s name a member? If so, what names it must end with its removal: add it here", f)
		}
	}
}
