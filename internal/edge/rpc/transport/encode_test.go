package transport

import (
	"log/slog"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"

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

// TestBufferPool: a buffer has the length that is asked for and at most twice the room, and one that has grown is not kept.
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
