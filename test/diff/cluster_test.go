package diff

import (
	"context"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/types/dynamicpb"

	"vigil/test/proc"
)

// trio is a cluster of three members, led by the first one, and a learner once it is added.
type trio struct {
	t       *testing.T
	members []*Side
	// names replaces ids and addresses in answers, as pairs: no two clusters have the same.
	names []string
	peers []string // URLs
	cfg   proc.Config
}

func newTrio(t *testing.T, program proc.Program) *trio {
	c := &trio{t: t, cfg: proc.Config{Program: program, Memory: true,
		Args: []string{"--election-timeout=5000", "--heartbeat-interval=500"}}}
	var initial []string
	var ports []int
	for i := range 3 {
		ports = append(ports, proc.FreePort(t))
		initial = append(initial, fmt.Sprintf("m%d=http://127.0.0.1:%d", i+1, ports[i]))
	}
	c.cfg.InitialCluster = strings.Join(initial, ",")
	for i := range 3 {
		c.launch(i, ports[i])
	}
	for _, s := range c.members {
		c.serving(s)
	}
	c.lead()
	return c
}

// launch starts a member without waiting for it.
func (c *trio) launch(i, port int) *Side {
	cfg := c.cfg
	cfg.Name, cfg.PeerPort, cfg.ClientPort = fmt.Sprintf("m%d", i+1), port, proc.FreePort(c.t)
	s := &Side{Server: proc.New(c.t, cfg)}
	s.Server.Launch()
	c.members = append(c.members, s)
	c.peers = append(c.peers, fmt.Sprintf("http://127.0.0.1:%d", port))
	c.names = append(c.names, s.Server.Addr(), fmt.Sprintf("<client %d>", i+1), fmt.Sprint(port),
		fmt.Sprintf("<peer %d>", i+1))
	return s
}

// serving waits for a member and notes its id.
func (c *trio) serving(s *Side) {
	s.Server.Ready()
	s.Conn = s.Server.Dial()
	h := c.status(s).GetHeader()
	s.ids = ids{h.GetClusterId(), h.GetMemberId()}
	name := fmt.Sprintf("<member %d>", slices.Index(c.members, s)+1)
	c.names = append(c.names, fmt.Sprint(h.GetMemberId()), name,
		fmt.Sprint(h.GetClusterId()), "<cluster>")
}

func (c *trio) status(s *Side) *pb.StatusResponse {
	r, _ := pb.NewMaintenanceClient(s.Conn).Status(c.t.Context(), &pb.StatusRequest{})
	return r
}

// lead makes the first member the leader, and waits until all know it and have data of the present
// version.
func (c *trio) lead() {
	deadline := time.Now().Add(time.Minute)
	first := c.members[0].ids.member
	done := func() bool {
		agreed := true
		for _, s := range c.members {
			st := c.status(s)
			if st.GetLeader() != first || st.GetStorageVersion() != "3.7.0" {
				agreed = false
			}
			if st.GetLeader() != 0 && st.GetLeader() == s.ids.member && s != c.members[0] {
				_, _ = pb.NewMaintenanceClient(s.Conn).MoveLeader(c.t.Context(),
					&pb.MoveLeaderRequest{TargetID: first})
			}
		}
		return agreed
	}
	for !done() {
		if time.Now().After(deadline) {
			c.t.Fatal("the first member does not lead")
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// addLearner adds a fourth member, once the others have been connected for long enough, and waits
// until it serves.
func (c *trio) addLearner() {
	port := proc.FreePort(c.t)
	url := fmt.Sprintf("http://127.0.0.1:%d", port)
	deadline := time.Now().Add(time.Minute)
	for {
		_, err := pb.NewClusterClient(c.members[0].Conn).MemberAdd(c.t.Context(),
			&pb.MemberAddRequest{PeerURLs: []string{url}, IsLearner: true})
		if err == nil {
			break
		}
		if rpctypes.Error(err) != rpctypes.ErrUnhealthy || time.Now().After(deadline) {
			c.t.Fatal(err)
		}
		time.Sleep(200 * time.Millisecond)
	}
	c.cfg.InitialCluster += ",m4=" + url
	c.cfg.Args = append(slices.Clone(c.cfg.Args), "--initial-cluster-state=existing")
	c.serving(c.launch(3, port))
}

// moving are figures that differ between servers, and parts of the database.
var moving = regexp.MustCompile(`(raft_term|raftTerm|raftIndex|raftAppliedIndex|dbSize|dbSizeInUse|hash|remaining_bytes): ?\d+|blob: ?"(\\.|[^"])*"`)

// call makes the call of a row at a member and returns the first answer as text.
func (c *trio) call(at int, r row, md []string) string {
	m, err := method(r.method)
	if err != nil {
		c.t.Fatal(err)
	}
	request := r.request
	for i, s := range c.members {
		request = strings.NewReplacer(fmt.Sprintf("$ID%d", i+1), fmt.Sprint(s.ids.member),
			fmt.Sprintf("$PEER%d", i+1), c.peers[i]).Replace(request)
	}
	in, out := dynamicpb.NewMessage(m.Input()), dynamicpb.NewMessage(m.Output())
	if err := prototext.Unmarshal([]byte(request), in); err != nil {
		c.t.Fatalf("%s {%s}: %v", r.method, request, err)
	}
	ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(c.t.Context(),
		md...), callTimeout)
	defer cancel()
	stream, err := c.members[at].Conn.NewStream(ctx,
		&grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, "/"+r.method)
	if err == nil {
		err = stream.SendMsg(in)
	}
	if err == nil && !m.IsStreamingClient() {
		err = stream.CloseSend()
	}
	if err == nil || err == io.EOF {
		err = stream.RecvMsg(out)
	}
	text := prototext.MarshalOptions{}.Format(out)
	if err != nil {
		text = fmt.Sprintf("%v: %s", status.Code(err), status.Convert(err).Message())
	}
	text = moving.ReplaceAllString(strings.NewReplacer(c.names...).Replace(text), "")
	fields := strings.Fields(text)
	if strings.HasSuffix(r.method, "/MemberList") {
		slices.Sort(fields) // they are in the order of their ids
	}
	return strings.Join(fields, " ")
}

// atMembers are calls whose answer depends on what the member is. None changes anything. The
// service of health is missing: Vigil's learners answer it, since the process is alive.
var atMembers = []row{
	{"etcdserverpb.KV/Range", `key:"a"`, ""},
	{"etcdserverpb.KV/Range", `key:"a" serializable:true`, ""},
	{"etcdserverpb.KV/RangeStream", `key:"a"`, ""},
	{"etcdserverpb.KV/RangeStream", `key:"a" serializable:true`, ""},
	{"etcdserverpb.KV/Put", ``, ""}, {"etcdserverpb.KV/DeleteRange", `key:"none"`, ""},
	{"etcdserverpb.KV/Compact", `revision:1000000`, ""},
	{"etcdserverpb.KV/Txn", ``, ""},
	{"etcdserverpb.KV/Txn", `success:{request_range:{key:"a"}}`, ""},
	{"etcdserverpb.KV/Txn", `success:{request_range:{key:"a" serializable:true}}`, ""},
	{"etcdserverpb.Watch/Watch", `create_request:{key:"a"}`, ""},
	{"etcdserverpb.Watch/Watch", `create_request:{key:"a" start_revision:-1}`, ""},
	{"etcdserverpb.Lease/LeaseGrant", `TTL:9000000001`, ""},
	{"etcdserverpb.Lease/LeaseRevoke", `ID:99`, ""},
	{"etcdserverpb.Lease/LeaseKeepAlive", `ID:99`, ""},
	{"etcdserverpb.Lease/LeaseTimeToLive", `ID:99`, ""}, {"etcdserverpb.Lease/LeaseLeases", ``, ""},
	{"etcdserverpb.Cluster/MemberList", ``, ""},
	{"etcdserverpb.Cluster/MemberList", `linearizable:true`, ""},
	{"etcdserverpb.Cluster/MemberAdd", `peerURLs:"$PEER1"`, ""},
	{"etcdserverpb.Cluster/MemberAdd", `peerURLs:"x"`, ""},
	{"etcdserverpb.Cluster/MemberRemove", `ID:99`, ""},
	{"etcdserverpb.Cluster/MemberUpdate", `ID:99 peerURLs:"x"`, ""},
	{"etcdserverpb.Cluster/MemberUpdate", `ID:$ID1 peerURLs:"$PEER2"`, ""},
	{"etcdserverpb.Cluster/MemberPromote", `ID:99`, ""},
	{"etcdserverpb.Cluster/MemberPromote", `ID:$ID1`, ""},
	{"etcdserverpb.Maintenance/Alarm", ``, ""}, {"etcdserverpb.Maintenance/Status", ``, ""},
	{"etcdserverpb.Maintenance/Defragment", ``, ""},
	{"etcdserverpb.Maintenance/Hash", ``, ""}, {"etcdserverpb.Maintenance/HashKV", ``, ""},
	{"etcdserverpb.Maintenance/HashKV", `revision:1000000`, ""},
	{"etcdserverpb.Maintenance/Snapshot", ``, ""},
	{"etcdserverpb.Maintenance/MoveLeader", `targetID:99`, ""},
	{"etcdserverpb.Maintenance/MoveLeader", ``, ""},
	{"etcdserverpb.Maintenance/MoveLeader", `targetID:$ID1`, ""},
	{"etcdserverpb.Maintenance/MoveLeader", `targetID:$ID4`, ""},
	{"etcdserverpb.Maintenance/Downgrade", `version:"3.5.0"`, ""},
	{"etcdserverpb.Maintenance/Downgrade", `version:"3.6.0"`, ""},
	{"etcdserverpb.Maintenance/Downgrade", `action:CANCEL`, ""},
	{"etcdserverpb.Auth/AuthEnable", ``, ""}, {"etcdserverpb.Auth/AuthStatus", ``, ""},
	{"etcdserverpb.Auth/Authenticate", `name:"x" password:"y"`, ""},
	{"etcdserverpb.Auth/UserAdd", ``, ""}, {"etcdserverpb.Auth/UserGet", `name:"x"`, ""},
	{"etcdserverpb.Auth/UserList", ``, ""},
	{"etcdserverpb.Auth/RoleGet", `role:"x"`, ""}, {"etcdserverpb.Auth/RoleList", ``, ""},
	{"etcdserverpb.Auth/AuthDisable", ``, ""},
	{"v3lockpb.Lock/Lock", `name:"z" lease:99`, ""}, {"v3lockpb.Lock/Unlock", `key:"z"`, ""},
	{"v3electionpb.Election/Campaign", `name:"z" lease:99`, ""},
	{"v3electionpb.Election/Leader", `name:"z"`, ""},
}

// TestClusterMembers makes the same calls at a leader, a follower and a learner of both clusters.
func TestClusterMembers(t *testing.T) {
	t.Parallel()
	var both [2]*trio
	for i, program := range []proc.Program{proc.Etcd, proc.Subject()} {
		both[i] = newTrio(t, program)
		both[i].addLearner()
	}
	for at, name := range []string{0: "leader", 1: "follower", 3: "learner"} {
		if name == "" {
			continue
		}
		for _, md := range [][]string{nil, {"hasleader", "true"}} {
			for _, r := range atMembers {
				want, got := both[0].call(at, r, md), both[1].call(at, r, md)
				if want != got {
					t.Errorf("%s {%s} %q at the %s:\n\tetcd %s\n\tgot  %s", r.method, r.request, md,
						name, want, got)
				}
			}
		}
		// Not /readyz, whose checks etcd lists in any order.
		for _, path := range []string{"/health", "/health?serializable=true", "/livez",
			"/readyz/data_corruption", "/readyz/non_learner", "/readyz/linearizable_read"} {
			var answers [2]Answer
			for i, c := range both {
				var err error
				if answers[i], err = c.members[at].Ask(t.Context(), c.members[at].Server.Addr(),
					Request{Path: path}); err != nil {
					t.Fatal(err)
				}
			}
			for _, f := range answers[0].compare(answers[1]) {
				t.Errorf("GET %s at the %s: %s: etcd %s, got %s", path, name, f.Path, f.Want, f.Got)
			}
		}
	}
}
