package pbfield

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"
)

// The model of the package is the generated code.

func decode(b []byte) (*mvccpb.KeyValue, error) {
	m := &mvccpb.KeyValue{}
	r := Read(b)
	for r.Next() {
		r.Bytes(1, &m.Key)
		Int(&r, 2, &m.CreateRevision)
		Int(&r, 3, &m.ModRevision)
		Int(&r, 4, &m.Version)
		r.Bytes(5, &m.Value)
		Int(&r, 6, &m.Lease)
	}
	return m, r.Err()
}

func encode(m *mvccpb.KeyValue) (fields [][]byte) {
	return [][]byte{
		AppendBytes(nil, 1, m.Key), AppendInt(nil, 2, m.CreateRevision),
		AppendInt(nil, 3, m.ModRevision),
		AppendInt(nil, 4, m.Version), AppendBytes(nil, 5, string(m.Value)),
		AppendInt(nil, 6, m.Lease),
	}
}

// TestOrder: fields are read in any order, among fields of unknown numbers, and the last one of a
// number counts.
func TestOrder(t *testing.T) {
	for seed := range uint64(500) {
		rng := rand.New(rand.NewPCG(seed, 0))
		var fields [][]byte
		for range 3 {
			m := &mvccpb.KeyValue{Key: []byte{byte(seed)},
				Value: bytes.Repeat([]byte("v"), rng.IntN(300)), CreateRevision: rng.Int64N(1000),
				ModRevision: rng.Int64(), Version: -rng.Int64(), Lease: rng.Int64N(2)}
			fields = append(fields, encode(m)...)
		}
		fields = append(fields, AppendPresent(nil, 64, []byte("unknown")),
			AppendPresentInt(nil, 7, 0), AppendPresentInt(nil, 1, 5))
		if seed > 0 {
			rng.Shuffle(len(fields), func(i, j int) { fields[i], fields[j] = fields[j], fields[i] })
		}
		b := bytes.Join(fields, nil)
		want := &mvccpb.KeyValue{}
		if err := (proto.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(b, want); err != nil {
			t.Fatal(err)
		}
		got, err := decode(b)
		if err != nil || !proto.Equal(got, want) {
			t.Fatalf("seed %d: %v, %v, want %v", seed, got, err, want)
		}
		if r := Read(b); r.Count(64) != 1 || r.Count(8) != 0 {
			t.Fatalf("seed %d: %d fields 64, %d fields 8", seed, r.Count(64), r.Count(8))
		}
	}
}

// TestMessages: embedded messages of any size, and lists of numbers, packed or not.
func TestMessages(t *testing.T) {
	for _, size := range []int{0, 1, 127, 128, 300, 1 << 14, 1 << 21} {
		b, at := BeginMessage([]byte("x"), 3)
		b = EndMessage(AppendBytes(b, 1, make([]byte, size)), at)
		b = AppendPresentInt(AppendBytes(b[1:], 5, "\x01\xac\x02"), 5, 7)
		r, inner, numbers := Read(b), 0, []uint64{}
		var body, data []byte
		for r.Next() {
			for r.Message(3, &body) {
				m := Read(body)
				for m.Next() {
					m.Bytes(1, &data)
				}
				r.Check(m.Err())
				inner++
			}
			r.Ints(5, func(v uint64) { numbers = append(numbers, v) })
		}
		if r.Err() != nil || inner != 1 || len(data) != size || len(numbers) != 3 ||
			numbers[0] != 1 || numbers[1] != 300 || numbers[2] != 7 {
			t.Errorf("%d bytes: %v, %d messages with %d bytes, numbers %v", size, r.Err(), inner,
				len(data), numbers)
		}
		if !r.AtEnd() || r.Next() || r.Err() != nil {
			t.Error("the reader is not at its end")
		}
	}
}

// TestCheck: an error of an embedded message ends the reading, and stays.
func TestCheck(t *testing.T) {
	r, cause := Read(AppendInt(AppendInt(nil, 1, int64(1)), 2, int64(2))), errors.New("cause")
	r.Next()
	r.Check(nil)
	r.Check(cause)
	r.Check(ErrInvalid)
	var v int64
	if Int(&r, 1, &v); v != 0 || r.Next() || r.Err() != cause {
		t.Errorf("%d, %v", v, r.Err())
	}
}

// TestAliases: bytes are parts of the message, and appending to one does not change the next.
func TestAliases(t *testing.T) {
	b := AppendBytes(AppendBytes(nil, 1, "key"), 5, "value")
	m, err := decode(b)
	if err != nil || &m.Key[0] != &b[2] {
		t.Fatalf("the key was copied, or %v", err)
	}
	if _ = append(m.Key, 'X'); string(m.Value) != "value" {
		t.Errorf("the value is %q after an append to the key", m.Value)
	}
	if n := testing.AllocsPerRun(100, func() {
		var text string
		r := Read(b)
		for r.Next() {
			r.Text(1, &text)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// FuzzRead searches for bytes that a reader accepts or rejects unlike the generated code, or reads
// differently.
func FuzzRead(f *testing.F) {
	for _, b := range [][]byte{{}, {0}, {0x0a, 1, 'k', 0x10, 3}, {0x12}, {0x0b, 0x0c},
		{0x0d, 1, 2, 3, 4}, {0x09}, {0x8a, 0, 1, 'k'},
		append(protowire.AppendTag(nil, protowire.MaxValidNumber+1, protowire.VarintType), 1),
		bytes.Join(encode(&mvccpb.KeyValue{Key: []byte("k"), Value: []byte("v"), Lease: -1}),
			nil)} {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		unknown := Read(b)
		for unknown.Next() {
		}
		same(t, b, unknown.Err(), proto.Unmarshal(b, &emptypb.Empty{}))
		got, err := decode(b)
		want := &mvccpb.KeyValue{}
		same(t, b, err, proto.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(b, want))
		if err == nil && !proto.Equal(got, want) {
			t.Errorf("%x: %v, want %v", b, got, want)
		}
	})
}

func same(t *testing.T, b []byte, got, want error) {
	t.Helper()
	// The generated code puts one of two kinds of space after the colon.
	if (got == nil) != (want == nil) ||
		want != nil && strings.ReplaceAll(want.Error(), "\u00a0", " ") != got.Error() {
		t.Errorf("%x: error %v, the generated code says %v", b, got, want)
	}
}
