package restore

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"hash/crc32"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"vigil/internal/kv"
	"vigil/internal/vfs/memfs"
)

// raftLog writes a raft log of etcd: records of a type and data.
func raftLog(records ...any) []byte {
	var out bytes.Buffer
	sum := uint32(0)
	for i := 0; i < len(records); i += 2 {
		typ, data := records[i].(int), records[i+1].([]byte)
		if data != nil {
			sum = crc32.Update(sum, crc32.MakeTable(crc32.Castagnoli), data)
		}
		b := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), uint64(typ))
		b = protowire.AppendVarint(protowire.AppendTag(b, 2, protowire.VarintType), uint64(sum))
		if data != nil {
			b = protowire.AppendBytes(protowire.AppendTag(b, 3, protowire.BytesType), data)
		}
		field := uint64(len(b))
		if pad := (8 - len(b)%8) % 8; pad > 0 {
			field |= uint64(0x80|pad) << 56
			b = append(b, make([]byte, pad)...)
		}
		out.Write(binary.LittleEndian.AppendUint64(nil, field))
		out.Write(b)
	}
	return out.Bytes()
}

// An etcd member that ended between the arrival of a snapshot and its move has an old database: the
// snapshot is restored, or nothing is.
func TestAcceptedSnapshot(t *testing.T) {
	state, err := proto.Marshal(&raftpb.HardState{Term: new(uint64(3)), Commit: new(uint64(60))})
	if err != nil {
		t.Fatal(err)
	}
	entry, err := proto.Marshal(&raftpb.Entry{Term: new(uint64(3)), Index: new(uint64(61))})
	if err != nil {
		t.Fatal(err)
	}
	snapshot := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), 60)
	fsys := memfs.New()
	for _, dir := range []string{"etcd/member/snap", "etcd/member/wal"} {
		if err := fsys.MkdirAll(dir); err != nil {
			t.Fatal(err)
		}
	}
	db := backup(t) // at index 40
	db = db[:len(db)-sha256.Size]
	place(t, fsys, "etcd/member/snap/db", db)
	place(t, fsys, "etcd/member/wal/0000000000000000-0000000000000000.wal",
		raftLog(4, []byte(nil), 5, snapshot, 3, state, 2, entry))
	o := options(fsys)
	o.Source = "etcd"
	if _, err := Run(t.Context(), o); err == nil ||
		!strings.Contains(err.Error(),
			"has accepted a snapshot at index 60, the database is at 40") {
		t.Fatalf("without the snapshot: %v", err)
	}
	place(t, fsys, "etcd/member/snap/000000000000003c.snap.db", db)
	res, err := Run(t.Context(), o)
	if err != nil || res.Index != 61 || res.Replayed != 1 {
		t.Errorf("with the snapshot: %+v, %v", res, err)
	}
}

// requestLog is the raft log of an etcd member after the index of the backup, whose proposer is
// root.
type requestLog struct {
	requests int
	records  []any
}

func (l *requestLog) add(t *testing.T, r *etcdserverpb.InternalRaftRequest) {
	t.Helper()
	r.Header = &etcdserverpb.RequestHeader{Username: "root", AuthRevision: 9}
	data, err := proto.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	l.requests++
	b, err := proto.Marshal(&raftpb.Entry{Term: new(uint64(3)),
		Index: new(uint64(40 + l.requests)), Data: data})
	if err != nil {
		t.Fatal(err)
	}
	l.records = append(l.records, 2, b)
}

// source returns the options to restore from a data directory with the backup and the log.
func (l *requestLog) source(t *testing.T) Options {
	t.Helper()
	fsys := memfs.New()
	for _, dir := range []string{"etcd/member/snap", "etcd/member/wal"} {
		if err := fsys.MkdirAll(dir); err != nil {
			t.Fatal(err)
		}
	}
	db := backup(t)
	place(t, fsys, "etcd/member/snap/db", db[:len(db)-sha256.Size])
	place(t, fsys, "etcd/member/wal/0000000000000000-0000000000000000.wal",
		raftLog(append([]any{4, []byte(nil)}, l.records...)...))
	o := options(fsys)
	o.Source = "etcd"
	return o
}

// After an entry that raises CORRUPT an etcd member refuses writes: they are not restored either,
// until the alarm is cleared.
func TestCorruptAlarmInTheLog(t *testing.T) {
	var log requestLog
	add := func(r *etcdserverpb.InternalRaftRequest) { log.add(t, r) }
	alarm := func(action etcdserverpb.AlarmRequest_AlarmAction, member uint64,
		kind etcdserverpb.AlarmType) {
		add(&etcdserverpb.InternalRaftRequest{Alarm: &etcdserverpb.AlarmRequest{Action: action,
			MemberID: member, Alarm: kind}})
	}
	put := func(key string) {
		add(&etcdserverpb.InternalRaftRequest{Put: &etcdserverpb.PutRequest{Key: []byte(key)}})
	}
	alarm(etcdserverpb.AlarmRequest_DEACTIVATE, 5, etcdserverpb.AlarmType_NOSPACE) // of the backup
	put("before")
	alarm(etcdserverpb.AlarmRequest_ACTIVATE, 7, etcdserverpb.AlarmType_CORRUPT)
	put("during")
	alarm(etcdserverpb.AlarmRequest_DEACTIVATE, 7, etcdserverpb.AlarmType_CORRUPT)
	put("after")
	o := log.source(t)
	if _, err := Run(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	r := openRestored(t, o.FS, o.DataDir)
	for key, want := range map[string]int64{"before": 1, "during": 0, "after": 1} {
		if res, err := r.store.Range(t.Context(), &kv.RangeRequest{Key: []byte(key)}); err != nil ||
			res.Count != want {
			t.Errorf("%s: %+v, %v, want %d", key, res, err, want)
		}
	}
}

// An entry that etcd has applied and a limit of this program rejects is not lost without a report.
func TestRejectedInTheLog(t *testing.T) {
	var log requestLog
	add := func(r *etcdserverpb.InternalRaftRequest) { log.add(t, r) }
	role := func(name string) {
		add(&etcdserverpb.InternalRaftRequest{AuthRoleAdd: &etcdserverpb.AuthRoleAddRequest{Name: name}})
	}
	add(&etcdserverpb.InternalRaftRequest{Alarm: &etcdserverpb.AlarmRequest{Action: etcdserverpb.AlarmRequest_DEACTIVATE, MemberID: 5, Alarm: etcdserverpb.AlarmType_NOSPACE}})
	role("good")
	role(strings.Repeat("r", kv.MaxNameBytes+1))
	role("good") // rejected by etcd too
	role(strings.Repeat("s", kv.MaxNameBytes+1))
	o := log.source(t)
	want := Rejected{Kind: "change of users or roles", Reason: kv.ErrNameTooLong.Error(),
		Count: 2, First: 43}
	if _, err := Run(t.Context(), o); err == nil || !strings.Contains(err.Error(), want.String()) {
		t.Fatalf("%v, want %v", err, want)
	}
	if _, err := o.FS.Stat(o.DataDir); err == nil {
		t.Error("the failed restore has left files")
	}
	o.SkipRejected = true
	res, err := Run(t.Context(), o)
	if err != nil || len(res.Rejected) != 1 || res.Rejected[0] != want || res.Replayed != 5 {
		t.Errorf("%+v, %v", res, err)
	}
}
