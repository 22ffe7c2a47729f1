package rpc

import (
	"bytes"
	"context"
	"log/slog"
	"time"

	"vigil/internal/edge/rpc/apierror"
	"vigil/internal/edge/rpc/delivery"
	"vigil/internal/edge/rpc/streams"
	"vigil/internal/edge/rpc/times"
	"vigil/internal/edge/rpc/transport"
	"vigil/internal/edge/rpc/validate"
	"vigil/internal/edge/rpc/wire"
	"vigil/internal/kv"
	"vigil/internal/store/watch"
	"vigil/internal/throttle"
)

// service is the common state of the services. It is not changed after it is made.
type service struct {
	cfg     Config
	log     *slog.Logger
	streams streams.Set
	// snapshotPatience is how long sending snapshotPiece bytes of a snapshot may take.
	snapshotPatience time.Duration
	// snapshotYield is the same while other clients wait for a snapshot.
	snapshotYield time.Duration
	snapshots     snapshotsSent
	watchStreams  watchStreams
	ready         *watch.Ready // the watch streams with responses
	// deliveries counts large answers.
	deliveries *delivery.Deliveries
	// slow rate-limits the lines about slow calls.
	slow *throttle.Throttle
	// ended rate-limits the lines about connections that the transport has ended.
	ended *throttle.Throttle
	// running ends when Stop waits for nothing any more.
	running context.Context
	// logAll is set if every unary call is logged.
	logAll bool
}

// header returns the header of a response that was made at a revision.
func (s *service) header(revision int64) kv.Header {
	h := s.cfg.Member.Header()
	h.Revision = revision
	return h
}

func (s *service) kvRange(ctx context.Context, r *wire.RangeRequest) (wire.Encoder, error) {
	if err := validate.Range(&r.RangeRequest); err != nil {
		return nil, err
	}
	req, err := times.Request(ctx, s.cfg.Times, &r.RangeRequest)
	if err != nil {
		return nil, err
	}
	res, err := s.cfg.KV.Range(s.withHolders(ctx), req)
	if err != nil {
		return nil, apierror.Status(err)
	}
	if res.KVs.Long != nil {
		s.trackLists(ctx, res)
	}
	return &wire.RangeResponse{Header: s.header(res.Revision), Result: res}, nil
}

// putWrite returns the write of a put, or why it is invalid.
func (s *service) putWrite(r *wire.PutRequest) (kv.Write, error) {
	if err := validate.Put(&r.PutRequest); err != nil {
		return kv.Write{}, err
	}
	return kv.Write{Put: &r.PutRequest}, validate.Size(r.Len, s.cfg.MaxRequestBytes)
}

func (s *service) putAnswer(ctx context.Context, o *kv.Outcome) (wire.Encoder, error) {
	return s.countAnswer(ctx, &wire.PutResponse{Header: s.header(o.Put.Revision), Result: o.Put}, len(o.Put.PrevKV))
}

// deleteWrite returns the write of a deletion, or why it is invalid.
func (s *service) deleteWrite(r *wire.DeleteRangeRequest) (kv.Write, error) {
	if err := validate.Delete(&r.DeleteRangeRequest); err != nil {
		return kv.Write{}, err
	}
	return kv.Write{DeleteRange: &r.DeleteRangeRequest}, validate.Size(r.Len, s.cfg.MaxRequestBytes)
}

func (s *service) deleteAnswer(ctx context.Context, o *kv.Outcome) (wire.Encoder, error) {
	res := o.DeleteRange
	return s.countAnswer(ctx, &wire.DeleteRangeResponse{Header: s.header(res.Revision), Result: res}, len(res.PrevKVs.Buf))
}

// txnWrite returns the write of a transaction, or why it is invalid.
func (s *service) txnWrite(r *wire.TxnRequest) (w kv.Write, err error) {
	if err := validate.Txn(&r.TxnRequest, s.cfg.MaxTxnOps); err != nil {
		return w, err
	}
	// A transaction that only reads is not proposed and may be as large as a message.
	if !validate.ReadOnly(&r.TxnRequest) {
		err = validate.Size(r.Len, s.cfg.MaxRequestBytes)
	}
	return kv.Write{Txn: &r.TxnRequest}, err
}

func (s *service) txnAnswer(ctx context.Context, o *kv.Outcome) (wire.Encoder, error) {
	ranges, bytes := contents(o.Txn, nil)
	m := &wire.TxnResponse{Header: s.header(o.Txn.Revision), Result: o.Txn}
	if s.trackLists(ctx, ranges...) {
		return m, nil
	}
	return s.countAnswer(ctx, m, bytes)
}

func (s *service) kvCompact(ctx context.Context, r *wire.CompactionRequest) (wire.Encoder, error) {
	res, err := s.cfg.KV.Compact(ctx, &r.CompactRequest)
	if err != nil {
		return nil, apierror.Status(err)
	}
	return &wire.CompactionResponse{Header: s.header(res.Revision)}, nil
}

// firstChunk is how many keys the first chunk of a streamed range has; the next ones are made
// larger or smaller until they come near MaxRequestBytes.
const firstChunk = 10

// kvRangeStream answers a range in chunks that are all read at one revision: that of the request, or the newest at the first
// chunk.
func (s *service) kvRangeStream(ctx context.Context, r *wire.RangeRequest, send func(wire.Encoder) error) error {
	if err := validate.RangeStream(&r.RangeRequest); err != nil {
		return err
	}
	transport.SendUncompressed(ctx)
	at, err := times.Request(ctx, s.cfg.Times, &r.RangeRequest)
	if err != nil {
		return err
	}
	req := *at
	// The sort target has no meaning without an order, and the next chunk begins after the last key of this one.
	req.Sort, req.Order = kv.SortByKey, kv.SortNone
	limited, left := req.Limit > 0, req.Limit
	size := int64(firstChunk)
	var newest, count int64
	ctx = s.withHolders(ctx)
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
			return apierror.Status(err)
		}
		if first {
			newest, count = res.Revision, res.Count
			if req.Revision <= 0 {
				req.Revision = newest
			}
			// The first chunk was read linearizably; the others are of the same state.
			req.Serializable, req.NoCount = true, true
		}
		n := int64(res.KVs.Len())
		left -= n
		// A chunk without keys is the last one, whatever it says.
		last := !res.More || limited && left <= 0 || n == 0
		if last {
			res.Count = count
		} else {
			req.Key, size = keyAfter(&res.KVs), nextChunk(size, res.KVs.Size(), s.cfg.MaxRequestBytes)
		}
		// The transport owns a message that was sent.
		s.trackLists(ctx, res)
		if err := send(&wire.RangeStreamResponse{Header: s.header(newest), Result: res, Last: last}); err != nil || last {
			return err
		}
	}
}

// keyAfter returns the least key after the last one of a list.
func keyAfter(r *kv.Records) []byte {
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
