package peer

import (
	"hash"
	"hash/crc32"
	"io"
	"sync/atomic"
	"testing"

	"go.etcd.io/raft/v3/raftpb"
)

func newCRC() hash.Hash32 { return crc32.New(castagnoli) }

// counter counts what arrives.
type counter struct {
	sink
	n  atomic.Int64
	ch chan struct{}
}

func (c *counter) Step(msgs ...*raftpb.Message) {
	c.n.Add(int64(len(msgs)))
	select {
	case c.ch <- struct{}{}:
	default:
	}
}

func benchPair(b *testing.B) (from, to *member, c *counter) {
	b.Helper()
	t := &testing.T{}
	from, to = newMember(t, 1), newMember(t, 2)
	b.Cleanup(func() { from.Close(); to.Close() })
	c = &counter{ch: make(chan struct{}, 1)}
	to.recv.Raft = c
	to.recv.Bulk = bulkFunc(discard)
	know(1, from, to)
	from.start(t)
	to.start(t)
	up(t, from, to)
	return from, to, c
}

// BenchmarkRoundTrip is one message there, delivered, before the next is sent.
func BenchmarkRoundTrip(b *testing.B) {
	from, to, c := benchPair(b)
	for _, size := range []int{0, 1 << 10, 64 << 10, 1 << 20} {
		b.Run(sizeName(size), func(b *testing.B) {
			m := []*raftpb.Message{app(from.id, to.id, 1, size)}
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				before := c.n.Load()
				from.Send(m)
				for c.n.Load() == before {
					<-c.ch
				}
			}
		})
	}
}

// BenchmarkStream is messages as fast as they go.
func BenchmarkStream(b *testing.B) {
	from, to, c := benchPair(b)
	for _, size := range []int{0, 1 << 10, 64 << 10} {
		b.Run(sizeName(size), func(b *testing.B) {
			m := []*raftpb.Message{app(from.id, to.id, 1, size)}
			b.SetBytes(int64(size))
			b.ReportAllocs()
			start, sent := c.n.Load(), int64(0)
			for b.Loop() {
				for sent-(c.n.Load()-start) > 256 {
					<-c.ch
				}
				from.Send(m)
				sent++
			}
			for c.n.Load()-start < sent {
				<-c.ch
			}
		})
	}
}

// BenchmarkBulk is one transfer, by the byte.
func BenchmarkBulk(b *testing.B) {
	from, to, _ := benchPair(b)
	const size = 64 << 20
	b.SetBytes(size)
	for b.Loop() {
		if err := from.SendBulk(b.Context(), to.id, nil,
			io.LimitReader(endless{}, size)); err != nil {
			b.Fatal(err)
		}
	}
}

func sizeName(n int) string {
	switch {
	case n >= 1<<20:
		return "1MiB"
	case n >= 64<<10:
		return "64KiB"
	case n > 0:
		return "1KiB"
	}
	return "empty"
}
