package server

import (
	"log/slog"
	"syscall"

	"vigil/portmux"
)

// connLimits is the limit of connections, which follows from that of file descriptors. Clients have one part
// of it, and members and those who look at metrics another, so that neither takes that of the other.
type connLimits struct{ clients, inner *portmux.Limit }

const (
	// leastReserve is how many file descriptors are kept for segments, the raft log and connections to other
	// members at least. A quarter of all is kept, since a large store has many segments.
	leastReserve = 150
	// leastInner and mostInner bound the connections of members and of metrics.
	leastInner = 16
	mostInner  = 1024
	// leastClients is what clients have when there are hardly any file descriptors.
	leastClients = 16
)

func newConnLimits(log *slog.Logger) connLimits {
	limit := uint64(1024)
	var r syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &r) == nil {
		limit = r.Cur
	}
	clients, inner := shareConns(limit)
	return connLimits{portmux.NewLimit(clients, 0, log), portmux.NewLimit(inner, 0, log)}
}

// shareConns returns how many connections there may be with so many file descriptors.
func shareConns(files uint64) (clients, inner int) {
	n := int(min(files, 1<<30))
	n -= max(leastReserve, n/4)
	inner = min(max(n/8, leastInner), mostInner)
	return max(n-inner, leastClients), inner
}

// of returns the limit for a door.
func (l connLimits) of(d *door) *portmux.Limit {
	if d.metrics {
		return l.inner
	}
	return l.clients
}
