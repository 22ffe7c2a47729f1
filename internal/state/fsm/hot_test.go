package fsm

import (
	"fmt"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"vigil/internal/allocs"
)

func hot(t testing.TB) map[string]func() {
	box := newBox(t)
	var reqs []*Request
	for i := range 100 {
		reqs = append(reqs, put(fmt.Sprintf("key-%08d", i), string(make([]byte, 256))))
	}
	data := group(t, GroupHeader{}, reqs...)
	return map[string]func(){
		"apply 100 puts": func() {
			box.entry(raftpb.EntryNormal, data, true)
			box.commit()
		},
	}
}

func BenchmarkHot(b *testing.B) { allocs.Benchmark(b, hot(b)) }

//vigil:norace
func TestAllocations(t *testing.T) { allocs.Test(t, "fsm", hot(t)) }
