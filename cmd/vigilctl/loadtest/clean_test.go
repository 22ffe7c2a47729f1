package loadtest

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"

	"vigil/cmd/vigilctl/cli"
	"vigil/cmd/vigilctl/exit"
	"vigil/server/servertest"
)

// TestKeysRemain: a load whose keys cannot be deleted is a failure, and does not report that they
// are deleted.
func TestKeysRemain(t *testing.T) {
	at := servertest.Start(t)
	for _, interrupted := range []bool{false, true} {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var deletions atomic.Int64
		var out strings.Builder
		env := &cli.Env{Stdout: cli.NewOutput(&out), Stderr: io.Discard}
		env.AddFlags((&cobra.Command{}).Flags())
		env.Endpoints = []string{at}
		env.Config.DialOptions = []grpc.DialOption{grpc.WithUnaryInterceptor(
			func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn,
				invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
				if strings.HasSuffix(method, "KV/DeleteRange") {
					deletions.Add(1)
					return errors.New("no deletions")
				}
				if interrupted && strings.HasSuffix(method, "KV/Put") {
					defer cancel()
				}
				return invoke(ctx, method, req, reply, cc, opts...)
			})}
		prefix := "kept/"
		if interrupted {
			prefix = "interrupted/"
		}
		err := checkPerf(ctx, env, loadFlags{prefix: prefix},
			workload{rate: 100, duration: 200 * time.Millisecond, clients: 1, keyBytes: 16,
				valueBytes: 1})
		code := exit.Failure
		if interrupted {
			code = exit.Interrupted
		}
		if exit.Code(err) != code || strings.Contains(err.Error(), "have been deleted") ||
			deletions.Load() != 1 || !strings.Contains(out.String(), "no deletions") {
			t.Errorf("interrupted %v: %v\n%s", interrupted, err, out.String())
		}
	}
}
