package cluster

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/metadata"

	"vigil/test/proc"
)

// Users, and the tokens that one member has issued, are known to all; they survive the leader, and
// reach a member that was away.
func TestAuthInACluster(t *testing.T) {
	t.Parallel()
	// Longer than a member without a processor stands still, though the leader is killed.
	g := start(t, 3, "--election-timeout=3000", "--bcrypt-cost=4", "--snapshot-count=50",
		"--snapshot-catchup-entries=10")
	ctx := proc.Context(t)
	lead := g.leader()
	rest := g.others(lead)
	try := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	c := rest[0].client
	try(c.UserAdd(ctx, "root", "root"))
	try(c.UserGrantRole(ctx, "root", "root"))
	try(c.RoleAdd(ctx, "r"))
	try(c.RoleGrantPermission(ctx, "r", "a", "b", clientv3.PermissionType(clientv3.PermReadWrite)))
	try(c.UserAdd(ctx, "alice", "alice"))
	try(c.UserGrantRole(ctx, "alice", "r"))
	try(c.AuthEnable(ctx))

	// token is one that a member has issued, as the context of calls.
	token := func(m *member, user string) context.Context {
		t.Helper()
		res, err := m.client.Authenticate(ctx, user, user)
		if err != nil {
			t.Fatal(err)
		}
		return metadata.AppendToOutgoingContext(ctx, "token", res.Token)
	}
	everywhere := func(when string, members []*member, alice context.Context) {
		t.Helper()
		for i, m := range members {
			// At once: the member may not have applied yet what issued the token.
			if _, err := m.client.Put(alice, fmt.Sprintf("a%d", i), ""); err != nil {
				t.Errorf("%s, put at %s: %v", when, m.name, err)
			}
			if _, err := m.client.Get(alice, "a0", clientv3.WithSerializable()); err != nil {
				t.Errorf("%s, get at %s: %v", when, m.name, err)
			}
			if _, err := m.client.Put(alice, "x", ""); !errors.Is(err,
				rpctypes.ErrPermissionDenied) {
				t.Errorf("%s, another's key at %s: %v", when, m.name, err)
			}
			if _, err := m.client.Get(ctx, "a0", clientv3.WithSerializable()); !errors.Is(err,
				rpctypes.ErrUserEmpty) {
				t.Errorf("%s, without a user at %s: %v", when, m.name, err)
			}
		}
	}
	for _, m := range g.list {
		everywhere("token of "+m.name, g.list, token(m, "alice"))
	}
	alice := token(rest[1], "alice")
	bad := metadata.AppendToOutgoingContext(ctx, "token", "abcdefghabcdefgh.9999999")
	if _, err := rest[0].client.Get(bad, "a0"); !errors.Is(err, rpctypes.ErrInvalidAuthToken) {
		t.Errorf("a token of the future: %v", err)
	}

	// Without the leader the tokens are as good as before. What it misses meanwhile comes to it
	// later.
	lead.Kill()
	g.until("another leader", func() bool {
		_, err := rest[0].client.Put(alice, "a", "")
		return err == nil
	})
	everywhere("after the leader", rest, alice)
	root := token(rest[0], "root")
	try(rest[0].client.RoleGrantPermission(root, "r", "n", "",
		clientv3.PermissionType(clientv3.PermRead)))
	for i := range 200 {
		try(rest[0].client.Put(root, fmt.Sprintf("k%d", i), ""))
	}
	lead.Restart()
	g.until("the member is back", func() bool {
		short, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		res, err := lead.client.Authenticate(short, "root", "root")
		if err != nil {
			return false
		}
		got, err := lead.client.Get(metadata.AppendToOutgoingContext(short, "token", res.Token),
			"k199", clientv3.WithSerializable())
		return err == nil && len(got.Kvs) == 1
	})
	again := token(lead, "alice")
	if _, err := lead.client.Get(again, "n", clientv3.WithSerializable()); err != nil {
		t.Errorf("a permission that was granted meanwhile: %v", err)
	}
	everywhere("all together", g.list, again)
}
