package lockapi

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"vigil/internal/kv"
	"vigil/internal/store/watch"
)

// queue is the waiting queue of one lock or election: the keys below a prefix.
type queue struct {
	*API
	prefix []byte
}

func (s *API) queue(name []byte) queue {
	return queue{s, append(bytes.Clone(name), '/')}
}

// key returns the key of the waiter with a lease.
func (q queue) key(lease int64) []byte { return fmt.Appendf(bytes.Clone(q.prefix), "%x", lease) }

// waiter is a key in a queue, as long as its create revision is rev.
type waiter struct {
	key        []byte
	rev, lease int64
}

// ifQueued returns a transaction that executes op if the waiter is still in the queue.
func (c *waiter) ifQueued(op kv.Op) *kv.TxnRequest {
	return &kv.TxnRequest{
		Compare: []kv.Compare{{Key: c.key, Target: kv.CompareCreate, Result: kv.Equal,
			Number: c.rev}},
		Success: []kv.Op{op},
	}
}

// removeWaiter deletes the key of a waiter if it is still in the queue.
func (s *API) removeWaiter(ctx context.Context, c *waiter) (revision int64, err error) {
	res, err := s.commitTxn(ctx, c.ifQueued(kv.Op{Delete: &kv.DeleteRangeRequest{Key: c.key}}))
	if err != nil {
		return 0, err
	}
	return res.Revision, nil
}

// abandon removes a waiter whose call has ended. If that fails, the key goes with its lease.
func (s *API) abandon(ctx context.Context, c *waiter) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.o.Cleanup)
	defer cancel()
	defer context.AfterFunc(s.o.Running, cancel)()
	if _, err := s.removeWaiter(ctx, c); err != nil {
		s.o.Logger.Warn("failed to delete the key of a waiter whose call has ended", "key",
			string(c.key), "error", err)
	}
}

// head returns the request for the key at the head.
func (q queue) head() *kv.RangeRequest {
	return &kv.RangeRequest{Key: q.prefix, End: kv.PrefixEnd(q.prefix), Sort: kv.SortByCreate,
		Order: kv.SortAscend, Limit: 1, NoCount: true}
}

// awaitTurn waits until all keys with create revisions up to created are deleted.
func (q queue) awaitTurn(ctx context.Context, created int64) error {
	for {
		res, err := q.readRange(ctx,
			&kv.RangeRequest{Key: q.prefix, End: kv.PrefixEnd(q.prefix), Sort: kv.SortByCreate,
				Order: kv.SortDescend,
				Limit: 1, MaxCreateRevision: created, KeysOnly: true, NoCount: true})
		if err != nil {
			return err
		}
		last, err := firstKV(res)
		if err != nil || last == nil {
			return err
		}
		err = q.o.Watches.Follow(ctx,
			watch.CreateRequest{Key: last.Key, StartRev: res.Revision + 1, NoPut: true},
			func(*watch.Response) (bool, error) { return false, nil })
		if err != nil && !errors.Is(err, kv.ErrCompacted) {
			return err
		}
	}
}

// firstKV decodes the first record of a result, nil if there is none. It returns the memory of the
// result to its lender.
func firstKV(r *kv.RangeResult) (*mvccpb.KeyValue, error) {
	if r.KVs.Len() == 0 {
		return nil, nil
	}
	var record []byte
	if long := r.KVs.Long; long != nil {
		framed := make([]byte, 0, long.Bytes)
		for _, p := range long.Pieces {
			framed = append(framed, *p...)
			long.Lender.Return(p)
		}
		_, _, n := protowire.ConsumeTag(framed)
		if n < 0 {
			return nil, protowire.ParseError(n)
		}
		record, n = protowire.ConsumeBytes(framed[n:])
		if n < 0 {
			return nil, protowire.ParseError(n)
		}
	} else {
		record = r.KVs.At(0)
	}
	out := &mvccpb.KeyValue{}
	if err := proto.Unmarshal(record, out); err != nil {
		return nil, err
	}
	return out, nil
}
