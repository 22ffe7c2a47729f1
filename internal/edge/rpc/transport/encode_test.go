package transport

import (
	"bytes"
	"log/slog"
	"math/rand/v2"
	"slices"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/mem"

	"vigil/internal/edge/rpc/wire"
	"vigil/internal/kv"
)

type noCounter struct{}

func (noCounter) Add(float64) {}

// TestEncodedMemory: the buffers of an answer are not much larger than the answer.
func TestEncodedMemory(t *testing.T) {
	c := NewCodec(slog.New(slog.DiscardHandler), new(noCounter), new(noCounter))
	for size := 1 << 10; size < 4<<20; size += size/4 + 1 {
		records := kv.Records{Buf: make([]byte, size)}
		records.Close()
		for _, m := range []any{
			&wire.RangeResponse{Result: &kv.RangeResult{KVs: records}},
			&wire.PutResponse{Result: &kv.PutResult{PrevKV: records.Buf}},
			&etcdserverpb.LeaseTimeToLiveResponse{Keys: [][]byte{records.Buf}},
		} {
			for range 2 { // the second one may get the buffer of the first, or of a larger one
				data, err := c.Marshal(m)
				if err != nil {
					t.Fatal(err)
				}
				held := 0
				for _, b := range data {
					held += cap(b.ReadOnlyData())
				}
				if data.Len() < size || held > 2*data.Len()+2<<10 {
					t.Errorf("%T of %d bytes is in buffers of %d", m, data.Len(), held)
				}
				data.Free()
			}
		}
	}
}

// TestBufferPool: a buffer has the length that is asked for and at most twice the room, and one
// that has grown is not kept.
func TestBufferPool(t *testing.T) {
	var p bufferPool
	for _, n := range []int{0, 1, 2047, 2048, 2049, 5000, 65535, 65536, 65537, 1 << 20} {
		b := p.Get(n)
		if most := max(2*n, 1<<leastPooledBits); len(*b) != n || cap(*b) > most {
			t.Errorf("%d bytes with room for %d, want %d and at most %d", len(*b), cap(*b), n, most)
		}
		*b = append((*b)[:0], make([]byte, n)...)
		p.Put(b)
	}
	for _, n := range []int{3000, 5000} {
		p.Put(new(make([]byte, n)))
		if b := p.Get(n); cap(*b) == n {
			t.Errorf("a buffer of %d bytes was kept", n)
		}
	}
	p.Put(new([]byte))
}

// someResponses returns responses for several watchers, some of them with large events.
func someResponses(r *rand.Rand) (list []wire.WatchResponse) {
	for range 1 + r.IntN(5) {
		events := make([][]byte, r.IntN(3))
		for i := range events {
			events[i] = make([]byte, r.IntN(300))
			if r.IntN(20) == 0 {
				events[i] = make([]byte, shareFrom+r.IntN(100))
			}
		}
		for range 1 + r.IntN(20) {
			m := wire.WatchResponse{Header: kv.Header{ClusterID: 1, MemberID: 2,
				Revision: int64(r.IntN(2)) * 1000, Term: 3},
				WatchID: r.Int64N(1<<r.IntN(63)) - 1, Created: r.IntN(50) == 0, Events: events}
			for range r.IntN(20) {
				m.Also = append(m.Also, r.Int64N(1<<r.IntN(63))-1)
			}
			list = append(list, m)
		}
	}
	return list
}

// framed returns the responses as single messages with their heads, and the number of these.
func framed(list []wire.WatchResponse) (b []byte, messages int) {
	for _, m := range list {
		for i := range m.Count() {
			one := m.One(i)
			b = one.AppendTo(appendMessageHead(b, one.Size()))
			messages++
		}
	}
	return b, messages
}

// TestFrameWatch: responses for several watchers have the same bytes as one for each of them.
func TestFrameWatch(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		list := someResponses(r)
		want, messages := framed(list)
		out, n, err := frameWatch(list)
		if err != nil {
			t.Fatal(err)
		}
		if got := out.Materialize(); !bytes.Equal(got, want) ||
			n != len(want)-messageHead*messages {
			t.Fatalf("%d responses have %d bytes and a sum of %d, want %d, or other ones",
				len(list), len(got), n, len(want))
		}
		out.Free()
	}
}

// TestWatchEncoder: streams that get the same responses are sent the same bytes, which are freed
// when all have sent them.
func TestWatchEncoder(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	var lists [][]wire.WatchResponse
	for range 20 {
		var list []wire.WatchResponse
		for range 1 + r.IntN(3) {
			m := wire.WatchResponse{Header: kv.Header{Revision: r.Int64N(3)}, WatchID: r.Int64N(3),
				Events: [][]byte{make([]byte, 10+r.IntN(3000))}}
			for range r.IntN(20) {
				m.Also = append(m.Also, r.Int64N(1000))
			}
			list = append(list, m)
		}
		lists = append(lists, list)
	}
	// Responses that differ in one field from others with the same events.
	for _, list := range lists[:10] {
		other := slices.Clone(list)
		switch m := &other[0]; r.IntN(4) {
		case 0:
			m.WatchID++
		case 1:
			m.Also = append(slices.Clone(m.Also), 7)
		case 2:
			m.Header.Revision++
		case 3:
			m.Fragment = true
		}
		lists = append(lists, other)
	}
	lists = append(lists, []wire.WatchResponse{{WatchID: 1, Created: true}})
	var e WatchEncoder
	var sent []mem.BufferSlice
	var want [][]byte
	shared := 0
	for range 2000 {
		list := lists[r.IntN(len(lists))]
		fresh, n, err := frameWatch(list)
		if err != nil {
			t.Fatal(err)
		}
		for range 1 + r.IntN(4) {
			data, bytes, err := e.frameResponses(list)
			if err != nil || bytes != n {
				t.Fatalf("%d bytes, want %d: %v", bytes, n, err)
			}
			if len(sent) > 0 && &sent[len(sent)-1][0].ReadOnlyData()[0] == &data[0].ReadOnlyData()[0] {
				shared++
			}
			sent, want = append(sent, data), append(want, fresh.Materialize())
		}
		fresh.Free()
		for len(sent) > 3 { // in any order
			i := r.IntN(len(sent))
			if got := sent[i].Materialize(); !bytes.Equal(got, want[i]) {
				t.Fatalf("%d bytes were sent that are not those of the responses", len(got))
			}
			sent[i].Free()
			sent, want = slices.Delete(sent, i, i+1), slices.Delete(want, i, i+1)
		}
	}
	if shared < 1000 {
		t.Errorf("%d streams were sent the bytes of others", shared)
	}
}
