package client

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"

	"vigil/test/proc"
)

// BenchmarkLeases is 100,000 leases of 1,000 clients on 50 connections: how fast they are granted,
// and kept alive on one stream of each client. It reports the processor time of the server for one
// of each.
func BenchmarkLeases(b *testing.B) {
	const conns, clients, leases = 50, 1000, 100_000
	s := proc.Start(b, proc.Config{Memory: true})
	var dialed []*grpc.ClientConn
	for range conns {
		dialed = append(dialed, s.Dial())
	}
	each := func(do func(client int, c pb.LeaseClient) error) {
		var all sync.WaitGroup
		for i := range clients {
			all.Go(func() {
				if err := do(i, pb.NewLeaseClient(dialed[i%conns])); err != nil {
					b.Error(err)
				}
			})
		}
		all.Wait()
	}
	measure := func(name string, n int, do func()) {
		cpu, at := processorTime(b, s.Pid()), time.Now()
		do()
		took := time.Since(at)
		b.ReportMetric(float64(n)/took.Seconds(), name+"/s")
		b.ReportMetric(float64((processorTime(b, s.Pid())-cpu).Microseconds())/float64(n),
			"cpu-µs/"+name)
	}
	ctx := context.Background()
	measure("grant", leases, func() {
		each(func(i int, c pb.LeaseClient) error {
			for k := range leases / clients {
				if _, err := c.LeaseGrant(ctx,
					&pb.LeaseGrantRequest{ID: int64(1 + i + k*clients), TTL: 600}); err != nil {
					return err
				}
			}
			return nil
		})
	})
	var done atomic.Int64
	measure("keep-alive", b.N, func() {
		each(func(i int, c pb.LeaseClient) error {
			stream, err := c.LeaseKeepAlive(ctx)
			for k := 0; err == nil && done.Add(1) <= int64(b.N); k++ {
				id := int64(1 + i + k%(leases/clients)*clients)
				if err = stream.Send(&pb.LeaseKeepAliveRequest{ID: id}); err != nil {
					break
				}
				var r *pb.LeaseKeepAliveResponse
				if r, err = stream.Recv(); err == nil && r.TTL != 600 {
					err = fmt.Errorf("lease %d has %d s", id, r.TTL)
				}
			}
			return err
		})
	})
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.Pid()))
	if err != nil {
		b.Fatal(err)
	}
	_, rss, _ := strings.Cut(string(status), "VmRSS:")
	kb, _ := strconv.ParseFloat(strings.Fields(rss)[0], 64)
	b.ReportMetric(kb/1024, "MB-resident")
}

// processorTime is what a process has used.
func processorTime(t testing.TB, pid int) time.Duration {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	// After the name, which may contain any byte: utime and stime are the fields 14 and 15.
	f := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+2:]))
	var ticks int64
	for _, s := range f[11:13] {
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}
