package server

import (
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"vigil/internal/state/cluster"
)

// TestNewClusterBehindProxies: addresses that accept and close, or do not exist, are those of
// members that have not started: a new cluster does not wait for them. An address that is silent
// may belong to a member that starts.
func TestNewClusterBehindProxies(t *testing.T) {
	listen := func(each func(net.Conn)) (string, *atomic.Int32) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		accepted := &atomic.Int32{}
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				accepted.Add(1)
				each(c)
			}
		}()
		return "http://" + l.Addr().String(), accepted
	}
	closing, closed := listen(func(c net.Conn) { c.Close() })
	resetting, _ := listen(func(c net.Conn) { c.(*net.TCPConn).SetLinger(0); c.Close() })
	silent, _ := listen(func(net.Conn) {})
	ask := func(urls ...string) (took time.Duration) {
		t.Helper()
		m := &Member{cfg: Config{Name: "self"}}
		began := time.Now()
		_, s, err := m.askCluster(t.Context(),
			[]cluster.Member{{Name: "self", PeerURLs: []string{"http://127.0.0.1:1"}},
				{Name: "other", PeerURLs: urls}}, askNow)
		if err == nil || s != nil {
			t.Errorf("%q: an answer", urls)
		}
		return time.Since(began)
	}
	ask(closing, resetting, "http://127.0.0.1:1", "http://no-such-host.invalid:1")
	if n := closed.Load(); n != closedRounds { // it would be asked more often if it waited
		t.Errorf("an address that closes was asked %d times", n)
	}
	if took := ask(silent); took < askTimeout {
		t.Errorf("does not wait for a member that may be starting: %v", took)
	}
}

func TestAbsent(t *testing.T) {
	for _, c := range []struct {
		err         error
		once, again bool
	}{
		{&net.DNSError{IsNotFound: true}, true, true},
		{&net.DNSError{IsTemporary: true}, false, true},
		{&net.DNSError{IsTimeout: true}, false, false},
		{errors.New("refused: another cluster"), false, false},
	} {
		if absent(c.err, false) != c.once || absent(c.err, true) != c.again {
			t.Errorf("%v: %v, %v", c.err, absent(c.err, false), absent(c.err, true))
		}
	}
}

func TestPeerLocalAddr(t *testing.T) {
	for _, c := range []struct {
		urls []string
		want string
	}{
		{[]string{"http://10.0.0.1:2380"}, "10.0.0.1"},
		{[]string{"https://name:1", "http://127.0.0.1:1", "http://0.0.0.0:1", "https://[fd00::1]:1",
			"http://10.0.0.2:1"}, "fd00::1"},
		{[]string{"http://localhost:2380", "unix://sock"}, ""},
	} {
		on, off := Config{SetMemberLocalAddr: true, InitialAdvertisePeerURLs: c.urls},
			Config{InitialAdvertisePeerURLs: c.urls}
		if got := on.peerLocalAddr(); got != c.want || off.peerLocalAddr() != "" {
			t.Errorf("%q: %q", c.urls, got)
		}
	}
}
