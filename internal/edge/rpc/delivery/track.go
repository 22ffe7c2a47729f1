package delivery

import (
	"context"
	"runtime"
	"time"

	"vigil/internal/edge/rpc/transport"
	"vigil/internal/kv"
	"vigil/internal/store/ration"
)

// delivery is a large answer from its completion until its memory is free again.
type delivery struct {
	all    *Deliveries
	client *transport.Client // nil if unknown
	stop   func() bool       // ends waiting for the close of the connection; set if client is
	user   any               // the holder for the user, nil without one
	lender kv.Lender
	remote string
	size   int64
	timer  *time.Timer

	// Owned by the timer.
	left      int64         // at the last check
	slow      time.Duration // for how long the client was slow
	still     time.Duration // for how long nothing was sent
	collected bool          // garbage was collected since the client is stuck
}

// trackedLender is the lender of an answer as the transport sees it: the pool to which it returns
// the memory.
//
// The transport may drop an answer without notice, when a call ends at an unlucky moment or with
// the connection. So the close of the connection ends its deliveries, and so does the garbage
// collector when nothing refers to the trackedLender. Therefore a delivery does not refer to it.
type trackedLender struct {
	lender   kv.Lender
	delivery *delivery // nil for an answer that is not counted
}

// Return implements kv.Lender.
func (t *trackedLender) Return(b *[]byte) {
	t.lender.Return(b)
	if t.delivery != nil && t.lender.Held() == 0 {
		t.delivery.stopWaiting()
	}
}

// Abandon implements kv.Lender.
func (t *trackedLender) Abandon() { t.lender.Abandon() }

// Held implements kv.Lender.
func (t *trackedLender) Held() int64 { return t.lender.Held() }

// track begins the delivery of an answer in memory that a lender has lent.
func (d *Deliveries) track(ctx context.Context, lender kv.Lender) *trackedLender {
	out := &trackedLender{lender: lender}
	n := lender.Held()
	if n == 0 {
		return out
	}
	f := &delivery{all: d, lender: lender, remote: transport.Remote(ctx), size: n, left: n,
		client: transport.ClientOf(ctx)}
	if user := d.User(ctx); user != "" {
		f.user = user
	}
	out.delivery = f
	transport.SendUncompressed(ctx)
	if f.client != nil {
		f.stop = f.client.AfterClose(lender.Abandon)
	}
	runtime.AddCleanup(out, (*delivery).abandon, f)
	f.timer = time.AfterFunc(time.Hour, f.checkProgress) // which must find f complete
	f.timer.Reset(d.Patience.Interval)
	return out
}

// stopWaiting ends a delivery whose memory is free.
func (f *delivery) stopWaiting() {
	f.timer.Stop()
	if f.client != nil {
		f.stop()
	}
}

// abandon ends a delivery whose memory the transport does not return.
func (f *delivery) abandon() {
	f.lender.Abandon()
	f.stopWaiting()
}

// checkProgress closes the connection of a client that reads too slowly.
func (f *delivery) checkProgress() {
	left := f.lender.Held()
	if left == 0 {
		f.stopWaiting()
		return
	}
	most := &f.all.Patience
	moved := f.left - left
	f.left = left
	if moved > 0 {
		f.still = 0
	} else {
		f.still += most.Interval
	}
	others, own := f.all.Budget.Waiting(f.user), f.all.Budget.Waiting(f.client)
	if others && moved < int64(most.Interval.Seconds()*slowRate) {
		f.slow += most.Interval
	} else {
		f.slow = 0
	}
	stuck := others && (f.still >= most.MaxStill || f.slow >= most.MaxSlow) ||
		own && f.still >= most.OwnMaxStill
	switch {
	case !stuck:
		f.collected = false
	case !f.collected:
		// The transport may have dropped it; then the collector ends the delivery.
		f.collected = true
		runtime.GC()
	case f.client != nil:
		f.all.Cut.Inc()
		f.all.Logger.Warn("closing the connection of a client that does not take its answer "+
			"while others wait for the memory",
			"remote", f.remote, "answer bytes", f.size, "not taken", left)
		f.client.Cut()
		return
	}
	f.timer.Reset(most.Interval)
}

// loanLender is the lender of one buffer, which has a loan.
type loanLender struct{ *ration.Loan }

// Return implements kv.Lender.
func (f loanLender) Return(*[]byte) { f.Abandon() }
