package sick

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sys/unix"

	"vigil/test/freeze"
	"vigil/test/link"
	"vigil/test/proc"
	"vigil/test/proc/pki"
)

// patience bounds the wait for what must come.
const patience = 90 * time.Second

// options are those of a cluster. The zero value has three members on loopback.
type options struct {
	members int
	// args are for all members, argsOf for one.
	args   []string
	argsOf map[string][]string
	// program is that of one member, by its name.
	program map[string]proc.Program
	// linked puts a proxy in front of the peer port of each member.
	linked bool
	// disk has the size of the file system that m3 has of its own, 0 for none; fast is in memory,
	// and cannot be frozen.
	disk int64
	fast bool
	// late moves the clock that m3 shows by this time.
	late time.Duration
	// secure gives clients and members TLS; expiry changes the life of certificates of m3, by what
	// they are for: peer or client.
	secure map[string]time.Duration
	// archive is a directory to which all archive.
	archive bool
}

// member is a member of a cluster.
type member struct {
	*proc.Server
	name, peerURL string
	cfg           proc.Config
	client        *clientv3.Client
	disk          *freeze.Disk
	volume        string // where its own file system is mounted
	// logged is the size of its log when the cause began.
	logged int
	// shown is the address that it advertises to clients.
	shown string
}

// group is a cluster that gets sick.
type group struct {
	t testing.TB
	options
	list []*member
	net  *link.Network
	ca   *pki.Authority
	dir  string
	// users are arguments for vigilctl, such as those for TLS.
	users []string
	// asked are the endpoints of vigilctl, if they are not those of all members.
	asked []string
	// live is the stream of the console, if it was opened before the cause.
	live *stream
}

// begin runs a cluster and waits until it serves.
func begin(t testing.TB, o options) *group {
	t.Helper()
	if o.members == 0 {
		o.members = 3
	}
	g := &group{t: t, options: o, dir: proc.Dir(t)}
	if o.linked {
		g.net = link.New(t)
	}
	if o.secure != nil {
		g.ca = pki.New(t)
		g.users = []string{"--cacert=" + g.ca.File("authority.pem"),
			"--cert=" + g.ca.File("user.pem"), "--key=" + g.ca.File("user-key.pem")}
		g.certify("user", 0)
	}
	if o.archive {
		if err := os.Mkdir(filepath.Join(g.dir, "bucket"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for n := range o.members {
		g.list = append(g.list, g.configure(fmt.Sprintf("m%d", n+1)))
	}
	for _, m := range g.list {
		m.cfg.InitialCluster = g.initialCluster()
		m.Server = proc.New(t, m.cfg)
		if m.disk != nil {
			t.Cleanup(m.disk.Thaw) // a process that waits for the disk cannot be killed
		}
	}
	for _, m := range g.list {
		g.launch(m)
	}
	for _, m := range g.list {
		g.serving(m)
	}
	return g
}

// configure prepares a member that does not run yet.
func (g *group) configure(name string) *member {
	g.t.Helper()
	scheme := "http"
	if g.secure != nil {
		scheme = "https"
	}
	client, peer := proc.FreePort(g.t), proc.FreePort(g.t)
	m := &member{name: name, peerURL: fmt.Sprintf("%s://127.0.0.1:%d", scheme, peer),
		shown: fmt.Sprintf("127.0.0.1:%d", client)}
	m.cfg = proc.Config{Program: g.program[name], Name: name, ClientPort: client, PeerPort: peer,
		DataDir: filepath.Join(g.dir, name)}
	args := slices.Clone(g.args)
	if g.disk > 0 && name == "m3" {
		m.volume, m.disk = g.mount(name)
		m.cfg.DataDir = filepath.Join(m.volume, "data")
	}
	if g.net != nil {
		m.peerURL = "http://" + g.net.Node(name, fmt.Sprintf("127.0.0.1:%d", peer))
	}
	if g.late != 0 && name == "m3" {
		m.shown = shiftTimes(g.t, m.shown, g.late)
		m.peerURL = "http://" + shiftTimes(g.t, strings.TrimPrefix(m.peerURL, "http://"), g.late)
	}
	args = append(args, "--initial-advertise-peer-urls="+m.peerURL,
		fmt.Sprintf("--advertise-client-urls=%s://%s", scheme, m.shown))
	if g.secure != nil {
		for _, use := range []string{"client", "peer"} {
			life := time.Duration(0)
			if name == "m3" {
				life = g.secure[use]
			}
			g.certify(name+"-"+use, life)
		}
		args = append(args, "--listen-peer-urls="+m.peerURL,
			fmt.Sprintf("--listen-client-urls=https://127.0.0.1:%d", client),
			"--cert-file="+g.ca.File(name+"-client.pem"),
			"--key-file="+g.ca.File(name+"-client-key.pem"),
			"--trusted-ca-file="+g.ca.File("authority.pem"), "--client-cert-auth",
			"--peer-cert-file="+g.ca.File(name+"-peer.pem"),
			"--peer-key-file="+g.ca.File(name+"-peer-key.pem"),
			"--peer-trusted-ca-file="+g.ca.File("authority.pem"), "--peer-client-cert-auth")
	}
	if g.archive {
		args = append(args, "--archive=file://"+filepath.Join(g.dir, "bucket"),
			"--archive-interval=200ms")
	}
	m.cfg.Args = append(args, g.argsOf[name]...)
	return m
}

// mount mounts a file system of its own for a member.
func (g *group) mount(name string) (volume string, d *freeze.Disk) {
	g.t.Helper()
	volume = filepath.Join(g.dir, name+"-volume")
	err := os.Mkdir(volume, 0o755)
	if err == nil && g.fast {
		if err = unix.Mount("vigil-test", volume, "tmpfs", 0,
			fmt.Sprint("size=", g.disk)); err == nil {
			g.t.Cleanup(func() {
				if err := unix.Unmount(volume, unix.MNT_DETACH); err != nil {
					g.t.Error(err)
				}
			})
		}
	} else if err == nil {
		d, err = freeze.Mount(g.t, filepath.Join(g.dir, name+"-image"), volume, g.disk)
	}
	if err != nil && os.Getuid() != 0 {
		g.t.Skipf("a file system of its own needs root: %v", err)
	}
	if err != nil {
		g.t.Fatal(err)
	}
	return volume, d
}

func (g *group) initialCluster() string {
	var parts []string
	for _, m := range g.list {
		parts = append(parts, m.name+"="+m.peerURL)
	}
	return strings.Join(parts, ",")
}

// launch runs the process of a member.
func (g *group) launch(m *member) {
	g.t.Helper()
	m.Launch()
	m.logged = 0 // the log of a process begins with it
	if g.net != nil {
		g.net.Runs(m.name, m.Pid())
	}
}

// serving waits until a member serves, and makes a client for it.
func (g *group) serving(m *member) {
	g.t.Helper()
	m.Ready()
	if m.client == nil {
		m.client = g.connect(m)
	}
}

func (g *group) connect(m *member) *clientv3.Client {
	g.t.Helper()
	if g.secure == nil {
		return m.Client()
	}
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{"https://" + m.Addr()},
		DialTimeout: patience, TLS: g.tls()})
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() { _ = c.Close() })
	return c
}

// tls returns the configuration of clients, nil without TLS.
func (g *group) tls() *tls.Config {
	if g.secure == nil {
		return nil
	}
	return g.ca.Client("user")
}

// m returns a member by its number, from 1 on.
func (g *group) m(n int) *member { return g.list[n-1] }

// until waits for a condition.
func (g *group) until(what string, done func() bool) {
	g.t.Helper()
	for end := time.Now().Add(patience); !done(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			g.t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

// status returns what a member answers, nil if it does not.
func (g *group) status(m *member) *pb.StatusResponse {
	ctx, cancel := context.WithTimeout(g.t.Context(), time.Second)
	defer cancel()
	st, err := m.client.Status(ctx, m.client.Endpoints()[0])
	if err != nil {
		return nil
	}
	return (*pb.StatusResponse)(st)
}

// lead makes a member the leader.
func (g *group) lead(m *member) {
	g.t.Helper()
	g.until(m.name+" leads", func() bool {
		for _, o := range g.list {
			st, want := g.status(o), g.status(m)
			switch {
			case st == nil || want == nil || st.Leader != st.Header.MemberId:
			case o == m:
				return true
			default:
				ctx, cancel := context.WithTimeout(g.t.Context(), 5*time.Second)
				_, _ = o.client.MoveLeader(ctx, want.Header.MemberId)
				cancel()
			}
		}
		return false
	})
}

// id returns the ID of a member that serves.
func (g *group) id(m *member) (id uint64) {
	g.t.Helper()
	g.until("the ID of "+m.name, func() bool {
		st := g.status(m)
		id = st.GetHeader().GetMemberId()
		return id != 0
	})
	return id
}

// put writes a key, again if an election interrupts it.
func (g *group) put(m *member, key, value string) {
	g.t.Helper()
	g.until("a put at "+m.name, func() bool {
		ctx, cancel := context.WithTimeout(g.t.Context(), 10*time.Second)
		defer cancel()
		_, err := m.client.Put(ctx, key, value)
		return err == nil
	})
}

// putMany writes n keys with values of a size, as many at a time as there are clients.
func (g *group) putMany(m *member, clients, n, size int) {
	g.t.Helper()
	value := strings.Repeat("v", size)
	ctx, cancel := context.WithTimeout(g.t.Context(), patience)
	defer cancel()
	turns := make(chan int)
	failed := make(chan error, clients)
	for range clients {
		go func() {
			var err error
			for i := range turns {
				if err == nil {
					_, err = m.client.Put(ctx, fmt.Sprintf("many/%06d", i), value)
				}
			}
			failed <- err
		}()
	}
	for i := range n {
		turns <- i
	}
	close(turns)
	for range clients {
		if err := <-failed; err != nil {
			g.t.Fatal(err)
		}
	}
}

// load writes and reads a little, until the test ends.
func (g *group) load(m *member) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	g.t.Cleanup(func() { cancel(); <-done })
	go func() {
		defer close(done)
		for i := 0; ctx.Err() == nil; i++ {
			limited, end := context.WithTimeout(ctx, 2*time.Second)
			_, _ = m.client.Put(limited, fmt.Sprintf("load/%03d", i%200), fmt.Sprint("value ", i))
			end()
			select {
			case <-time.After(5 * time.Millisecond):
			case <-ctx.Done():
			}
		}
	}()
}

// certify issues a certificate, which is valid for a time, or for years if it is 0. A negative one
// has expired.
func (g *group) certify(name string, life time.Duration) {
	g.t.Helper()
	if life == 0 {
		life = 1000 * 24 * time.Hour
	}
	g.ca.Issue(name, func(c *x509.Certificate) {
		c.NotBefore, c.NotAfter = time.Now().Add(-1000*time.Hour), time.Now().Add(life)
	})
}
