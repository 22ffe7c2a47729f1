package watch

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"vigil/internal/kv"
)

// tallier counts responses and reports when there are enough.
type tallier struct {
	count, want atomic.Int64
	reached     chan struct{}
}

func newTallier() *tallier { return &tallier{reached: make(chan struct{}, 1)} }

func (c *tallier) add(n int) {
	if now, want := c.count.Add(int64(n)), c.want.Load(); now >= want && now-int64(n) < want {
		c.reached <- struct{}{}
	}
}

// expect sets the count to wait for, which must be above the possible current count.
func (c *tallier) expect(n int) { c.want.Add(int64(n)) }

func (c *tallier) await() { <-c.reached }

// cpu returns the processor time that this process has used.
func cpu(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// drain reads a stream as fast as it can and counts the responses.
func drain(s *Stream, count *tallier, wg *sync.WaitGroup) {
	wg.Go(func() {
		var rs []Response
		var err error
		for {
			rs, err = s.Next(context.Background(), rs[:0])
			if err != nil {
				return
			}
			count.add(len(rs))
			clear(rs)
		}
	})
}

// benchEvent is a put of 256 bytes as apply publishes it.
func benchEvent(rev int64, key string) []kv.Event {
	b := make([]byte, 0, 320)
	b = append(b, 0x0a, byte(len(key)))
	b = append(b, key...)
	b = b[:len(b)+280]
	return []kv.Event{{Rev: kv.Rev{Main: rev}, Key: b[2 : 2+len(key)], KV: b}}
}

// quietSource is a Source that is never behind.
type quietSource struct{ memSource }

func (*quietSource) CompactRevision() int64 { return 0 }

// BenchmarkDeliver measures one event from Publish until every sender has taken its responses.
// ns/op is per event, cpu-ns/delivery the processor time of the process per response.
func BenchmarkDeliver(b *testing.B) {
	for _, c := range []struct{ watchers, streams, others int }{
		{1, 1, 0}, {1, 1, 100_000}, {100, 1, 0}, {1_000, 100, 0}, {1_000, 100, 100_000}, {10_000, 100, 0},
	} {
		b.Run(fmt.Sprintf("watchers=%d/streams=%d/others=%d", c.watchers, c.streams, c.others), func(b *testing.B) {
			src := &quietSource{}
			h := New(src, Options{StreamBytes: 1 << 30, MemberBytes: 64 << 30, RingBytes: 1 << 30})
			count := newTallier()
			var wg sync.WaitGroup
			var streams []*Stream
			for range c.streams {
				s := h.NewStream(StreamInfo{})
				streams = append(streams, s)
				drain(s, count, &wg)
			}
			count.expect(c.watchers + c.others)
			for i := range c.watchers {
				streams[i%c.streams].Create(CreateRequest{Key: []byte("/registry/pods/default/hot")})
			}
			for i := range c.others {
				key := fmt.Appendf(nil, "/registry/pods/default/%06d", i)
				r := CreateRequest{Key: key}
				if i%2 == 0 {
					r.End = fmt.Appendf(nil, "/registry/pods/default/%06d", i+100)
				}
				streams[i%c.streams].Create(r)
			}
			count.await()
			b.ReportAllocs()
			b.ResetTimer()
			before := cpu(b)
			for i := range b.N {
				rev := int64(i) + 2
				count.expect(c.watchers)
				h.Publish(rev, benchEvent(rev, "/registry/pods/default/hot"))
				count.await()
			}
			b.StopTimer()
			b.ReportMetric(float64((cpu(b)-before).Nanoseconds())/float64(b.N)/float64(c.watchers), "cpu-ns/delivery")
			h.Close()
			wg.Wait()
		})
	}
}

// BenchmarkMatch measures the matcher's work for an event, without senders.
func BenchmarkMatch(b *testing.B) {
	for _, c := range []struct{ watchers, streams, others int }{
		{1, 1, 0}, {1, 1, 100_000}, {1_000, 100, 0}, {1_000, 100, 100_000}, {10_000, 100, 0},
	} {
		b.Run(fmt.Sprintf("watchers=%d/streams=%d/others=%d", c.watchers, c.streams, c.others), func(b *testing.B) {
			h := New(&quietSource{}, Options{StreamBytes: 1 << 50, MemberBytes: 1 << 60, PendingAnswers: 1 << 30})
			var streams []*Stream
			for range c.streams {
				streams = append(streams, h.NewStream(StreamInfo{}))
			}
			for i := range c.watchers {
				streams[i%c.streams].Create(CreateRequest{Key: []byte("/registry/pods/default/hot")})
			}
			for i := range c.others {
				r := CreateRequest{Key: fmt.Appendf(nil, "/registry/pods/default/%06d", i)}
				if i%2 == 0 {
					r.End = fmt.Appendf(nil, "/registry/pods/default/%06d", i+100)
				}
				streams[i%c.streams].Create(r)
			}
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			rs := make([][]Response, c.streams)
			take := func() {
				for k, s := range streams {
					for err := error(nil); err == nil; {
						rs[k], err = s.Next(ctx, rs[k][:0])
					}
				}
			}
			take()
			d := deliverer{hub: h}
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				rev := int64(i) + 2
				h.distribute(&d, entry{last: rev, events: benchEvent(rev, "/registry/pods/default/hot")})
				if i%64 == 63 {
					b.StopTimer()
					take()
					b.StartTimer()
				}
			}
			b.StopTimer()
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(c.watchers), "ns/delivery")
			h.Close()
		})
	}
}

// BenchmarkPublish measures the cost for apply, without watchers and with very many.
func BenchmarkPublish(b *testing.B) {
	for _, watchers := range []int{0, 10_000} {
		b.Run(fmt.Sprintf("watchers=%d", watchers), func(b *testing.B) {
			e := benchEvent(0, "/registry/pods/default/hot")
			h := New(&rangeSource{last: 1, kv: e[0].KV, key: e[0].Key}, Options{PendingAnswers: 1 << 30})
			s := h.NewStream(StreamInfo{})
			for range watchers {
				s.Create(CreateRequest{Key: []byte("other"), StartRev: 1 << 60})
			}
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				e[0].Rev.Main = int64(i) + 2
				h.Publish(int64(i)+2, e)
			}
			b.StopTimer()
			h.Close()
		})
	}
}

// rangeSource serves a long history of one key from memory.
type rangeSource struct {
	quietSource
	last int64
	kv   []byte
	key  []byte
}

func (s *rangeSource) Revision() int64 { return s.last }

func (s *rangeSource) EventsIn(_ *kv.EventBuffer, from, to int64, maxBytes int) ([]kv.Event, int64, error) {
	n := min(int64(maxBytes/len(s.kv)+1), to+1-from)
	events := make([]kv.Event, n)
	buf := make([]byte, int(n)*len(s.kv))
	for i := range events {
		b := buf[i*len(s.kv) : (i+1)*len(s.kv)]
		copy(b, s.kv)
		events[i] = kv.Event{Rev: kv.Rev{Main: from + int64(i)}, Key: b[2 : 2+len(s.key)], KV: b}
	}
	return events, from + n, nil
}

// BenchmarkCatchUp measures how fast watchers far behind get a history of 256-byte puts.
func BenchmarkCatchUp(b *testing.B) {
	for _, c := range []struct{ watchers, streams int }{{1, 1}, {20, 20}, {100, 1}} {
		b.Run(fmt.Sprintf("watchers=%d/streams=%d", c.watchers, c.streams), func(b *testing.B) {
			const revs = 200_000
			e := benchEvent(0, "/registry/pods/default/hot")[0]
			src := &rangeSource{last: revs, kv: e.KV, key: e.Key}
			h := New(src, Options{})
			b.ResetTimer()
			for range b.N {
				var events atomic.Int64
				var wg sync.WaitGroup
				for k := range c.streams {
					s := h.NewStream(StreamInfo{})
					for i := k; i < c.watchers; i += c.streams {
						s.Create(CreateRequest{Key: e.Key, StartRev: 1})
					}
					wg.Go(func() {
						defer s.Close()
						want := revs * c.watchers / c.streams
						var rs []Response
						for n := 0; n < want; {
							rs, _ = s.Next(context.Background(), rs[:0])
							for _, r := range rs {
								n += len(r.Events)
							}
						}
						events.Add(int64(want))
					})
				}
				wg.Wait()
				b.SetBytes(events.Load() * int64(len(e.KV)))
			}
			b.StopTimer()
			h.Close()
		})
	}
}

// TestMemoryOfIdleWatchers logs what an idle watcher and an idle stream cost.
func TestMemoryOfIdleWatchers(t *testing.T) {
	heap := func() int64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	h := New(&quietSource{}, Options{})
	defer h.Close()
	const streams, watchers = 1_000, 50_000
	before := heap()
	all := make([]*Stream, streams)
	for i := range all {
		all[i] = h.NewStream(StreamInfo{Client: "127.0.0.1:1234"})
	}
	opened := heap()
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	for i := range watchers {
		all[i%streams].Create(CreateRequest{Key: fmt.Appendf(nil, "/registry/pods/default/%06d", i)})
	}
	var rs []Response
	for _, s := range all {
		rs, _ = s.Next(ctx, rs[:0])
	}
	created := heap()
	perStream, perWatcher := (opened-before)/streams, (created-opened)/watchers
	t.Logf("%d bytes an idle stream, %d bytes an idle watcher of a key of its own", perStream, perWatcher)
	if perStream > 2_000 || perWatcher > 700 {
		t.Error("that is more than it was")
	}
	runtime.KeepAlive(all)
}
