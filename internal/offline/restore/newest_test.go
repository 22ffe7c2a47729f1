package restore

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"vigil/internal/kv"
	"vigil/internal/vfs"
	"vigil/internal/vfs/memfs"
)

// old adds the directory of a member of etcd to a file system: the backup, which ends at index 40
// of term 3, and puts of a term after it.
func old(t *testing.T, fsys vfs.FS, name string, cluster, term uint64, puts int) {
	t.Helper()
	for _, dir := range []string{name + "/member/snap", name + "/member/wal"} {
		if err := fsys.MkdirAll(dir); err != nil {
			t.Fatal(err)
		}
	}
	number := func(b []byte, field protowire.Number, v uint64) []byte {
		return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), v)
	}
	records := []any{4, []byte(nil), 1, number(number(nil, 1, 7), 2, cluster), 3,
		number(number(nil, 1, 3), 3, 40), 5, number(number(nil, 1, 40), 2, 3)}
	requests := []*etcdserverpb.InternalRaftRequest{
		{Header: &etcdserverpb.RequestHeader{Username: "root", AuthRevision: 9},
			AuthDisable: &etcdserverpb.AuthDisableRequest{}},
		{Alarm: &etcdserverpb.AlarmRequest{Action: etcdserverpb.AlarmRequest_DEACTIVATE,
			MemberID: 5, Alarm: etcdserverpb.AlarmType_NOSPACE}},
	}
	for i := range puts {
		requests = append(requests,
			&etcdserverpb.InternalRaftRequest{Put: &etcdserverpb.PutRequest{Key: fmt.Appendf(nil,
				"of term %d, %d", term, i)}})
	}
	if puts == 0 {
		requests = nil
	}
	for i, r := range requests {
		data, err := proto.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		e, err := proto.Marshal(&raftpb.Entry{Term: &term, Index: new(uint64(41 + i)), Data: data})
		if err != nil {
			t.Fatal(err)
		}
		records = append(records, 2, e)
	}
	db := backup(t)
	place(t, fsys, name+"/member/snap/db", db[:len(db)-sha256.Size])
	place(t, fsys, name+"/member/wal/0000000000000000-0000000000000000.wal", raftLog(records...))
}

// TestNewest: of the directories of several members the one is restored whose log ends with the
// highest term, and with the highest index of that term, since it has every acknowledged entry. A
// former leader may have more entries, and a higher revision, that nobody acknowledged.
func TestNewest(t *testing.T) {
	fsys := memfs.New()
	old(t, fsys, "former-leader", 9, 3, 30)
	old(t, fsys, "lagging", 9, 4, 3)
	old(t, fsys, "newest", 9, 4, 5)
	old(t, fsys, "empty", 9, 3, 0)
	old(t, fsys, "stranger", 8, 9, 1)
	o := options(fsys)
	o.Source, o.Others = "former-leader", []string{"lagging", "newest", "empty"}
	res, err := Run(t.Context(), o)
	if err != nil || res.Source != "newest" || res.Replayed != 7 {
		t.Fatalf("%+v, %v", res, err)
	}
	want := []Position{{"former-leader", 9, 3, 72}, {"lagging", 9, 4, 45}, {"newest", 9, 4, 47},
		{"empty", 9, 3, 40}}
	if fmt.Sprint(res.Positions) != fmt.Sprint(want) {
		t.Errorf("%v, want %v", res.Positions, want)
	}
	r := openRestored(t, o.FS, o.DataDir)
	for key, want := range map[string]int64{"of term 4, 4": 1, "of term 3, 0": 0} {
		if res, err := r.store.Range(t.Context(), &kv.RangeRequest{Key: []byte(key)}); err != nil ||
			res.Count != want {
			t.Errorf("%s: %+v, %v, want %d", key, res, err, want)
		}
	}
	for text, sources := range map[string][]string{
		"belong to different clusters":             {"newest", "stranger"},
		"is not a directory of an etcd member":     {"newest", "former-leader/member/snap/db"},
		"give --source-wal-dir with one directory": {"newest", "empty"},
	} {
		o := options(fsys)
		o.DataDir, o.Source, o.Others = "other.etcd", sources[0], sources[1:]
		if strings.HasPrefix(text, "give") {
			o.SourceWAL = "empty/member/wal"
		}
		if _, err := Run(t.Context(), o); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%q: %v, want %q", sources, err, text)
		}
	}
}

// TestNewestUncommittedSnapshot: a member that ended between the arrival of a snapshot and the
// commit index that belongs to it has not what the snapshot has, whatever its raft log says of it.
// Another one that has more is restored.
func TestNewestUncommittedSnapshot(t *testing.T) {
	fsys := memfs.New()
	old(t, fsys, "more", 9, 4, 5)
	for _, dir := range []string{"interrupted/member/snap", "interrupted/member/wal"} {
		if err := fsys.MkdirAll(dir); err != nil {
			t.Fatal(err)
		}
	}
	db := backup(t)
	place(t, fsys, "interrupted/member/snap/db", db[:len(db)-sha256.Size])
	number := func(b []byte, field protowire.Number, v uint64) []byte {
		return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), v)
	}
	state, err := proto.Marshal(&raftpb.HardState{Term: new(uint64(4)), Commit: new(uint64(41))})
	if err != nil {
		t.Fatal(err)
	}
	entry, err := proto.Marshal(&raftpb.Entry{Term: new(uint64(4)), Index: new(uint64(41))})
	if err != nil {
		t.Fatal(err)
	}
	place(t, fsys, "interrupted/member/wal/0000000000000000-0000000000000000.wal",
		raftLog(4, []byte(nil), 1, number(number(nil, 1, 7), 2, 9),
			2, entry, 3, state, 5, number(number(nil, 1, 60), 2, 4)))
	o := options(fsys)
	o.Source, o.Others = "interrupted", []string{"more"}
	res, err := Run(t.Context(), o)
	if err != nil || res.Source != "more" || res.Index != 47 {
		t.Errorf("%+v, %v", res, err)
	}
}
