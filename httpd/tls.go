package httpd

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
)

// tlsKey is that of the *tls.ConnectionState in the context of a connection.
type tlsKey struct{}

// noteTLS keeps what is known of the handshake of a connection.
func noteTLS(ctx context.Context, c net.Conn) context.Context {
	if s, ok := c.(interface{ TLSState() *tls.ConnectionState }); ok {
		return context.WithValue(ctx, tlsKey{}, s.TLSState())
	}
	return ctx
}

// withTLS shows it to a handler.
func withTLS(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if state, ok := r.Context().Value(tlsKey{}).(*tls.ConnectionState); ok {
			r.TLS = state
		}
		next.ServeHTTP(w, r)
	})
}
