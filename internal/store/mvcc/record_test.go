package mvcc

import (
	"bytes"
	"math"
	"testing"

	"google.golang.org/protobuf/proto"

	"go.etcd.io/etcd/api/v3/mvccpb"
)

func message(r *record) *mvccpb.KeyValue {
	return &mvccpb.KeyValue{
		Key: r.key, Value: r.value, CreateRevision: r.create, ModRevision: r.mod, Version: r.version, Lease: r.lease,
	}
}

func TestRecordEncoding(t *testing.T) {
	long := bytes.Repeat([]byte("k"), 300)
	for _, r := range []record{
		{},
		{key: []byte("k")},
		{key: []byte("k"), value: []byte("v"), create: 1, mod: 2, version: 3, lease: 4},
		{key: long, value: bytes.Repeat(long, 100), create: 1 << 40, mod: math.MaxInt64, version: 127, lease: -1},
		{key: long[:127], mod: 128},
		{key: long[:128], mod: 128},
		{key: bytes.Repeat(long, 60), mod: 1},
	} {
		got := r.append([]byte("before"))[len("before"):]
		want, err := proto.MarshalOptions{Deterministic: true}.Marshal(message(&r))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Fatalf("%+v:\n got %x\nwant %x", r, got, want)
		}
		if from, to := keyAt(r.key); !bytes.Equal(got[from:to], r.key) {
			t.Fatalf("the key of %d bytes is not at %d..%d", len(r.key), from, to)
		}
		var back record
		if err := back.decode(got); err != nil || !proto.Equal(message(&back), message(&r)) {
			t.Fatalf("%+v came back as %+v: %v", r, back, err)
		}
	}
}

// FuzzRecord compares the decoder with the generated one: what both accept must mean the same, and
// ours must accept all that the other accepts, groups aside, which no encoder of records writes.
func FuzzRecord(f *testing.F) {
	r := record{key: []byte("key"), value: []byte("value"), create: 2, mod: 300, version: 4, lease: 5}
	f.Add(r.append(nil))
	f.Add([]byte{0x0a, 0x00, 0x10, 0x80, 0x00})
	f.Add([]byte{0x39, 1, 2, 3, 4, 5, 6, 7, 8, 0x3d, 1, 2, 3, 4})
	f.Add([]byte{0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01})
	f.Fuzz(func(t *testing.T, b []byte) {
		var got record
		var want mvccpb.KeyValue
		err, wantErr := got.decode(b), proto.Unmarshal(b, &want)
		if wantErr == nil && err != nil && !hasGroup(b) {
			t.Fatalf("%x is refused: %v", b, err)
		}
		if err != nil {
			return
		}
		if wantErr == nil {
			want.ProtoReflect().SetUnknown(nil)
			if !proto.Equal(message(&got), &want) {
				t.Fatalf("%x: got %v, want %v", b, message(&got), &want)
			}
		}
		var again record
		if err := again.decode(got.append(nil)); err != nil || !proto.Equal(message(&again), message(&got)) {
			t.Fatalf("%+v came back as %+v: %v", got, again, err)
		}
	})
}

// hasGroup reports whether a byte could be the tag of a group.
func hasGroup(b []byte) bool {
	for _, c := range b {
		if c&7 == 3 || c&7 == 4 {
			return true
		}
	}
	return false
}
