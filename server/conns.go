package server

import (
	"log/slog"
	"syscall"

	"vigil/internal/portmux"
)

// connLimits is the limit of connections, which follows from that of file descriptors. Clients, members and those who
// look at metrics have a part of it each, so that none takes that of another: a member that cannot be reached has
// no quorum.
type connLimits struct{ clients, members, metrics *portmux.Limit }

const (
	// leastReserve is how many file descriptors are kept for segments, the raft log and connections to other
	// members at least. A quarter of all is kept, since a large store has many segments.
	leastReserve = 150
	// leastMembers and mostMembers bound the connections of members, leastMetrics and mostMetrics those to metrics.
	leastMembers, mostMembers = 16, 1024
	leastMetrics, mostMetrics = 8, 256
	// leastClients is what clients have when there are hardly any file descriptors.
	leastClients = 16
)

func newConnLimits(log *slog.Logger) connLimits {
	limit := uint64(1024)
	var r syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &r) == nil {
		limit = r.Cur
	}
	clients, members, metrics := shareConns(limit)
	return connLimits{portmux.NewLimit(clients, 0, log), portmux.NewLimit(members, 0, log), portmux.NewLimit(metrics, 0, log)}
}

// shareConns returns how many connections there may be with so many file descriptors.
func shareConns(files uint64) (clients, members, metrics int) {
	n := int(min(files, 1<<30))
	n -= max(leastReserve, n/4)
	members = min(max(n/8, leastMembers), mostMembers)
	metrics = min(max(n/16, leastMetrics), mostMetrics)
	return max(n-members-metrics, leastClients), members, metrics
}

// of returns the limit for a door.
func (l connLimits) of(d *door) *portmux.Limit {
	if d.metrics {
		return l.metrics
	}
	return l.clients
}
