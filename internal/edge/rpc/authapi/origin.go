package authapi

import (
	"context"
	"net/netip"

	"vigil/internal/edge/rpc/inprocess"
	"vigil/internal/edge/rpc/transport"
	"vigil/internal/kv"
)

// withOrigin returns a context with the origin of a call: the client's address and connection. A
// client is assumed to own a whole network of 64 bits of IPv6.
func withOrigin(ctx context.Context) context.Context {
	addr := transport.Remote(ctx)
	if origin := inprocess.Origin(ctx); origin != "" {
		addr = origin
	}
	from := kv.Origin{Host: addr, Connection: addr}
	if a, err := netip.ParseAddrPort(addr); err == nil {
		host := a.Addr().Unmap().WithZone("")
		if host.Is6() {
			from.Host, _ = host.Prefix(64)
		} else {
			from.Host = host
		}
	} else if c := transport.ClientOf(ctx); c != nil {
		from.Connection = c // on this machine, where addresses do not differ
	}
	return kv.WithOrigin(ctx, from)
}
