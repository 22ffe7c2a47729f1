package transport

import (
	"log/slog"
	"net"
	"net/http"
	"time"

	"google.golang.org/grpc/stats"
)

// StatsHandler is notified of the beginning and the end of each call.
type StatsHandler = stats.Handler

// Options are what a server serves, and how.
type Options struct {
	Services []Service
	Codec    *Codec
	// MaxMessageBytes is the largest message that is received.
	MaxMessageBytes int
	// MaxConcurrentStreams is the largest number of concurrent calls on a connection.
	MaxConcurrentStreams uint32
	// KeepAliveMinTime is the shortest interval of a client's pings. The server pings a connection that was idle for
	// KeepAliveInterval and waits KeepAliveTimeout for the answer. Values that are not positive mean the choice of
	// the transport.
	KeepAliveMinTime, KeepAliveInterval, KeepAliveTimeout time.Duration
	// Stats may be nil.
	Stats StatsHandler
	// CallMade, if set, receives each connection on which a client makes a call, once.
	CallMade func(net.Conn)
	// ConnEnded, if set, receives the address of each client whose connection the server has ended because of what the client
	// has done, and the reason.
	ConnEnded func(client net.Addr, reason error)
	// HTTP serves requests that are not gRPC; nil rejects them.
	HTTP http.Handler
	// Logger is required with HTTP.
	Logger *slog.Logger
}
