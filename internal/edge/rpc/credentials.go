package rpc

import (
	"context"
	"net/netip"
	"strings"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/metadata"

	"vigil/internal/edge/rpc/inprocess"
	"vigil/internal/edge/rpc/transport"
	"vigil/internal/kv"
)

// gatewayKey is in the metadata of calls of the JSON gateway.
const gatewayKey = "grpcgateway-accept"

// withCredentials returns a context with the credentials of a call: its token, or else the certificate of its connection
// if certificates name users. The gateway's connection is not the client's. A call without credentials needs no new context: a client may
// have very many streams. It never has those of the context that it was made with.
func (s *service) withCredentials(ctx context.Context) context.Context {
	v := metadata.ValueFromIncomingContext(ctx, rpctypes.TokenFieldNameGRPC)
	if len(v) == 0 {
		v = metadata.ValueFromIncomingContext(ctx, rpctypes.TokenFieldNameSwagger)
	}
	name, certified := s.commonName(ctx)
	if len(v) == 0 && !certified && kv.CredentialsOf(ctx) == nil {
		return ctx
	}
	ctx, c := kv.WithNewCredentials(ctx)
	if len(v) > 0 {
		c.Token, c.HasToken = strings.TrimPrefix(v[0], "Bearer "), true
	} else {
		c.CommonName, c.HasCertificate = name, certified
	}
	return ctx
}

// commonName returns the common name of the certificate with which a client has opened its connection, if
// certificates name users and that one was verified.
func (s *service) commonName(ctx context.Context) (name string, ok bool) {
	st := transport.TLS(ctx)
	if !s.cfg.CertificateUsers || len(metadata.ValueFromIncomingContext(ctx, gatewayKey)) > 0 ||
		st == nil || len(st.VerifiedChains) == 0 || len(st.VerifiedChains[0]) == 0 {
		return "", false
	}
	return st.VerifiedChains[0][0].Subject.CommonName, true
}

// withOrigin returns a context with the origin of a call: the address of the client and its connection. A client has a whole
// network of 64 bits of IPv6.
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
