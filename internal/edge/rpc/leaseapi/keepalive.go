package leaseapi

import (
	"errors"

	"vigil/internal/edge/rpc/apierror"
	"vigil/internal/edge/rpc/gate"
	"vigil/internal/edge/rpc/transport"
	"vigil/internal/edge/rpc/wire"
	"vigil/internal/kv"
)

// keepAlives is a stream of keep-alives. It answers one request after another.
type keepAlives struct {
	gate.PromptSession
	api *API
}

// Begin implements gate.SessionHandler.
func (k *keepAlives) Begin() error { return nil }

// Answer implements transport.PromptSession.
func (k *keepAlives) Answer(message, to []byte) (_ []byte, ok bool) {
	var r wire.LeaseKeepAliveRequest
	if r.Decode(message) != nil {
		return to, false
	}
	// the header first, as in Receive
	answer := wire.LeaseResponse{ID: r.ID, Header: k.api.Member.Header()}
	if answer.TTL, ok = k.api.Leases.RenewNow(r.ID); !ok {
		return to, false
	}
	return answer.AppendTo(to), true
}

// Receive implements transport.Session.
func (k *keepAlives) Receive(message any) {
	r := message.(*wire.LeaseKeepAliveRequest)
	// The header first: its revision must not be above one at which the lease is gone.
	res := &wire.LeaseResponse{ID: r.ID, Header: k.api.Member.Header()}
	switch ttl, err := k.api.Leases.KeepAlive(k.Context(), r.ID); {
	case err == nil:
		res.TTL = ttl
	case !errors.Is(err, kv.ErrLeaseNotFound):
		k.End(apierror.Status(err)) // without effect if the stream has ended
		return
	}
	if err := k.SendMsg(res); err != nil {
		if k.Context().Err() == nil {
			k.countFailure("send")
		}
		k.End(err)
	}
}

// EndReceive implements transport.Session: the stream ends with its requests.
func (k *keepAlives) EndReceive() { k.End(nil) }

// Fill implements transport.Session.
func (k *keepAlives) Fill(int) {}

// Close implements transport.Session.
func (k *keepAlives) Close(reason error) {
	var received *transport.ReceiveError
	if errors.As(reason, &received) {
		k.countFailure("receive")
	}
}

// countFailure counts a failure that is not the end of the stream.
func (k *keepAlives) countFailure(op string) { k.CountFailure(op, "lease-keepalive") }
