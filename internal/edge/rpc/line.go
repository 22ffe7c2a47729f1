package rpc

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"vigil/internal/edge/rpc/transport"
	"vigil/internal/kv"
	"vigil/internal/store/watch"
)

// Locks and elections are lines of keys below a prefix, NAME/ and the lease of whoever waits in
// hexadecimal digits. First in line is the key with the least create revision. Whoever is not first
// watches the key right in front of it, so that a key that goes wakes one waiter and not all.

// line is the place where the keys of one lock or election are.
type line struct {
	svc    *service
	prefix []byte
}

func (s *service) line(name []byte) line {
	return line{s, append(bytes.Clone(name), '/')}
}

// key is where whoever holds the lease waits.
func (l line) key(lease int64) []byte { return fmt.Appendf(bytes.Clone(l.prefix), "%x", lease) }

// candidate is a key in a line. It is the one that it was as long as its create revision is rev.
type candidate struct {
	key        []byte
	rev, lease int64
}

// only does something if the candidate is still in line.
func (c *candidate) only(op kv.Op) *kv.TxnRequest {
	return &kv.TxnRequest{
		Compare: []kv.Compare{{Key: c.key, Target: kv.CompareCreate, Result: kv.Equal, Number: c.rev}},
		Success: []kv.Op{op},
	}
}

// withdraw deletes a candidate's key, if it is still in line.
func (s *service) withdraw(ctx context.Context, c *candidate) (revision int64, err error) {
	res, err := s.txn(ctx, c.only(kv.Op{Delete: &kv.DeleteRangeRequest{Key: c.key}}))
	if err != nil {
		return 0, err
	}
	return res.Revision, nil
}

// leave takes a candidate out of the line whose client has gone. If that fails, the key goes with its lease.
func (l line) leave(ctx context.Context, c *candidate) {
	ctx, cancel := l.svc.cleanUp(ctx)
	defer cancel()
	if _, err := l.svc.withdraw(ctx, c); err != nil {
		l.svc.log.Warn("failed to delete the key of a waiter that has left", "key", string(c.key), "error", err)
	}
}

// first asks for the key that is first in line.
func (l line) first() *kv.RangeRequest {
	return &kv.RangeRequest{Key: l.prefix, End: prefixEnd(l.prefix), Sort: kv.SortByCreate, Order: kv.SortAscend, Limit: 1, NoCount: true}
}

// awaitTurn waits until no key is left that was created at a revision or before it.
func (l line) awaitTurn(ctx context.Context, created int64) error {
	for {
		res, err := l.svc.get(ctx, &kv.RangeRequest{Key: l.prefix, End: prefixEnd(l.prefix), Sort: kv.SortByCreate, Order: kv.SortDescend,
			Limit: 1, MaxCreateRevision: created, KeysOnly: true, NoCount: true})
		if err != nil {
			return err
		}
		last, err := l.svc.firstKV(res)
		if err != nil || last == nil {
			return err
		}
		err = l.svc.follow(ctx, watch.CreateRequest{Key: last.Key, StartRev: res.Revision + 1, NoPut: true},
			func(*watch.Response) (bool, error) { return false, nil })
		if err != nil && !errors.Is(err, kv.ErrCompacted) {
			return err
		}
	}
}

// leaseTTL is what a lease is granted with for those who bring none, in seconds.
const leaseTTL = 60

// lease returns the id of the lease that a client waits with: its own, or a new one if it has none.
func (s *service) lease(ctx context.Context, id int64) (int64, error) {
	if id != 0 {
		return id, nil
	}
	res, err := s.cfg.Leases.GrantLease(ctx, kv.LeaseGrantRequest{TTL: leaseTTL})
	return res.ID, statusOf(err)
}

// waiting makes a unary call one that may take long: it ends with the server, as streams do.
func (s *service) waiting(ctx context.Context) (_ context.Context, leave func(), err error) {
	return s.streams.join(ctx, requiresLeader(ctx))
}

// ended is the status of a call whose context is over, err's otherwise.
func ended(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return err
	}
	if cause := context.Cause(ctx); status.Code(cause) != codes.Unknown {
		return cause
	}
	return status.FromContextError(ctx.Err()).Err()
}

// cleanUp returns a context for what must be done though the call is over.
func (s *service) cleanUp(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), kv.RequestTimeout(s.cfg.ElectionTimeout))
}

// get, txn and remove are the calls of the KV service, on behalf of the client of another service.

func (s *service) get(ctx context.Context, r *kv.RangeRequest) (*kv.RangeResult, error) {
	if err := checkRange(r); err != nil {
		return nil, err
	}
	res, err := s.cfg.KV.Range(ctx, r)
	return res, statusOf(err)
}

func (s *service) txn(ctx context.Context, r *kv.TxnRequest) (*kv.TxnResult, error) {
	if err := checkTxn(r, s.cfg.MaxTxnOps); err != nil {
		return nil, err
	}
	res, err := s.cfg.KV.Txn(ctx, r)
	return res, statusOf(err)
}

func (s *service) remove(ctx context.Context, key []byte) (*kv.DeleteRangeResult, error) {
	r := &kv.DeleteRangeRequest{Key: key}
	if err := checkDelete(r); err != nil {
		return nil, err
	}
	res, err := s.cfg.KV.DeleteRange(ctx, r)
	return res, statusOf(err)
}

// follow watches until next says that it is enough. The error is kv.ErrCompacted if the watcher's
// beginning is gone, a status, or that of next.
func (s *service) follow(ctx context.Context, r watch.CreateRequest, next func(*watch.Response) (more bool, err error)) error {
	hub := s.watchStream(ctx, transport.Remote(ctx))
	defer hub.Close()
	hub.Create(r)
	var batch []watch.Response
	for {
		var err error
		if batch, err = hub.Next(ctx, batch[:0]); errors.Is(err, watch.ErrClosed) {
			return rpctypes.ErrGRPCStopped
		} else if err != nil {
			return ended(ctx, statusOf(err))
		}
		for i := range batch {
			switch res := &batch[i]; {
			case res.CompactRevision != 0:
				return kv.ErrCompacted
			case res.Canceled:
				return status.Error(codes.Unknown, res.Reason)
			case len(res.Events) == 0:
			default:
				if more, err := next(res); err != nil || !more {
					return err
				}
			}
		}
	}
}

// firstKV decodes the first record of a result that nobody sends; nil if there is none.
func (s *service) firstKV(r *kv.RangeResult) (*mvccpb.KeyValue, error) {
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

// prefixEnd returns the end of the range of all keys that begin with a prefix.
func prefixEnd(prefix []byte) []byte {
	for i := len(prefix) - 1; i >= 0; i-- {
		if prefix[i] < 0xff {
			end := bytes.Clone(prefix[:i+1])
			end[i]++
			return end
		}
	}
	return []byte{0}
}
