package server

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"golang.org/x/net/websocket"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	"vigil/internal/edge/console"
	"vigil/internal/vfs"
	"vigil/internal/vfs/faultfs"
)

// ownPosition are the methods that a member answers by the rights that it has applied, although
// other members may know newer ones. What they return is as old as these rights, as in etcd.
var ownPosition = map[string]string{
	"/etcdserverpb.Watch/Watch":        "events are kept back while rights change; older ones could be read with the older rights",
	"/v3electionpb.Election/Observe":   "a watcher",
	"/etcdserverpb.Cluster/MemberList": "the request is not linearizable",
	"/etcdserverpb.Maintenance/Status": "it describes this member, above all one that hangs",
}

// stuckCluster is three members, one of which does not apply anything after hang.
type stuckCluster struct {
	t       *testing.T
	members [3]*Member
	logs    [3]lockedText
	stuck   int
	gate    chan struct{} // apply of the stuck member continues when it is closed
	hangs   sync.Once
	mu      struct {
		sync.Mutex
		hung bool
	}
}

// lockedText is a text that goroutines append to.
type lockedText struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lockedText) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lockedText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func (c *stuckCluster) isHung() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.hung
}

func newStuckCluster(t *testing.T) *stuckCluster {
	c := &stuckCluster{t: t, gate: make(chan struct{}), stuck: -1}
	var urls, list []string
	for i := range c.members {
		urls = append(urls, vacantURL(t))
		list = append(list, fmt.Sprintf("m%d=%s", i, urls[i]))
	}
	dir := t.TempDir()
	for i := range c.members {
		m, err := Start(Config{
			Name: fmt.Sprintf("m%d", i), DataDir: filepath.Join(dir, fmt.Sprintf("m%d.etcd", i)),
			ListenClientURLs:    []string{"http://127.0.0.1:0"},
			AdvertiseClientURLs: []string{DefaultClientURL},
			ListenPeerURLs:      []string{urls[i]}, InitialAdvertisePeerURLs: []string{urls[i]},
			InitialCluster: strings.Join(list, ","),
			UnsafeNoSync:   true, LaxReconfig: true,
			Logger: slog.New(slog.NewTextHandler(&c.logs[i], nil)), Auth: Auth{BcryptCost: 4},
			FS: faultfs.New(vfs.OS(), func(op faultfs.Op, name string) faultfs.Fault {
				if op == faultfs.OpWrite && strings.Contains(name, "/history/") &&
					c.isHung() && i == c.stuck {
					<-c.gate
				}
				return faultfs.None
			}),
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { stop(t, m) })
		c.members[i] = m
	}
	t.Cleanup(c.release)
	for _, m := range c.members {
		<-m.replica.Ready()
	}
	return c
}

func (c *stuckCluster) release() { c.hangs.Do(func() { close(c.gate) }) }

// leader returns the member that leads.
func (c *stuckCluster) leader() int {
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(time.Millisecond) {
		for i, m := range c.members {
			if s := m.replica.Status(); s.Leader == s.MemberID && s.Leader != 0 {
				return i
			}
		}
	}
	c.t.Fatal("no leader")
	return 0
}

// hang lets a member apply nothing more. ctx has the right to write.
func (c *stuckCluster) hang(ctx context.Context, i int) {
	c.mu.Lock()
	c.stuck, c.mu.hung = i, true
	c.mu.Unlock()
	if _, err := pb.NewKVClient(c.client((i+1)%3).cc).Put(ctx,
		&pb.PutRequest{Key: []byte("hung")}); err != nil {
		c.t.Fatal(err)
	}
	c.await("the member is stuck", func() bool {
		s := c.members[i].replica.Status()
		return s.Applied < s.RaftIndex
	})
}

func (c *stuckCluster) await(what string, ok func() bool) {
	c.t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			c.t.Fatalf("waited a minute until %s", what)
		}
	}
}

// client returns a client of a member, as a vault.
func (c *stuckCluster) client(i int) *vault {
	addr := c.members[i].ClientAddrs()[0].String()
	return &vault{t: c.t, m: c.members[i], addr: addr, cc: dial(c.t, addr)}
}

// summary describes everything that a call could change, as a member knows it. root is a context of
// root.
func (c *stuckCluster) summary(v *vault, root context.Context) string {
	c.t.Helper()
	var out []string
	note := func(m proto.Message, err error) {
		c.t.Helper()
		if err != nil {
			c.t.Fatal(err)
		}
		m.ProtoReflect().Clear(m.ProtoReflect().Descriptor().Fields().ByName("header"))
		out = append(out, protojson.Format(m))
	}
	auth, m, l := pb.NewAuthClient(v.cc), pb.NewMaintenanceClient(v.cc), pb.NewLeaseClient(v.cc)
	status, err := auth.AuthStatus(root, &pb.AuthStatusRequest{})
	note(status, err)
	users, err := auth.UserList(root, &pb.AuthUserListRequest{})
	note(users, err)
	roles, err := auth.RoleList(root, &pb.AuthRoleListRequest{})
	note(roles, err)
	alarms, err := m.Alarm(root, &pb.AlarmRequest{})
	note(alarms, err)
	leases, err := l.LeaseLeases(root, &pb.LeaseLeasesRequest{})
	slices.SortFunc(leases.Leases, func(a, b *pb.LeaseStatus) int { return int(a.ID - b.ID) })
	note(leases, err)
	members, err := pb.NewClusterClient(v.cc).MemberList(root,
		&pb.MemberListRequest{Linearizable: true})
	note(members, err)
	s := c.members[v.index(c)].replica.Status()
	state, err := m.Status(root, &pb.StatusRequest{})
	if err != nil {
		c.t.Fatal(err)
	}
	return strings.Join(append(out, fmt.Sprint(s.Revision, s.CompactRevision, state.DowngradeInfo)),
		"\n")
}

func (v *vault) index(c *stuckCluster) int { return slices.Index(c.members[:], v.m) }

// httpPaths returns the paths of a method in the JSON gateway.
func httpPaths(m protoreflect.MethodDescriptor) (out []string) {
	note := func(rule protoreflect.Message) {
		if p := rule.Get(rule.Descriptor().Fields().ByName("post")).String(); p != "" {
			out = append(out, p)
		}
	}
	m.Options().ProtoReflect().Range(func(f protoreflect.FieldDescriptor,
		v protoreflect.Value) bool {
		if f.FullName() == "google.api.http" {
			note(v.Message())
			for more, i := v.Message().Get(v.Message().Descriptor().Fields().ByName("additional_bindings")).List(), 0; i < more.Len(); i++ {
				note(more.Get(i).Message())
			}
		}
		return true
	})
	return out
}

// trial is one call that must not succeed.
type trial struct {
	name string
	// run returns nil if the call has succeeded.
	run func(context.Context) error
}

// trials are all calls of clients of a member: each method by gRPC, by JSON and on a WebSocket, and
// the calls of the console.
func (c *stuckCluster) trials(v *vault, requests map[string]string, token string) (out []trial) {
	paths := 0
	for _, m := range v.methods() {
		full := "/" + string(m.Parent().FullName()) + "/" + string(m.Name())
		if ownPosition[full] != "" || slices.Contains(openMethods, full) {
			continue
		}
		in := dynamicpb.NewMessage(m.Input())
		if body := requests[full]; body != "" {
			if err := protojson.Unmarshal([]byte(body), in); err != nil {
				c.t.Fatalf("%s: %v", full, err)
			}
		}
		out = append(out, trial{full, func(ctx context.Context) error {
			if token != "" {
				ctx = metadata.AppendToOutgoingContext(ctx, "token", token)
			}
			return v.callWith(ctx, m, in)
		}})
		body, err := protojson.Marshal(in)
		if err != nil {
			c.t.Fatal(err)
		}
		for _, path := range httpPaths(m) {
			paths++
			out = append(out, trial{"JSON " + path, func(ctx context.Context) error {
				r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+v.addr+path,
					strings.NewReader(string(body)))
				if err != nil {
					return err
				}
				if token != "" {
					r.Header.Set("Authorization", token)
				}
				return refusal(r)
			}}, trial{"WebSocket " + path, func(ctx context.Context) error {
				conf, err := websocket.NewConfig("ws://"+v.addr+path, "http://"+v.addr)
				if err != nil {
					return err
				}
				if token != "" {
					conf.Protocol = []string{"Bearer", token}
				}
				ws, err := conf.DialContext(ctx)
				if err != nil {
					return err
				}
				defer ws.Close()
				defer context.AfterFunc(ctx, func() { ws.Close() })()
				if err := websocket.Message.Send(ws, string(body)); err != nil {
					return err
				}
				var line string
				if err := websocket.Message.Receive(ws, &line); err != nil {
					return err
				}
				if strings.Contains(line, `"error"`) || strings.Contains(line, `"code"`) &&
					strings.Contains(line, `"message"`) {
					return errors.New(line)
				}
				return nil
			}})
		}
	}
	if paths < 45 {
		c.t.Fatalf("only %d paths of the JSON gateway", paths)
	}
	out = append(out, trial{"HTTP /debug/watch", func(ctx context.Context) error {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet,
			"http://"+v.addr+"/debug/watch?format=json", nil)
		if err != nil {
			return err
		}
		if token != "" {
			r.Header.Set("Authorization", token)
		}
		return refusal(r)
	}})
	return append(out, c.consoleTrials(v, token)...)
}

// refusal sends a request and returns why it was refused. A stream may be refused after it has
// begun.
func refusal(r *http.Request) error {
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return errors.New(res.Status)
	}
	b := make([]byte, 1<<10)
	n, err := res.Body.Read(b)
	if text := string(b[:n]); n == 0 || strings.Contains(text, `"error"`) ||
		strings.HasPrefix(text, "event: failure") {
		return fmt.Errorf("%s: %w", text, cmp.Or(err, io.EOF))
	}
	return nil
}

// consoleRequests are requests of the console, by the paths of its API. The names of paths that a
// member answers by its own position have no request.
var consoleRequests = map[string]string{
	"GET session": "", // the rights of the reader as this member knows them
	"GET live":    "", // the status of members
	"GET compare": "?", "GET tree": "?prefix=", "GET search": "?text=a", "GET count": "?prefix=",
	"GET key": "?key=YQ==", "GET export": "?prefix=",
	"GET history": "?key=YQ==", "GET changes": "?prefix=", "GET diff": "?key=YQ==&a=2&b=3",
	"GET revision": "?revision=2",
	"GET watchers": "?member=SELF", "GET tail": "", // a watcher
	"GET leases": "?", "GET locks": "?", "GET access": "?", "GET snapshot": "?",
	"POST put": `{"key":"bmV3","value":"YQ==","mod":0}`, "POST delete": `{"key":"YQ==","mod":2}`,
	"POST import": `{"lines":"{\"key\":\"a\",\"value\":\"b\"}"}`,
	"POST revoke": `{"id":"8"}`, "POST access": `{"do":"role-add","role":"new"}`,
	"POST member": `{"do":"defragment"}`,
	"POST login":  "", "POST logout": "",
}

// consoleTrials are the calls of the console. Each path of its API has one.
func (c *stuckCluster) consoleTrials(v *vault, token string) (out []trial) {
	src, err := os.ReadFile("../internal/edge/console/routes.go")
	if err != nil {
		c.t.Fatal(err)
	}
	var paths []string
	for _, m := range regexp.MustCompile(`c\.call\("(GET|POST)", "(\w+)"|c\.stream\("(\w+)"|"(GET|POST) "\+apiPrefix\+"(\w+)"`).FindAllStringSubmatch(string(src), -1) {
		switch {
		case m[3] != "":
			paths = append(paths, "GET "+m[3])
		default:
			paths = append(paths, m[1]+m[4]+" "+m[2]+m[5])
		}
	}
	slices.Sort(paths)
	if known := slices.Sorted(maps.Keys(consoleRequests)); !slices.Equal(paths, known) {
		c.t.Fatalf("the console has the paths %q, and there are requests for %q", paths, known)
	}
	cookie, err := json.Marshal(struct{ User, Token string }{"bob", token})
	if err != nil {
		c.t.Fatal(err)
	}
	self := fmt.Sprintf("%x", v.m.replica.Header().MemberID)
	for _, path := range paths {
		request := strings.ReplaceAll(consoleRequests[path], "SELF", self)
		if request == "" {
			continue
		}
		method, name, _ := strings.Cut(path, " ")
		url, body := "http://"+v.addr+"/console/api/"+name, ""
		if method == "GET" {
			url += request
		} else {
			body = request
		}
		out = append(out, trial{"console " + path, func(ctx context.Context) error {
			r, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
			if err != nil {
				return err
			}
			r.Header.Set("X-Vigil-Console", "1")
			if token != "" {
				r.Header.Set("Cookie",
					fmt.Sprintf("vigil-console-%x=%s", v.m.replica.Header().ClusterID,
						base64.RawURLEncoding.EncodeToString(cookie)))
			}
			return refusal(r)
		}})
	}
	return out
}

// A member that applies nothing any more allows nothing that needs a right, to a user who was
// deleted elsewhere, and to nobody after auth was enabled elsewhere: not by gRPC, not by JSON, not
// on a WebSocket and not in the console. What it has proposed has no effect.
func TestStuckMemberGrantsNothing(t *testing.T) {
	for _, leads := range []bool{false, true} {
		for _, enabled := range []bool{false, true} {
			t.Run(fmt.Sprintf("leads=%t,enabled=%t", leads, enabled), func(t *testing.T) {
				t.Parallel()
				testStuckMember(t, leads, enabled)
			})
		}
	}
}

func testStuckMember(t *testing.T, leads, enabled bool) {
	c := newStuckCluster(t)
	i := c.leader()
	if !leads {
		i = (i + 1) % 3
	}
	stuck, healthy := c.client(i), c.client((i+1)%3)
	admin := pb.NewAuthClient(healthy.cc)
	must := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	ctx := timeout(t)
	lease := pb.NewLeaseClient(healthy.cc)
	must(lease.LeaseGrant(ctx, &pb.LeaseGrantRequest{ID: 7, TTL: 1000}))
	must(lease.LeaseGrant(ctx, &pb.LeaseGrantRequest{ID: 8, TTL: 1000}))
	must(pb.NewKVClient(healthy.cc).Put(ctx, &pb.PutRequest{Key: []byte("a"), Lease: 7}))
	added, err := pb.NewClusterClient(healthy.cc).MemberAdd(ctx,
		&pb.MemberAddRequest{PeerURLs: []string{"http://127.0.0.1:1"}, IsLearner: true})
	must(added, err)
	must(admin.UserAdd(ctx, &pb.AuthUserAddRequest{Name: "bob", Password: "bob"}))
	must(admin.UserGrantRole(ctx, &pb.AuthUserGrantRoleRequest{User: "bob", Role: "root"}))
	if enabled {
		healthy.fill()
	} else {
		must(admin.UserAdd(ctx, &pb.AuthUserAddRequest{Name: "root", Password: "root"}))
		must(admin.UserGrantRole(ctx, &pb.AuthUserGrantRoleRequest{User: "root", Role: "root"}))
	}
	token := ""
	if enabled {
		token = stuck.token("bob", "bob")
	}
	// The member has applied all of that, and has the token.
	must(pb.NewKVClient(stuck.cc).Range(metadata.AppendToOutgoingContext(ctx, "token", token),
		&pb.RangeRequest{Key: []byte("a")}))

	var root context.Context
	if enabled {
		root = healthy.as("root")
		c.hang(root, i)
		must(admin.UserDelete(root, &pb.AuthUserDeleteRequest{Name: "bob"}))
	} else {
		c.hang(ctx, i)
		must(admin.AuthEnable(ctx, &pb.AuthEnableRequest{}))
		root = healthy.as("root")
	}
	id := func(format string, n uint64) string { return fmt.Sprintf(format, n) }
	requests := maps.Clone(validRequests)
	maps.Copy(requests, map[string]string{
		"/etcdserverpb.KV/Compact":            `{"revision":"2"}`,
		"/etcdserverpb.Lease/LeaseGrant":      `{"TTL":"60","ID":"9"}`,
		"/etcdserverpb.Lease/LeaseKeepAlive":  `{"ID":"7"}`,
		"/etcdserverpb.Lease/LeaseRevoke":     `{"ID":"8"}`,
		"/etcdserverpb.Lease/LeaseTimeToLive": `{"ID":"8"}`,
		"/etcdserverpb.Maintenance/Alarm":     `{"action":"ACTIVATE","memberID":"1","alarm":"NOSPACE"}`,
		"/etcdserverpb.Maintenance/MoveLeader": id(`{"targetID":"%d"}`,
			healthy.m.replica.Header().MemberID),
		"/etcdserverpb.Cluster/MemberAdd":    `{"peerURLs":["http://127.0.0.1:2"],"isLearner":true}`,
		"/etcdserverpb.Cluster/MemberRemove": id(`{"ID":"%d"}`, added.Member.ID),
		"/etcdserverpb.Cluster/MemberUpdate": id(`{"ID":"%d","peerURLs":["http://127.0.0.1:3"]}`,
			added.Member.ID),
		"/etcdserverpb.Cluster/MemberPromote":   id(`{"ID":"%d"}`, added.Member.ID),
		"/etcdserverpb.Auth/UserDelete":         `{"name":"root"}`,
		"/etcdserverpb.Auth/UserChangePassword": `{"name":"root","password":"x"}`,
		"/etcdserverpb.Auth/UserGet":            `{"name":"root"}`,
		"/etcdserverpb.Auth/RoleGet":            `{"role":"root"}`,
		"/etcdserverpb.Auth/UserGrantRole":      `{"user":"root","role":"root"}`,
		"/etcdserverpb.Auth/UserRevokeRole":     `{"name":"root","role":"root"}`,
		"/v3electionpb.Election/Resign":         `{"leader":{"name":"YQ==","key":"YQ==","rev":"2","lease":"7"}}`,
	})
	left := func() int64 {
		t.Helper()
		res, err := lease.LeaseTimeToLive(root, &pb.LeaseTimeToLiveRequest{ID: 7})
		must(res, err)
		return res.TTL
	}
	if !leads { // a leader that hangs answers nothing about leases
		c.await("some time of the lease is over", func() bool { return left() < 999 })
	}
	before := c.summary(healthy, root)

	var calls sync.WaitGroup
	for _, trial := range c.trials(stuck, requests, token) {
		calls.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			if err := trial.run(ctx); err == nil {
				t.Errorf("%s: succeeds", trial.name)
			} else if testing.Verbose() {
				t.Logf("%s: %.100s", trial.name, status.Convert(err).Message())
			}
		})
	}
	calls.Wait()
	if !leads {
		if n := left(); n >= 999 {
			t.Errorf("a lease was renewed: %d s are left", n)
		}
	}
	c.release()
	c.await("the member has applied everything", func() bool {
		s := stuck.m.replica.Status()
		return s.Applied >= s.RaftIndex && s.Revision >= healthy.m.replica.Status().Revision &&
			stuck.m.replica.Access.Revision() == healthy.m.replica.Access.Revision()
	})
	if after := c.summary(healthy, root); after != before {
		t.Errorf("something has changed:\n%s\nbefore:\n%s", after, before)
	}
	if at := c.summary(stuck, root); at != before {
		t.Errorf("the member that was stuck has:\n%s\nthe others before:\n%s", at, before)
	}
}

// TestAuthLogOfEveryMember: every member logs the changes of users and roles when it applies them.
// A rejected token is logged where it was sent, ten times a second at most.
func TestAuthLogOfEveryMember(t *testing.T) {
	t.Parallel()
	c := newStuckCluster(t)
	v := c.client(0)
	v.fill()
	for i := range c.members {
		c.await("all changes are in the log of each member",
			func() bool {
				return strings.Contains(c.logs[i].String(),
					`msg="enabled authentication"`)
			})
		for _, text := range []string{`msg="added a user" user-name=alice`,
			`msg="created a role" role-name=r`, `permission-name=READWRITE key=a range-end=b`,
			`user-name=root user-roles=[root] added-role-name=root`} {
			if n := strings.Count(c.logs[i].String(), text); n != 1 {
				t.Errorf("member %d has logged %d times %s:\n%s", i, n, text, c.logs[i].String())
			}
		}
	}
	const calls = 200
	rejected := metadata.AppendToOutgoingContext(timeout(t), "token", "no-such-token.1")
	began := time.Now()
	for range calls {
		_, err := pb.NewKVClient(v.cc).Put(rejected, &pb.PutRequest{Key: []byte("a")})
		fails(t, "a put with an invalid token", err, invalidToken)
	}
	n := strings.Count(c.logs[0].String(), `msg="invalid auth token"`)
	if most := 10 * (2 + int(time.Since(began).Seconds())); n == 0 || n > most ||
		strings.Contains(c.logs[0].String(), "no-such-token") {
		t.Errorf("%d lines about %d calls with an invalid token", n, calls)
	}
	for _, i := range []int{1, 2} {
		if strings.Contains(c.logs[i].String(), "invalid auth token") {
			t.Errorf("member %d has logged a token that was sent to another one", i)
		}
	}
}

// TestLastMemberCanBeBackedUp: when the other members are gone, nobody can say what rights there
// are now, and the last member decides by what it knows, as in etcd: root can take a backup, others
// cannot.
func TestLastMemberCanBeBackedUp(t *testing.T) {
	t.Parallel()
	c := newStuckCluster(t)
	v := c.client(0)
	v.fill()
	root, alice := v.token("root", "root"), v.token("alice", "alice")
	// The tokens are used: only the leader ends them.
	as := func(token string) context.Context {
		return metadata.AppendToOutgoingContext(timeout(t), "token", token)
	}
	for _, token := range []string{root, alice} {
		if _, err := pb.NewMaintenanceClient(v.cc).Status(as(token),
			&pb.StatusRequest{}); err != nil {
			t.Fatal(err)
		}
	}
	for _, m := range c.members[1:] {
		stop(t, m)
	}
	c.await("there is no leader for an election timeout", v.m.replica.Forsaken)
	snapshot := func(token string) error {
		s, err := pb.NewMaintenanceClient(v.cc).Snapshot(as(token), &pb.SnapshotRequest{})
		for err == nil {
			_, err = s.Recv()
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		return err
	}
	if err := snapshot(root); err != nil {
		t.Errorf("a backup by root: %v", err)
	}
	fails(t, "a backup by alice", snapshot(alice), denied)
	fails(t, "a backup by nobody", snapshot(""), invalidToken)
	if _, err := pb.NewMaintenanceClient(v.cc).HashKV(as(root), &pb.HashKVRequest{}); err != nil {
		t.Errorf("a hash for root: %v", err)
	}
	ctx, cancel := context.WithTimeout(as(root), time.Second)
	defer cancel()
	if _, err := pb.NewClusterClient(v.cc).MemberRemove(ctx,
		&pb.MemberRemoveRequest{ID: c.members[1].replica.Header().MemberID}); err == nil {
		t.Error("a member was removed without a majority")
	}
}

// TestStuckMemberWithoutLeader: a member that has not applied what it knows to be committed does
// not decide by itself either.
func TestStuckMemberWithoutLeader(t *testing.T) {
	t.Parallel()
	c := newStuckCluster(t)
	i := (c.leader() + 1) % 3
	stuck, healthy := c.client(i), c.client((i+1)%3)
	healthy.fill()
	root := healthy.as("root")
	admin := pb.NewAuthClient(healthy.cc)
	if _, err := admin.UserAdd(root,
		&pb.AuthUserAddRequest{Name: "bob", Password: "bob"}); err != nil {
		t.Fatal(err)
	}
	if _, err := admin.UserGrantRole(root,
		&pb.AuthUserGrantRoleRequest{User: "bob", Role: "root"}); err != nil {
		t.Fatal(err)
	}
	bob := metadata.AppendToOutgoingContext(timeout(t), "token", stuck.token("bob", "bob"))
	hash := func(ctx context.Context) error {
		_, err := pb.NewMaintenanceClient(stuck.cc).HashKV(ctx, &pb.HashKVRequest{})
		return err
	}
	if err := hash(bob); err != nil {
		t.Fatal(err)
	}
	c.hang(root, i)
	if _, err := admin.UserDelete(root, &pb.AuthUserDeleteRequest{Name: "bob"}); err != nil {
		t.Fatal(err)
	}
	for j, m := range c.members {
		if j != i {
			stop(t, m)
		}
	}
	c.await("there is no leader for an election timeout", func() bool {
		lost := stuck.m.replica.Status().LeaderLost
		return !lost.IsZero() && time.Since(lost) > 2*stuck.m.cfg.ElectionTimeout
	})
	ctx, cancel := context.WithTimeout(bob, time.Second)
	defer cancel()
	if err := hash(ctx); err == nil {
		t.Error("a member that has not applied everything has decided by itself")
	}
	c.release()
	c.await("the member has applied everything", stuck.m.replica.Forsaken)
	fails(t, "a hash for a user who was deleted", hash(bob), invalidToken)
}

// TestStuckMemberSeesNoWatchersOfOthers: a member that does not know who has lost a right elsewhere
// gets nothing from the others that needs it, however it decides itself.
func TestStuckMemberSeesNoWatchersOfOthers(t *testing.T) {
	t.Parallel()
	c := newStuckCluster(t)
	i := (c.leader() + 1) % 3
	healthy := c.client((i + 1) % 3)
	healthy.fill()
	root, other := healthy.as("root"), healthy.m.replica.Header().MemberID
	c.await("the member knows the rights", func() bool {
		return c.members[i].replica.Access.Revision() == healthy.m.replica.Access.Revision()
	})
	calls := map[string]func() error{
		"watchers": func() error {
			_, err := consoleCalls{c.members[i]}.watchersOf(timeout(t), other,
				console.WatchersQuery{})
			return err
		},
		"a comparison": func() error {
			_, err := consoleCalls{c.members[i]}.comparisonOf(timeout(t), other, 0)
			return err
		},
	}
	for name, call := range calls {
		if err := call(); err != nil {
			t.Errorf("%s before: %v", name, err)
		}
	}
	c.hang(root, i)
	if _, err := pb.NewAuthClient(healthy.cc).UserDelete(root,
		&pb.AuthUserDeleteRequest{Name: "alice"}); err != nil {
		t.Fatal(err)
	}
	c.await("the other member knows it", func() bool {
		return c.members[i].replica.Access.Revision() < healthy.m.replica.Access.Revision()
	})
	for name, call := range calls {
		if err := call(); err == nil ||
			!strings.Contains(err.Error(), "users or roles have changed") {
			t.Errorf("%s for rights that are older: %v", name, err)
		}
	}
}

// TestStuckMemberEndsNoSession: a member that cannot find out in time whether a token is valid does
// not say that it has expired.
func TestStuckMemberEndsNoSession(t *testing.T) {
	t.Parallel()
	c := newStuckCluster(t)
	i := (c.leader() + 1) % 3
	stuck, healthy := c.client(i), c.client((i+1)%3)
	healthy.fill()
	// not used at the member that hangs
	root, token := healthy.as("root"), healthy.token("alice", "alice")
	c.hang(root, i)
	r, err := http.NewRequestWithContext(timeout(t), http.MethodGet,
		"http://"+stuck.addr+"/console/api/session", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("X-Vigil-Console", "1")
	cookie, err := json.Marshal(struct{ User, Token string }{"alice", token})
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Cookie",
		fmt.Sprintf("vigil-console-%x=%s", stuck.m.replica.Header().ClusterID,
			base64.RawURLEncoding.EncodeToString(cookie)))
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if body, err := io.ReadAll(res.Body); err != nil ||
		res.StatusCode != http.StatusGatewayTimeout {
		t.Errorf("%s %s %v", res.Status, body, err)
	}
}
