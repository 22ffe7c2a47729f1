// Package healthapi implements grpc.health.v1: whether the member serves.
package healthapi

import (
	"context"
	"log/slog"
	"sync"

	"google.golang.org/grpc/health"
	pb "google.golang.org/grpc/health/grpc_health_v1"

	"vigil/internal/edge/rpc/gate"
	"vigil/internal/edge/rpc/transport"
)

// Member is the state of the member that decides whether it serves. Its methods return at once.
type Member interface {
	// Leader is the id of the leader, 0 if there is none.
	Leader() uint64
	IsLearner() bool
	// Trusted is false while the member rejects reads and writes because its data differ from the
	// majority.
	Trusted() bool
}

// The service names of grpc.health.v1. The empty name has the same meaning as in etcd: the member
// serves, with or without a leader.
const (
	all = ""
	// live is for liveness probes: the process answers, and a restart would not help it.
	live = "liveness"
	// ready is for readiness probes and load balancing: the member answers calls that need a
	// leader.
	ready = "readiness"
)

// API implements the service. Check and List answer with the present state; Watch sends changes at
// the next Update.
type API struct {
	*health.Server
	member Member
	log    *slog.Logger

	mu struct {
		sync.Mutex
		last map[string]bool
	}
}

// New returns the service with the present state of the member.
func New(member Member, log *slog.Logger) *API {
	a := &API{Server: health.NewServer(), member: member, log: log}
	a.mu.last = map[string]bool{}
	a.Update()
	return a
}

// Update reads the state of the member.
func (a *API) Update() {
	a.mu.Lock()
	defer a.mu.Unlock()
	trusted := a.member.Trusted()
	a.setLocked(all, trusted)
	a.setLocked(live, true)
	a.setLocked(ready, trusted && a.member.Leader() != 0 && !a.member.IsLearner())
}

func (a *API) setLocked(service string, serving bool) {
	if last, known := a.mu.last[service]; known && last == serving {
		return
	}
	a.mu.last[service] = serving
	st := pb.HealthCheckResponse_NOT_SERVING
	if serving {
		st = pb.HealthCheckResponse_SERVING
	}
	a.log.Info("grpc service status changed", "service", service, "status", st.String())
	a.SetServingStatus(service, st)
}

// Service lists the methods. A learner answers all of them.
func (a *API) Service() gate.Service {
	s := gate.Service{Name: pb.Health_ServiceDesc.ServiceName, Methods: []gate.Endpoint{
		gate.Unary("Check", func(ctx context.Context,
			r *pb.HealthCheckRequest) (*pb.HealthCheckResponse, error) {
			a.Update()
			return a.Check(ctx, r)
		}),
		gate.Unary("List", func(ctx context.Context,
			r *pb.HealthListRequest) (*pb.HealthListResponse, error) {
			a.Update()
			return a.List(ctx, r)
		}),
		gate.ServerStreaming("Watch", func(r *pb.HealthCheckRequest, s transport.Stream) error {
			a.Update()
			return a.Watch(r, transport.AsGenerated[pb.HealthCheckRequest,
				pb.HealthCheckResponse](s))
		}),
	}}
	for i := range s.Methods {
		s.Methods[i].ForLearner = true
	}
	return s
}
