package discovery

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"vigil/internal/kv"
)

// service is the cluster that keeps the registry. It has one user.
type service struct {
	c     *Config
	conns []*grpc.ClientConn
	// now is the connection that answered last. token is the token that the service issued for the
	// password.
	now   int
	token string
}

// dial prepares a connection to each endpoint. gRPC connects at the first use.
func dial(c *Config) (*service, error) {
	s := &service{c: c}
	for _, e := range c.Endpoints {
		target, t, err := c.target(strings.TrimSpace(e))
		if err != nil {
			s.close()
			return nil, err
		}
		creds := insecure.NewCredentials()
		if t != nil {
			creds = credentials.NewTLS(t)
		}
		conn, err := grpc.NewClient(target,
			grpc.WithTransportCredentials(creds),
			grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: firstWait,
				Multiplier: 2, Jitter: 0.2, MaxDelay: lastWait}, MinConnectTimeout: c.DialTimeout}),
			grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: c.KeepAliveTime,
				Timeout: c.KeepAliveTimeout}),
		)
		if err != nil {
			s.close()
			return nil, fmt.Errorf("--discovery-endpoints: %q: %w", e, err)
		}
		s.conns = append(s.conns, conn)
	}
	return s, nil
}

// target returns the target of gRPC for an endpoint, and its TLS configuration.
func (c *Config) target(e string) (string, *tls.Config, error) {
	scheme, rest, ok := strings.Cut(e, "://")
	if !ok {
		t, err := c.tls(c.TLS)
		return "passthrough:///" + e, t, err
	}
	var t *tls.Config
	var err error
	switch scheme {
	case "http":
	case "https", "unixs":
		t, err = c.tls(true)
	case "unix":
		t, err = c.tls(false)
	default:
		return "", nil, fmt.Errorf("--discovery-endpoints: %q must start with http://, https:// "+
			"or unix://", e)
	}
	if scheme == "unix" || scheme == "unixs" {
		return "unix:" + rest, t, err
	}
	u, perr := url.Parse(e)
	if perr != nil || u.Host == "" || u.Path != "" && u.Path != "/" {
		return "", nil, fmt.Errorf("--discovery-endpoints: %q must have the form %s://HOST:PORT", e,
			scheme)
	}
	// The addresses of the host are looked up again for each connection.
	return "dns:///" + u.Host, t, err
}

func (s *service) close() {
	for _, c := range s.conns {
		_ = c.Close()
	}
}

// final reports whether a repetition cannot help.
func final(err error) bool {
	switch status.Code(err) {
	case codes.PermissionDenied, codes.Unauthenticated, codes.InvalidArgument, codes.Unimplemented,
		codes.FailedPrecondition:
		return true
	}
	return false
}

// tryEndpoints calls f with one connection after the other until one answers.
func (s *service) tryEndpoints(ctx context.Context, timeout time.Duration,
	f func(context.Context, *grpc.ClientConn) error) error {
	var errs []error
	for range s.conns {
		one, cancel := context.WithTimeout(ctx, timeout)
		err := s.authenticated(one, s.conns[s.now], f)
		cancel()
		if err == nil || final(err) || ctx.Err() != nil {
			return err
		}
		errs = append(errs, fmt.Errorf("%s: %w", s.c.Endpoints[s.now], err))
		s.now = (s.now + 1) % len(s.conns)
	}
	return errors.Join(errs...)
}

// authenticated calls f, with a token if a password is set. If the service no longer knows the
// token, it gets a new one.
func (s *service) authenticated(ctx context.Context, conn *grpc.ClientConn,
	f func(context.Context, *grpc.ClientConn) error) error {
	if s.c.User == "" || s.c.Password == "" {
		return f(ctx, conn)
	}
	if s.token != "" {
		err := f(metadata.AppendToOutgoingContext(ctx, rpctypes.TokenFieldNameGRPC, s.token), conn)
		if status.Code(err) != codes.Unauthenticated {
			return err
		}
	}
	one, cancel := context.WithTimeout(ctx, s.c.DialTimeout)
	defer cancel()
	res, err := pb.NewAuthClient(conn).Authenticate(one,
		&pb.AuthenticateRequest{Name: s.c.User, Password: s.c.Password})
	switch {
	case err != nil &&
		status.Convert(err).Message() == rpctypes.ErrorDesc(rpctypes.ErrGRPCAuthNotEnabled):
		return f(ctx, conn)
	case err != nil:
		return err
	}
	s.token = res.Token
	return f(metadata.AppendToOutgoingContext(ctx, rpctypes.TokenFieldNameGRPC, s.token), conn)
}

func (s *service) get(ctx context.Context, key string,
	prefix bool) (res *pb.RangeResponse, err error) {
	err = s.tryEndpoints(ctx, s.c.RequestTimeout,
		func(ctx context.Context, conn *grpc.ClientConn) (err error) {
			res, err = pb.NewKVClient(conn).Range(ctx, rangeRequest(key, prefix))
			return err
		})
	return res, err
}

func (s *service) put(ctx context.Context, key, value string) error {
	return s.tryEndpoints(ctx, s.c.RequestTimeout,
		func(ctx context.Context, conn *grpc.ClientConn) error {
			_, err := pb.NewKVClient(conn).Put(ctx,
				&pb.PutRequest{Key: []byte(key), Value: []byte(value)})
			return err
		})
}

// watch calls f with the events of all keys that begin with prefix, from a revision on, until f
// reports that it is done. If the service is lost, the heartbeats end the connection and with it
// the watch.
func (s *service) watch(ctx context.Context, prefix string, from int64,
	f func([]*mvccpb.Event) bool) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if s.token != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, rpctypes.TokenFieldNameGRPC, s.token)
	}
	w, err := pb.NewWatchClient(s.conns[s.now]).Watch(ctx)
	if err != nil {
		return err
	}
	create := &pb.WatchCreateRequest{Key: []byte(prefix), RangeEnd: kv.PrefixEnd([]byte(prefix)),
		StartRevision: from}
	if err := w.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: create}}); err != nil {
		return err
	}
	for {
		res, err := w.Recv()
		switch {
		case err != nil:
			return err
		case res.Canceled:
			return fmt.Errorf("watch canceled: %s", res.CancelReason)
		case f(res.Events):
			return nil
		}
	}
}
