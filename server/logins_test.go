package server

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/status"
)

// A client without an account that logs in with as many calls as it can, over one connection of
// gRPC or of HTTP, does not keep others from logging in.
func TestLoginsBesideAFlood(t *testing.T) {
	for name, flood := range map[string]func(t *testing.T, v *vault,
		ctx context.Context) func(i int) error{
		"gRPC": func(t *testing.T, v *vault, ctx context.Context) func(int) error {
			auth := pb.NewAuthClient(dial(t, v.addr))
			return func(i int) error {
				_, err := auth.Authenticate(ctx,
					&pb.AuthenticateRequest{Name: fmt.Sprint("nobody", i), Password: "x"})
				return err
			}
		},
		"HTTP": func(t *testing.T, v *vault, ctx context.Context) func(int) error {
			// All calls share a connection.
			tr := &http.Transport{Protocols: new(http.Protocols)}
			tr.Protocols.SetUnencryptedHTTP2(true)
			t.Cleanup(tr.CloseIdleConnections)
			return func(i int) error {
				body := fmt.Appendf(nil, `{"name":"nobody%d","password":"x"}`, i)
				req, err := http.NewRequestWithContext(ctx, http.MethodPost,
					"http://"+v.addr+"/v3/auth/authenticate", bytes.NewReader(body))
				if err != nil {
					return err
				}
				res, err := tr.RoundTrip(req)
				if err != nil {
					return err
				}
				defer res.Body.Close()
				_, err = io.Copy(io.Discard, res.Body)
				return err
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			v := newVault(t, Config{Auth: Auth{BcryptCost: 6}})
			ctx, cancel := context.WithCancel(t.Context())
			call := flood(t, v, ctx)
			var answered atomic.Int64
			var calls sync.WaitGroup
			defer calls.Wait()
			defer cancel()
			for i := range 1200 {
				calls.Go(func() {
					for ctx.Err() == nil {
						call(i)
						if answered.Add(1) > 1200 {
							// rejected calls leave processors to the rest of the test
							time.Sleep(time.Millisecond)
						}
					}
				})
			}
			for answered.Load() < 50 { // the queue is full
				time.Sleep(time.Millisecond)
			}
			good := pb.NewAuthClient(dial(t, v.addr))
			for range 31 {
				if _, err := good.Authenticate(timeout(t),
					&pb.AuthenticateRequest{Name: "alice", Password: "alice"}); err != nil {
					t.Fatalf("a login beside the flood: %v", status.Convert(err).Message())
				}
			}
		})
	}
}
