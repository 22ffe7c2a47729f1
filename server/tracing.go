package server

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc/stats"

	"vigil/internal/member/replica/timing"
	"vigil/internal/tracing"
)

// openTracing starts the export of spans if tracing is enabled.
func (m *Member) openTracing(ctx context.Context) error {
	c := &m.cfg.Tracing
	if !c.Enabled {
		return nil
	}
	t, err := tracing.Open(ctx, c.Config)
	if err != nil {
		return fmt.Errorf("--enable-distributed-tracing: %w", err)
	}
	m.tracer = t
	m.log.Info("distributed tracing enabled", "address", c.Address, "service-name", c.ServiceName,
		"service-instance-id", c.InstanceID, "sampling-rate", c.SamplingRate)
	return nil
}

// spans returns the receiver of the steps of requests, nil if tracing is off.
func (m *Member) spans() timing.Tracer {
	if m.tracer == nil {
		return nil
	}
	return m.tracer
}

// callStats returns the receiver of gRPC calls, nil if tracing is off.
func (m *Member) callStats() stats.Handler {
	if m.tracer == nil {
		return nil
	}
	return m.tracer.Handler()
}

// lastSpans bounds the time for sending the last spans when the member stops.
const lastSpans = 300 * time.Millisecond

func (m *Member) closeTracing(ctx context.Context) error {
	if m.tracer == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastSpans)
	defer cancel()
	return m.tracer.Close(ctx)
}
