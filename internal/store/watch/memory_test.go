package watch

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"vigil/internal/kv"
)

// drawnSource is a Source that draws its history and keeps nothing.
type drawnSource struct {
	seed  uint64
	rev   int64
	sizes []int // of the values of the keys
}

func (*drawnSource) CompactRevision() int64 { return 0 }
func (s *drawnSource) Revision() int64      { return s.rev }

// keyOf returns the name of the i-th key.
func keyOf(i int) string { return fmt.Sprintf("key%03d", i) }

// encodeKV returns an encoded mvccpb.KeyValue and its key in it.
func encodeKV(key string, rev int64, size int) (key_, encoded []byte) {
	b := make([]byte, 0, size+len(key)+32)
	b = append(append(b, 1<<3|2, byte(len(key))), key...)
	b = binary.AppendUvarint(append(b, 3<<3), uint64(rev))
	b = binary.AppendUvarint(append(b, 5<<3|2), uint64(size))
	b = b[:len(b)+size]
	return b[2 : 2+len(key)], b
}

// events draws the events of a revision: puts and deletions of different keys.
func (s *drawnSource) events(rev int64) []kv.Event {
	rng := rand.New(rand.NewPCG(s.seed, uint64(rev)))
	n := 1
	if rng.IntN(3) == 0 {
		n += rng.IntN(len(s.sizes))
	}
	var events []kv.Event
	for sub, i := range rng.Perm(len(s.sizes))[:n] {
		e := kv.Event{Rev: kv.Rev{Main: rev, Sub: int64(sub)}, Delete: rng.IntN(4) == 0, Create: rng.IntN(4) == 0}
		size := s.sizes[i]
		if e.Delete {
			size = 0
		}
		e.Create = e.Create && !e.Delete
		e.Key, e.KV = encodeKV(keyOf(i), rev, size)
		events = append(events, e)
	}
	return events
}

func (s *drawnSource) EventsIn(_ *kv.EventBuffer, from, to int64, maxBytes int) (all []kv.Event, next int64, err error) {
	bytes := 0
	for next = from; next <= to && bytes < maxBytes; next++ {
		for _, e := range s.events(next) {
			bytes += len(e.KV)
			all = append(all, e)
		}
	}
	return all, next, nil
}

func (s *drawnSource) Get(key []byte, rev int64) ([]byte, error) {
	var i int
	if _, err := fmt.Sscanf(string(key), "key%d", &i); err != nil {
		return nil, err
	}
	_, b := encodeKV(keyOf(i), rev, s.sizes[i])
	return b, nil
}

// heapSize returns the size of the live heap.
func heapSize() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestQueuesKeepWhatTheyCount: the queues of streams that are not read keep no more memory alive than about twice what they hold
// and are charged for, for random events, watchers and batches. Only then do the budgets bound the memory.
//
//vigil:norace
func TestQueuesKeepWhatTheyCount(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	for i := range uint64(6) {
		t.Run(fmt.Sprintf("seed=%d", seed+i), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { keepRun(t, seed+i) })
		})
	}
}

// queuedMemory returns how much memory the queues should need: what streams share counts once.
func queuedMemory(streams []*Stream) (n int64) {
	seen := map[*byte]bool{}
	arrays := map[*[]byte]bool{}
	for _, s := range streams {
		s.mu.Lock()
		for _, r := range s.mu.runs[s.mu.runHead:] {
			n += runSize + idSize*int64(r.len())
			if len(r.events) > 0 && !arrays[&r.events[0]] {
				arrays[&r.events[0]] = true
				n += sliceSize * int64(len(r.events))
			}
			for _, e := range r.events {
				if !seen[&e[0]] {
					seen[&e[0]] = true
					n += int64(len(e))
				}
			}
		}
		s.mu.Unlock()
	}
	return n
}

func keepRun(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 0))
	src := &drawnSource{seed: seed, rev: 1}
	for i := range 5 + rng.IntN(40) {
		size := rng.IntN(200)
		if i%5 == 0 {
			size = 1 << (10 + rng.IntN(9))
		}
		src.sizes = append(src.sizes, size)
	}
	// Some history for watchers that start in the past.
	src.rev = between(rng, 100, 500)
	h := New(src, Options{MemberBytes: 1 << 30, StreamBytes: between(rng, 50_000, 500_000), CatchUpReadRate: 1 << 50, CatchUpSendRate: 1 << 50})
	defer h.Close()
	// A part of the streams watch small keys only. With few targets the events of a batch have memory in common.
	targets := between(rng, 1, 10)
	streams := make([]*Stream, between(rng, 5, 200))
	for i := range streams {
		streams[i] = h.NewStream(StreamInfo{})
	}
	before := heapSize()
	for i, s := range streams {
		for range between(rng, 1, 4) {
			at := rng.IntN(int(targets)) * 7 % len(src.sizes)
			if i%2 == 0 && src.sizes[at] > 200 {
				at = 1
			}
			r := CreateRequest{Key: []byte(keyOf(at)), PrevKV: rng.IntN(3) == 0, NoPut: rng.IntN(4) == 0, NoDelete: rng.IntN(8) == 0, Fragment: rng.IntN(4) == 0}
			switch rng.IntN(8) {
			case 0:
				r.End = []byte{0}
			case 1:
				r.End = []byte(keyOf(at + 3))
			}
			if rng.IntN(2) == 0 {
				r.StartRev = between(rng, 1, src.rev)
			}
			s.Create(r)
		}
	}
	synctest.Wait()
	for range 200 {
		var events []kv.Event
		for range between(rng, 1, 20) { // revisions that are published together
			src.rev++
			events = append(events, src.events(src.rev)...)
		}
		h.Publish(src.rev, events)
		if rng.IntN(2) == 0 {
			synctest.Wait()
		}
	}
	time.Sleep(time.Minute) // of the bubble: the hub has finished
	synctest.Wait()
	for _, s := range streams { // some have a part of it taken
		if rng.IntN(3) == 0 {
			if _, err := s.Next(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
		}
	}
	synctest.Wait()
	var watchers int64
	for _, s := range h.Stats().Streams {
		watchers += int64(len(s.Watchers)) * (watcherSize + 6)
	}
	grown, charged, held := heapSize()-before, h.Metrics().QueuedBytes, queuedMemory(streams)
	t.Logf("the heap grew by %d kB: %d kB charged, %d kB without what streams share, %d kB of watchers: %.2f",
		grown>>10, charged>>10, held>>10, watchers>>10, float64(grown)/float64(held+watchers))
	if slack := int64(256 << 10); held > charged || grown > 2*(held+watchers)+slack {
		t.Errorf("the heap grew by %d bytes for %d bytes in queues, that are charged with %d, and %d bytes of watchers", grown, held, charged, watchers)
	}
	runtime.KeepAlive(streams)
}
