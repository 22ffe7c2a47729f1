package diff

import (
	"strings"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding/gzip"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// field encodes one length-delimited field.
func field(n protowire.Number, b []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, n, protowire.BytesType), b)
}

func number(n protowire.Number, v uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(nil, n, protowire.VarintType), v)
}

func join(parts ...[]byte) []byte {
	var out []byte
	for _, p := range parts {
		out = append(out, p...)
	}
	return out
}

// wire sends encodings that no generated code makes.
func wire(t *testing.T, p *Pair) {
	raw := func(method string, b []byte) {
		p.Call(Call{Method: "etcdserverpb." + method, Raw: b})
	}
	kv := []string{"KV/Range", "KV/Put", "KV/DeleteRange", "KV/Txn", "KV/Compact"}
	all := append([]string{"Maintenance/Status", "Cluster/MemberList"}, kv...)
	for _, m := range all {
		raw(m, nil)
		// field number 0
		raw(m, []byte{0x00})
		// an unknown wire type
		raw(m, []byte{0x07})
		// a tag without a value
		raw(m, []byte{0x0a})
		// a string cut short
		raw(m, []byte{0x0a, 0x05, 'a'})
		// a length beyond the message
		raw(m, []byte{0x0a, 0xff, 0xff, 0xff, 0x7f})
		// a negative length
		raw(m, []byte{0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01})
		// a varint of 11 bytes
		raw(m, []byte{0x18, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01})
		// a tag beyond 32 bits
		raw(m, []byte{0xf8, 0xff, 0xff, 0xff, 0xff, 0x7f, 0x01})
		// the end of a group that never began
		raw(m, []byte{0x0c})
		// a group where bytes are meant
		raw(m, []byte{0x0b, 0x0c})
		// a group that never ends
		raw(m, []byte{0x0b})
		raw(m, []byte(strings.Repeat("\xff", 100)))
	}
	key := field(1, []byte("x/a"))
	unknown := [][]byte{
		field(1000, []byte("unknown")), number(500, 7),
		protowire.AppendFixed32(protowire.AppendTag(nil, 99, protowire.Fixed32Type), 1),
		protowire.AppendFixed64(protowire.AppendTag(nil, 98, protowire.Fixed64Type), 1),
		join(protowire.AppendTag(nil, 97, protowire.StartGroupType), number(1, 1),
			protowire.AppendTag(nil, 97, protowire.EndGroupType)),
		// A known number with another wire type counts as unknown.
		number(1, 5), field(3, []byte("x")), field(4, []byte("x")), field(7, nil),
		protowire.AppendFixed32(protowire.AppendTag(nil, 1, protowire.Fixed32Type), 1),
		protowire.AppendFixed64(protowire.AppendTag(nil, 3, protowire.Fixed64Type), 1),
	}
	for _, u := range unknown {
		for _, m := range []string{"KV/Put", "KV/Range", "KV/DeleteRange"} {
			raw(m, join(key, u))
			raw(m, join(u, key))
		}
		raw("KV/Compact", u)
		raw("KV/Txn", u)
		raw("KV/Txn", field(2, field(2, join(field(1, []byte("x/u")), u))))
		raw("KV/Txn", field(2, join(u, field(1, key))))
		raw("KV/Txn", field(1, join(field(3, []byte("x/u")), u)))
		raw("Maintenance/Status", u)
		raw("Cluster/MemberList", u)
	}
	// A scalar that comes twice: the last one counts. Numbers are cut to the field's width.
	raw("KV/Put", join(field(1, []byte("x/first")), field(2, []byte("1")),
		field(1, []byte("x/last")), field(2, []byte("2"))))
	raw("KV/Put", join(key, field(2, []byte("1")), field(2, nil)))
	raw("KV/Put", join(key, field(1, nil)))
	raw("KV/Range", join(key, number(7, 0), number(8, 2), number(9, 1<<40)))
	raw("KV/Range", join(key, number(8, 1<<63)))
	raw("KV/Range", join(key, number(5, 1<<32|1)))
	raw("KV/Range", join(key, number(5, 1<<63)))
	raw("KV/Range", join(key, number(3, 1<<63), number(4, ^uint64(0))))
	raw("KV/Range", join(key, number(4, 1), number(4, 0)))
	raw("KV/Range", join([]byte{0x8a, 0x80, 0x80, 0x00, 0x03}, []byte("x/a"))) // an overlong tag
	raw("KV/Range", join([]byte{0x0a, 0x83, 0x80, 0x00}, []byte("x/a")))       // an overlong length
	raw("KV/Range", join(key,
		[]byte{0x18, 0x81, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x00}))
	raw("KV/Range", join(key,
		[]byte{0x18, 0x81, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x02}))
	// Messages that come twice are merged; of a union the last one counts.
	opPut := func(k, v string) []byte {
		return field(2,
			join(field(1, []byte(k)), field(2, []byte(v))))
	}
	opGet := field(1, key)
	for _, o := range [][]byte{
		nil, opGet, opPut("x/a", "1"),
		join(opGet, opPut("x/a", "2")), join(opPut("x/a", "3"), opGet),
		join(opPut("x/a", "3"), opPut("", "4")),
		join(opPut("x/a", "5"), field(2, field(1, []byte("x/b")))),
		join(opPut("x/a", "5"), field(2, nil)),
		field(1, nil), field(2, nil), field(3, nil), field(4, nil), field(5, nil),
		join(field(4, field(2, opPut("x/c", "1"))), field(4, field(2, opPut("x/d", "1")))),
		join(field(4, field(3, opPut("x/c", "1"))), field(4, field(2, opPut("x/d", "1")))),
		join(opGet, opPut("x/a", "2"), opGet), []byte{0x0a}, []byte{0x0a, 0x7f, 1},
		field(4, []byte{0x0a, 0x7f}),
		field(4, field(4, field(4, []byte{0xff}))),
		field(2, []byte{0x0a, 0x03, 'x'}),
	} {
		raw("KV/Txn", field(2, o))
		raw("KV/Txn", join(field(2, o), field(2, opPut("x/other", "1"))))
		raw("KV/Txn", join(field(1, field(3, []byte("x/no"))),
			field(1, join(number(1, 1), field(3, []byte("x/no")))), field(3, o)))
	}
	compare := func(parts ...[]byte) {
		raw("KV/Txn",
			join(field(1, join(parts...)), field(2, opGet)))
	}
	// two members of the union: the last one counts
	compare(field(3, []byte("x/a")), number(4, 1), number(5, 1))
	compare(number(2, 1), field(3, []byte("x/a")), number(5, 0), number(4, 1))
	compare(number(2, 3), field(3, []byte("x/a")), field(7, []byte("9")), field(7, []byte("1")))
	compare(number(2, 3), field(3, []byte("x/a")), field(7, []byte("9")), number(4, 1))
	compare(number(1, 1<<32), number(2, 1<<33|2), field(3, []byte("x/a")))
	compare(number(2, 4), number(8, 0), field(3, []byte("x/a")))
	compare(number(2, 4), number(8, ^uint64(0)), field(3, []byte("x/a")), field(64, []byte("y")))
	compare(field(3, []byte("x/a")), number(64, 1))

	// Every prefix of a rich request, and every byte of it flipped.
	rich := []proto.Message{
		with(scan("x/", "x0"), func(r *pb.RangeRequest) {
			r.Limit, r.SortOrder, r.SortTarget, r.KeysOnly, r.MinModRevision,
				r.MaxCreateRevision = 300, 2, 3, true, 1, 1<<40
		}),
		&pb.PutRequest{Key: []byte("x/rich"), Value: []byte("value"), PrevKv: true},
		with(del("x/rich", "x/s"), func(r *pb.DeleteRangeRequest) { r.PrevKv = true }),
		&pb.TxnRequest{Compare: []*pb.Compare{cmpMod("x/rich", pb.Compare_LESS, 200)},
			Success: ops(put("x/rich", "v"), get("x/a"), then(del("x/q", ""))),
			Failure: ops(get("x/a"))},
	}
	for _, req := range rich {
		b, err := proto.Marshal(req)
		if err != nil {
			t.Fatal(err)
		}
		m := strings.TrimPrefix(NewCall(req).Method, "etcdserverpb.")
		for n := range b {
			raw(m, b[:n])
			for _, bit := range []byte{1, 0x80} {
				c := append([]byte{}, b...)
				c[n] ^= bit
				raw(m, c)
			}
		}
	}
	p.Do(del("x/", "x0"))
}

// transport is about methods, metadata and codecs.
func transport(_ *testing.T, p *Pair) {
	for _, m := range []string{"etcdserverpb.KV/Nope", "etcdserverpb.Nope/Range",
		"nope/nope", "/", "",
		"etcdserverpb.KV", "etcdserverpb.KV/", "KV/Range", "etcdserverpb.KV/range",
		"etcdserverpb.KV/Range/x"} {
		p.Call(Call{Method: m, Raw: []byte{}})
	}
	for _, md := range [][]string{
		{"hasleader", "true"}, {"hasleader", "false"}, {"hasleader", ""},
		{"hasleader", "true", "hasleader", "true"},
		{"token", "nonsense"}, {"authorization", "nonsense"}, {"token", ""},
		{"authorization", "Bearer x"},
		{"client-api-version", "3.7"}, {"client-api-version", "nonsense"}, {"x-unknown", "1"},
		{"x-bin", "\x00\xff"},
	} {
		for _, req := range []proto.Message{get("m/a"), put("m/a", "1"), then(get("m/a")),
			del("m/a", ""),
			&pb.StatusRequest{}, &pb.MemberListRequest{}, &pb.CompactionRequest{Revision: -1}} {
			c := NewCall(req)
			c.Metadata = md
			p.Call(c)
		}
	}
	c := NewCall(get("m/a"))
	c.Options = []grpc.CallOption{grpc.UseCompressor(gzip.Name)}
	p.Call(c)
	c = NewCall(get("m/a"))
	c.Options = []grpc.CallOption{grpc.CallContentSubtype("nonsense")}
	p.Call(c)
	p.Do(&healthpb.HealthCheckRequest{})
	p.Do(&healthpb.HealthCheckRequest{Service: "etcdserverpb.KV"})
	p.Do(&healthpb.HealthCheckRequest{Service: "nonsense"})
}
