package h2

import (
	"cmp"
	"context"
	"io"
	"math"
	"time"

	"golang.org/x/net/http2/hpack"
)

// Options are common to all connections of a server. The zero value of a field means its default.
type Options struct {
	// MaxConcurrentStreams is the largest number of concurrent requests on a connection. Default:
	// no limit.
	MaxConcurrentStreams uint32
	// MaxHeaderBytes bounds the header of a request, both compressed and decompressed. Default: 1
	// MiB.
	MaxHeaderBytes uint32
	// MaxUnreadBytes is how much memory a client may occupy on a connection without a handler's
	// consent: requests without a handler, bodies that nobody has taken, answers that the client
	// does not read. Further requests are refused. Default: 128 MiB.
	MaxUnreadBytes int64
	// HandshakeTimeout is how long a client may take for its preface and settings. Default: 10 s.
	HandshakeTimeout time.Duration
	// PingMinTime is the shortest allowed interval of a client's pings. A client without requests
	// may ping every two hours. Default: 5 minutes.
	PingMinTime time.Duration
	// A client that is silent for PingInterval is pinged, and must answer within PingTimeout.
	// Defaults: 2 hours, 20 s.
	PingInterval, PingTimeout time.Duration
	// Workers runs everything that the reader must not do itself. It is required.
	Workers *Workers
}

func (o Options) withDefaults() Options {
	o.MaxConcurrentStreams = cmp.Or(o.MaxConcurrentStreams, math.MaxUint32)
	o.MaxHeaderBytes = cmp.Or(o.MaxHeaderBytes, 1<<20)
	o.MaxUnreadBytes = cmp.Or(o.MaxUnreadBytes, 128<<20)
	o.HandshakeTimeout = cmp.Or(o.HandshakeTimeout, 10*time.Second)
	o.PingMinTime = cmp.Or(o.PingMinTime, 5*time.Minute)
	o.PingInterval = cmp.Or(o.PingInterval, 2*time.Hour)
	o.PingTimeout = cmp.Or(o.PingTimeout, 20*time.Second)
	return o
}

// Handler serves the requests of a connection.
type Handler interface {
	// Values returns the parent of all requests' contexts as far as values go. It must not end.
	Values() context.Context
	// Begin returns the exchange for a request.
	Begin(*Request) Exchange
}

// Request is the head of a request. It is valid until Begin returns; its strings stay valid. Nobody
// may change it, because the next request may have the same fields.
type Request struct {
	Method, Path string
	Fields       []hpack.HeaderField // all fields in order, those with a colon first
	Ended        bool                // there is no body
	Repeated     bool                // everything but Ended is as in the request before
}

// Exchange is a request and its answer. The reader of the connection calls its methods.
type Exchange interface {
	// Base returns the stream of the exchange. Begin must not use it; it is initialized later.
	Base() *Stream
	// Start is called once, when the stream can be used.
	Start()
	// Receive must read exactly n bytes of the body from r, and return only errors of r.
	Receive(r io.Reader, n int) error
	// EndReceive notes the end of the body. It is not called if the stream was reset.
	EndReceive()
}

// Filler is an Exchange without a handler that waits: it is notified when it can send.
type Filler interface {
	Exchange
	// Fill queues output by Queue until there is no room or no output. The client takes about room
	// bytes now. The writer of the connection calls it after Wake, and again when there is room
	// after there was none. It must not block.
	Fill(room int)
	// Ended is called once, on a worker, after the context has ended.
	Ended()
}

// Header is a list of header fields to send.
type Header struct {
	Fields []hpack.HeaderField
	// Common says that the header is sent often, so its fields may enter the client's table. Nobody
	// may change a common Header.
	Common bool
}
