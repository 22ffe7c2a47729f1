package tls

import (
	"errors"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"vigil/test/proc"
	"vigil/test/proc/pki"
)

// TestCommonNameIsUser: a client with a certificate and no token is the user that the certificate
// names.
func TestCommonNameIsUser(t *testing.T) {
	ca := pki.New(t)
	for _, name := range []string{"server", "root", "alice", "nobody"} {
		ca.Issue(name, nil)
	}
	for _, program := range both {
		t.Run(string(program), func(t *testing.T) {
			t.Parallel()
			s := start(t, program, []string{"https"}, mutual(ca)...)
			u, ctx := "https://"+s.Addr(), proc.Context(t)
			root := dial(t, u, ca.Client("root"))
			var errs []error
			note := func(_ any, err error) { errs = append(errs, err) }
			without := &clientv3.UserAddOptions{NoPassword: true}
			note(root.UserAddWithOptions(ctx, "root", "", without))
			note(root.UserGrantRole(ctx, "root", "root"))
			note(root.UserAddWithOptions(ctx, "alice", "", without))
			note(root.RoleAdd(ctx, "a"))
			note(root.RoleGrantPermission(ctx, "a", "a/", "a0",
				clientv3.PermissionType(clientv3.PermReadWrite)))
			note(root.UserGrantRole(ctx, "alice", "a"))
			note(root.AuthEnable(ctx))
			if err := errors.Join(errs...); err != nil {
				t.Fatal(err)
			}
			alice := dial(t, u, ca.Client("alice"))
			if _, err := alice.Put(ctx, "a/1", "x"); err != nil {
				t.Errorf("alice: %v", err)
			}
			if _, err := alice.Put(ctx, "b", "x"); !errors.Is(err, rpctypes.ErrPermissionDenied) {
				t.Errorf("alice writes what is not hers: %v", err)
			}
			if _, err := root.Put(ctx, "b", "x"); err != nil {
				t.Errorf("root: %v", err)
			}
			_, err := dial(t, u, ca.Client("nobody")).Put(ctx, "a/1", "x")
			if err == nil {
				t.Error("a user that is not there may write")
			}
			t.Logf("nobody: %v", err)
		})
	}
}
