package diff

import (
	"math/rand/v2"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// TestGatewayGenerated sends generated requests as JSON, in each of the forms that clients write,
// and with mistakes. VIGIL_DIFF_SEED repeats a run.
func TestGatewayGenerated(t *testing.T) {
	t.Parallel()
	s := seed(t)
	t.Logf("seed %d", s)
	p := NewPair(t)
	rnd := rand.New(rand.NewPCG(s, 6))
	g := narrow(s, 6, p.Rev)
	for range 500 {
		var path string
		req := g.next()
		switch req.(type) {
		case *pb.RangeRequest:
			path = "range"
		case *pb.PutRequest:
			path = "put"
		case *pb.DeleteRangeRequest:
			path = "deleterange"
		case *pb.TxnRequest:
			path = "txn"
		case *pb.CompactionRequest:
			path = "compaction"
		default:
			continue
		}
		p.HTTP(post("/v3/kv/"+path, spell(t, rnd, req)))
	}
	p.everything()
	p.Finish(t, &tally)
}

// spell writes a request as JSON in one of several ways; one in four has a mistake.
func spell(t *testing.T, rnd *rand.Rand, req proto.Message) string {
	flip := func() bool { return rnd.IntN(2) == 0 }
	form := protojson.MarshalOptions{UseProtoNames: flip(), UseEnumNumbers: flip(),
		EmitUnpopulated: flip(), Multiline: flip()}
	b, err := form.Marshal(req)
	if err != nil {
		t.Fatal(err)
	}
	if rnd.IntN(4) > 0 {
		return string(b)
	}
	const bytes = "{}[]\",:0159.-+eE \\/\nnulltrefasx\x00\x7f\x80\xff"
	for range 1 + rnd.IntN(2) {
		at := rnd.IntN(len(b))
		switch c := bytes[rnd.IntN(len(bytes))]; rnd.IntN(4) {
		case 0:
			b[at] = c
		case 1:
			b = append(b[:at], b[at+1:]...)
		case 2:
			b = append(b[:at], append([]byte{c}, b[at:]...)...)
		default:
			b = b[:at]
		}
		if len(b) == 0 {
			return " "
		}
	}
	return string(b)
}
