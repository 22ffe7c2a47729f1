package transport

import (
	"context"
	"errors"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"

	"vigil/internal/edge/rpc/transport/h2"
	"vigil/internal/edge/rpc/transport/h2http"
)

// ownServer serves methods over HTTP/2 with package h2. DESIGN.md of that package has the reasons.
type ownServer struct {
	o        Options
	conns    h2.Options
	methods  map[string]*Method // by path
	services map[string]bool    // the names of services

	serving  sync.WaitGroup // a goroutine for each connection
	handlers sync.WaitGroup

	mu struct {
		sync.Mutex
		listeners map[net.Listener]struct{}
		conns     map[*h2.Conn]struct{}
		stopped   bool
		cut       bool // the time of Stop is over: connections are closed
		ended     bool // no connection is left: no handler begins any more
	}
}

// minUnread is what a connection may occupy without a handler's consent, in bytes, if messages are small.
const minUnread = 128 << 20

func newOwnServer(o Options) *ownServer {
	s := &ownServer{o: o, methods: map[string]*Method{}, services: map[string]bool{}}
	s.conns = h2.Options{MaxConcurrentStreams: o.MaxConcurrentStreams, HandshakeTimeout: connectionTimeout, Workers: h2.NewWorkers(streamWorkers)}
	// A connection can send two of the largest messages, and others next to them.
	s.conns.MaxUnreadBytes = max(minUnread, 2*int64(o.MaxMessageBytes)+minUnread/2)
	s.conns.PingMinTime = max(o.KeepAliveMinTime, 0)
	if o.KeepAliveInterval > 0 && o.KeepAliveTimeout > 0 {
		s.conns.PingInterval, s.conns.PingTimeout = o.KeepAliveInterval, o.KeepAliveTimeout
	}
	for i := range o.Services {
		svc := &o.Services[i]
		s.services[svc.Name] = true
		for j := range svc.Methods {
			m := &svc.Methods[j]
			m.path = "/" + svc.Name + "/" + m.Name
			s.methods[m.path] = m
		}
	}
	s.mu.listeners, s.mu.conns = map[net.Listener]struct{}{}, map[*h2.Conn]struct{}{}
	return s
}

// Serve implements Server.
func (s *ownServer) Serve(l net.Listener) error {
	defer l.Close()
	if !s.addListener(l) {
		return nil
	}
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.mu.listeners, l)
		s.serving.Done()
	}()
	var delay time.Duration
	for {
		nc, err := l.Accept()
		var temporary interface{ Temporary() bool }
		switch {
		case err == nil:
			delay = 0
			s.serving.Add(1)
			go func() {
				defer s.serving.Done()
				s.serveConn(nc)
			}()
		case s.isStopped():
			return nil
		case errors.As(err, &temporary) && temporary.Temporary():
			// Too many files are open, or a client has closed its connection already.
			delay = min(max(2*delay, 5*time.Millisecond), time.Second)
			time.Sleep(delay)
		default:
			return err
		}
	}
}

// addListener registers a listener. It returns false after Stop.
func (s *ownServer) addListener(l net.Listener) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.stopped {
		return false
	}
	s.mu.listeners[l] = struct{}{}
	s.serving.Add(1)
	return true
}

func (s *ownServer) isStopped() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.stopped
}

// serveConn serves a connection to its end.
func (s *ownServer) serveConn(nc net.Conn) {
	c := h2.New(nc, s.conns)
	h := &clientConn{server: s}
	h.client.cut = c.Close
	closed, closeClient := context.WithCancel(context.Background())
	h.client.closed = closed
	defer closeClient()
	if f := s.o.CallMade; f != nil {
		h.client.firstCall = func() { f(nc) }
	}
	p := &peer.Peer{Addr: addrOf(nc.RemoteAddr(), &h.client), LocalAddr: nc.LocalAddr()}
	p.AuthInfo = plainInfo{credentials.CommonAuthInfo{SecurityLevel: credentials.NoSecurity}}
	if t, ok := nc.(secured); ok {
		p.AuthInfo = credentials.TLSInfo{State: *t.TLSState(), CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity}}
	}
	h.peer, h.values = p, peer.NewContext(context.Background(), p)
	h.last.base = h.values
	if s.o.HTTP != nil {
		h.web = &h2http.Conn{Handler: s.o.HTTP, Logger: s.o.Logger, Remote: nc.RemoteAddr().String(), Local: nc.LocalAddr(), Run: h.runWeb}
		if t, ok := nc.(secured); ok {
			h.web.TLS = t.TLSState()
		}
	}
	s.mu.Lock()
	s.mu.conns[c] = struct{}{}
	stopped, cut := s.mu.stopped, s.mu.cut
	s.mu.Unlock()
	switch {
	case cut:
		c.Close()
	case stopped:
		c.Drain()
	}
	var ended *h2.EndedError
	if err := c.Serve(h); errors.As(err, &ended) && s.o.ConnEnded != nil {
		s.o.ConnEnded(nc.RemoteAddr(), ended)
	}
	s.mu.Lock()
	delete(s.mu.conns, c)
	s.mu.Unlock()
}

// Stop implements Server.
func (s *ownServer) Stop(ctx context.Context) {
	s.mu.Lock()
	s.mu.stopped = true
	for l := range s.mu.listeners {
		l.Close()
	}
	s.mu.Unlock()
	if ctx.Err() == nil {
		s.forConns((*h2.Conn).Drain)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.serving.Wait()
		s.mu.Lock()
		s.mu.ended = true
		s.mu.Unlock()
		s.handlers.Wait()
	}()
	select {
	case <-done:
	case <-ctx.Done():
		s.mu.Lock()
		s.mu.cut = true // also for connections that were accepted before and are not registered yet
		s.mu.Unlock()
		s.forConns((*h2.Conn).Close)
		<-done
	}
	s.conns.Workers.Close()
}

func (s *ownServer) forConns(f func(*h2.Conn)) {
	s.mu.Lock()
	list := make([]*h2.Conn, 0, len(s.mu.conns))
	for c := range s.mu.conns {
		list = append(list, c)
	}
	s.mu.Unlock()
	for _, c := range list {
		f(c)
	}
}

// clientConn is a connection with its client. It implements h2.Handler.
type clientConn struct {
	server *ownServer
	client Client
	peer   *peer.Peer
	values context.Context
	web    *h2http.Conn // serves requests that are not gRPC; nil if they are rejected
	// Owned by the reader.
	last  lastMetadata
	again *Method  // of the last request, if a repeated one needs nothing but that and the same metadata
	brief [32]byte // a message that is answered at once
	spare []byte   // memory for the next message of a call with one request; nil if there is none
}

// Values implements h2.Handler.
func (c *clientConn) Values() context.Context { return c.values }

// Begin implements h2.Handler.
func (c *clientConn) Begin(r *h2.Request) h2.Exchange {
	x := calls.Get().(*call)
	x.conn = c
	if r.Repeated && c.again != nil {
		x.method, x.metadata = c.again, c.last.received
		return x
	}
	x.readHeader(r)
	if c.web != nil && x.rejected != nil && x.rejected.foreign {
		c.again = nil
		x.recycle()
		return c.web.Begin(r)
	}
	if c.again = nil; x.rejected == nil && x.special == nil && !x.hasTimeout && x.metadata == c.last.received {
		c.again = x.method
	}
	return x
}

// runWeb runs the handler of a request that is not gRPC.
func (c *clientConn) runWeb(f func()) {
	s := c.server
	c.client.noteCall()
	s.handlers.Add(1)
	s.conns.Workers.Run(func() {
		defer s.handlers.Done()
		f()
	})
}

// unknown returns the text for a path without a method.
func (s *ownServer) unknown(path string) string {
	rest, ok := strings.CutPrefix(path, "/")
	at := strings.LastIndexByte(rest, '/')
	switch {
	case !ok || at < 0:
		return "malformed method name: " + strconv.Quote(short(path))
	case !s.services[rest[:at]]:
		return "unknown service " + short(rest[:at])
	}
	return "unknown method " + short(rest[at+1:]) + " for service " + rest[:at]
}
