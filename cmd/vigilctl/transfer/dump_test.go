package transfer

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"

	"vigil/client"
	"vigil/client/lease"
	"vigil/cmd/vigilctl/dumpfile"
	"vigil/cmd/vigilctl/keytext"
	"vigil/server/servertest"
)

func TestRemoveNested(t *testing.T) {
	for _, c := range []struct{ in, want []string }{
		{nil, []string{""}},
		{[]string{"b", "a/b", "a/", "a/b", "ab"}, []string{"a/", "ab", "b"}},
		{[]string{"x", ""}, []string{""}},
	} {
		if got := removeNested(c.in); !slices.Equal(got, c.want) {
			t.Errorf("%q: %q, want %q", c.in, got, c.want)
		}
	}
}

// TestLoadWaits: a load continues after a while without answers from members, and skips the keys
// that it wrote in that time. It limits its calls, and reports an outcome that stays unknown.
func TestLoadWaits(t *testing.T) {
	endpoint := servertest.Start(t)
	// The answers of the first grant and of transactions are lost, these for a while from the first
	// on.
	var calls atomic.Int64
	var granted bool
	var first time.Time
	lost, lasts := func() {}, 700*time.Millisecond
	arrives := func(method string) bool {
		switch {
		case strings.HasSuffix(method, "LeaseGrant") && !granted:
			granted = true
			return false
		case strings.HasSuffix(method, "KV/Txn"):
			if first.IsZero() {
				first = time.Now()
			}
			return time.Since(first) > lasts
		}
		return true
	}
	c, err := client.New(client.Config{Endpoints: []string{endpoint},
		DialOptions: []grpc.DialOption{grpc.WithUnaryInterceptor(
			func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn,
				invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
				calls.Add(1)
				if err := invoke(ctx, method, req, reply, cc, opts...); err != nil {
					return err
				}
				if arrives(method) {
					return nil
				}
				lost()
				return rpctypes.ErrGRPCTimeout
			})}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	l := &load{ended: map[client.LeaseID]bool{}, keeper: lease.NewKeeper(c)}
	defer l.keeper.Close()
	if err := l.grantLease(t.Context(), c, &dumpfile.Lease{ID: 77, TTL: 60}); err != nil {
		t.Fatal(err)
	}
	keys := []dumpfile.Key{{Key: "a", Value: "1", Metadata: keytext.Metadata{Lease: 77}},
		{Key: "b", Value: "2"}}
	if err := l.putBatch(t.Context(), c, keys); err != nil {
		t.Fatal(err)
	}
	if n := l.done; n.same != 2 || n.put != 0 {
		t.Errorf("%+v", n)
	}
	if n := calls.Load(); n > 20 {
		t.Errorf("%d calls", n)
	}
	lasts = time.Hour
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	lost = sync.OnceFunc(func() { time.AfterFunc(200*time.Millisecond, cancel) })
	if err := l.putBatch(ctx, c, []dumpfile.Key{{Key: "c"}}); !errors.Is(err,
		client.ErrUncertain) || !strings.Contains(err.Error(), "unknown") {
		t.Error(err)
	}
}
