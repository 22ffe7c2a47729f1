// Package gateway serves the gRPC API as JSON over HTTP, under the paths below /v3/ and with the
// answers of etcd: bytes are base64, 64-bit integers are texts, fields have the names of the API,
// fields that are not set are omitted, unknown fields are ignored, and an error is its code and
// message.
//
// It is a client of the member's gRPC services through Config.Conn. It has no rights: calls have
// the token of the request.
//
//  1. No message needs more than Config.MaxBodyBytes of memory before it is decoded, in requests
//     with one message and in streams.
//  2. A client that stops sending in the middle of a body is disconnected after bodyTimeout. A
//     client that waits for an answer is not: a lock or a watch may take any time.
//  3. A call ends with the request that it was made for.
//  4. A range of more than streamFrom bytes is never in memory as JSON. It is written from the lent
//     memory, over a WebSocket in frames of frameSize bytes. A client that reads nothing for
//     writeTimeout is disconnected.
//  5. A message of a stream is one HTTP chunk of any size, as in etcd; the line feed after a long
//     message is a separate chunk. A client has writeTimeout for it, and a second for each
//     writeSize bytes. A message over a WebSocket is sent in the frames of socket.go.
//  6. A call ends when its client is gone, even if the client sent data that the call does not
//     read.
package gateway

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/etcdserverpb/gw"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"

	"vigil/internal/edge/rpc/lockpb"
)

// Config is what Handler needs.
type Config struct {
	// Conn calls the services; see NewConn. It accepts a *mem.BufferSlice as the reply to a range,
	// for the encoded answer.
	Conn grpc.ClientConnInterface
	// MaxBodyBytes is the largest message as JSON. A larger message is rejected with status 429,
	// like a message that is too large for gRPC, or with 400 if its size is not known beforehand.
	MaxBodyBytes int64
}

// Validate reports every missing or invalid field.
func (c *Config) Validate() error {
	var errs []error
	if c.Conn == nil {
		errs = append(errs, errors.New("Conn is missing"))
	}
	if c.MaxBodyBytes < 1 {
		errs = append(errs, fmt.Errorf("MaxBodyBytes is %d", c.MaxBodyBytes))
	}
	return errors.Join(errs...)
}

// Prefix is the prefix of all paths.
const Prefix = "/v3/"

// streaming are the paths of requests with any number of messages, sent at any time.
var streaming = map[string]bool{"/v3/watch": true, "/v3/lease/keepalive": true}

// marshaler translates messages like etcd.
var marshaler runtime.Marshaler = &runtime.HTTPBodyMarshaler{Marshaler: &bounded{&runtime.JSONPb{
	MarshalOptions:   protojson.MarshalOptions{UseProtoNames: true},
	UnmarshalOptions: protojson.UnmarshalOptions{DiscardUnknown: true},
}}}

// Gateway serves the paths below Prefix. It also speaks WebSocket on them; see websocket.go.
type Gateway struct {
	Config
	mux *runtime.ServeMux
	// outbound encodes errors that do not come from the mux.
	outbound runtime.Marshaler
	// open ends with Close.
	open  context.Context
	close func()

	sockets struct {
		sync.Mutex
		closed bool
		all    sync.WaitGroup
	}
}

// New returns a gateway. Close must be called.
func New(c Config) (*Gateway, error) {
	if err := c.Validate(); err != nil {
		return nil, fmt.Errorf("gateway: %w", err)
	}
	g := &Gateway{Config: c, outbound: marshaler,
		mux: runtime.NewServeMux(runtime.WithMarshalerOption(runtime.MIMEWildcard, marshaler))}
	g.open, g.close = context.WithCancel(context.Background())
	ctx := context.Background() // not used by the handlers below
	for _, err := range []error{
		gw.RegisterKVHandlerClient(ctx, g.mux, etcdserverpb.NewKVClient(c.Conn)),
		gw.RegisterWatchHandlerClient(ctx, g.mux, etcdserverpb.NewWatchClient(c.Conn)),
		gw.RegisterLeaseHandlerClient(ctx, g.mux, etcdserverpb.NewLeaseClient(c.Conn)),
		gw.RegisterClusterHandlerClient(ctx, g.mux, etcdserverpb.NewClusterClient(c.Conn)),
		gw.RegisterMaintenanceHandlerClient(ctx, g.mux, etcdserverpb.NewMaintenanceClient(c.Conn)),
		gw.RegisterAuthHandlerClient(ctx, g.mux, etcdserverpb.NewAuthClient(c.Conn)),
		g.registerService(lockpb.Lock),
		g.registerService(lockpb.Election),
		g.mux.HandlePath(http.MethodPost, rangePath, g.serveRange),
	} {
		if err != nil {
			return nil, fmt.Errorf("gateway: %w", err)
		}
	}
	return g, nil
}

// Close ends all WebSockets, which an http.Server does not know, and waits for their calls. Later
// WebSockets are rejected.
func (g *Gateway) Close() {
	g.sockets.Lock()
	g.sockets.closed = true
	g.sockets.Unlock()
	g.close()
	g.sockets.all.Wait()
}

// addSocket counts a WebSocket until sockets.all.Done. It returns false after Close.
func (g *Gateway) addSocket() bool {
	g.sockets.Lock()
	defer g.sockets.Unlock()
	if g.sockets.closed {
		return false
	}
	g.sockets.all.Add(1)
	return true
}

// ServeHTTP implements http.Handler.
func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if wantsWebSocket(r) {
		g.serveWebSocket(w, r)
		return
	}
	stream := streaming[r.URL.Path]
	if !stream && r.ContentLength > g.MaxBodyBytes {
		// The rest of the body is not worth reading.
		w.Header().Set("Connection", "close")
		runtime.HTTPError(r.Context(), g.mux, g.outbound, w, r,
			status.Errorf(codes.ResourceExhausted,
				"the request has a body of %d bytes, more than %d", r.ContentLength,
				g.MaxBodyBytes))
		return
	}
	b := newBody(w, r, g.MaxBodyBytes)
	defer b.detach()
	if stream {
		b.allowStream()
	}
	r.Body = b
	a := newAnswer(w, r)
	defer a.finish()
	g.mux.ServeHTTP(a, r)
}
