package httpd

import (
	"context"
	"net/http"
	"time"
)

// goneTime is the interval at which requests that may last are checked for clients that are gone.
const goneTime = 15 * time.Second

// endWithClient ends the contexts of requests whose clients closed their connections. It checks
// that at an interval. net/http does so at once, but not if the client sent more than its request:
// then a watch would last, with its connection, until there is an event.
func endWithClient(next http.Handler, every time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, ok := r.Context().Value(connKey{}).(*connection)
		if !ok || r.ProtoMajor > 1 {
			next.ServeHTTP(w, r)
			return
		}
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		defer time.AfterFunc(every, func() {
			for !clientGone(c.conn) {
				select {
				case <-ctx.Done():
					return
				case <-time.After(every):
				}
			}
			cancel()
		}).Stop()
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}
