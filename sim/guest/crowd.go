//go:build wasip1

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"

	"vigil/sim/check"
	"vigil/sim/scenario/setup"
)

// crowd has a few hundred watchers on two streams, which are quiet most of the time. Those of the
// first stream watch one key, so that the matcher pauses after each of its changes: progress is
// requested in these pauses. Those of the second one have a range each, and by turns former values
// or none: responses to neighbors share no memory, so that some large changes fill the queue while
// the client does not read; what they need then may be compacted.
func crowd(c *setup.Client, rng *rand.Rand) error {
	if !c.Last {
		return nil // one crowd is enough, and costs much
	}
	fork := func() *rand.Rand { return rand.New(rand.NewPCG(rng.Uint64(), rng.Uint64())) }
	one, many := newStream(c, "crowd of one key", fork(), true),
		newStream(c, "crowd of ranges", fork(), true)
	for n := range 180 + rng.IntN(120) {
		one.add(&observer{Watcher: setup.Watcher{From: "c/one", To: "c/one\x00",
			Filter: check.Filter{NoPrev: true}}, next: 2, notify: n == 0})
	}
	for n := range 40 + rng.IntN(20) {
		many.add(&observer{Watcher: setup.Watcher{From: fmt.Sprintf("c/m%03d", n), To: "c/n",
			Filter: check.Filter{NoPrev: n%2 == 1}}, next: 2, notify: n%8 == 0})
	}
	go one.run()
	go many.run()
	w := &crowdWriter{c: c, rng: fork()}
	for goesOn(c, c.Stop) {
		time.Sleep(time.Duration(c.Think + rng.Int64N(4*c.Think)))
		switch n := rng.IntN(12); {
		case n < 2: // many watchers are behind while there are writes
			[]*stream{one, many}[n].restart()
			time.Sleep(time.Duration(rng.IntN(320)) * time.Millisecond)
		case n < 4: // a slow reader
			many.sleep(time.Duration(500+rng.IntN(3500)) * time.Millisecond)
			for range 5 + rng.IntN(4) {
				w.put("c/mm", 12_000+rng.IntN(12_000))
				time.Sleep(time.Duration(rng.IntN(200)) * time.Millisecond)
				many.requestProgress()
			}
			if err := checkQueues(many.at); err != nil {
				return err
			}
			if c.Compact && rng.IntN(2) == 0 {
				w.compact(received.Load())
			}
			continue
		}
		for range 2 + rng.IntN(3) {
			go w.put([]string{"c/one", "c/one", "c/mm"}[rng.IntN(3)], rng.IntN(60))
			time.Sleep(time.Duration(rng.IntN(1500)) * time.Microsecond)
		}
		for range 8 {
			time.Sleep(time.Duration(rng.IntN(1200)) * time.Microsecond)
			one.requestProgress()
			if rng.IntN(4) == 0 {
				many.requestProgress()
			}
		}
	}
	return nil
}

// crowdWriter writes at a member. It does not matter whether a write succeeds.
type crowdWriter struct {
	c    *setup.Client
	rng  *rand.Rand
	conn *grpc.ClientConn
	kv   etcdserverpb.KVClient
	made int
}

// compact compacts what watchers that are behind may need.
func (w *crowdWriter) compact(rev int64) {
	if w.kv == nil || rev < 2 {
		return
	}
	report(setup.Report{Compact: rev})
	ctx, cancel := context.WithTimeout(context.Background(), opTimeout)
	defer cancel()
	_, _ = w.kv.Compact(ctx, &etcdserverpb.CompactionRequest{Revision: rev})
}

func (w *crowdWriter) put(key string, size int) {
	if w.kv == nil || w.rng.IntN(20) == 0 {
		conn, err := dial(w.c.Endpoints[w.rng.IntN(len(w.c.Endpoints))])
		if err != nil {
			return
		}
		if w.conn != nil {
			w.conn.Close() // it would connect again and again
		}
		w.conn, w.kv = conn, etcdserverpb.NewKVClient(conn)
	}
	w.made++
	ctx, cancel := context.WithTimeout(context.Background(), opTimeout)
	defer cancel()
	value := fmt.Appendf(nil, "%d-%d", w.c.First, w.made)
	_, _ = w.kv.Put(ctx,
		&etcdserverpb.PutRequest{Key: []byte(key), Value: append(value, make([]byte, size)...)})
}
