package discovery

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"vigil/test/proc"
)

// patience bounds the waiting for a condition.
const patience = 60 * time.Second

const root = "/_etcd/registry/"

// registry is a server that keeps tokens.
type registry struct {
	*proc.Server
	client *clientv3.Client
}

func startRegistry(t *testing.T, p proc.Program) *registry {
	t.Helper()
	s := proc.Start(t, proc.Config{Program: p, Memory: true})
	return &registry{s, s.Client()}
}

func (r *registry) put(t *testing.T, key, value string) {
	t.Helper()
	if _, err := r.client.Put(proc.Context(t), key, value); err != nil {
		t.Fatal(err)
	}
}

// members returns what has registered under a token, by key.
func (r *registry) members(t *testing.T, token string) map[string]string {
	t.Helper()
	res, err := r.client.Get(proc.Context(t), root+token+"/members", clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, kv := range res.Kvs {
		out[string(kv.Key)] = string(kv.Value)
	}
	return out
}

// member prepares a server that is to find its cluster under a token.
func (r *registry) member(t *testing.T, p proc.Program, name, token string,
	args ...string) *proc.Server {
	t.Helper()
	return proc.New(t, proc.Config{Program: p, Name: name, Memory: true, Discover: true,
		Args: append([]string{"--discovery-endpoints=http://" + r.Addr(),
			"--discovery-token=" + token}, args...)})
}

// until waits for a line in the log of a process that must not end before.
func until(t *testing.T, s *proc.Server, line string) {
	t.Helper()
	select {
	case <-s.Log().Wait(line):
	case <-time.After(patience):
		t.Fatalf("no line with %q after %v:\n%s", line, patience, s.Log().Tail(20))
	}
}

// refused expects a member to end with one line, and no data.
func refused(t *testing.T, s *proc.Server, want string) {
	t.Helper()
	s.Launch()
	if code := s.Wait(); code == 0 || !strings.Contains(s.Log().Tail(1), want) {
		t.Errorf("exit code %d, want the last line to have %q:\n%s", code, want, s.Log().Tail(5))
	}
	if _, err := os.Stat(s.DataDir()); err == nil {
		t.Errorf("%s was written", s.DataDir())
	}
}

// list returns the initial cluster that a stock member or a Vigil one has found.
func list(t *testing.T, s *proc.Server) string {
	t.Helper()
	until(t, s, "discovery joined cluster successfully")
	for line := range strings.Lines(s.Log().String()) {
		var l struct{ Msg, Cluster string }
		if json.Unmarshal([]byte(line), &l) == nil &&
			l.Msg == "discovery joined cluster successfully" {
			return l.Cluster
		}
	}
	t.Fatal("the line is not JSON")
	return ""
}

// Three members that know only a token become a cluster, which then no longer needs the registry
// and accepts no other member.
func TestRegistry(t *testing.T) {
	for _, p := range []proc.Program{proc.Etcd, proc.Vigil} {
		t.Run("kept by "+string(p), func(t *testing.T) {
			t.Parallel()
			r := startRegistry(t, p)
			r.put(t, root+"blue/_config/size", "3")
			var all []*proc.Server
			for _, name := range []string{"m1", "m2", "m3"} {
				s := r.member(t, proc.Vigil, name, "blue")
				s.Launch()
				all = append(all, s)
			}
			for _, s := range all {
				s.Ready()
			}
			c := all[0].Client()
			res, err := c.MemberList(proc.Context(t))
			if err != nil {
				t.Fatal(err)
			}
			registered := r.members(t, "blue")
			if len(res.Members) != 3 || len(registered) != 3 {
				t.Fatalf("members %v, registered %v", res.Members, registered)
			}
			for _, m := range res.Members {
				if key := fmt.Sprintf("%sblue/members/%x", root, m.ID); registered[key] != m.Name+
					"="+m.PeerURLs[0] {
					t.Errorf("%s is %q, the member %v", key, registered[key], m)
				}
			}
			if _, err := c.Put(proc.Context(t), "k", "v"); err != nil {
				t.Fatal(err)
			}

			refused(t, r.member(t, proc.Vigil, "m4", "blue"),
				"failed to join discovery cluster (discovery: cluster is full)")
			if n := len(r.members(t, "blue")); n != 3 {
				t.Errorf("%d are registered after one was refused", n)
			}
			// A member that lost its data finds the list again, and must not begin anew.
			all[2].Kill()
			if err := os.RemoveAll(all[2].DataDir()); err != nil {
				t.Fatal(err)
			}
			refused(t, all[2], "has already been bootstrapped")

			r.Kill()
			all[1].Kill()
			all[1].Restart()
			until(t, all[1], "discovery token is ignored since cluster already initialized")
		})
	}
}

// A stock member and a Vigil one find the same list in either registry. They do not form a cluster.
func TestRegistryBesideStock(t *testing.T) {
	for _, p := range []proc.Program{proc.Etcd, proc.Vigil} {
		t.Run("kept by "+string(p), func(t *testing.T) {
			t.Parallel()
			r := startRegistry(t, p)
			r.put(t, root+"both/_config/size", "2")
			stock, vigil := r.member(t, proc.Etcd, "stock", "both"),
				r.member(t, proc.Vigil, "vigil", "both")
			stock.Launch()
			vigil.Launch()
			if a, b := list(t, stock), list(t, vigil); a != b {
				t.Errorf("stock found %s, Vigil %s", a, b)
			} else {
				t.Log(a)
			}
		})
	}
}

func TestRegistryRefuses(t *testing.T) {
	t.Parallel()
	r := startRegistry(t, proc.Etcd)
	r.put(t, root+"many/_config/size", "many")
	r.put(t, root+"none/_config/size", "0")
	r.put(t, root+"wrong/_config/size", "2")
	r.put(t, root+"wrong/members/1", "other=nonsense")
	r.put(t, root+"twice/_config/size", "2")
	r.put(t, root+"twice/members/1", "m1=http://127.0.0.1:1")
	for _, c := range []struct {
		token, want string
		args        []string
	}{
		{"unknown", "discovery: size key not found", nil},
		{"many", "discovery: size key is bad", nil},
		{"none", "discovery: size key is bad", nil},
		{"wrong", "discovery: invalid peer URL", nil},
		{"twice", `but --initial-advertise-peer-urls has`, nil},
		{"", "both --discovery-token and --discovery-endpoints must be set", nil},
		{"unknown", "multiple discovery or bootstrap flags are set",
			[]string{"--initial-cluster=m1=http://127.0.0.1:1"}},
		{"unknown", "discovery URL should not be set when joining existing initial cluster",
			[]string{"--initial-cluster-state=existing"}},
	} {
		s := r.member(t, proc.Vigil, "m1", c.token, c.args...)
		if c.token == "" {
			s.SetArgs("--discovery-endpoints=http://" + r.Addr())
		}
		refused(t, s, c.want)
	}
}

func TestRegistryWithPasswords(t *testing.T) {
	t.Parallel()
	r := startRegistry(t, proc.Etcd)
	r.put(t, root+"blue/_config/size", "1")
	ctx := proc.Context(t)
	must := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(r.client.RoleAdd(ctx, "registrar"))
	must(r.client.RoleGrantPermission(ctx, "registrar", root, clientv3.GetPrefixRangeEnd(root),
		clientv3.PermissionType(clientv3.PermReadWrite)))
	for _, name := range []string{"root", "alice", "bob"} {
		must(r.client.UserAdd(ctx, name, "secret"))
	}
	must(r.client.UserGrantRole(ctx, "root", "root"))
	must(r.client.UserGrantRole(ctx, "alice", "registrar"))
	must(r.client.AuthEnable(ctx))

	refused(t, r.member(t, proc.Vigil, "m1", "blue", "--discovery-user=alice",
		"--discovery-password=wrong"), "authentication failed, invalid user ID or password")
	refused(t, r.member(t, proc.Vigil, "m1", "blue", "--discovery-user=bob:secret"),
		"permission denied")
	refused(t, r.member(t, proc.Vigil, "m1", "blue"), "user name is empty")
	s := r.member(t, proc.Vigil, "m1", "blue", "--discovery-user=alice",
		"--discovery-password=secret")
	s.Restart()
	if strings.Contains(s.Log().String(), "secret") {
		t.Error("the password is in the log")
	}
}

// A member waits for a registry that is away, and for other members, until it is stopped.
func TestRegistryAway(t *testing.T) {
	t.Parallel()
	r := startRegistry(t, proc.Etcd)
	r.put(t, root+"blue/_config/size", "2")
	r.Kill()
	one := r.member(t, proc.Vigil, "m1", "blue")
	one.Launch()
	until(t, one, "retry connecting to discovery service")
	r.Restart()
	until(t, one, "waiting for peers from discovery service")

	// While it waits the registry goes and comes back, and so does the member.
	r.Kill()
	until(t, one, "the wait for peers was interrupted")
	r.Restart()
	if code := one.Stop(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if files, _ := filepath.Glob(filepath.Join(one.DataDir(), "*")); len(files) > 0 {
		t.Errorf("there are %v", files)
	}
	one.Launch()
	until(t, one, "waiting for peers from discovery service")
	two := r.member(t, proc.Vigil, "m2", "blue")
	two.Launch()
	one.Ready()
	two.Ready()
}
