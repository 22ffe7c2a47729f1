package rpc

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"vigil/internal/edge/rpc/apierror"
	"vigil/internal/edge/rpc/delivery"
	"vigil/internal/edge/rpc/gate"
	"vigil/internal/edge/rpc/healthapi"
	"vigil/internal/edge/rpc/inprocess"
	"vigil/internal/edge/rpc/maintenanceapi"
	"vigil/internal/edge/rpc/streams"
	"vigil/internal/edge/rpc/transport"
	"vigil/internal/edge/rpc/watchapi"
)

// Server serves the API on connections. Its methods are safe for concurrent use.
type Server struct {
	gate        *gate.Gate
	streams     streams.Set
	deliveries  *delivery.Deliveries
	watches     *watchapi.API
	maintenance *maintenanceapi.API
	health      *healthapi.API
	transport   *transport.Server
	inProcess   *inprocess.Caller

	stop     func()          // ends the goroutines that watch for a leader and for changes of users
	running  context.Context // what handlers do after their calls ends with it
	cut      func()          // ends running
	watching sync.WaitGroup
}

// patience is the number of election timeouts without a leader after which streams that need one
// are ended, and a review of watchers ends its wait. New calls are rejected at once, but opening a
// stream again costs much more.
const patience = 3

// NewServer makes a server. It has goroutines from now on: Stop must be called.
func NewServer(c Config) (*Server, error) {
	if err := c.Validate(); err != nil {
		return nil, fmt.Errorf("rpc: %w", err)
	}
	c = c.WithDefaults()
	stop := make(chan struct{})
	s := &Server{stop: sync.OnceFunc(func() { close(stop) })}
	s.running, s.cut = context.WithCancel(context.Background())
	s.deliveries = delivery.New(delivery.Options{Budget: c.Ranges, User: gate.Users(c.Auth),
		Cut: c.Metrics.rangeCut, Logger: c.Logger})
	s.gate = gate.New(gate.Options{
		Member: c.Member, Rights: c.Auth, CertificateUsers: c.CertificateUsers,
		Streams: &s.streams, Proposer: c.KV, Deliveries: s.deliveries,
		Metrics: c.Metrics.calls, Logger: c.Logger, WarnUnaryDuration: c.WarnUnaryDuration,
	})
	s.watches = watchapi.New(watchapi.Options{
		NewStream: c.NewWatchStream, Rights: c.Auth, Hub: c.WatchHub, Times: c.Times,
		Member: c.Member, ReviewTime: patience * c.ElectionTimeout,
		Metrics: c.Metrics.watching, Logger: c.Logger,
	})
	s.maintenance = maintenanceapi.New(maintenanceapi.Options{
		Member: c.Member, Alarms: c.Alarms, Hasher: c.Hasher, Mover: c.Cluster,
		Versions: c.Versions, Snapshots: c.Snapshots, Seconds: c.Metrics.snapshots,
		Logger: c.Logger,
	})
	s.health = healthapi.New(c.Member, c.Logger)

	services := s.serveAll(&c)
	codec := transport.NewCodec(c.Logger, c.Metrics.calls.BytesReceived(),
		c.Metrics.calls.BytesSent())
	s.inProcess = inprocess.New(inprocess.Options{
		Services: services, Codec: codec, MaxMessageBytes: MaxMessageBytes(c.MaxRequestBytes),
		Stats: c.Stats, Deliveries: s.deliveries,
	})
	s.transport = transport.NewServer(transport.Options{
		Services:             services,
		Codec:                codec,
		MaxMessageBytes:      MaxMessageBytes(c.MaxRequestBytes),
		MaxConcurrentStreams: c.MaxConcurrentStreams,
		KeepAliveMinTime:     c.KeepAliveMinTime,
		KeepAliveInterval:    c.KeepAliveInterval,
		KeepAliveTimeout:     c.KeepAliveTimeout,
		Stats:                c.Stats,
		CallMade:             c.CallMade,
		ConnEnded:            s.gate.LogEnded,
		HTTP:                 c.HTTP,
		Logger:               c.Logger,
	})

	s.watching.Go(func() { s.watchLeader(c.Member, c.ElectionTimeout, c.Ticking, stop) })
	s.watching.Go(func() { s.watches.WakeStreams(stop) })
	if c.Auth != nil {
		s.watching.Go(func() { s.watches.ReviewRights(stop) })
	}
	return s, nil
}

// InProcess returns the caller of the services in this process. Its calls are rejected after the
// server has begun to stop.
func (s *Server) InProcess() *inprocess.Caller { return s.inProcess }

// Status returns what Maintenance.Status answers.
func (s *Server) Status() *etcdserverpb.StatusResponse { return s.maintenance.Status() }

// Serve accepts connections until the listener fails or the server stops, which is not an error. It
// may be called for several listeners, and closes them.
func (s *Server) Serve(l net.Listener) error { return s.transport.Serve(l) }

// EndStreams ends all open streams with the status of an error of kv.
func (s *Server) EndStreams(err error) { s.streams.End(apierror.Status(err)) }

// Stop rejects new connections and calls, ends the streams and waits for the unary calls, until ctx
// ends; then it cancels them and waits for their handlers.
func (s *Server) Stop(ctx context.Context) {
	defer s.cut()
	defer context.AfterFunc(ctx, s.cut)()
	s.stop()
	s.watching.Wait()
	s.health.Shutdown()
	var calls sync.WaitGroup
	calls.Go(func() { s.inProcess.Stop(ctx) })
	calls.Go(func() { s.transport.Stop(ctx) })
	s.streams.Stop()
	calls.Wait()
	s.gate.StopAnswers()
}

// watchLeader looks for a leader ten times in an election timeout until stop is closed. Each time
// it updates the health service, and it ends the streams that need a leader after a long time
// without one.
func (s *Server) watchLeader(member Member, electionTimeout time.Duration, ticking time.Time,
	stop <-chan struct{}) {
	interval := max(electionTimeout/10, time.Millisecond)
	next := func() time.Duration { return interval - time.Since(ticking)%interval }
	timer := time.NewTimer(next())
	defer timer.Stop()
	has := member.Leader() != 0
	lost := time.Now()
	for {
		select {
		case <-stop:
			return
		case <-timer.C:
			timer.Reset(next())
		}
		if now := member.Leader() != 0; now != has {
			has, lost = now, time.Now()
		}
		s.health.Update()
		if !has && time.Since(lost) >= patience*electionTimeout {
			s.streams.EndLeaderless()
		}
	}
}
