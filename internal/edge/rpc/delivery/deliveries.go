package delivery

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/proto"

	"vigil/internal/edge/rpc/apierror"
	"vigil/internal/edge/rpc/transport"
	"vigil/internal/edge/rpc/wire"
	"vigil/internal/kv"
	"vigil/internal/store/ration"
)

// Patience limits how long a client may take for an answer. The connection is closed if others wait
// for memory and the client read nothing for MaxStill, or less than a MiB a second for MaxSlow. If
// only calls on the same connection wait, the limit is OwnMaxStill.
type Patience struct {
	// Interval is the time between two checks of a client's progress.
	Interval                       time.Duration
	MaxStill, MaxSlow, OwnMaxStill time.Duration
}

var defaultPatience = Patience{
	Interval: 500 * time.Millisecond, MaxStill: 1500 * time.Millisecond, MaxSlow: 10 * time.Second,
	OwnMaxStill: 30 * time.Second,
}

// slowRate is the rate in bytes a second below which a client is slow.
const slowRate = 1 << 20

// Options are what New needs.
type Options struct {
	// Budget is the memory for large answers. Without one no answer is counted.
	Budget *ration.Budget
	// User returns the user who makes a call, "" if unknown.
	User func(context.Context) string
	// Cut counts the connections that were closed.
	Cut    prometheus.Counter
	Logger *slog.Logger
}

// Deliveries counts large answers against a budget. It is safe for concurrent use.
type Deliveries struct {
	Options
	// Patience is changed by tests only, before the first call.
	Patience Patience
}

// New returns Deliveries without any answer.
func New(o Options) *Deliveries { return &Deliveries{Options: o, Patience: defaultPatience} }

// TrackLists begins the delivery of the long lists of an answer. It returns false if there are
// none.
func (d *Deliveries) TrackLists(ctx context.Context, lists ...*kv.RangeResult) bool {
	var out *trackedLender
	for _, r := range lists {
		if l := r.KVs.Long; l != nil {
			if out == nil {
				out = d.track(ctx, l.Lender) // one answer has one lender
			}
			l.Lender = out
		}
	}
	return out != nil
}

// CountAnswer counts an answer that holds n bytes of records in its own buffers.
func (d *Deliveries) CountAnswer(ctx context.Context, m wire.Encoder, n int) (wire.Encoder, error) {
	if n <= ration.FreeSize || d.Budget == nil {
		return m, nil
	}
	loan, err := d.Budget.Force(d.WithHolders(ctx), int64(m.Size()))
	if err != nil {
		return nil, d.dropAnswer(ctx, int64(n))
	}
	return &transport.LentMessage{Encoder: m, Lender: d.track(ctx, loanLender{loan})}, nil
}

// CountMessage is CountAnswer for a generated message.
func (d *Deliveries) CountMessage(ctx context.Context, m proto.Message) (any, error) {
	n := proto.Size(m)
	if n <= ration.FreeSize {
		return m, nil
	}
	return d.CountAnswer(ctx, transport.Generated{Message: m}, n)
}

// CountDecoded counts the memory for an answer of n bytes that its caller decodes, until release is
// called or the context ends.
func (d *Deliveries) CountDecoded(ctx context.Context, n int64) (release func(), err error) {
	if n <= ration.FreeSize || d.Budget == nil {
		return func() {}, nil
	}
	loan, err := d.Budget.Force(d.WithHolders(ctx), copies*n)
	if err != nil {
		return func() {}, d.dropAnswer(ctx, n)
	}
	out := d.track(ctx, loanLender{loan})
	lost := func() { out.delivery.abandon() } // refers to out, which must not be collected before
	stop := context.AfterFunc(ctx, lost)
	return func() {
		if stop() {
			lost()
		}
	}, nil
}

// copies is how often the memory of an answer is needed to decode it and to encode it as JSON.
const copies = 4

// Reserve waits for the memory of an answer of about n bytes. wrap turns the message into the
// answer that is counted until it is sent.
func (d *Deliveries) Reserve(ctx context.Context,
	n int64) (wrap func(proto.Message) any, err error) {
	if n <= ration.FreeSize || d.Budget == nil {
		return func(m proto.Message) any { return m }, nil
	}
	loan, err := d.Budget.Take(d.WithHolders(ctx), n)
	if err != nil {
		return nil, apierror.Status(err)
	}
	return func(m proto.Message) any {
		return &transport.LentMessage{Encoder: transport.Generated{Message: m},
			Lender: d.track(ctx, loanLender{loan})}
	}, nil
}

// dropAnswer logs that an answer of n bytes is dropped, because answers that clients do not read
// hold too much memory already. It returns the status of the call, whose request may have taken
// effect.
func (d *Deliveries) dropAnswer(ctx context.Context, n int64) error {
	d.Logger.Warn("dropping an answer: there is no memory for it because other clients do not "+
		"read their answers",
		"remote", transport.Remote(ctx), "answer bytes", n)
	return apierror.Status(kv.ErrTimeout)
}

// A connection may use 1/connPart of the budget, a user 1/userPart.
const (
	connPart = 4
	userPart = 2
)

// WithHolders returns a context in which large answers count against the shares of the client and
// its user.
func (d *Deliveries) WithHolders(ctx context.Context) context.Context {
	if d.Budget != nil && transport.ClientOf(ctx) != nil {
		return ration.WithHolders(ctx, d)
	}
	return ctx
}

// Holders implements ration.Holders.
func (d *Deliveries) Holders(ctx context.Context) []ration.Holder {
	list := []ration.Holder{{Key: transport.ClientOf(ctx), Part: connPart}}
	if user := d.User(ctx); user != "" {
		list = append(list, ration.Holder{Key: user, Part: userPart})
	}
	return list
}
