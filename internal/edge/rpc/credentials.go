package rpc

import (
	"context"
	"strings"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/metadata"

	"vigil/internal/edge/rpc/transport"
	"vigil/internal/kv"
)

// gatewayKey is in the metadata of calls of the JSON gateway.
const gatewayKey = "grpcgateway-accept"

// withCredentials returns a context with the credentials of a call: its token, or else the certificate of its connection
// if certificates name users. The gateway's connection is not the client's.
func (s *service) withCredentials(ctx context.Context) context.Context {
	ctx, c := kv.WithNewCredentials(ctx)
	v := metadata.ValueFromIncomingContext(ctx, rpctypes.TokenFieldNameGRPC)
	if len(v) == 0 {
		v = metadata.ValueFromIncomingContext(ctx, rpctypes.TokenFieldNameSwagger)
	}
	switch {
	case len(v) > 0:
		c.Token, c.HasToken = strings.TrimPrefix(v[0], "Bearer "), true
	case s.cfg.CertificateUsers && len(metadata.ValueFromIncomingContext(ctx, gatewayKey)) == 0:
		c.CommonName, c.HasCertificate = commonName(ctx)
	}
	return ctx
}

// commonName returns the common name of the certificate with which a client has opened its connection, if
// that was verified.
func commonName(ctx context.Context) (name string, ok bool) {
	st := transport.TLS(ctx)
	if st == nil || len(st.VerifiedChains) == 0 || len(st.VerifiedChains[0]) == 0 {
		return "", false
	}
	return st.VerifiedChains[0][0].Subject.CommonName, true
}
