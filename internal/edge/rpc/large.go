package rpc

import (
	"context"
	"runtime"
	"time"

	"google.golang.org/protobuf/proto"

	"vigil/internal/edge/rpc/transport"
	"vigil/internal/edge/rpc/wire"
	"vigil/internal/kv"
	"vigil/internal/store/ration"
)

// The memory of a large answer is in use until the client has read it. Its progress is checked every lookEvery. The
// connection is closed if others wait for memory and nothing was sent for maxStill, or less than slowRate for maxSlow. If
// only calls on the same connection wait, the bound is ownPatience.
const (
	lookEvery   = 500 * time.Millisecond
	maxStill    = 1500 * time.Millisecond
	slowRate    = 1 << 20 // bytes a second
	maxSlow     = 10 * time.Second
	ownPatience = 30 * time.Second
)

// sendPatience are these bounds.
type sendPatience struct{ lookEvery, maxStill, maxSlow, own time.Duration }

var defaultPatience = sendPatience{lookEvery, maxStill, maxSlow, ownPatience}

// flight is a large answer from its completion until its memory is free again.
type flight struct {
	svc    *service
	client *transport.Client // nil if it is not known
	stop   func() bool       // ends waiting for the close of the connection; not nil if client is not
	user   any               // the holder that is its user, nil without one
	lender kv.Lender
	remote string
	size   int64
	timer  *time.Timer

	// Owned by the timer.
	left  int64         // when it was last looked at
	slow  time.Duration // for how long it was slow
	still time.Duration // for how long it has not moved
	swept bool
}

// sending is the transport's side of a flight: the pool to which it gives the memory.
//
// The transport may drop an answer without notice, when a call ends at an unlucky moment or with the connection. So the
// close of the connection ends its flights; and a flight ends when the garbage collector finds that its sending is not
// used any more. Therefore a flight does not refer to it.
type sending struct {
	lender kv.Lender
	flight *flight // nil for an answer that is not counted
}

// Return implements kv.Lender.
func (s *sending) Return(b *[]byte) {
	s.lender.Return(b)
	if s.flight != nil && s.lender.Held() == 0 {
		s.flight.end()
	}
}

// Abandon implements kv.Lender.
func (s *sending) Abandon() { s.lender.Abandon() }

// Held implements kv.Lender.
func (s *sending) Held() int64 { return s.lender.Held() }

// depart begins a flight for the memory that a lender has lent.
func (s *service) depart(ctx context.Context, lender kv.Lender) *sending {
	out := &sending{lender: lender}
	n := lender.Held()
	if n == 0 {
		return out
	}
	f := &flight{svc: s, lender: lender, remote: transport.Remote(ctx), size: n, left: n, client: transport.ClientOf(ctx)}
	if user := s.userOf(ctx); user != "" {
		f.user = user
	}
	out.flight = f
	transport.SendUncompressed(ctx)
	if f.client != nil {
		f.stop = f.client.AfterClose(lender.Abandon)
	}
	runtime.AddCleanup(out, (*flight).lost, f)
	f.timer = time.AfterFunc(time.Hour, f.look) // which must find f complete
	f.timer.Reset(s.sendPatience.lookEvery)
	return out
}

// end forgets a flight whose memory is free.
func (f *flight) end() {
	f.timer.Stop()
	if f.client != nil {
		f.stop()
	}
}

// lost ends a flight whose memory is not returned.
func (f *flight) lost() {
	f.lender.Abandon()
	f.end()
}

// look checks the progress of a client.
func (f *flight) look() {
	left := f.lender.Held()
	if left == 0 {
		f.end()
		return
	}
	most := f.svc.sendPatience
	every := most.lookEvery
	moved := f.left - left
	f.left = left
	if moved > 0 {
		f.still = 0
	} else {
		f.still += every
	}
	others, own := f.svc.cfg.Ranges.Waiting(f.user), f.svc.cfg.Ranges.Waiting(f.client)
	switch {
	case !others:
		f.slow = 0
	case moved < int64(every.Seconds()*slowRate):
		f.slow += every
	default:
		f.slow = 0
	}
	stuck := others && (f.still >= most.maxStill || f.slow >= most.maxSlow) || own && f.still >= most.own
	switch {
	case !stuck:
		f.swept = false
	case !f.swept:
		// The transport may have dropped it; then the collector ends the flight.
		f.swept = true
		runtime.GC()
	case f.client != nil:
		f.svc.cfg.Metrics.rangeCut.Inc()
		f.svc.log.Warn("closing the connection of a client that does not take its answer while others wait for the memory",
			"remote", f.remote, "answer bytes", f.size, "not taken", left)
		f.client.Cut()
		return
	}
	f.timer.Reset(every)
}

// lent prepares the long lists of an answer for sending; false if there are none.
func (s *service) lent(ctx context.Context, lists ...*kv.RangeResult) bool {
	var out *sending
	for _, r := range lists {
		if l := r.KVs.Long; l != nil {
			if out == nil {
				out = s.depart(ctx, l.Lender) // one answer has one lender
			}
			l.Lender = out
		}
	}
	return out != nil
}

// forced is the lender of one buffer.
type forced struct{ *ration.Loan }

// Return implements kv.Lender.
func (f forced) Return(*[]byte) { f.Abandon() }

// weigh counts an answer that holds that many bytes of records in buffers of its own.
func (s *service) weigh(ctx context.Context, m wire.Encoder, bytes int) (wire.Encoder, error) {
	if bytes <= ration.FreeSize || s.cfg.Ranges == nil {
		return m, nil
	}
	loan, err := s.cfg.Ranges.Force(s.held(ctx), int64(m.Size()))
	if err != nil {
		return nil, s.dropped(ctx, int64(bytes))
	}
	return &transport.Lent{Encoder: m, Lender: s.depart(ctx, forced{loan})}, nil
}

// weighGenerated is weigh for a generated message.
func (s *service) weighGenerated(ctx context.Context, m proto.Message) (any, error) {
	n := proto.Size(m)
	if n <= ration.FreeSize {
		return m, nil
	}
	return s.weigh(ctx, transport.Generated{Message: m}, n)
}

// dropped is the status of a call whose answer of n bytes is dropped because answers that clients do not take have too
// much memory already. What it asked for may have been done.
func (s *service) dropped(ctx context.Context, n int64) error {
	s.log.Warn("dropping an answer: there is no memory for it since others are not taken", "remote", transport.Remote(ctx), "answer bytes", n)
	return statusOf(kv.ErrTimeout)
}

// reserve waits for the memory of an answer of about n bytes that is to be built of messages which are generated. What
// it returns makes the answer one that counts until it is sent.
func (s *service) reserve(ctx context.Context, n int64) (send func(proto.Message) any, err error) {
	if n <= ration.FreeSize || s.cfg.Ranges == nil {
		return func(m proto.Message) any { return m }, nil
	}
	loan, err := s.cfg.Ranges.Take(s.held(ctx), n)
	if err != nil {
		return nil, statusOf(err)
	}
	return func(m proto.Message) any {
		return &transport.Lent{Encoder: transport.Generated{Message: m}, Lender: s.depart(ctx, forced{loan})}
	}, nil
}

// contents returns the ranges of a transaction's answer and how many bytes its buffers hold.
func contents(r *kv.TxnResult, ranges []*kv.RangeResult) (_ []*kv.RangeResult, bytes int) {
	for i := range r.Responses {
		switch op := &r.Responses[i]; {
		case op.Range != nil:
			ranges = append(ranges, op.Range)
			bytes += len(op.Range.KVs.Buf)
		case op.Put != nil:
			bytes += len(op.Put.PrevKV)
		case op.Delete != nil:
			bytes += len(op.Delete.PrevKVs.Buf)
		case op.Txn != nil:
			var n int
			ranges, n = contents(op.Txn, ranges)
			bytes += n
		}
	}
	return ranges, bytes
}

// Of the memory for large answers a connection may have a quarter and a user half.
const (
	connPart = 4
	userPart = 2
)

// held returns a context in which large answers count as those of the client and its user.
func (s *service) held(ctx context.Context) context.Context {
	if s.cfg.Ranges != nil && transport.ClientOf(ctx) != nil {
		return ration.WithHolders(ctx, s)
	}
	return ctx
}

// Holders implements ration.Holders.
func (s *service) Holders(ctx context.Context) []ration.Holder {
	list := []ration.Holder{{Key: transport.ClientOf(ctx), Part: connPart}}
	if user := s.userOf(ctx); user != "" {
		list = append(list, ration.Holder{Key: user, Part: userPart})
	}
	return list
}

// userOf returns the user who makes a call, empty if that is not known.
func (s *service) userOf(ctx context.Context) string {
	if !s.enabled() {
		return ""
	}
	return s.cfg.Auth.User(ctx)
}
