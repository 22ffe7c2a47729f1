package listen

import (
	"log/slog"
	"syscall"

	"vigil/internal/portmux"
)

// Limits are the limits of connections. They follow from the limit of file descriptors. Clients,
// members and metrics have separate limits, so that clients cannot use up the connections between
// members, which the quorum needs.
type Limits struct{ Clients, Members, Metrics *portmux.Limit }

const (
	// leastReserve is the smallest number of file descriptors reserved for segments, the raft log
	// and connections to other members. A quarter of all descriptors is reserved, because a large
	// store has many segments.
	leastReserve = 150
	// Bounds of the limits for members and for metrics.
	leastMembers, mostMembers = 16, 1024
	leastMetrics, mostMetrics = 8, 256
	// leastClients is the smallest limit for clients.
	leastClients = 16
)

// NewLimits returns the limits of this process.
func NewLimits(log *slog.Logger) Limits {
	limit := uint64(1024)
	var r syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &r) == nil {
		limit = r.Cur
	}
	clients, members, metrics := shareConns(limit)
	return Limits{portmux.NewLimit(clients, 0, log), portmux.NewLimit(members, 0, log),
		portmux.NewLimit(metrics, 0, log)}
}

// shareConns returns the limits of connections for a number of file descriptors.
func shareConns(files uint64) (clients, members, metrics int) {
	n := int(min(files, 1<<30))
	n -= max(leastReserve, n/4)
	members = min(max(n/8, leastMembers), mostMembers)
	metrics = min(max(n/16, leastMetrics), mostMetrics)
	return max(n-members-metrics, leastClients), members, metrics
}
