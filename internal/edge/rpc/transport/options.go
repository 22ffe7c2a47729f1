package transport

import (
	"log/slog"
	"net"
	"net/http"
	"time"

	"google.golang.org/grpc/stats"
)

// StatsHandler is notified when a call begins and ends.
type StatsHandler = stats.Handler

// Options says what a server serves, and how.
type Options struct {
	Services []Service
	Codec    *Codec
	// MaxMessageBytes is the largest message that a client may send.
	MaxMessageBytes int
	// MaxConcurrentStreams is the largest number of concurrent calls on a connection.
	MaxConcurrentStreams uint32
	// KeepAliveMinTime is the shortest allowed interval of a client's pings. The server pings a
	// connection that was idle for KeepAliveInterval and waits KeepAliveTimeout for the answer.
	// Zero and negative values mean the defaults of package h2.
	KeepAliveMinTime, KeepAliveInterval, KeepAliveTimeout time.Duration
	// Stats may be nil.
	Stats StatsHandler
	// CallMade, if set, receives each connection once, when its client makes the first call.
	CallMade func(net.Conn)
	// ConnEnded, if set, receives the address of each client whose mistake has ended its
	// connection, and the reason.
	ConnEnded func(client net.Addr, reason error)
	// HTTP serves requests that are not gRPC; nil rejects them.
	HTTP http.Handler
	// Logger is required with HTTP.
	Logger *slog.Logger
}
