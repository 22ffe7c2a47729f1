package pool

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

// followConnection follows the state of the connection.
func (m *Member) followConnection(ctx context.Context) {
	for ctx.Err() == nil {
		s := m.conn.GetState()
		switch s {
		case connectivity.Idle:
			m.setState(Idle, m.lastError())
		case connectivity.Connecting:
			m.setState(Connecting, m.lastError())
		case connectivity.TransientFailure:
			err, unclear := m.connectError(ctx)
			m.setState(Failed, err)
			if unclear {
				m.inspect(ctx)
			}
		case connectivity.Ready:
			m.setState(Ready, nil)
			m.watchReady(ctx)
			continue
		case connectivity.Shutdown:
			return
		}
		m.conn.WaitForStateChange(ctx, s)
	}
}

// connectError returns why the connection could not be made, which gRPC reports only to calls. For
// unclear see reasonOf.
func (m *Member) connectError(ctx context.Context) (why error, unclear bool) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	_, err := healthpb.NewHealthClient(m.conn).Check(ctx, &healthpb.HealthCheckRequest{})
	if status.Code(err) != codes.Unavailable {
		return m.lastError(), false // the state has changed
	}
	return reasonOf(status.Convert(err).Message(), m.pool.cfg.Secure,
		m.pool.cfg.Secure && m.pool.cfg.Demanded())
}

// watchReady follows the member's health while it is connected and wanted. It returns when the
// connection is lost.
func (m *Member) watchReady(ctx context.Context) {
	for {
		wanted, changed := m.isWanted()
		if !wanted {
			if !m.awaitLossOrChange(ctx, changed) {
				return
			}
			continue
		}
		hctx, cancel := context.WithCancel(ctx)
		ended := make(chan struct{})
		m.pool.tasks.Go(func() {
			defer close(ended)
			m.watchHealth(hctx)
		})
		still := m.awaitLossOrChange(ctx, changed)
		cancel()
		<-ended
		if !still {
			return
		}
	}
}

// awaitLossOrChange waits until the connection is lost, and then returns false, or until changed is
// closed.
func (m *Member) awaitLossOrChange(ctx context.Context, changed <-chan struct{}) bool {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	lost := make(chan struct{})
	m.pool.tasks.Go(func() {
		m.conn.WaitForStateChange(ctx, connectivity.Ready)
		close(lost)
	})
	select {
	case <-lost:
		return false
	case <-changed:
		cancel()
		<-lost
		return true
	}
}

// readiness is the service of grpc.health.v1 that reports whether a member answers calls that need
// a leader. etcd knows only the service without a name.
const readiness = "readiness"

var errNoService = errors.New("the member does not know this service")

// watchHealth follows what the member reports on grpc.health.v1. A member without that service
// counts as healthy.
func (m *Member) watchHealth(ctx context.Context) {
	service := readiness
	for ctx.Err() == nil {
		err := m.watchService(ctx, service)
		switch {
		case errors.Is(err, errNoService):
			service = ""
			continue
		case status.Code(err) == codes.Unimplemented:
			<-ctx.Done()
			return
		}
		// A lost connection ends ctx; after any other error the stream is opened again.
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
}

// watchService follows the health of one service until an error.
func (m *Member) watchService(ctx context.Context, service string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := healthpb.NewHealthClient(m.conn).Watch(ctx,
		&healthpb.HealthCheckRequest{Service: service})
	if err != nil {
		return err
	}
	for {
		r, err := stream.Recv()
		switch {
		case err != nil:
			return err
		case r.Status == healthpb.HealthCheckResponse_SERVICE_UNKNOWN && service != "":
			return errNoService
		case r.Status == healthpb.HealthCheckResponse_NOT_SERVING:
			m.setState(Sick, errors.New("the member says that it does not serve"))
		default:
			m.setState(Ready, nil)
		}
	}
}
