package h2

import (
	"cmp"
	"context"
	"io"
	"math"
	"time"

	"golang.org/x/net/http2/hpack"
)

// Options are what all connections of a server have in common. The zero value of a field means its default.
type Options struct {
	// MaxConcurrentStreams is the largest number of concurrent requests on a connection, default no limit.
	MaxConcurrentStreams uint32
	// MaxHeaderBytes bounds the headers of a request, compressed and not, default 1 MiB.
	MaxHeaderBytes uint32
	// MaxUnreadBytes is how much memory a client may occupy on a connection without a handler's consent, default 128 MiB:
	// requests without a handler, bodies that were not taken, answers that are not read. Further requests are refused then.
	MaxUnreadBytes int64
	// HandshakeTimeout is how long a client may take for its preface and its settings, default 10 s.
	HandshakeTimeout time.Duration
	// PingMinTime is the shortest interval of a client's pings, default 5 minutes. A client without requests may ping every
	// two hours.
	PingMinTime time.Duration
	// PingInterval is after how much silence a client is pinged, default 2 hours; PingTimeout how long it has to answer,
	// default 20 s.
	PingInterval, PingTimeout time.Duration
	// Workers runs what the reader must not do itself; required.
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
	// Values are the values of the contexts of all requests. It must not end.
	Values() context.Context
	// Begin returns the exchange for a request.
	Begin(*Request) Exchange
}

// Request is the head of a request. It is valid until Begin returns; the texts in it stay valid. It must not be changed: the next request may
// have the same fields.
type Request struct {
	Method, Path string
	Fields       []hpack.HeaderField // all, in order, those with a colon first
	Ended        bool                // there is no body
	Repeated     bool                // all but Ended is as in the request before
}

// Exchange is a request and its answer. The reader of the connection calls its methods.
type Exchange interface {
	// Base returns the embedded stream, which is not initialized when Begin returns.
	Base() *Stream
	// Start is called once, when the stream can be used.
	Start()
	// Receive reads n bytes of the body from r. An error is one of r.
	Receive(r io.Reader, n int) error
	// EndReceive notes the end of the body. It is not called for a stream that was reset.
	EndReceive()
}

// Filler is an Exchange whose answer has no handler that waits: it is notified instead.
type Filler interface {
	Exchange
	// Fill queues output by Queue until that reports that there is no room, or there is no output. The client takes about room
	// bytes now. The writer of the connection calls it after Wake, and again when there is room after there was none. It must not
	// block.
	Fill(room int)
	// Ended is called once on a worker, after the context has ended.
	Ended()
}

// Header is a list of header fields that is sent.
type Header struct {
	Fields []hpack.HeaderField
	// Common headers are sent often: they may take a place in the client's table. The Header must not be changed.
	Common bool
}
