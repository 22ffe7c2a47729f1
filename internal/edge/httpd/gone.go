package httpd

import (
	"context"
	"net/http"
	"time"
)

// goneTime is how often requests that may last are checked for clients that are gone.
const goneTime = 15 * time.Second

// endWithClient ends the contexts of requests whose clients have closed their connections, as often as every says. net/http, which does so at
// once, does not notice it if a client has sent more than its request: such a watch would last, with its connection, until there is an event.
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
			for !ended(c.conn) {
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
