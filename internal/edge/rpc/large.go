package rpc

import (
	"context"
	"runtime"
	"time"

	"google.golang.org/protobuf/proto"

	"vigil/internal/edge/rpc/apierror"
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

// delivery is a large answer from its completion until its memory is free again.
type delivery struct {
	svc    *service
	client *transport.Client // nil if it is not known
	stop   func() bool       // ends waiting for the close of the connection; not nil if client is not
	user   any               // the holder that is its user, nil without one
	lender kv.Lender
	remote string
	size   int64
	timer  *time.Timer

	// Owned by the timer.
	left      int64         // at the last check
	slow      time.Duration // for how long it was slow
	still     time.Duration // for how long nothing was sent
	collected bool
}

// trackedLender is the lender of an answer as the transport sees it: the pool to which it returns the memory.
//
// The transport may drop an answer without notice, when a call ends at an unlucky moment or with the connection. So the
// close of the connection ends its deliveries; and a delivery ends when the garbage collector finds that its trackedLender is
// not used any more. Therefore a delivery does not refer to it.
type trackedLender struct {
	lender   kv.Lender
	delivery *delivery // nil for an answer that is not counted
}

// Return implements kv.Lender.
func (s *trackedLender) Return(b *[]byte) {
	s.lender.Return(b)
	if s.delivery != nil && s.lender.Held() == 0 {
		s.delivery.end()
	}
}

// Abandon implements kv.Lender.
func (s *trackedLender) Abandon() { s.lender.Abandon() }

// Held implements kv.Lender.
func (s *trackedLender) Held() int64 { return s.lender.Held() }

// trackDelivery begins the delivery of an answer in memory that a lender has lent.
func (s *service) trackDelivery(ctx context.Context, lender kv.Lender) *trackedLender {
	out := &trackedLender{lender: lender}
	n := lender.Held()
	if n == 0 {
		return out
	}
	f := &delivery{svc: s, lender: lender, remote: transport.Remote(ctx), size: n, left: n, client: transport.ClientOf(ctx)}
	if user := s.userOf(ctx); user != "" {
		f.user = user
	}
	out.delivery = f
	transport.SendUncompressed(ctx)
	if f.client != nil {
		f.stop = f.client.AfterClose(lender.Abandon)
	}
	runtime.AddCleanup(out, (*delivery).lost, f)
	f.timer = time.AfterFunc(time.Hour, f.checkProgress) // which must find f complete
	f.timer.Reset(s.sendPatience.lookEvery)
	return out
}

// end ends a delivery whose memory is free.
func (f *delivery) end() {
	f.timer.Stop()
	if f.client != nil {
		f.stop()
	}
}

// lost ends a delivery whose memory is not returned.
func (f *delivery) lost() {
	f.lender.Abandon()
	f.end()
}

// checkProgress checks the progress of a client.
func (f *delivery) checkProgress() {
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
		f.collected = false
	case !f.collected:
		// The transport may have dropped it; then the collector ends the delivery.
		f.collected = true
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

// trackLists begins the delivery of the long lists of an answer. It returns false if there are none.
func (s *service) trackLists(ctx context.Context, lists ...*kv.RangeResult) bool {
	var out *trackedLender
	for _, r := range lists {
		if l := r.KVs.Long; l != nil {
			if out == nil {
				out = s.trackDelivery(ctx, l.Lender) // one answer has one lender
			}
			l.Lender = out
		}
	}
	return out != nil
}

// loanLender is the lender of one buffer, which has a loan.
type loanLender struct{ *ration.Loan }

// Return implements kv.Lender.
func (f loanLender) Return(*[]byte) { f.Abandon() }

// countAnswer counts an answer that holds that many bytes of records in buffers of its own.
func (s *service) countAnswer(ctx context.Context, m wire.Encoder, bytes int) (wire.Encoder, error) {
	if bytes <= ration.FreeSize || s.cfg.Ranges == nil {
		return m, nil
	}
	loan, err := s.cfg.Ranges.Force(s.withHolders(ctx), int64(m.Size()))
	if err != nil {
		return nil, s.dropAnswer(ctx, int64(bytes))
	}
	return &transport.LentMessage{Encoder: m, Lender: s.trackDelivery(ctx, loanLender{loan})}, nil
}

// countGenerated is countAnswer for a generated message.
func (s *service) countGenerated(ctx context.Context, m proto.Message) (any, error) {
	n := proto.Size(m)
	if n <= ration.FreeSize {
		return m, nil
	}
	return s.countAnswer(ctx, transport.Generated{Message: m}, n)
}

// dropAnswer logs that an answer of n bytes is dropped, because answers that clients do not take have too much memory already,
// and returns the status of the call. The request may have taken effect.
func (s *service) dropAnswer(ctx context.Context, n int64) error {
	s.log.Warn("dropping an answer: there is no memory for it since others are not taken", "remote", transport.Remote(ctx), "answer bytes", n)
	return apierror.Status(kv.ErrTimeout)
}

// reserve waits for the memory of an answer of about n bytes that is built of generated messages. send wraps the answer, so
// that it counts until it is sent.
func (s *service) reserve(ctx context.Context, n int64) (send func(proto.Message) any, err error) {
	if n <= ration.FreeSize || s.cfg.Ranges == nil {
		return func(m proto.Message) any { return m }, nil
	}
	loan, err := s.cfg.Ranges.Take(s.withHolders(ctx), n)
	if err != nil {
		return nil, apierror.Status(err)
	}
	return func(m proto.Message) any {
		return &transport.LentMessage{Encoder: transport.Generated{Message: m}, Lender: s.trackDelivery(ctx, loanLender{loan})}
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

// withHolders returns a context in which large answers count as those of the client and its user.
func (s *service) withHolders(ctx context.Context) context.Context {
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
