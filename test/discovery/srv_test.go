package discovery

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"vigil/test/proc"
)

// zone is a name server on a loopback address: any host below test. is 127.0.0.1, and SRV records
// are as set.
type zone struct {
	mu  sync.Mutex
	srv map[string][]dnsmessage.SRVResource
}

func (z *zone) set(service string, ports ...int) {
	z.mu.Lock()
	defer z.mu.Unlock()
	var list []dnsmessage.SRVResource
	for i, port := range ports {
		list = append(list, dnsmessage.SRVResource{Target: dnsmessage.MustNewName(fmt.Sprintf("m%d.test.", i+1)), Port: uint16(port)})
	}
	z.srv[service] = list
}

func (z *zone) answer(question []byte) []byte {
	z.mu.Lock()
	defer z.mu.Unlock()
	var m dnsmessage.Message
	if m.Unpack(question) != nil || len(m.Questions) != 1 {
		return nil
	}
	q := m.Questions[0]
	name := strings.ToLower(q.Name.String())
	head := dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type,
		Class: dnsmessage.ClassINET, TTL: 1}
	m.Header.Response, m.Answers, m.Additionals = true, nil, nil
	records, service := z.srv[name]
	switch {
	case service && q.Type == dnsmessage.TypeSRV:
		for _, r := range records {
			m.Answers = append(m.Answers, dnsmessage.Resource{Header: head, Body: &r})
		}
	case service:
	case strings.HasPrefix(name, "_") || !strings.HasSuffix(name, ".test."):
		m.Header.RCode = dnsmessage.RCodeNameError
	case q.Type == dnsmessage.TypeA:
		m.Answers = []dnsmessage.Resource{{Header: head,
			Body: &dnsmessage.AResource{A: [4]byte{127, 0, 0, 1}}}}
	}
	b, err := m.Pack()
	if err != nil {
		return nil
	}
	return b
}

// serve answers on port 53 of an address of loopback, and returns a command that runs another with
// that as its only name server. It skips the test where that is not possible.
func (z *zone) serve(t *testing.T) (wrap []string) {
	t.Helper()
	const addr = "127.0.53.53"
	c, err := net.ListenPacket("udp", addr+":53")
	if err != nil {
		t.Skipf("cannot be a name server here, which needs root: %v", err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		b := make([]byte, 4096)
		for {
			n, from, err := c.ReadFrom(b)
			if err != nil {
				return
			}
			if answer := z.answer(b[:n]); answer != nil {
				_, _ = c.WriteTo(answer, from)
			}
		}
	})
	t.Cleanup(func() {
		_ = c.Close()
		wg.Wait()
	})
	conf := filepath.Join(t.TempDir(), "resolv.conf")
	if err := os.WriteFile(conf, []byte("nameserver "+addr+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	wrap = []string{"unshare", "--mount", "sh", "-c",
		`mount --bind "$0" /etc/resolv.conf && exec "$@"`, conf}
	if out, err := exec.Command(wrap[0], append(wrap[1:], "true")...).CombinedOutput(); err != nil {
		t.Skipf("cannot give a process another name server here, which needs root and the right to mount: %v: %s", err, out)
	}
	return wrap
}

// Members that know only a domain, and their own address, become a cluster.
func TestSRV(t *testing.T) {
	z := &zone{srv: map[string][]dnsmessage.SRVResource{}}
	wrap := z.serve(t)
	ports := []int{proc.FreePort(t), proc.FreePort(t), proc.FreePort(t)}
	z.set("_etcd-server._tcp.example.test.", ports...)
	alone := proc.FreePort(t)
	z.set("_etcd-server-blue._tcp.example.test.", alone)
	config := func(name string, port int, args ...string) proc.Config {
		return proc.Config{Program: proc.Subject(), Name: name, Memory: true, Discover: true,
			PeerPort: port, Wrap: wrap,
			Args: append([]string{"--discovery-srv=example.test"}, args...),
			Env:  []string{"GODEBUG=netdns=go"}}
	}
	refuse := func(want string, c proc.Config) {
		t.Helper()
		s := proc.New(t, c)
		s.Launch()
		if code := s.Wait(); code == 0 || !strings.Contains(s.Log().String(), want) {
			t.Errorf("exit code %d, want %q:\n%s", code, want, s.Log().Tail(5))
		}
	}
	refuse(`" in SRV records`, config("x", proc.FreePort(t)))
	refuse(`error querying DNS SRV records for _etcd-server-red lookup _etcd-server-red._tcp.example.test on 127.0.53.53:53: no such host`,
		config("x", ports[0], "--discovery-srv-name=red"))

	var all []*proc.Server
	for i, port := range ports {
		s := proc.New(t, config(fmt.Sprintf("infra%d", i), port))
		s.Launch()
		all = append(all, s)
	}
	for _, s := range all {
		s.Ready()
	}
	// Each knew the others by numbers of its own; what they publish are their names.
	c := all[0].Client()
	names := func() (out string) {
		res, err := c.MemberList(proc.Context(t))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range res.Members {
			out += m.Name + "=" + strings.Join(m.PeerURLs, ",") + "\n"
		}
		return out
	}
	for i, port := range ports {
		want := fmt.Sprintf("infra%d=http://m%d.test:%d\n", i, i+1, port)
		for end := time.Now().Add(patience); !strings.Contains(names(),
			want); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("no %s in\n%s", want, names())
			}
		}
	}
	if proc.Subject() == proc.Vigil {
		// All members began with the same state.
		for _, s := range all {
			if log := s.Log().String(); strings.Contains(log, "CORRUPT") {
				t.Errorf("members differ:\n%s", log)
			}
		}
	}
	// The records are not needed any more.
	z.set("_etcd-server._tcp.example.test.")
	all[2].Kill()
	all[2].Restart()

	proc.Start(t, config("solo", alone, "--discovery-srv-name=blue"))
}
