package rpc

import (
	"context"
	"runtime"
	"time"

	"google.golang.org/grpc/mem"

	"vigil/kv"
	"vigil/ration"
	"vigil/rpc/wire"
)

// A client that does not take a large answer keeps its memory from others. It has sendGrace and a
// second for each sendRate bytes; if somebody waits for memory after that, its connection is closed.
const (
	sendGrace = 30 * time.Second
	sendRate  = 1 << 20
	// sendAgain is how long after that it is looked at again.
	sendAgain = time.Second
)

func sendTime(bytes int64) time.Duration {
	return sendGrace + time.Duration(bytes)*time.Second/sendRate
}

// flight is a large answer from the moment it is complete until its memory is free again.
type flight struct {
	svc    *service
	conn   *clientConn // nil if it is not known
	lender kv.Lender
	remote string
	size   int64
	swept  bool // owned by the timer
	timer  *time.Timer
}

// sending is the transport's side of a flight: the pool to which it gives the memory.
//
// The transport may drop what it was to send, when a call ends at an unlucky moment or with the
// connection, and say nothing. The connection knows its flights for that; and when the collector
// finds that nothing refers to a sending, the flight is over too. That is why a flight does not refer
// to it.
type sending struct {
	lender kv.Lender
	flight *flight // nil for an answer that is not counted
}

// Get implements mem.BufferPool. Nobody asks.
func (s *sending) Get(n int) *[]byte {
	b := make([]byte, n)
	return &b
}

// Put implements mem.BufferPool.
func (s *sending) Put(b *[]byte) {
	s.lender.Return(b)
	if s.flight != nil && s.lender.Held() == 0 {
		s.flight.end()
	}
}

// Return, Abandon and Held make it a kv.Lender.

func (s *sending) Return(b *[]byte) { s.Put(b) }
func (s *sending) Abandon()         { s.lender.Abandon() }
func (s *sending) Held() int64      { return s.lender.Held() }

// depart begins to send what a lender has lent.
func (s *service) depart(ctx context.Context, lender kv.Lender) *sending {
	out := &sending{lender: lender}
	n := lender.Held()
	if n == 0 {
		return out
	}
	f := &flight{svc: s, lender: lender, remote: remote(ctx), size: n, conn: connOf(ctx)}
	out.flight = f
	runtime.AddCleanup(out, (*flight).lost, f)
	f.timer = time.AfterFunc(time.Hour, f.look) // which must find f complete
	f.timer.Reset(s.sendTime(n))
	if f.conn != nil && !f.conn.add(f) {
		f.lost()
	}
	return out
}

// end forgets a flight whose memory is free.
func (f *flight) end() {
	f.timer.Stop()
	if f.conn != nil {
		f.conn.remove(f)
	}
}

// lost ends a flight whose memory will not come back.
func (f *flight) lost() {
	f.lender.Abandon()
	f.end()
}

// look is called when a client has had its time.
func (f *flight) look() {
	switch {
	case f.lender.Held() == 0:
		f.end()
		return
	case !f.svc.cfg.Ranges.Waiting():
		f.swept = false
	case !f.swept:
		// The transport may have dropped it; the collector would tell.
		f.swept = true
		runtime.GC()
	case f.conn != nil:
		f.svc.cfg.Metrics.rangeCut.Inc()
		f.svc.log.Warn("closing the connection of a client that does not take its answer while others wait for the memory",
			"remote", f.remote, "answer bytes", f.size, "not taken", f.lender.Held())
		f.conn.Close()
		return
	}
	f.timer.Reset(sendAgain)
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

// heavy is an answer that was made without asking for memory, because apply cannot wait. It counts
// until it is sent.
type heavy struct {
	wire.Encoder
	*sending
}

// forced is the lender of one buffer.
type forced struct{ *ration.Lease }

// Return implements kv.Lender.
func (f forced) Return(b *[]byte) {
	mem.DefaultBufferPool().Put(b)
	f.Abandon() // there is only one
}

// weigh counts an answer that holds that many bytes of records in buffers of its own.
func (s *service) weigh(ctx context.Context, m wire.Encoder, bytes int) wire.Encoder {
	if bytes <= ration.FreeSize || s.cfg.Ranges == nil {
		return m
	}
	return &heavy{m, s.depart(ctx, forced{s.cfg.Ranges.Force(int64(m.Size()))})}
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
