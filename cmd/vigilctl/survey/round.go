package survey

import (
	"context"
	"slices"
	"time"

	"vigil/cmd/vigilctl/probe"
	"vigil/internal/health"
)

// Read asks all members.
func (s *Survey) Read(ctx context.Context) *health.Round {
	r := &health.Round{At: time.Now(), Readings: make([]health.Reading, len(s.Members))}
	listed := make(chan struct{})
	go func() {
		defer close(listed)
		ctx, cancel := context.WithTimeout(ctx, s.Env.Timeout())
		defer cancel()
		// Serializable: a member without a quorum answers too.
		m, err := s.Client.MemberListSerializable(ctx)
		if err != nil {
			r.ListErr = err
			return
		}
		slices.SortFunc(m.Members, byName)
		r.Members, r.ClusterID = m.Members, m.Header.GetClusterId()
		if a, err := s.Client.Alarms(ctx); err != nil {
			r.ListErr = err
		} else {
			r.Alarms = a.Alarms
		}
	}()
	s.Each(ctx, func(ctx context.Context, i int, m *probe.Member) {
		x := health.Reading{Endpoint: m.Endpoint}
		x.Status, x.StatusErr = s.status(ctx, m)
		x.Metrics, x.MetricsErr = m.Metrics(ctx)
		x.At = time.Now()
		r.Readings[i] = x
	})
	<-listed
	for i := range r.Readings {
		if m := advertises(r.Members, r.Readings[i].Endpoint); m != nil {
			r.Readings[i].Advertised = m.ID
		}
	}
	return r
}
