//go:build wasip1

package main

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"vigil/sim/scenario/setup"
)

// watchOptions creates and cancels watchers with all options, from former, present and future
// revisions: several on one stream that is opened again now and then, and some on a stream each
// that resume.
func watchOptions(c *setup.Client, rng *rand.Rand) error {
	fork := func() *rand.Rand { return rand.New(rand.NewPCG(rng.Uint64(), rng.Uint64())) }
	shared := newStream(c, "watcher with options", fork(), false)
	go shared.run()
	streams := []*stream{shared}
	for range 2 {
		s := newStream(c, "resumed watcher with options", fork(), true)
		o := randomObserver(rng, 2)
		o.now, o.next, o.notify = false, 2, true
		s.add(o)
		go s.run()
		streams = append(streams, s)
	}
	b := &bare{c: c, rng: fork()}
	for goesOn(c, c.Stop) {
		time.Sleep(time.Duration(rng.Int64N(c.Think)))
		b.choose()
		switch n := rng.IntN(16); {
		case n < 5:
			shared.add(randomObserver(rng, max(b.rev, received.Load())))
		case n < 7:
			shared.remove(rng)
		case n < 8:
			streams[rng.IntN(len(streams))].restart()
		case n < 11:
			streams[rng.IntN(len(streams))].requestProgress()
		case n < 12 && rng.IntN(2) == 0:
			b.writeMuch()
		default:
			b.writeSome()
		}
	}
	return nil
}

// randomObserver draws the options of a watcher. rev is a recent revision.
func randomObserver(rng *rand.Rand, rev int64) *observer {
	o := &observer{fragment: rng.IntN(2) == 0, notify: rng.IntN(2) == 0}
	o.NoPrev, o.NoPut, o.NoDelete = rng.IntN(2) == 0, rng.IntN(4) == 0, rng.IntN(4) == 0
	switch rng.IntN(4) {
	case 0:
		key := keys[rng.IntN(len(keys))]
		o.From, o.To = key, key+"\x00"
	case 1:
		o.From, o.To = "o/", "o0"
	case 2:
		o.From, o.To = "k/c", "o/3"
	}
	switch rng.IntN(4) {
	case 0:
		o.now = true
	case 1:
		o.next = max(rev, 1) + 1 + rng.Int64N(20)
	default:
		o.next = max(2, rev-rng.Int64N(60))
	}
	return o
}

func optionKey(n int) []byte { return fmt.Appendf(nil, "o/%d", n) }

// writeSome puts and deletes keys in one transaction.
func (b *bare) writeSome() {
	b.made++
	var ops []*etcdserverpb.RequestOp
	for n := range 8 {
		switch b.rng.IntN(5) {
		case 0:
			ops = append(ops, &etcdserverpb.RequestOp{Request: &etcdserverpb.RequestOp_RequestDeleteRange{
				RequestDeleteRange: &etcdserverpb.DeleteRangeRequest{Key: optionKey(n)}}})
		case 1:
			ops = append(ops, &etcdserverpb.RequestOp{Request: &etcdserverpb.RequestOp_RequestPut{
				RequestPut: &etcdserverpb.PutRequest{Key: optionKey(n),
					Value: fmt.Appendf(nil, "%d-%d", b.c.First, b.made)}}})
		}
	}
	_ = b.call(func(ctx context.Context) error {
		r, err := b.kv.Txn(ctx, &etcdserverpb.TxnRequest{Success: ops})
		b.rev = max(b.rev, r.GetHeader().GetRevision())
		return err
	})
}

// writeMuch deletes large values in one revision, which is sent in fragments with the former
// values.
func (b *bare) writeMuch() {
	ctx, cancel := context.WithTimeout(context.Background(), opTimeout)
	defer cancel()
	for n := range 8 {
		b.made++
		value := append(fmt.Appendf(nil, "%d-%d", b.c.First, b.made),
			bytes.Repeat([]byte{'.'}, setup.MaxRequestBytes*3/4)...)
		if _, err := b.kv.Put(ctx,
			&etcdserverpb.PutRequest{Key: optionKey(n), Value: value}); err != nil {
			return
		}
	}
	_, _ = b.kv.DeleteRange(ctx,
		&etcdserverpb.DeleteRangeRequest{Key: []byte("o/"), RangeEnd: []byte("o0")})
}
