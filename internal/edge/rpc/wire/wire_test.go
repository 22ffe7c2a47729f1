package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"vigil/client/pbfield"
	"vigil/internal/kv"
)

// kind is one request type: how the generated code and this package read it. got and want of the
// same bytes must be equal.
type kind struct {
	name string
	fill func(gen) proto.Message
	got  func([]byte) (any, error)
	want func([]byte) (any, error)
}

func unmarshal[M proto.Message, R any](m M, from func(M) R) func([]byte) (any, error) {
	return func(b []byte) (any, error) {
		if err := proto.Unmarshal(b, m); err != nil {
			return nil, err
		}
		return from(m), nil
	}
}

func kinds() []kind {
	return []kind{
		{"range", func(g gen) proto.Message { return g.rangeRequest() },
			func(b []byte) (any,
				error) {
				var m RangeRequest
				err := m.Decode(b)
				return m.RangeRequest, err
			},
			unmarshal(&etcdserverpb.RangeRequest{}, rangeFrom)},
		{"put", func(g gen) proto.Message { return g.putRequest() },
			func(b []byte) (any,
				error) {
				var m PutRequest
				err := m.Decode(b)
				return m.PutRequest, err
			},
			unmarshal(&etcdserverpb.PutRequest{}, putFrom)},
		{"delete", func(g gen) proto.Message { return g.deleteRequest() },
			func(b []byte) (any, error) {
				var m DeleteRangeRequest
				err := m.Decode(b)
				return m.DeleteRangeRequest, err
			},
			unmarshal(&etcdserverpb.DeleteRangeRequest{}, deleteFrom)},
		{"txn", func(g gen) proto.Message { return g.txnRequest(3) },
			func(b []byte) (any,
				error) {
				var m TxnRequest
				err := m.Decode(b)
				return m.TxnRequest, err
			},
			unmarshal(&etcdserverpb.TxnRequest{}, txnFrom)},
		{"compact", func(g gen) proto.Message {
			return &etcdserverpb.CompactionRequest{Revision: g.number(), Physical: g.flag()}
		},
			func(b []byte) (any, error) {
				var m CompactionRequest
				err := m.Decode(b)
				return m.CompactRequest, err
			},
			unmarshal(&etcdserverpb.CompactionRequest{},
				func(m *etcdserverpb.CompactionRequest) kv.CompactRequest {
					return kv.CompactRequest{Revision: m.Revision, Physical: m.Physical}
				})},
		{"watch", func(g gen) proto.Message { return g.watchRequest() },
			func(b []byte) (any, error) { var m WatchRequest; err := m.Decode(b); return m, err },
			unmarshal(&etcdserverpb.WatchRequest{}, watchFrom)},
		{"grant", func(g gen) proto.Message { return &etcdserverpb.LeaseGrantRequest{TTL: g.number(), ID: g.number()} },
			func(b []byte) (any, error) {
				var m LeaseGrantRequest
				err := m.Decode(b)
				return m.LeaseGrantRequest, err
			},
			unmarshal(&etcdserverpb.LeaseGrantRequest{},
				func(m *etcdserverpb.LeaseGrantRequest) kv.LeaseGrantRequest {
					return kv.LeaseGrantRequest{ID: m.ID, TTL: m.TTL}
				})},
		{"keep-alive", func(g gen) proto.Message { return &etcdserverpb.LeaseKeepAliveRequest{ID: g.number()} },
			func(b []byte) (any,
				error) {
				var m LeaseKeepAliveRequest
				err := m.Decode(b)
				return m.ID, err
			},
			unmarshal(&etcdserverpb.LeaseKeepAliveRequest{},
				(*etcdserverpb.LeaseKeepAliveRequest).GetID)},
	}
}

// agree holds the bytes against the generated code.
func (k *kind) agree(t *testing.T, b []byte) {
	t.Helper()
	want, wantErr := k.want(b)
	got, gotErr := k.got(bytes.Clone(b))
	if (wantErr == nil) != (gotErr == nil) {
		t.Fatalf("%s %x: decoded with error %v, the generated code says %v", k.name, b,
			gotErr, wantErr)
	}
	if wantErr != nil {
		// The generated code puts one of two kinds of space after the colon.
		if text := strings.ReplaceAll(wantErr.Error(), "\u00a0", " "); text != gotErr.Error() {
			t.Fatalf("%s %x: error %q, the generated code says %q", k.name, b, gotErr, text)
		}
		return
	}
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("%s %x:\n got %+v\nwant %+v", k.name, b, got, want)
	}
}

func TestDecodeRandom(t *testing.T) {
	for _, k := range kinds() {
		t.Run(k.name, func(t *testing.T) {
			for seed := range uint64(1000) {
				g := newGen(seed)
				b, err := proto.Marshal(k.fill(g))
				if err != nil {
					t.Fatal(err)
				}
				k.agree(t, b)
				// A message after another is merged into it.
				other, err := proto.Marshal(k.fill(g))
				if err != nil {
					t.Fatal(err)
				}
				k.agree(t, append(b[:len(b):len(b)], other...))
				for range 8 {
					k.agree(t, g.mutate(b))
				}
				if t.Failed() {
					t.Logf("seed %d", seed)
				}
			}
		})
	}
}

// mutate returns a copy of b with one random change.
func (g gen) mutate(b []byte) []byte {
	b = bytes.Clone(b)
	at := g.IntN(len(b) + 1)
	switch g.IntN(5) {
	case 0:
		return b[:at]
	case 1:
		if at < len(b) {
			b[at] = byte(g.Uint32())
		}
		return b
	case 2:
		if at < len(b) {
			b[at] ^= 1 << g.IntN(8)
		}
		return b
	case 3:
		tag := protowire.AppendTag(nil, protowire.Number(1+g.IntN(70)), protowire.Type(g.IntN(8)))
		return append(b[:at:at], append(append(tag, g.bytes()...), b[at:]...)...)
	}
	return append(b[:at:at], append(g.bytes(), b[at:]...)...)
}

func TestDecodeByHand(t *testing.T) {
	tag := protowire.AppendTag
	group := func(depth int) []byte {
		var b []byte
		for range depth {
			b = tag(b, 99, protowire.StartGroupType)
		}
		for range depth {
			b = tag(b, 99, protowire.EndGroupType)
		}
		return b
	}
	cases := map[string][]byte{
		"nothing":            {},
		"field 0":            {0x00, 0x00},
		"field 0 in a group": {0x9b, 0x06, 0x00, 0x00, 0x9c, 0x06},
		"largest field":      tag(nil, protowire.MaxValidNumber, protowire.VarintType),
		"largest field, whole": append(tag(nil, protowire.MaxValidNumber,
			protowire.VarintType), 1),
		"field too large": append(protowire.AppendVarint(nil, 1<<32), 1),
		"field too large, group": append(append(tag(nil, 99, protowire.StartGroupType),
			append(protowire.AppendVarint(nil, 1<<32), 1)...),
			tag(nil, 99, protowire.EndGroupType)...),
		"field huge in group": append(append(tag(nil, 99, protowire.StartGroupType),
			append(protowire.AppendVarint(nil, 1<<35), 1)...),
			tag(nil, 99, protowire.EndGroupType)...),
		"end without start": tag(nil, 1, protowire.EndGroupType),
		"group":             group(1),
		"group of another end": append(tag(nil, 99, protowire.StartGroupType),
			tag(nil, 98, protowire.EndGroupType)...),
		"group without end": tag(nil, 99, protowire.StartGroupType),
		"key as a group": append(tag(nil, 1, protowire.StartGroupType),
			tag(nil, 1, protowire.EndGroupType)...),
		"deepest group":         group(pbfield.MaxDepth + 1),
		"group too deep":        group(pbfield.MaxDepth + 2),
		"length beyond the end": {0x0a, 0x05, 'a'},
		"huge length":           append([]byte{0x0a}, protowire.AppendVarint(nil, 1<<63)...),
		"varint of ten bytes": {0x18, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
			0xff, 0xff, 0x01},
		"varint too large": {0x18, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
			0xff, 0xff, 0x02},
		"varint of eleven bytes": {0x18, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80,
			0x80, 0x80, 0x00},
		"varint cut":          {0x18, 0x80},
		"long zero":           {0x18, 0x80, 0x80, 0x00},
		"tag of two bytes":    {0x8a, 0x00, 0x01, 'k'},
		"key as a number":     {0x08, 0x01},
		"key as fixed64":      {0x09, 1, 2, 3, 4, 5, 6, 7, 8},
		"key as fixed64, cut": {0x09, 1, 2, 3, 4, 5, 6, 7},
		"key as fixed32":      {0x0d, 1, 2, 3, 4},
		"key twice":           {0x0a, 0x01, 'a', 0x0a, 0x00},
		"reserved type":       {0x0e, 0x01},
		"bool of 2":           {0x20, 0x02, 0x28, 0x80, 0x80, 0x01},
		"enum beyond 32 bits": {0x28, 0x80, 0x80, 0x80, 0x80, 0x10, 0x30, 0xff, 0xff,
			0xff, 0xff, 0x1f},
		"packed filters":      {0x0a, 0x04, 0x2a, 0x02, 0x00, 0x01},
		"packed filters, cut": {0x0a, 0x04, 0x2a, 0x02, 0x00, 0x81},
		"create, cancel":      {0x0a, 0x03, 0x0a, 0x01, 'k', 0x12, 0x02, 0x08, 0x05},
		"cancel, create, create": {0x12, 0x02, 0x08, 0x05, 0x0a, 0x03, 0x0a, 0x01, 'k', 0x0a,
			0x02, 0x18, 0x07},
		"progress with content": {0x1a, 0x02, 0x08, 0x01},
		"progress with rubbish": {0x1a, 0x02, 0x08, 0x80},
		"op merged": {0x12, 0x0a, 0x12, 0x03, 0x0a, 0x01, 'k', 0x12, 0x03,
			0x12, 0x01, 'v'},
		"op replaced": {0x12, 0x0a, 0x12, 0x03, 0x0a, 0x01, 'k', 0x1a, 0x03,
			0x0a, 0x01, 'd'},
		"compare, other union": {0x0a, 0x06, 0x10, 0x02, 0x20, 0x05, 0x30, 0x07},
		"compare, union after": {0x0a, 0x08, 0x30, 0x07, 0x3a, 0x01, 'v', 0x10, 0x03, 0x00},
	}
	for name, b := range cases {
		t.Run(name, func(t *testing.T) {
			for _, k := range kinds() {
				k.agree(t, b)
			}
		})
	}
}

// nest returns a transaction inside levels-1 others, in an encoding that ends in leaf.
func nest(levels int, leaf []byte) []byte {
	sizes := []int{len(leaf)}
	for range levels - 1 {
		inner := sizes[len(sizes)-1]
		op := 1 + protowire.SizeBytes(inner)
		sizes = append(sizes, op, 1+protowire.SizeBytes(op))
	}
	var b []byte
	for i := len(sizes) - 2; i > 0; i -= 2 {
		b = protowire.AppendVarint(protowire.AppendTag(b, 2, protowire.BytesType), uint64(sizes[i]))
		b = protowire.AppendVarint(protowire.AppendTag(b, 4, protowire.BytesType),
			uint64(sizes[i-1]))
	}
	return append(b, leaf...)
}

func TestDecodeDepth(t *testing.T) {
	k := kinds()[3]
	compare := []byte{0x0a, 0x00}
	for _, levels := range []int{1, 2, 100, pbfield.MaxDepth / 2, pbfield.MaxDepth/2 + 1,
		pbfield.MaxDepth} {
		k.agree(t, nest(levels, nil))
		k.agree(t, nest(levels, compare))
	}
	var m TxnRequest
	if err := m.Decode(nest(pbfield.MaxDepth/2+1, nil)); !errors.Is(err, pbfield.ErrTooDeep) {
		t.Fatalf("decoded with %v", err)
	}
}

// TestDecodeAliases: no byte of a request is copied, and appending to a field does not reach its
// neighbour.
func TestDecodeAliases(t *testing.T) {
	b, err := proto.Marshal(&etcdserverpb.PutRequest{Key: []byte("key"), Value: []byte("value")})
	if err != nil {
		t.Fatal(err)
	}
	var m PutRequest
	if err := m.Decode(b); err != nil {
		t.Fatal(err)
	}
	if &m.Key[0] != &b[2] {
		t.Error("the key was copied")
	}
	_ = append(m.Key, 'X')
	if string(m.Value) != "value" {
		t.Errorf("value is %q after an append to the key", m.Value)
	}
	if n := testing.AllocsPerRun(100, func() {
		var m PutRequest
		if m.Decode(b) != nil {
			t.Fail()
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// encoded checks one encoding against the generated code: the same message, the same bytes.
func encoded(t *testing.T, seed uint64, m Encoder, want proto.Message) {
	t.Helper()
	b := m.AppendTo([]byte("before"))
	b, ok := bytes.CutPrefix(b, []byte("before"))
	if !ok || len(b) != m.Size() {
		t.Fatalf("seed %d: %d bytes were appended, size is %d", seed, len(b), m.Size())
	}
	if m, ok := m.(Long); ok {
		if list := m.Pieces(nil); list != nil {
			var all []byte
			for _, p := range list {
				all = append(all, *p.Data...)
			}
			if !bytes.Equal(all, b) {
				t.Fatalf("seed %d: the pieces are not the whole", seed)
			}
		}
	}
	back := want.ProtoReflect().New().Interface()
	if err := proto.Unmarshal(b, back); err != nil {
		t.Fatalf("seed %d: %v\n%x", seed, err, b)
	}
	if !proto.Equal(back, want) {
		t.Fatalf("seed %d:\n got %v\nwant %v", seed, back, want)
	}
	same, err := proto.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(b, same) {
		t.Fatalf("seed %d:\n got %x\nwant %x", seed, b, same)
	}
}

func TestEncodeRandom(t *testing.T) {
	for seed := range uint64(1000) {
		g := newGen(seed)
		h := g.header()
		r, p, d, x, w := g.rangeResult(), g.putResult(), g.deleteResult(), g.txnResult(3),
			g.watchResponse()
		encoded(t, seed, &RangeResponse{Header: h, Result: r}, rangePB(h, r))
		encoded(t, seed, &PutResponse{Header: h, Result: p}, putPB(h, p))
		encoded(t, seed, &DeleteRangeResponse{Header: h, Result: d}, deletePB(h, d))
		encoded(t, seed, &TxnResponse{Header: h, Result: x}, txnPB(h, x))
		encoded(t, seed, &CompactionResponse{Header: h},
			&etcdserverpb.CompactionResponse{Header: headerPB(h)})
		encoded(t, seed, &RangeStreamResponse{Header: h, Result: r, Last: true},
			&etcdserverpb.RangeStreamResponse{RangeResponse: rangePB(h, r)})
		encoded(t, seed, &RangeStreamResponse{Header: h, Result: r},
			&etcdserverpb.RangeStreamResponse{RangeResponse: &etcdserverpb.RangeResponse{Kvs: recordsPB(&r.KVs)}})
		encoded(t, seed, w, watchPB(w))

		whole := w.AppendTo(nil)
		for _, share := range []int{0, 1, 20, 1 << 20} {
			parts := w.Parts(nil, share)
			if !bytes.Equal(bytes.Join(parts, nil), whole) {
				t.Fatalf("seed %d: parts with share %d are not the whole", seed, share)
			}
			for _, part := range parts {
				if len(part) == 0 {
					t.Fatalf("seed %d: an empty part with share %d", seed, share)
				}
			}
		}
	}
}

func TestRecordKey(t *testing.T) {
	for seed := range uint64(200) {
		g := newGen(seed)
		b := g.record()
		if got := RecordKey(b); !bytes.Equal(got, recordPB(b).Key) {
			t.Fatalf("seed %d: key %x of %x", seed, got, b)
		}
		RecordKey(g.mutate(b)) // must not panic
	}
}

func TestPartsShareEvents(t *testing.T) {
	ev := []byte("an event that is shared")
	w := &WatchResponse{WatchID: 1, Events: [][]byte{ev, []byte("small"), ev}}
	parts := w.Parts(nil, len(ev))
	shared := 0
	for _, p := range parts {
		if &p[0] == &ev[0] {
			shared++
		}
	}
	if shared != 2 || len(parts) != 4 {
		t.Fatalf("%d parts, %d of them shared", len(parts), shared)
	}
	if n := testing.AllocsPerRun(100, func() { parts = w.Parts(parts[:0], len(ev)) }); n > 1 {
		t.Errorf("%v allocations", n)
	}
}

func fuzz(f *testing.F, which int) {
	k := kinds()[which]
	for seed := range uint64(50) {
		b, err := proto.Marshal(k.fill(newGen(seed)))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) { k.agree(t, b) })
}

func FuzzDecodeRange(f *testing.F)   { fuzz(f, 0) }
func FuzzDecodePut(f *testing.F)     { fuzz(f, 1) }
func FuzzDecodeDelete(f *testing.F)  { fuzz(f, 2) }
func FuzzDecodeTxn(f *testing.F)     { fuzz(f, 3) }
func FuzzDecodeCompact(f *testing.F) { fuzz(f, 4) }
func FuzzDecodeWatch(f *testing.F)   { fuzz(f, 5) }
func FuzzDecodeGrant(f *testing.F)   { fuzz(f, 6) }
func FuzzDecodeRenew(f *testing.F)   { fuzz(f, 7) }

// TestDecodeStopsAtTheLimit: a level with too many compares or operations takes no more memory than
// one that is just too long, and is still refused for what it is.
func TestDecodeStopsAtTheLimit(t *testing.T) {
	const most = 128
	for field, list := range map[byte]func(*kv.TxnRequest) int{
		1: func(r *kv.TxnRequest) int { return len(r.Compare) },
		2: func(r *kv.TxnRequest) int { return len(r.Success) },
		3: func(r *kv.TxnRequest) int { return len(r.Failure) },
	} {
		level := bytes.Repeat([]byte{field<<3 | byte(protowire.BytesType), 0}, 1<<20)
		nested := append(binary.AppendUvarint([]byte{4<<3 | byte(protowire.BytesType)},
			uint64(len(level))), level...)
		outer := binary.AppendUvarint([]byte{2<<3 | byte(protowire.BytesType)}, uint64(len(nested)))
		for depth, b := range [][]byte{level, append(outer, nested...)} {
			var m TxnRequest
			m.LimitOps(most)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			if err := m.Decode(b); err != nil {
				t.Fatal(err)
			}
			runtime.ReadMemStats(&after)
			r := &m.TxnRequest
			if depth > 0 {
				r = r.Success[0].Txn
			}
			if n := list(r); n != most+1 {
				t.Errorf("field %d, depth %d: %d elements decoded, want %d", field,
					depth, n, most+1)
			}
			if n := after.TotalAlloc - before.TotalAlloc; n > 1<<20 {
				t.Errorf("field %d, depth %d: %d bytes of memory for %d", field, depth, n, len(b))
			}
		}
	}
}
