package survey

import (
	"context"
	"errors"
	"time"

	"vigil/cmd/vigilctl/cli"
	"vigil/cmd/vigilctl/probe"
	"vigil/internal/health"
)

// Read asks all members.
func (s *Survey) Read(ctx context.Context) *health.Round {
	r := &health.Round{At: time.Now(), Readings: make([]health.Reading, len(s.Members))}
	listed, by := make(chan struct{}), uint64(0)
	go func() {
		defer close(listed)
		ctx, cancel := context.WithTimeout(ctx, s.Env.Timeout())
		defer cancel()
		// Serializable: a member without a quorum also answers.
		m, err := s.Client.Cluster().MemberListSerializable(ctx)
		if err != nil {
			r.ListErr = cli.Refused(err, s.NoLogin)
			return
		}
		r.Members, r.ClusterID, by = memberMessages(m.Members), m.Header.ClusterID,
			m.Header.MemberID
	}()
	s.Each(ctx, func(ctx context.Context, i int, m *probe.Member) {
		x := health.Reading{Endpoint: m.Endpoint}
		asking, cancel := context.WithCancel(ctx)
		waits := make(chan *health.Wait, 1)
		go func() {
			// A waiting member accepts gRPC connections without answering on them. It says over
			// HTTP that it waits.
			state, err := m.State(ctx)
			if err == nil && state.Waits != nil {
				cancel()
			}
			waits <- state.Waits
		}()
		x.Status, x.StatusErr = s.status(asking, m)
		x.StatusErr = cli.Refused(x.StatusErr, s.NoLogin)
		cancel()
		x.Metrics, x.MetricsErr = m.Metrics(ctx)
		x.CheckPages()
		if x.Status == nil {
			if x.Waits = <-waits; x.Waits != nil {
				x.StatusErr = errors.New("it " + x.Waits.Alive())
			}
		}
		x.At = time.Now()
		r.Readings[i] = x
	})
	<-listed
	s.relist(ctx, r, by)
	for i := range r.Readings {
		if m := advertises(r.Members, r.Readings[i].Endpoint); m != nil {
			r.Readings[i].Advertised = m.ID
		}
	}
	r.FindAlarms()
	return r
}

// relist replaces a list of members that came from a member without a leader, if another member has
// one. A member that is cut off does not know of later changes, not even of its own removal.
func (s *Survey) relist(ctx context.Context, r *health.Round, by uint64) {
	var better string
	for i := range r.Readings {
		switch x := &r.Readings[i]; {
		case x.Status == nil || r.Foreign(x):
		case x.Status.Leader == 0:
		case x.ID() == by:
			return
		default:
			better = x.Endpoint
		}
	}
	at, err := s.Client.At(better)
	if better == "" || err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, s.Env.Timeout())
	defer cancel()
	if m, err := at.Cluster().MemberListSerializable(ctx); err == nil &&
		m.Header.ClusterID == r.ClusterID {
		r.Members = memberMessages(m.Members)
	}
}
