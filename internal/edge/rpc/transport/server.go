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

// Server serves methods over HTTP/2. Its methods are safe for concurrent use.
type Server struct {
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
		cut       bool // the time of Stop is over: close all connections
		ended     bool // no connection is left, so no handler begins any more
	}
}

// minUnread is how many bytes a connection may occupy without a handler's consent, if messages are
// small.
const minUnread = 128 << 20

const (
	// connectionTimeout bounds the handshake of HTTP/2: the client's preface and settings.
	connectionTimeout = 10 * time.Second
	// streamWorkers is how many goroutines are kept to run handlers. A new goroutine first grows
	// its stack, which is a fifth of the cost of a call. Further handlers get new goroutines.
	streamWorkers = 512
)

// NewServer makes a server.
func NewServer(o Options) *Server {
	s := &Server{o: o, methods: map[string]*Method{}, services: map[string]bool{}}
	s.conns = h2.Options{MaxConcurrentStreams: o.MaxConcurrentStreams,
		HandshakeTimeout: connectionTimeout, Workers: h2.NewWorkers(streamWorkers)}
	// Enough for two of the largest messages and smaller ones beside them.
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

// Serve accepts connections until the listener fails, or the server stops: then it returns nil. It
// closes the listener. It may be called for several listeners.
func (s *Server) Serve(l net.Listener) error {
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
			// Too many files are open, or the client has closed its connection already.
			delay = min(max(2*delay, 5*time.Millisecond), time.Second)
			time.Sleep(delay)
		default:
			return err
		}
	}
}

// addListener registers a listener. It returns false after Stop.
func (s *Server) addListener(l net.Listener) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.stopped {
		return false
	}
	s.mu.listeners[l] = struct{}{}
	s.serving.Add(1)
	return true
}

func (s *Server) isStopped() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.stopped
}

// serveConn serves a connection until it ends.
func (s *Server) serveConn(nc net.Conn) {
	c := h2.New(nc, s.conns)
	h := &clientConn{server: s, http2: c}
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
		p.AuthInfo = credentials.TLSInfo{State: *t.TLSState(),
			CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity}}
	}
	h.peer, h.values = p, peer.NewContext(context.Background(), p)
	h.last.base = h.values
	if s.o.HTTP != nil {
		h.web = &h2http.Conn{Handler: s.o.HTTP, Logger: s.o.Logger,
			Remote: nc.RemoteAddr().String(), Local: nc.LocalAddr(), Run: h.runWeb}
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

// Stop rejects new connections and calls, and waits for the handlers. When ctx ends, it cancels the
// remaining calls, and waits for their handlers.
func (s *Server) Stop(ctx context.Context) {
	s.mu.Lock()
	s.mu.stopped = true
	for l := range s.mu.listeners {
		l.Close()
	}
	s.mu.Unlock()
	if ctx.Err() == nil {
		s.eachConn((*h2.Conn).Drain)
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
		s.eachConn((*h2.Conn).Close)
		<-done
	}
	s.conns.Workers.Close()
}

func (s *Server) eachConn(f func(*h2.Conn)) {
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

// unknownMethodText returns the text of the error for a path without a method.
func (s *Server) unknownMethodText(path string) string {
	rest, ok := strings.CutPrefix(path, "/")
	at := strings.LastIndexByte(rest, '/')
	switch {
	case !ok || at < 0:
		return "malformed method name: " + strconv.Quote(shorten(path))
	case !s.services[rest[:at]]:
		return "unknown service " + shorten(rest[:at])
	}
	return "unknown method " + shorten(rest[at+1:]) + " for service " + rest[:at]
}
