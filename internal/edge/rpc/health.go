package rpc

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"

	"vigil/internal/edge/rpc/transport"
)

// The service names of grpc.health.v1. The empty name has the same meaning as in etcd: the member serves, with or without a
// leader.
const (
	healthAll = ""
	// healthLive is for liveness probes: the process answers, and a restart would not help it.
	healthLive = "liveness"
	// healthReady is for readiness probes and load balancing: the member answers calls that need a leader.
	healthReady = "readiness"
)

// healthService reports whether the member serves. Check and List answer with the present state; Watch sends changes at the
// next update.
type healthService struct {
	*health.Server
	svc *service

	mu struct {
		sync.Mutex
		last map[string]bool
	}
}

func newHealthService(svc *service) *healthService {
	h := &healthService{Server: health.NewServer(), svc: svc}
	h.mu.last = map[string]bool{}
	h.update()
	return h
}

// update reads the state of the member.
func (h *healthService) update() {
	h.mu.Lock()
	defer h.mu.Unlock()
	m := h.svc.cfg.Member
	trusted := m.Trusted()
	h.set(healthAll, trusted)
	h.set(healthLive, true)
	h.set(healthReady, trusted && m.Leader() != 0 && !m.IsLearner())
}

// set is called with the lock held.
func (h *healthService) set(service string, serving bool) {
	if last, known := h.mu.last[service]; known && last == serving {
		return
	}
	h.mu.last[service] = serving
	st := grpc_health_v1.HealthCheckResponse_NOT_SERVING
	if serving {
		st = grpc_health_v1.HealthCheckResponse_SERVING
	}
	h.svc.log.Info("grpc service status changed", "service", service, "status", st.String())
	h.SetServingStatus(service, st)
}

// service returns the methods of grpc.health.v1.
func (h *healthService) service() serviceDef {
	return serviceDef{grpc_health_v1.Health_ServiceDesc.ServiceName, []endpoint{
		unary("Check", func(ctx context.Context, r *grpc_health_v1.HealthCheckRequest) (*grpc_health_v1.HealthCheckResponse, error) {
			h.update()
			return h.Check(ctx, r)
		}),
		unary("List", func(ctx context.Context, r *grpc_health_v1.HealthListRequest) (*grpc_health_v1.HealthListResponse, error) {
			h.update()
			return h.List(ctx, r)
		}),
		serverStreaming("Watch", func(r *grpc_health_v1.HealthCheckRequest, ss *serverStream) error {
			h.update()
			return h.Watch(r, transport.AsGenerated[grpc_health_v1.HealthCheckRequest, grpc_health_v1.HealthCheckResponse](ss))
		}),
	}}
}

// patience is the number of election timeouts without a leader after which streams that need one are ended. New calls are
// rejected at once, but opening a stream again costs much more.
const patience = 3

// watchLeader looks for a leader ten times in an election timeout until stop is closed, and updates the health
// services each time.
func (s *service) watchLeader(stop <-chan struct{}, update func()) {
	interval := max(s.cfg.ElectionTimeout/10, time.Millisecond)
	next := func() time.Duration { return interval - time.Since(s.cfg.Ticking)%interval }
	timer := time.NewTimer(next())
	defer timer.Stop()
	has := s.cfg.Member.Leader() != 0
	lost := time.Now()
	for {
		select {
		case <-stop:
			return
		case <-timer.C:
			timer.Reset(next())
		}
		if now := s.cfg.Member.Leader() != 0; now != has {
			has, lost = now, time.Now()
		}
		update()
		if !has && time.Since(lost) >= patience*s.cfg.ElectionTimeout {
			s.streams.EndLeaderless()
		}
	}
}
