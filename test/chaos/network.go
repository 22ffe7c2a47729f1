package chaos

import (
	"context"
	"fmt"
	"net"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"vigil/test/link"
	"vigil/test/proc"
)

// network is between the members: proxies or a switch.
type network interface {
	fmt.Stringer
	Set(from, to string, r link.Rule)
	Heal()
	Reset(a, b string) int
}

// outside is the node of the clients at a switch.
const outside = "clients"

func nodeOf(n int) string { return fmt.Sprintf("m%d", n+1) }

// namespaces returns a switch for the members and clients, or nil where that is not possible.
func namespaces(t *testing.T) *link.Switch {
	t.Helper()
	names := []string{outside}
	for n := range members + 1 {
		names = append(names, nodeOf(n))
	}
	return link.NewSwitch(t, names...)
}

// connect gives a slot its addresses.
func (g *group) connect(s *slot) {
	if g.wire != nil {
		s.host, s.clientPort, s.peerPort = g.wire.Host(s.node), 2379, 2380
		s.peerURL = fmt.Sprintf("http://%s:%d", s.host, s.peerPort)
		return
	}
	s.host, s.clientPort, s.peerPort = "127.0.0.1", proc.FreePort(g.t), proc.FreePort(g.t)
	s.peerURL = "http://" + g.proxies.Node(s.node, fmt.Sprintf("127.0.0.1:%d", s.peerPort))
}

// run runs the process of a slot where its addresses are.
func (g *group) run(s *slot) {
	g.t.Helper()
	if g.wire != nil {
		g.wire.Inside(s.node, s.Launch)
		return
	}
	s.Launch()
	g.proxies.Runs(s.node, s.Pid())
}

// dial makes a client of members. The caller closes it.
func (g *group) dial(endpoints ...string) (*clientv3.Client, error) {
	if g.wire == nil {
		return dial(endpoints)
	}
	return dial(endpoints,
		grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
			return g.wire.Dial(ctx, outside, addr)
		}))
}

// lost returns how many packets the switch has lost.
func (g *group) lost() int {
	if g.wire == nil {
		return 0
	}
	return g.wire.Lost()
}
