package rpc

import (
	"bytes"
	"context"
	"log/slog"
	"time"

	"vigil/internal/edge/rpc/transport"
	"vigil/internal/edge/rpc/validate"
	"vigil/internal/edge/rpc/wire"
	"vigil/internal/kv"
	"vigil/internal/throttle"
)

// service holds what the services of a server have in common. It is not changed after it is made.
type service struct {
	cfg     Config
	log     *slog.Logger
	streams *streams
	// snapshotPatience is how long a client may take for a piece of a snapshot.
	snapshotPatience time.Duration
	// snapshotYield is how long it may when others want one.
	snapshotYield time.Duration
	snapshots     snapshotsSent
	guards        guards
	// sendPatience is how long a client may take for a large answer while others wait.
	sendPatience sendPatience
	// slow bounds the lines about calls that take long.
	slow *throttle.Throttle
	// logAll is set if every unary call is logged.
	logAll bool
}

// header is the head of a response that was made at a revision.
func (s *service) header(revision int64) kv.Header {
	h := s.cfg.Member.Header()
	h.Revision = revision
	return h
}

func (s *service) kvRange(ctx context.Context, r *wire.RangeRequest) (wire.Encoder, error) {
	if err := validate.Range(&r.RangeRequest); err != nil {
		return nil, err
	}
	res, err := s.cfg.KV.Range(s.held(ctx), &r.RangeRequest)
	if err != nil {
		return nil, statusOf(err)
	}
	if res.KVs.Long != nil {
		s.lent(ctx, res)
	}
	return &wire.RangeResponse{Header: s.header(res.Revision), Result: res}, nil
}

func (s *service) kvPut(ctx context.Context, r *wire.PutRequest) (wire.Encoder, error) {
	if err := validate.Put(&r.PutRequest); err != nil {
		return nil, err
	}
	if err := validate.Size(r.Len, s.cfg.MaxRequestBytes); err != nil {
		return nil, err
	}
	res, err := s.cfg.KV.Put(ctx, &r.PutRequest)
	if err != nil {
		return nil, statusOf(err)
	}
	return s.weigh(ctx, &wire.PutResponse{Header: s.header(res.Revision), Result: res}, len(res.PrevKV))
}

func (s *service) kvDeleteRange(ctx context.Context, r *wire.DeleteRangeRequest) (wire.Encoder, error) {
	if err := validate.Delete(&r.DeleteRangeRequest); err != nil {
		return nil, err
	}
	if err := validate.Size(r.Len, s.cfg.MaxRequestBytes); err != nil {
		return nil, err
	}
	res, err := s.cfg.KV.DeleteRange(ctx, &r.DeleteRangeRequest)
	if err != nil {
		return nil, statusOf(err)
	}
	return s.weigh(ctx, &wire.DeleteRangeResponse{Header: s.header(res.Revision), Result: res}, len(res.PrevKVs.Buf))
}

func (s *service) kvTxn(ctx context.Context, r *wire.TxnRequest) (wire.Encoder, error) {
	if err := validate.Txn(&r.TxnRequest, s.cfg.MaxTxnOps); err != nil {
		return nil, err
	}
	// A transaction that only reads is not proposed and may be as large as a message may.
	if !validate.ReadOnly(&r.TxnRequest) {
		if err := validate.Size(r.Len, s.cfg.MaxRequestBytes); err != nil {
			return nil, err
		}
	}
	res, err := s.cfg.KV.Txn(s.held(ctx), &r.TxnRequest)
	if err != nil {
		return nil, statusOf(err)
	}
	ranges, bytes := contents(res, nil)
	m := &wire.TxnResponse{Header: s.header(res.Revision), Result: res}
	if s.lent(ctx, ranges...) {
		return m, nil
	}
	return s.weigh(ctx, m, bytes)
}

func (s *service) kvCompact(ctx context.Context, r *wire.CompactionRequest) (wire.Encoder, error) {
	res, err := s.cfg.KV.Compact(ctx, &r.CompactRequest)
	if err != nil {
		return nil, statusOf(err)
	}
	return &wire.CompactionResponse{Header: s.header(res.Revision)}, nil
}

// firstChunk is how many keys the first chunk of a streamed range has; the next ones are made
// larger or smaller until they come near MaxRequestBytes.
const firstChunk = 10

// kvRangeStream answers a range in chunks that are all read at one revision: that which the request
// names, or the newest when the first chunk was read.
func (s *service) kvRangeStream(ctx context.Context, r *wire.RangeRequest, send func(wire.Encoder) error) error {
	if err := validate.RangeStream(&r.RangeRequest); err != nil {
		return err
	}
	transport.SendUncompressed(ctx)
	req := r.RangeRequest
	// What is sorted by has no meaning without an order, and the next chunk begins behind the last key of this one.
	req.Sort, req.Order = kv.SortByKey, kv.SortNone
	limited, left := req.Limit > 0, req.Limit
	size := int64(firstChunk)
	var newest, count int64
	ctx = s.held(ctx)
	for first := true; ; first = false {
		req.Limit = size
		if limited {
			req.Limit = min(size, left)
		}
		if req.CountOnly {
			req.Limit = 0
		}
		res, err := s.cfg.KV.Range(ctx, &req)
		if err != nil {
			return statusOf(err)
		}
		if first {
			newest, count = res.Revision, res.Count
			if req.Revision <= 0 {
				req.Revision = newest
			}
			// The cluster has been asked how new the store must be; the rest is of that state.
			req.Serializable, req.NoCount = true, true
		}
		n := int64(res.KVs.Len())
		left -= n
		// A chunk without keys cannot be followed by another, whatever it says.
		last := !res.More || limited && left <= 0 || n == 0
		if last {
			res.Count = count
		} else {
			req.Key, size = behind(&res.KVs), nextChunk(size, res.KVs.Size(), s.cfg.MaxRequestBytes)
		}
		// What is sent is no longer ours.
		s.lent(ctx, res)
		if err := send(&wire.RangeStreamResponse{Header: s.header(newest), Result: res, Last: last}); err != nil || last {
			return err
		}
	}
}

// behind returns the least key behind the last one of a list.
func behind(r *kv.Records) []byte {
	if r.Long != nil {
		return []byte(r.Long.Last + "\x00")
	}
	return append(bytes.Clone(wire.RecordKey(r.At(r.Len()-1))), 0)
}

// nextChunk returns how many keys the next chunk should have if the last one of size keys took that
// many bytes.
func nextChunk(size int64, took, target int) int64 {
	switch {
	case took < target/2:
		return size * 2
	case took > target*2:
		return max(size/2, 1)
	}
	return size
}
