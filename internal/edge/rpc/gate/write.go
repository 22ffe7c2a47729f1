package gate

import (
	"context"

	"vigil/internal/edge/rpc/apierror"
	"vigil/internal/edge/rpc/delivery"
	"vigil/internal/edge/rpc/transport"
	"vigil/internal/edge/rpc/wire"
	"vigil/internal/kv"
)

// Writer carries out writes.
type Writer struct {
	Store      WriteStore
	Answers    kv.Receiver // answers the calls that were started: the Gate
	Deliveries *delivery.Deliveries
}

// WriteStore carries out writes. It chooses the id of a lease if that is 0.
type WriteStore interface {
	// Do waits for the outcome.
	Do(context.Context, kv.Write) kv.Outcome
	// StartWrite does not wait. It returns false, without any effect, for a write that might have
	// to wait or would be rejected.
	StartWrite(ctx context.Context, w kv.Write, done kv.Completion) (started bool)
}

// Write returns a unary method that writes: write validates a request, answer makes the answer of
// its outcome. A call that can be started needs no handler. Any other call has a handler, which
// waits.
func Write[Request any](to *Writer, name string, write func(*Request) (kv.Write, error),
	answer func(context.Context, *kv.Outcome) (wire.Encoder, error)) Endpoint {
	e := Unary(name, func(ctx context.Context, r *Request) (any, error) {
		w, err := write(r)
		if err != nil {
			return nil, err
		}
		o := to.Store.Do(to.Deliveries.WithHolders(ctx), w)
		if o.Err != nil {
			return nil, apierror.Status(o.Err)
		}
		return answer(ctx, &o)
	})
	e.Begin = func(ctx context.Context, r any, p transport.Pending) (any, transport.Begun) {
		w, err := write(r.(*Request))
		if err != nil {
			return nil, transport.Declined
		}
		return nil, StartedIf(to.Store.StartWrite(ctx, w, kv.Completion{To: to.Answers, Tag: p}))
	}
	e.Finish = func(ctx context.Context, o *kv.Outcome) (any, error) { return answer(ctx, o) }
	return e
}

// StartedIf returns Started if the member has started a call, else Declined.
func StartedIf(ok bool) transport.Begun {
	if ok {
		return transport.Started
	}
	return transport.Declined
}
