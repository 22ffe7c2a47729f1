package httpd

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"sync"
	"time"
)

// connKey is the key of the connection in the context of its requests.
type connKey struct{}

// connection is the part of a connection that handlers use.
type connection struct {
	conn     net.Conn
	tls      *tls.ConnectionState // nil without a handshake
	callMade func()
}

// noteConn returns a ConnContext function that adds the connection to the context of its requests.
func noteConn(callMade func(net.Conn)) func(context.Context, net.Conn) context.Context {
	return func(ctx context.Context, c net.Conn) context.Context {
		known := &connection{conn: c, callMade: sync.OnceFunc(func() { callMade(c) })}
		if s, ok := c.(interface{ TLSState() *tls.ConnectionState }); ok {
			known.tls = s.TLSState()
		}
		return context.WithValue(ctx, connKey{}, known)
	}
}

// withConn sets Request.TLS and reports the first request of a connection. It removes the deadline
// of the request before.
func withConn(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor < 2 {
			_ = http.NewResponseController(w).SetWriteDeadline(time.Time{})
		}
		if c, ok := r.Context().Value(connKey{}).(*connection); ok {
			c.callMade()
			if c.tls != nil {
				r.TLS = c.tls
			}
		}
		next.ServeHTTP(w, r)
	})
}
