package watch

import (
	"testing"

	"vigil/internal/allocs"
)

func hot(t testing.TB) map[string]func() {
	h := New(&quietSource{}, Options{StreamBytes: 1 << 30, MemberBytes: 1 << 40, PendingAnswers: 1 << 30})
	t.Cleanup(h.Close)
	streams := make([]*Stream, 100)
	for i := range streams {
		streams[i] = h.NewStream(StreamInfo{})
		for range 10 {
			streams[i].Create(CreateRequest{Key: []byte("/registry/pods/default/hot")})
		}
	}
	var batch []Response
	take := func() (n int) {
		for _, s := range streams {
			for more := true; more; {
				var err error
				if batch, err = s.Take(batch[:0], 64<<10); err != nil {
					t.Fatal(err)
				}
				more = len(batch) > 0
				for i := range batch {
					n += 1 + len(batch[i].Also)
				}
			}
		}
		return n
	}
	if n := take(); n != 1000 {
		t.Fatalf("%d watchers were created", n)
	}
	d := deliverer{hub: h}
	events := benchEvent(0, "/registry/pods/default/hot")
	rev := int64(1)
	return map[string]func(){
		"event for 1,000 watchers": func() {
			rev++
			events[0].Rev.Main = rev
			h.distribute(&d, entry{last: rev, events: events})
			if n := take(); n != 1000 {
				t.Fatalf("%d responses", n)
			}
		},
	}
}

func BenchmarkHot(b *testing.B) { allocs.Benchmark(b, hot(b)) }

//vigil:norace
func TestAllocations(t *testing.T) { allocs.Test(t, "watch", hot(t)) }
