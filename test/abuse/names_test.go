package abuse

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"vigil/test/proc"
)

// TestLongNames sends long texts wherever one may end in the log, without any rights.
func TestLongNames(t *testing.T) {
	attack{
		config: proc.Config{Args: []string{"--host-whitelist=localhost,127.0.0.1"}},
		do: func(t *testing.T, s *proc.Server) error {
			path := "http://" + s.Addr()
			client := &http.Client{}
			for i := range 400 {
				r, err := http.NewRequest(http.MethodGet,
					path+"/livez?exclude="+url.QueryEscape(strings.Repeat("\n", 10<<10)), nil)
				if err != nil {
					return err
				}
				if i%2 == 1 {
					r.URL.RawQuery = ""
					r.Host = fmt.Sprint("evil", i, strings.Repeat("x", 50<<10))
				}
				res, err := client.Do(r)
				if err != nil {
					return err
				}
				res.Body.Close()
			}
			return nil
		},
		most: figures{memory: 150 * mib, log: 2 * mib, files: 20, worst: 2e9},
	}.run(t)
}

// TestUnknownUsers asks for tokens with long names, without any rights.
func TestUnknownUsers(t *testing.T) {
	attack{
		prepare: func(t *testing.T, s *proc.Server) {
			auth := pb.NewAuthClient(s.Dial())
			ctx := proc.Context(t)
			if _, err := auth.UserAdd(ctx,
				&pb.AuthUserAddRequest{Name: "root", Password: "p"}); err != nil {
				t.Fatal(err)
			}
			if _, err := auth.UserGrantRole(ctx,
				&pb.AuthUserGrantRoleRequest{User: "root", Role: "root"}); err != nil {
				t.Fatal(err)
			}
			if _, err := auth.AuthEnable(ctx, &pb.AuthEnableRequest{}); err != nil {
				t.Fatal(err)
			}
		},
		do: func(t *testing.T, s *proc.Server) error {
			long := strings.Repeat("\x00", mib)
			auth := pb.NewAuthClient(s.Dial())
			// For a time: each may take as long as a password takes to be compared.
			for end := time.Now().Add(spell(3 * time.Second)); time.Now().Before(end); {
				_, _ = auth.Authenticate(proc.Context(t),
					&pb.AuthenticateRequest{Name: long, Password: "x"})
				_, _ = auth.Authenticate(proc.Context(t),
					&pb.AuthenticateRequest{Name: "root", Password: "x"})
			}
			return nil
		},
		// The other client has no token: its calls fail, and soon.
		most: figures{memory: 200 * mib, log: 2 * mib, files: 20, worst: 2e9, failed: 1 << 20},
	}.run(t)
}
