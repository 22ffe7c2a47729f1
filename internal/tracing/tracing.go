// Package tracing exports spans of requests to a collector by OpenTelemetry's protocol.
//
//		t, err := tracing.Open(ctx, tracing.Config{Address: "localhost:4317", SamplingRate: 1000})
//		handler := t.Handler() // for the server of gRPC
//		if t.Traced(ctx) {
//			t.Span(ctx, "commit", start, end)
//		}
//		err = t.Close(ctx)
//
//	 1. A trace that a client has begun and sampled is exported. Of the other traces,
//	    SamplingRate in a million are exported.
//	 2. No request waits for the collector: spans are sent in batches in the background, and
//	    dropped if too many are queued.
//	 3. For a call that is not exported, Traced costs one lookup in the context.
package tracing

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc/stats"
)

// perMillion is the unit of Config.SamplingRate.
const perMillion = 1_000_000

// Config configures Open.
type Config struct {
	// Address is HOST:PORT of the collector, default localhost:4317. The connection has no TLS,
	// like etcd's.
	Address string
	// ServiceName is the same for all members, default "etcd". InstanceID is different for each
	// member; it may be empty.
	ServiceName, InstanceID string
	// SamplingRate is the share of the traces that begin here to export, in a million. A client's
	// trace is exported if the client sampled it.
	SamplingRate int
}

// WithDefaults returns c with the default of every setting that has one.
func (c Config) WithDefaults() Config {
	c.Address = cmp.Or(c.Address, "localhost:4317")
	c.ServiceName = cmp.Or(c.ServiceName, "etcd")
	return c
}

// Tracer exports spans. Its methods are safe for concurrent use.
type Tracer struct {
	provider *sdk.TracerProvider
	tracer   trace.Tracer
}

// Open starts the export of spans. The collector need not be reachable.
func Open(ctx context.Context, c Config) (*Tracer, error) {
	c = c.WithDefaults()
	if c.SamplingRate < 0 || c.SamplingRate > perMillion {
		return nil, fmt.Errorf("tracing: a sampling rate of %d in a million", c.SamplingRate)
	}
	exporter, err := otlptracegrpc.New(ctx, otlptracegrpc.WithInsecure(),
		otlptracegrpc.WithEndpoint(c.Address))
	if err != nil {
		return nil, fmt.Errorf("tracing: %w", err)
	}
	attributes := []attribute.KeyValue{attribute.String("service.name", c.ServiceName)}
	if c.InstanceID != "" {
		attributes = append(attributes, attribute.String("service.instance.id", c.InstanceID))
	}
	p := sdk.NewTracerProvider(sdk.WithBatcher(exporter),
		sdk.WithResource(resource.NewSchemaless(attributes...)),
		sdk.WithSampler(sdk.ParentBased(sampler(c.SamplingRate))))
	return &Tracer{provider: p, tracer: p.Tracer("vigil")}, nil
}

func sampler(rate int) sdk.Sampler {
	if rate == 0 {
		return sdk.NeverSample()
	}
	return sdk.TraceIDRatioBased(float64(rate) / perMillion)
}

// Handler makes a span for each call of a gRPC server, within the client's trace if there is one.
func (t *Tracer) Handler() stats.Handler {
	return otelgrpc.NewServerHandler(otelgrpc.WithTracerProvider(t.provider),
		otelgrpc.WithPropagators(propagation.NewCompositeTextMapPropagator(propagation.TraceContext{}, propagation.Baggage{})))
}

// Traced reports whether ctx belongs to an exported span.
func (t *Tracer) Traced(ctx context.Context) bool {
	return trace.SpanFromContext(ctx).IsRecording()
}

// Span exports a step within the span of ctx.
func (t *Tracer) Span(ctx context.Context, name string, start, end time.Time) {
	_, span := t.tracer.Start(ctx, name, trace.WithTimestamp(start))
	span.End(trace.WithTimestamp(end))
}

// Close sends the queued spans, until ctx ends.
func (t *Tracer) Close(ctx context.Context) error {
	if err := t.provider.Shutdown(ctx); err != nil && !errors.Is(err, context.Canceled) &&
		!errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("tracing: %w", err)
	}
	return nil
}
