package httpd

import (
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
)

// How many requests there may be at once, of all clients and on all connections: those that may
// last, which are of the gateway and the console, health checks, and other pages. Streams must not
// keep a probe or an operator from the member, which may have the address of very many clients:
// that of a proxy.
const (
	maxRequests = 8 << 10
	maxChecks   = 1 << 10
	maxPages    = 8 << 10
)

// boundRequests limits the concurrent requests, each kind separately.
func boundRequests(next http.Handler) http.Handler {
	lasting, checks, others := newRequests(maxRequests, endWithClient(next, goneTime)),
		newRequests(maxChecks, next), newRequests(maxPages, next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		kind := others
		switch path := r.URL.Path; {
		case beginsWith(path, gatewayPrefix, oldGatewayPrefix, consolePrefix):
			kind = lasting
		case beginsWith(path, "/health", "/livez", "/readyz"):
			kind = checks
		}
		kind.ServeHTTP(w, r)
	})
}

func beginsWith(path string, prefixes ...string) bool {
	return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(path, p) })
}

// requests limits the concurrent requests. A client, identified by its address, may have as many as
// are left: so a single client can have half of them, and there is always room for others.
type requests struct {
	most int
	next http.Handler

	mu struct {
		sync.Mutex
		all int
		of  map[string]int // by host; none has 0
	}
}

func newRequests(most int, next http.Handler) *requests {
	q := &requests{most: most, next: next}
	q.mu.of = map[string]int{}
	return q
}

// ServeHTTP implements http.Handler.
func (q *requests) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	host := hostOf(r.RemoteAddr)
	if n, ok := q.admit(host); !ok {
		boundTime(w, r)
		w.Header().Set("Retry-After", "1")
		http.Error(w, fmt.Sprintf("this address has %d unfinished requests, and the member "+
			"serves %d at once: end some, such as watches, and try again",
			n, q.most), http.StatusServiceUnavailable)
		return
	}
	defer q.release(host)
	q.next.ServeHTTP(w, r)
}

// hostOf returns the address of a client without the port. Addresses of IPv6 count as their
// network, because a client may own all of it.
func hostOf(remote string) string {
	addr, err := netip.ParseAddrPort(remote)
	if err != nil {
		return remote // of a socket without addresses
	}
	bits := 64
	if addr.Addr().Unmap().Is4() {
		bits = 32
	}
	network, err := addr.Addr().Unmap().Prefix(bits)
	if err != nil {
		return remote
	}
	return network.String()
}

// admit counts a request, unless there are too many. before is how many the host had already.
func (q *requests) admit(host string) (before int, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	before = q.mu.of[host]
	if before >= q.most-q.mu.all {
		return before, false
	}
	q.mu.all++
	q.mu.of[host]++
	return before, true
}

func (q *requests) release(host string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.mu.all--
	if q.mu.of[host]--; q.mu.of[host] == 0 {
		delete(q.mu.of, host)
	}
}
