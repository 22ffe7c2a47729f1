package suite

import (
	"context"
	"fmt"

	"vigil/tools/bench/api"
	"vigil/tools/bench/grpcconn"
	"vigil/tools/bench/load"
)

func leaseScenarios() []Scenario {
	return []Scenario{
		{Name: "lease-grant",
			About: "grants of leases on 100 connections, 1,000 in flight", Run: grants},
		{Name: "lease-keepalive",
			About: "keep-alives of 1,000 leases, each on its own stream, on 100 connections",
			Run:   keepAlives},
	}
}

// leaseTTL is the time to live in seconds: no lease expires during a run.
const leaseTTL = 3600

type grantor struct{ last int64 }

func (g *grantor) Next(buf []byte) (string, []byte, bool) {
	return api.LeaseGrant, api.AppendLeaseGrant(buf, leaseTTL), true
}

func (g *grantor) Check(msg []byte) error {
	var a api.LeaseAnswer
	if err := a.Read(msg); err != nil {
		return err
	}
	if a.ID == 0 || a.ID == g.last || a.TTL != leaseTTL || a.Error != "" {
		return fmt.Errorf("grant answered with id %x after %x, TTL %d, error %q", a.ID, g.last,
			a.TTL, a.Error)
	}
	g.last = a.ID
	return nil
}

func grants(ctx context.Context, e *Env) ([]Figure, error) {
	if err := e.start(ctx); err != nil {
		return nil, err
	}
	cs, err := e.dial(ctx, manyConns, grpcconn.Options{})
	if err != nil {
		return nil, err
	}
	_, f, err := e.measureClosed(ctx, cs, perConn, "grant",
		func(int) load.Op { return new(grantor) })
	return f, err
}

type keeper struct{ id int64 }

func (k *keeper) Next(buf []byte) (string, []byte, bool) {
	return api.LeaseKeepAlive, api.AppendLeaseKeepAlive(buf, k.id), true
}

func (k *keeper) Check(msg []byte) error {
	var a api.LeaseAnswer
	if err := a.Read(msg); err != nil {
		return err
	}
	if a.ID != k.id || a.TTL != leaseTTL {
		return fmt.Errorf("keep-alive of lease %x answered with id %x, TTL %d", k.id, a.ID, a.TTL)
	}
	return nil
}

func keepAlives(ctx context.Context, e *Env) ([]Figure, error) {
	if err := e.start(ctx); err != nil {
		return nil, err
	}
	cs, err := e.dial(ctx, manyConns, grpcconn.Options{})
	if err != nil {
		return nil, err
	}
	ids := make([]int64, manyConns*perConn)
	for i := range ids {
		b, err := cs[i%len(cs)].Call(ctx, api.LeaseGrant, api.AppendLeaseGrant(nil, leaseTTL))
		if err != nil {
			return nil, err
		}
		var a api.LeaseAnswer
		if err := a.Read(b); err != nil {
			return nil, err
		}
		ids[i] = a.ID
	}
	_, f, err := e.measureClosedOn(ctx, e.meter(), api.LeaseKeepAlive, cs, perConn, "keep-alive",
		func(slot int) load.Op { return &keeper{ids[slot]} })
	return f, err
}
