package mvcc

import (
	"bytes"
	"math"
	"testing"
	"vigil/internal/store/mvcc/record"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"
)

func message(r *record.KeyValue) *mvccpb.KeyValue {
	return &mvccpb.KeyValue{
		Key: r.Key, Value: r.Value, CreateRevision: r.Create, ModRevision: r.Mod, Version: r.Version, Lease: r.Lease,
	}
}

func TestRecordEncoding(t *testing.T) {
	long := bytes.Repeat([]byte("k"), 300)
	for _, r := range []record.KeyValue{
		{},
		{Key: []byte("k")},
		{Key: []byte("k"), Value: []byte("v"), Create: 1, Mod: 2, Version: 3, Lease: 4},
		{Key: long, Value: bytes.Repeat(long, 100), Create: 1 << 40, Mod: math.MaxInt64, Version: 127, Lease: -1},
		{Key: long[:127], Mod: 128},
		{Key: long[:128], Mod: 128},
		{Key: bytes.Repeat(long, 60), Mod: 1},
	} {
		got := r.Append([]byte("before"))[len("before"):]
		want, err := proto.MarshalOptions{Deterministic: true}.Marshal(message(&r))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Fatalf("%+v:\n got %x\nwant %x", r, got, want)
		}
		if from, to := record.KeyAt(r.Key); !bytes.Equal(got[from:to], r.Key) {
			t.Fatalf("the key of %d bytes is not at %d..%d", len(r.Key), from, to)
		}
		var back record.KeyValue
		if err := back.Decode(got); err != nil || !proto.Equal(message(&back), message(&r)) {
			t.Fatalf("%+v came back as %+v: %v", r, back, err)
		}
	}
}

// FuzzRecord compares the decoder with the generated one: what both accept must mean the same, and
// ours must accept all that the other accepts, groups aside, which no encoder of records writes.
func FuzzRecord(f *testing.F) {
	r := record.KeyValue{Key: []byte("key"), Value: []byte("value"), Create: 2, Mod: 300, Version: 4, Lease: 5}
	f.Add(r.Append(nil))
	f.Add([]byte{0x0a, 0x00, 0x10, 0x80, 0x00})
	f.Add([]byte{0x39, 1, 2, 3, 4, 5, 6, 7, 8, 0x3d, 1, 2, 3, 4})
	f.Add([]byte{0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01})
	f.Fuzz(func(t *testing.T, b []byte) {
		var got record.KeyValue
		var want mvccpb.KeyValue
		err, wantErr := got.Decode(b), proto.Unmarshal(b, &want)
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
		var again record.KeyValue
		if err := again.Decode(got.Append(nil)); err != nil || !proto.Equal(message(&again), message(&got)) {
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
