package client_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"vigil/client"
)

// TestRetry: which calls are retried after which error.
func TestRetry(t *testing.T) {
	for _, tc := range []struct {
		name  string
		err   error
		write bool // the write is tried again
		read  bool
		// uncertain reports that the outcome of the write is not known.
		uncertain bool
		is        error
	}{
		{"no leader", rpctypes.ErrGRPCNoLeader, true, true, false, nil},
		{"too many requests", rpctypes.ErrGRPCRequestTooManyRequests, true, true, false, nil},
		{"a learner", rpctypes.ErrGRPCNotSupportedForLearner, true, true, false, nil},
		{"timeout", rpctypes.ErrGRPCTimeout, false, true, true, client.ErrRequestTimeout},
		{"leader failed", rpctypes.ErrGRPCTimeoutDueToLeaderFail, false, true, true,
			client.ErrTimeoutLeaderFailed},
		{"connection lost", rpctypes.ErrGRPCTimeoutDueToConnectionLost, false, true, true,
			client.ErrTimeoutConnectionLost},
		{"stopped", rpctypes.ErrGRPCStopped, false, true, true, client.ErrServerStopped},
		{"leader changed", rpctypes.ErrGRPCLeaderChanged, false, true, true,
			client.ErrLeaderChanged},
		{"unavailable", unavailable("gone fishing"), false, true, true, nil},
		{"permission", rpctypes.ErrGRPCPermissionDenied, false, false, false,
			client.ErrPermissionDenied},
		{"corrupt", rpctypes.ErrGRPCCorrupt, true, true, false, nil},
		{"no space", rpctypes.ErrGRPCNoSpace, false, false, true, client.ErrNoSpace},
		{"canceled at the server", rpctypes.ErrGRPCCanceled, false, true, true,
			client.ErrRequestCanceled},
		{"compacted", rpctypes.ErrGRPCCompacted, false, false, false, client.ErrCompacted},
		{"unknown", status.Error(codes.Unknown, "what?"), false, false, true, nil},
		{"unimplemented", status.Error(codes.Unimplemented, "never heard of it"), false,
			false, false, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var calls atomic.Int64
			fail := func() error {
				if calls.Add(1) == 1 {
					return tc.err
				}
				return nil
			}
			f := start(t, &fake{
				put: func(context.Context, *pb.PutRequest) (*pb.PutResponse, error) {
					return &pb.PutResponse{Header: at(2)}, fail()
				},
				get: func(context.Context, *pb.RangeRequest) (*pb.RangeResponse, error) {
					return &pb.RangeResponse{Header: at(2)}, fail()
				},
			})
			c := to(t, f)
			check := func(err error, again, uncertain bool) {
				t.Helper()
				if again {
					if err != nil || calls.Load() != 2 {
						t.Errorf("%d calls, %v", calls.Load(), err)
					}
					return
				}
				if err == nil || calls.Load() != 1 || errors.Is(err, context.Canceled) ||
					errors.Is(err, client.ErrUncertain) != uncertain ||
					tc.is != nil && !errors.Is(err, tc.is) {
					t.Errorf("%d calls, uncertain %v, %v", calls.Load(),
						errors.Is(err, client.ErrUncertain), err)
				}
				if e, ok := errors.AsType[*client.Error](err); !ok || e.Member != f.addr ||
					e.Key != "k" || e.Text == "" {
					t.Errorf("%+v", err)
				}
			}
			_, err := c.Put(t.Context(), "k", nil)
			check(err, tc.write, tc.uncertain)
			calls.Store(0)
			_, err = c.Get(t.Context(), "k")
			check(err, tc.read, false)
		})
	}
}

// TestElsewhere: calls leave a member without a leader, and do not return while it is suspect.
func TestElsewhere(t *testing.T) {
	var good, bad atomic.Int64
	get := func(context.Context, *pb.RangeRequest) (*pb.RangeResponse, error) {
		return &pb.RangeResponse{Header: at(2)}, nil
	}
	b := start(t, &fake{get: get,
		put: func(context.Context, *pb.PutRequest) (*pb.PutResponse, error) {
			bad.Add(1)
			return nil, rpctypes.ErrGRPCNoLeader
		}})
	g := start(t, &fake{get: get,
		put: func(ctx context.Context, r *pb.PutRequest) (*pb.PutResponse, error) {
			good.Add(1)
			if md, _ := metadata.FromIncomingContext(ctx); !slices.Equal(md.Get("hasleader"),
				[]string{"true"}) {
				t.Error("the call does not ask for a leader")
			}
			return &pb.PutResponse{Header: at(2)}, nil
		}})
	ready := make(chan string, 100)
	c := open(t, client.Config{Endpoints: []string{b.addr, g.addr},
		Hooks: client.Hooks{Member: func(name string, s client.MemberState, _ error) {
			if s == client.MemberReady {
				ready <- name
			}
		}}})
	// The first call connects to both. A member that takes long to connect is not waited for.
	if _, err := c.Get(t.Context(), "k"); err != nil {
		t.Fatal(err)
	}
	for connected := map[string]bool{}; len(connected) < 2; {
		select {
		case name := <-ready:
			connected[name] = true
		case <-time.After(time.Minute):
			t.Fatalf("connected to %v only", connected)
		}
	}
	for range 20 {
		if _, err := c.Put(t.Context(), "k", nil); err != nil {
			t.Fatal(err)
		}
	}
	if good.Load() != 20 || bad.Load() > 1 {
		t.Errorf("%d calls to the good one, %d to the other", good.Load(), bad.Load())
	}
	if c.Member() != g.addr {
		t.Errorf("the member is %s", c.Member())
	}
}

// TestAttemptsAreBounded: a read that always fails returns an error.
func TestAttemptsAreBounded(t *testing.T) {
	var calls atomic.Int64
	f := start(t, &fake{get: func(context.Context, *pb.RangeRequest) (*pb.RangeResponse, error) {
		calls.Add(1)
		return nil, rpctypes.ErrGRPCTimeout
	}})
	c := open(t, client.Config{Endpoints: []string{f.addr}, MaxAttempts: 3})
	if _, err := c.Get(t.Context(), "k"); !errors.Is(err, client.ErrRequestTimeout) ||
		calls.Load() != 3 {
		t.Errorf("%d calls, %v", calls.Load(), err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	c = open(t, client.Config{Endpoints: []string{f.addr}, MaxAttempts: 1000})
	if _, err := c.Get(ctx, "k"); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}

// TestCanceledWrite: a write whose context ends after it was sent may have been applied; a write
// that found no member has not.
func TestCanceledWrite(t *testing.T) {
	arrived := make(chan struct{}, 1)
	f := start(t, &fake{put: func(ctx context.Context, _ *pb.PutRequest) (*pb.PutResponse, error) {
		arrived <- struct{}{}
		<-ctx.Done()
		return nil, ctx.Err()
	}})
	c := to(t, f)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-arrived
		cancel()
	}()
	if _, err := c.Put(ctx, "k", nil); !errors.Is(err, context.Canceled) ||
		!errors.Is(err, client.ErrUncertain) {
		t.Error(err)
	}
	if _, err := c.Put(ctx, "k", nil); !errors.Is(err, context.Canceled) ||
		errors.Is(err, client.ErrUncertain) {
		t.Error(err)
	}
}

func TestUnreachable(t *testing.T) {
	c := open(t, client.Config{Endpoints: []string{"127.0.0.1:1", "unix:///nowhere/socket"},
		DialTimeout: 300 * time.Millisecond})
	_, err := c.Put(t.Context(), "k", nil)
	u, ok := errors.AsType[*client.UnreachableError](err)
	if !ok || !errors.Is(err, client.ErrUnreachable) || errors.Is(err, client.ErrUncertain) ||
		len(u.Endpoints) != 2 {
		t.Fatalf("%v", err)
	}
	t.Log(err)
}

// TestToken: the source is asked when a token is needed, again when it is refused, and once for all
// waiting calls.
func TestToken(t *testing.T) {
	var mu sync.Mutex
	valid, given := "t0", 0
	f := start(t, &fake{get: func(ctx context.Context,
		_ *pb.RangeRequest) (*pb.RangeResponse, error) {
		md, _ := metadata.FromIncomingContext(ctx)
		mu.Lock()
		defer mu.Unlock()
		if !slices.Equal(md.Get("token"), []string{valid}) {
			return nil, rpctypes.ErrGRPCInvalidAuthToken
		}
		return &pb.RangeResponse{Header: at(2)}, nil
	}})
	c := open(t, client.Config{Endpoints: []string{f.addr},
		Token: func(context.Context) (client.Token, error) {
			mu.Lock()
			defer mu.Unlock()
			given++
			valid = "t" + string(rune('0'+given))
			return client.Token{Value: valid}, nil
		}})
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if _, err := c.Get(t.Context(), "k"); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if given != 1 {
		t.Errorf("%d tokens for 20 calls", given)
	}
	mu.Lock()
	valid = "revoked"
	mu.Unlock()
	if _, err := c.Get(t.Context(), "k"); err != nil || given != 2 {
		t.Errorf("%d tokens, %v", given, err)
	}
	// A server that refuses every token is believed in the end.
	hopeless := start(t,
		&fake{get: func(context.Context, *pb.RangeRequest) (*pb.RangeResponse, error) {
			return nil, rpctypes.ErrGRPCInvalidAuthToken
		}})
	c = open(t, client.Config{Endpoints: []string{hopeless.addr},
		Token: func(context.Context) (client.Token,
			error) {
			return client.Token{Value: "x"}, nil
		}})
	if _, err := c.Get(t.Context(), "k"); !errors.Is(err, client.ErrInvalidAuthToken) {
		t.Error(err)
	}
}

// TestExpiringToken: a token with an end is renewed before it.
func TestExpiringToken(t *testing.T) {
	var given atomic.Int64
	f := start(t, &fake{get: func(context.Context, *pb.RangeRequest) (*pb.RangeResponse, error) {
		return &pb.RangeResponse{Header: at(2)}, nil
	}})
	c := open(t, client.Config{Endpoints: []string{f.addr},
		Token: func(context.Context) (client.Token, error) {
			if given.Add(1) == 1 {
				return client.Token{Value: "short", Expires: time.Now().Add(time.Millisecond)}, nil
			}
			return client.Token{Value: "long", Expires: time.Now().Add(time.Hour)}, nil
		}})
	for end := time.Now().Add(time.Minute); given.Load() < 2; {
		if _, err := c.Get(t.Context(), "k"); err != nil || time.Now().After(end) {
			t.Fatal(given.Load(), err)
		}
	}
	for range 5 {
		if _, err := c.Get(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
	}
	if given.Load() != 2 {
		t.Errorf("%d tokens", given.Load())
	}
}

func TestPassword(t *testing.T) {
	for _, enabled := range []bool{true, false} {
		f := start(t, &fake{
			login: func(r *pb.AuthenticateRequest) (*pb.AuthenticateResponse, error) {
				switch {
				case !enabled:
					return nil, rpctypes.ErrGRPCAuthNotEnabled
				case r.Name != "ann" || r.Password != "secret":
					return nil, rpctypes.ErrGRPCAuthFailed
				}
				return &pb.AuthenticateResponse{Header: at(1), Token: "good"}, nil
			},
			get: func(ctx context.Context, _ *pb.RangeRequest) (*pb.RangeResponse, error) {
				if md, _ := metadata.FromIncomingContext(ctx); enabled != slices.Equal(md.Get("token"), []string{"good"}) {
					return nil, rpctypes.ErrGRPCPermissionDenied
				}
				return &pb.RangeResponse{Header: at(2)}, nil
			},
		})
		c := open(t, client.Config{Endpoints: []string{f.addr}, Username: "ann",
			Password: "secret"})
		if _, err := c.Get(t.Context(), "k"); err != nil {
			t.Error(err)
		}
		if !enabled {
			continue
		}
		if _, err := client.Connect(t.Context(),
			client.Config{Endpoints: []string{f.addr}, Username: "ann",
				Password: "wrong"}); !errors.Is(err, client.ErrAuthFailed) {
			t.Error(err)
		}
	}
}

// TestHooks: every call is reported once, with its attempts, and the context of StartCall is used.
func TestHooks(t *testing.T) {
	type mark struct{}
	var calls atomic.Int64
	f := start(t, &fake{get: func(ctx context.Context,
		_ *pb.RangeRequest) (*pb.RangeResponse, error) {
		if md, _ := metadata.FromIncomingContext(ctx); !slices.Equal(md.Get("trace"),
			[]string{"1"}) {
			t.Error("the trace is not carried")
		}
		if calls.Add(1) == 1 {
			return nil, rpctypes.ErrGRPCTimeout
		}
		return &pb.RangeResponse{Header: at(2)}, nil
	}})
	var ended []client.Call
	var retries, members atomic.Int64
	c := open(t, client.Config{Endpoints: []string{f.addr},
		DialOptions: []grpc.DialOption{grpc.WithUserAgent("test")}, Hooks: client.Hooks{
			StartCall: func(ctx context.Context, _ string) context.Context {
				return metadata.AppendToOutgoingContext(context.WithValue(ctx, mark{},
					true), "trace", "1")
			},
			EndCall: func(ctx context.Context, call client.Call) {
				if ctx.Value(mark{}) != true {
					t.Error("another context")
				}
				ended = append(ended, call)
			},
			Retry:  func(string, string, int, error) { retries.Add(1) },
			Member: func(string, client.MemberState, error) { members.Add(1) },
		}})
	if _, err := c.Get(t.Context(), "k"); err != nil {
		t.Fatal(err)
	}
	if len(ended) != 1 || ended[0].Attempts != 2 || ended[0].Member != f.addr ||
		ended[0].Err != nil || ended[0].Method != "/etcdserverpb.KV/Range" || retries.Load() != 1 ||
		members.Load() == 0 {
		t.Errorf("%+v, %d retries, %d changes of members", ended, retries.Load(), members.Load())
	}
}

// TestSetEndpoints: calls and watchers move to the endpoints that are set.
func TestSetEndpoints(t *testing.T) {
	serve := func() *fake {
		return start(t, &fake{
			get: func(context.Context, *pb.RangeRequest) (*pb.RangeResponse, error) {
				return &pb.RangeResponse{Header: at(2)}, nil
			},
			watch: func(s *fakeStream) error {
				id := s.creates(1)[0].GetWatchId()
				if err := s.send(&pb.WatchResponse{WatchId: id, Created: true, Header: at(2)},
					&pb.WatchResponse{WatchId: id, Header: at(2)}); err != nil {
					return err
				}
				return s.hold()
			},
		})
	}
	a, b := serve(), serve()
	c := to(t, a)
	w := c.Watch(limited(t), "k", client.WithProgress())
	progress := func() {
		t.Helper()
		for _, err := range w.Batches() {
			if err != nil {
				t.Error(err)
			}
			break
		}
	}
	progress()
	if err := c.SetEndpoints("https://" + b.addr); !errors.Is(err, client.ErrInvalid) {
		t.Error(err)
	}
	if err := c.SetEndpoints(b.addr); err != nil {
		t.Fatal(err)
	}
	progress() // of the new stream
	if _, err := c.Get(t.Context(), "k"); err != nil || c.Member() != b.addr ||
		!slices.Equal(c.Endpoints(), []string{b.addr}) {
		t.Errorf("%v, at %s of %v", err, c.Member(), c.Endpoints())
	}
}

// TestBadConfig: all mistakes are reported at once, with what to do.
func TestBadConfig(t *testing.T) {
	_, err := client.New(client.Config{
		Endpoints: []string{"http://a:1", "https://b:2", "ftp://c:3", "d", "unix://"},
		TLSFiles:  client.TLSFiles{Cert: "/nowhere/cert.pem"},
		Password:  "x", MaxAttempts: -1, DialTimeout: -time.Second,
	})
	if !errors.Is(err, client.ErrInvalid) {
		t.Fatal(err)
	}
	for _, part := range []string{"use one or the other", `"ftp"`, `"d"`, "no path", "both or none",
		"Username is not", "MaxAttempts is -1", "DialTimeout is -1s"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q is missing in\n%v", part, err)
		}
	}
	if _, err := client.New(client.Config{}); err == nil ||
		!strings.Contains(err.Error(), "no endpoint") {
		t.Error(err)
	}
}

// TestOldRevision: the server rejects a call without effect because users or roles have changed
// during it. It is repeated, also a write and with a certificate, which has no token to renew.
func TestOldRevision(t *testing.T) {
	var calls, watches, tokens atomic.Int64
	old := func() error {
		if calls.Add(1)%3 != 0 {
			return rpctypes.ErrGRPCAuthOldRevision
		}
		return nil
	}
	f := start(t, &fake{
		get: func(context.Context, *pb.RangeRequest) (*pb.RangeResponse, error) {
			return &pb.RangeResponse{Header: at(2)}, old()
		},
		put: func(context.Context, *pb.PutRequest) (*pb.PutResponse, error) {
			return &pb.PutResponse{Header: at(2)}, old()
		},
		watch: func(s *fakeStream) error {
			for {
				r := s.creates(1)[0]
				if r == nil {
					return nil
				}
				replies := []*pb.WatchResponse{{WatchId: r.WatchId, Created: true},
					{WatchId: r.WatchId, Header: at(2)}}
				if watches.Add(1)%3 != 0 {
					replies = []*pb.WatchResponse{{WatchId: r.WatchId, Created: true,
						Canceled: true, CancelReason: rpctypes.ErrGRPCAuthOldRevision.Error()}}
				}
				if err := s.send(replies...); err != nil {
					return err
				}
			}
		},
	})
	source := func(context.Context) (client.Token, error) {
		tokens.Add(1)
		return client.Token{Value: "t"}, nil
	}
	for name, c := range map[string]*client.Client{
		"a certificate": open(t, client.Config{Endpoints: []string{f.addr}}),
		"a token":       open(t, client.Config{Endpoints: []string{f.addr}, Token: source}),
	} {
		before := tokens.Load()
		if _, err := c.Get(t.Context(), "k"); err != nil {
			t.Errorf("a get with %s: %v", name, err)
		}
		if _, err := c.Put(t.Context(), "k", nil); err != nil {
			t.Errorf("a put with %s: %v", name, err)
		}
		for _, err := range c.Watch(limited(t), "k", client.WithProgress()).Batches() {
			if err != nil {
				t.Errorf("a watch with %s: %v", name, err)
			}
			break
		}
		if n := tokens.Load() - before; n != 0 && name == "a certificate" ||
			n < 4 && name == "a token" {
			t.Errorf("%s: %d tokens were requested", name, n)
		}
	}
	// It does not go on for ever.
	never := start(t, &fake{get: func(context.Context,
		*pb.RangeRequest) (*pb.RangeResponse, error) {
		return nil, rpctypes.ErrGRPCAuthOldRevision
	}})
	for _, c := range []*client.Client{open(t,
		client.Config{Endpoints: []string{never.addr}, MaxAttempts: 3}),
		open(t, client.Config{Endpoints: []string{never.addr}, MaxAttempts: 3, Token: source})} {
		if _, err := c.Get(t.Context(), "k"); !errors.Is(err, client.ErrAuthOldRevision) {
			t.Errorf("a server that always refuses: %v", err)
		}
	}
}
