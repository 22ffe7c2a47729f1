package restore

import (
	"errors"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"vigil/internal/kv"
	"vigil/internal/store/history"
	"vigil/internal/vfs/memfs"
)

// oldRequest is a request of API version 2 as members of etcd 3.4 to 3.6 encode it: every field but
// two is written, also when it is empty.
func oldRequest(method, path, value string) (b []byte) {
	number := func(field protowire.Number, v uint64) {
		b = protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), v)
	}
	text := func(field protowire.Number, v string) {
		b = protowire.AppendString(protowire.AppendTag(b, field, protowire.BytesType), v)
	}
	number(1, 7587887000000001)
	text(2, method)
	text(3, path)
	text(4, value)
	number(5, 0)
	text(6, "")
	number(7, 0)
	if method == "PUT" {
		number(8, 1) // the key must exist
	}
	number(9, 1700000000000000000)
	for field := protowire.Number(10); field <= 14; field++ {
		number(field, 0)
	}
	number(15, 1700000000000000000)
	number(16, 0)
	return b
}

// within is a message as the value of a field.
func within(field protowire.Number, m []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, field, protowire.BytesType), m)
}

// addRaw adds an entry of any bytes.
func (l *requestLog) addRaw(t *testing.T, data []byte) {
	t.Helper()
	l.requests++
	b, err := proto.Marshal(&raftpb.Entry{Term: new(uint64(3)),
		Index: new(uint64(40 + l.requests)), Data: data})
	if err != nil {
		t.Fatal(err)
	}
	l.records = append(l.records, 2, b)
}

// addAllowed ends what rejects requests of anybody in the state of the backup: its alarm, and
// authentication.
func (l *requestLog) addAllowed(t *testing.T) {
	t.Helper()
	l.add(t, &etcdserverpb.InternalRaftRequest{Alarm: &etcdserverpb.AlarmRequest{Action: etcdserverpb.AlarmRequest_DEACTIVATE, MemberID: 5, Alarm: etcdserverpb.AlarmType_NOSPACE}})
	l.add(t, &etcdserverpb.InternalRaftRequest{AuthDisable: &etcdserverpb.AuthDisableRequest{}})
}

// TestOldRequests: a request of API version 2, whatever its method and its form, changes no key and
// no revision.
func TestOldRequests(t *testing.T) {
	var log requestLog
	log.addAllowed(t)
	n := 0
	for _, method := range []string{"POST", "PUT", "DELETE", "QGET", "SYNC", "GET", "HEAD", ""} {
		for _, path := range []string{"", "/1/a", "/0/members/8e9e05c52164694d/attributes",
			"/0/version", strings.Repeat("\n\x02k", 40)} {
			for _, value := range []string{"", "3.4.0", "\n\x01k\x12\x01v", `{"name":"m1"}`} {
				old := oldRequest(method, path, value)
				log.addRaw(t, old)
				log.addRaw(t, within(2, old)) // in the form of version 3
				n += 2
			}
		}
	}
	o := log.source(t)
	res, err := Run(t.Context(), o)
	if err != nil || res.Revision != 12 || res.Replayed != n+2 {
		t.Fatalf("revision %d, want 12; %+v, %v", res.Revision, res, err)
	}
	r := openRestored(t, o.FS, o.DataDir)
	if res, err := r.store.Range(t.Context(),
		&kv.RangeRequest{Key: []byte{0}, End: []byte{0}}); err != nil || res.Count != 2 {
		t.Errorf("%+v, %v", res, err)
	}
}

// TestEntryKinds: every kind of request of etcd is known, with all that it may contain; one that is
// unknown or has another form is an error that names the entry, since etcd does not start with it
// either.
func TestEntryKinds(t *testing.T) {
	fields := (&etcdserverpb.InternalRaftRequest{}).ProtoReflect().Descriptor().Fields()
	var log requestLog
	log.addAllowed(t)
	for i := range fields.Len() {
		if f := fields.Get(i); f.Kind() == protoreflect.MessageKind && f.Name() != "header" {
			log.addRaw(t, within(f.Number(), nil))
		}
	}
	o := log.source(t)
	o.SkipRejected = true
	if res, err := Run(t.Context(), o); err != nil || res.Replayed != log.requests ||
		res.Revision != 12 {
		t.Errorf("all kinds: %+v, %v", res, err)
	}
	put, err := proto.Marshal(&etcdserverpb.InternalRaftRequest{ID: 9,
		Put: &etcdserverpb.PutRequest{Key: []byte("k"), Value: []byte("v")}})
	if err != nil {
		t.Fatal(err)
	}
	// the key as a number
	wrongType := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), 5)
	for name, data := range map[string][]byte{
		"no protobuf": []byte("\xff\xff\xff"), "cut off": put[:len(put)-1],
		"an unknown kind": within(12, nil), "only an id": {8, 9},
		"a key that is a number":   within(4, wrongType),
		"no request of version 2":  within(2, []byte("SYNC")),
		"a name that is not UTF-8": within(1200, within(1, []byte("\xff"))),
	} {
		var log requestLog
		log.addAllowed(t)
		log.addRaw(t, put)
		log.addRaw(t, data)
		if _, err := Run(t.Context(), log.source(t)); err == nil ||
			!strings.Contains(err.Error(), "entry 44 of the raft log: ") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestEmptyKeysInTheLog: an entry that no validation of etcd lets pass is reported, not applied.
func TestEmptyKeysInTheLog(t *testing.T) {
	op := func(p *etcdserverpb.PutRequest) *etcdserverpb.RequestOp {
		return &etcdserverpb.RequestOp{Request: &etcdserverpb.RequestOp_RequestPut{RequestPut: p}}
	}
	nested := &etcdserverpb.TxnRequest{Success: []*etcdserverpb.RequestOp{op(&etcdserverpb.PutRequest{Key: []byte("k")}),
		{Request: &etcdserverpb.RequestOp_RequestTxn{RequestTxn: &etcdserverpb.TxnRequest{Failure: []*etcdserverpb.RequestOp{op(&etcdserverpb.PutRequest{})}}}}}}
	for name, r := range map[string]*etcdserverpb.InternalRaftRequest{
		"put":         {Put: &etcdserverpb.PutRequest{Value: []byte("v")}},
		"delete":      {DeleteRange: &etcdserverpb.DeleteRangeRequest{RangeEnd: []byte{0}}},
		"transaction": {Txn: nested},
	} {
		var log requestLog
		log.addAllowed(t)
		log.add(t, r)
		o := log.source(t)
		if _, err := Run(t.Context(), o); err == nil ||
			!strings.Contains(err.Error(), "1 of kind "+name+", the first at index 43: "+
				kv.ErrEmptyKey.Error()) {
			t.Errorf("%s: %v", name, err)
		}
		o.SkipRejected = true
		if res, err := Run(t.Context(), o); err != nil || res.Revision != 12 {
			t.Errorf("%s, skipped: %+v, %v", name, res, err)
		}
	}
}

// TestEmptyKeyInABackup: no record of a snapshot, an archive or another member makes a key with an
// empty name.
func TestEmptyKeyInABackup(t *testing.T) {
	for _, key := range []string{"", "k"} {
		r, err := NewRebuild(memfs.New(), "h")
		if err != nil {
			t.Fatal(err)
		}
		x := pair(t, &mvccpb.KeyValue{Key: []byte(key), Value: []byte("v"), CreateRevision: 2,
			ModRevision: 2, Version: 1})
		var content *ContentError
		if err := r.Record(history.Stamp{Rev: x.rev}, false, x.data); (err == nil) != (key != "") ||
			err != nil && !errors.As(err, &content) {
			t.Errorf("%q: %v", key, err)
		}
		if err := r.log.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
