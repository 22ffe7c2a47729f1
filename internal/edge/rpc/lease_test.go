package rpc

import (
	"context"
	"errors"
	"io"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"vigil/internal/kv"
)

// fakeLeases has one lease, 5, with two keys; everything else fails with err.
type fakeLeases struct {
	renewals atomic.Int64
	err      error
	// hang, if set, keeps keep-alives until their context ends.
	hang chan struct{}
	kept atomic.Int64 // keep-alives
}

func (f *fakeLeases) RevokeLease(_ context.Context, id int64) (kv.LeaseResult, error) {
	return kv.LeaseResult{Revision: 9}, f.err
}

func (f *fakeLeases) KeepAlive(ctx context.Context, id int64) (int64, error) {
	if f.hang != nil {
		close(f.hang)
		<-ctx.Done()
		return 0, ctx.Err()
	}
	if id == 6 {
		panic("six")
	}
	f.kept.Add(1)
	return 10, f.err
}

// RenewNow renews most leases.
func (f *fakeLeases) RenewNow(id int64) (int64, bool) {
	if f.renewals.Add(1)%3 == 0 || f.hang != nil || f.err != nil {
		return 0, false
	}
	ttl, err := f.KeepAlive(context.Background(), id)
	return ttl, err == nil
}

func (f *fakeLeases) TimeToLive(_ context.Context, id int64, keys bool) (kv.LeaseStatus, error) {
	s := kv.LeaseStatus{ID: id, TTL: 7, Granted: 10}
	if keys {
		s.Keys = []string{"a", "b"}
	}
	return s, f.err
}

func (f *fakeLeases) LeaseIDs(context.Context) ([]int64, error) { return []int64{5, -3}, nil }

func leases(t *testing.T, f *fakeLeases) (*fixture, etcdserverpb.LeaseClient) {
	t.Helper()
	fx := start(t, func(c *Config) { c.Leases, c.ElectionTimeout = f, 20*time.Millisecond })
	return fx, etcdserverpb.NewLeaseClient(fx.conn)
}

func TestLeaseAnswers(t *testing.T) {
	_, c := leases(t, &fakeLeases{})
	ctx := t.Context()
	head := func(rev int64) *etcdserverpb.ResponseHeader {
		return &etcdserverpb.ResponseHeader{ClusterId: 0xc1, MemberId: 0xa1,
			Revision: rev, RaftTerm: 7}
	}
	g, err := c.LeaseGrant(ctx, &etcdserverpb.LeaseGrantRequest{ID: 5, TTL: 3})
	wantStatus(t, err, nil)
	wantEqual(t, g, &etcdserverpb.LeaseGrantResponse{Header: head(9), ID: 5, TTL: 4})
	r, err := c.LeaseRevoke(ctx, &etcdserverpb.LeaseRevokeRequest{ID: 5})
	wantStatus(t, err, nil)
	wantEqual(t, r, &etcdserverpb.LeaseRevokeResponse{Header: head(9)})
	l, err := c.LeaseTimeToLive(ctx, &etcdserverpb.LeaseTimeToLiveRequest{ID: 5, Keys: true})
	wantStatus(t, err, nil)
	wantEqual(t, l, &etcdserverpb.LeaseTimeToLiveResponse{Header: head(1), ID: 5, TTL: 7,
		GrantedTTL: 10, Keys: [][]byte{[]byte("a"), []byte("b")}})
	all, err := c.LeaseLeases(ctx, &etcdserverpb.LeaseLeasesRequest{})
	wantStatus(t, err, nil)
	wantEqual(t, all, &etcdserverpb.LeaseLeasesResponse{Header: head(1),
		Leases: []*etcdserverpb.LeaseStatus{{ID: 5}, {ID: -3}}})

	s, err := c.LeaseKeepAlive(ctx)
	wantStatus(t, err, nil)
	for range 3 {
		if err := s.Send(&etcdserverpb.LeaseKeepAliveRequest{ID: 5}); err != nil {
			t.Fatal(err)
		}
		k, err := s.Recv()
		wantStatus(t, err, nil)
		wantEqual(t, k, &etcdserverpb.LeaseKeepAliveResponse{Header: head(1), ID: 5, TTL: 10})
	}
	s.CloseSend()
	if _, err := s.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("the end of a stream: %v", err)
	}
	s, err = c.LeaseKeepAlive(ctx)
	wantStatus(t, err, nil)
	s.Send(&etcdserverpb.LeaseKeepAliveRequest{ID: 6})
	if _, err := s.Recv(); status.Code(err) != codes.Internal {
		t.Errorf("a panic: %v", err)
	}
}

func TestLeaseErrors(t *testing.T) {
	for _, e := range []struct{ from, to error }{
		{kv.ErrLeaseExists, rpctypes.ErrGRPCLeaseExist},
		{kv.ErrLeaseTTLTooLarge, rpctypes.ErrGRPCLeaseTTLTooLarge},
		{kv.ErrNoSpace, rpctypes.ErrGRPCNoSpace}, {kv.ErrNoLeader, rpctypes.ErrGRPCNoLeader},
		{kv.ErrTimeout, rpctypes.ErrGRPCTimeout},
		{kv.ErrLeaseNotFound, rpctypes.ErrGRPCLeaseNotFound},
	} {
		f, c := leases(t, &fakeLeases{err: e.from})
		f.kv.setFail(e.from)
		ctx := t.Context()
		_, err := c.LeaseGrant(ctx, &etcdserverpb.LeaseGrantRequest{})
		wantStatus(t, err, e.to)
		_, err = c.LeaseRevoke(ctx, &etcdserverpb.LeaseRevokeRequest{})
		wantStatus(t, err, e.to)
		l, err := c.LeaseTimeToLive(ctx, &etcdserverpb.LeaseTimeToLiveRequest{ID: 5, Keys: true})
		s, streamErr := c.LeaseKeepAlive(ctx)
		if streamErr != nil {
			t.Fatal(streamErr)
		}
		s.Send(&etcdserverpb.LeaseKeepAliveRequest{ID: 5})
		k, keptErr := s.Recv()
		if e.from == kv.ErrLeaseNotFound {
			// No error to either: the TTL says it.
			if err != nil || l.TTL != -1 || l.ID != 5 || l.GrantedTTL != 0 || len(l.Keys) != 0 ||
				keptErr != nil || k.TTL != 0 || k.ID != 5 {
				t.Errorf("unknown: %v, %v; %v, %v", l, err, k, keptErr)
			}
			continue
		}
		wantStatus(t, err, e.to)
		wantStatus(t, keptErr, e.to)
	}
}

// A keep-alive that waits ends when the server wants it to.
func TestLeaseStreamsEnd(t *testing.T) {
	for name, end := range map[string]func(f *fixture) error{
		"leader lost": func(f *fixture) error { f.member.leader.Store(0); return rpctypes.ErrGRPCNoLeader },
		"stop": func(f *fixture) error {
			go f.Stop(context.Background())
			return rpctypes.ErrGRPCStopped
		},
	} {
		t.Run(name, func(t *testing.T) {
			hang := make(chan struct{})
			f, c := leases(t, &fakeLeases{hang: hang})
			s, err := c.LeaseKeepAlive(metadata.AppendToOutgoingContext(t.Context(),
				rpctypes.MetadataRequireLeaderKey, rpctypes.MetadataHasLeader))
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Send(&etcdserverpb.LeaseKeepAliveRequest{ID: 5}); err != nil {
				t.Fatal(err)
			}
			<-hang
			want := end(f)
			_, err = s.Recv()
			wantStatus(t, err, want)
		})
	}
}
