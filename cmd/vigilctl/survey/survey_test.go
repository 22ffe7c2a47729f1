package survey

import (
	"context"
	"net"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"

	"vigil/client"
	"vigil/cmd/vigilctl/cli"
)

// bare is a member whose answers have no header.
type bare struct {
	etcdserverpb.UnimplementedMaintenanceServer
	etcdserverpb.UnimplementedClusterServer
}

// Status implements etcdserverpb.MaintenanceServer.
func (bare) Status(context.Context,
	*etcdserverpb.StatusRequest) (*etcdserverpb.StatusResponse, error) {
	return &etcdserverpb.StatusResponse{Leader: 1, Errors: []string{"memberID:0 alarm:X"}}, nil
}

// MemberList implements etcdserverpb.ClusterServer.
func (bare) MemberList(context.Context,
	*etcdserverpb.MemberListRequest) (*etcdserverpb.MemberListResponse, error) {
	return &etcdserverpb.MemberListResponse{Members: []*etcdserverpb.Member{{ID: 1, Name: "m1"}}},
		nil
}

// TestAnswersWithoutHeader: a member may leave out any part of an answer.
func TestAnswersWithoutHeader(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := grpc.NewServer()
	etcdserverpb.RegisterMaintenanceServer(srv, bare{})
	etcdserverpb.RegisterClusterServer(srv, bare{})
	go srv.Serve(l)
	t.Cleanup(srv.Stop)
	env := &cli.Env{CommandTimeout: time.Minute,
		Config: client.Config{Endpoints: []string{l.Addr().String()}}}
	s := &Survey{Env: env, Whole: true, cluster: true}
	if s.Client, err = client.New(env.Config); err != nil {
		t.Fatal(err)
	}
	defer s.Client.Close()
	if err := s.findMembers(t.Context()); err != nil || len(s.Members) != 1 {
		t.Fatalf("%d members, %v", len(s.Members), err)
	}
	defer s.Members[0].Close()
	// The pages are not HTTP, and the status is there.
	if r := s.Read(t.Context()); r.Readings[0].Status == nil || r.Readings[0].MetricsErr == nil ||
		len(r.Members) != 1 {
		t.Errorf("%+v", r)
	}
}
