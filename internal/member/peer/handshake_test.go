package peer

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"
)

// A connection of another cluster or program is refused, with one line on each side however often
// it is tried.
func TestRefusals(t *testing.T) {
	for _, c := range []struct {
		name  string
		dials func(o *Options) // the one that dials
		knows func(a, b *member)
		want  string
		code  Code
	}{
		{name: "another cluster", dials: func(o *Options) { o.ClusterID = 0xc2 }, code: CodeCluster,
			want: "wrong cluster: it belongs to cluster c2, this member to c1"},
		{name: "another member", knows: func(a, b *member) {
			a.SetMembers(1, []Member{{0xbb, []string{b.url}}}, nil)
		}, code: CodeMember, want: "wrong member: it wants member bb, this is b"},
		{name: "the same id", dials: func(o *Options) { o.MemberID = 0xb },
			knows: func(a, b *member) {
				// It takes b for the member that it is itself.
				a.SetMembers(1, []Member{{0xbb, []string{b.url}}}, nil)
				b.o.MemberID = 0xbb
				a.o.MemberID = 0xbb
			}, code: CodeMember, want: "it has the id of this member, bb"},
		{name: "unknown", knows: func(a, b *member) {
			a.SetMembers(1, []Member{{b.id, []string{b.url}}}, nil)
			b.SetMembers(1, nil, nil)
		}, code: CodeUnknown,
			want: "unknown member: member a is no member of the cluster as far as this member knows"},
		{name: "removed", knows: func(a, b *member) {
			a.SetMembers(1, []Member{{b.id, []string{b.url}}}, nil)
			b.SetMembers(2, nil, []uint64{a.id})
		}, code: CodeRemoved, want: "removed member: member a was removed from the cluster"},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := newMember(t, 0xa, func(o *Options) {
				if c.dials != nil {
					c.dials(o)
				}
			})
			b := newMember(t, 0xb)
			if c.knows != nil {
				c.knows(a, b)
			} else {
				know(1, a, b)
				// it does not dial
				b.SetMembers(1, []Member{{a.id, []string{"http://127.0.0.1:1"}}}, nil)
			}
			b.start(t)
			a.start(t)
			until(t, "it was refused three times",
				func() bool { n, _ := b.Refused(); return n[c.code.Error()] >= 3 })
			until(t, "both have said so", func() bool {
				return len(b.logs.lines("rejected connection")) > 0 &&
					len(a.logs.lines("failed to connect")) > 0
			})
			if got := b.logs.lines("rejected connection on peer endpoint", c.want); len(got) != 1 {
				t.Errorf("lines on the side that refuses: %q", got)
			}
			if got := a.logs.lines("failed to connect to peer", "refused: ",
				c.want); len(got) != 1 {
				t.Errorf("lines on the side that dials: %q", got)
			}
			a.send(msg(raftpb.MsgHeartbeat, a.id, b.id, 1))
			if len(b.sink.all()) != 0 {
				t.Error("a message came through")
			}
			select {
			case <-a.Removed():
				if c.code != CodeRemoved {
					t.Error("it believes to be removed")
				}
			default:
				if c.code == CodeRemoved {
					t.Error("it does not know that it was removed")
				}
			}
		})
	}
}

// greetRaw says a hello by hand and returns the answer.
func greetRaw(t *testing.T, url string, b []byte) (reply, error) {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(patience))
	if _, err := conn.Write(b); err != nil {
		t.Fatal(err)
	}
	body, err := readSealed(bufio.NewReader(conn))
	if err != nil {
		return reply{}, err
	}
	return decodeReply(body)
}

// The version of the protocol is the newest that both sides speak; with none in common the refusal
// names both ranges.
func TestVersionIsNegotiated(t *testing.T) {
	a, b := newMember(t, 0xa), newMember(t, 0xb)
	know(1, a, b)
	b.start(t)
	h := hello{minProtocol: 1, maxProtocol: 9, kind: kindMessages, cluster: testCluster,
		from: a.id, to: b.id}
	r, err := greetRaw(t, b.url, h.encode())
	if err != nil || r.code != 0 || r.protocol != maxProtocol {
		t.Errorf("%+v, %v", r, err)
	}
	h.minProtocol = 8
	r, err = greetRaw(t, b.url, h.encode())
	if err != nil || r.code != CodeVersion ||
		r.text != "it speaks versions 8 to 9 of the protocol, this member 1 to 1" {
		t.Errorf("%+v, %v", r, err)
	}
	// A later version may look different after the versions.
	r, err = greetRaw(t, b.url, seal([]byte{8, 9, 1, 2, 3}))
	if err != nil || r.code != CodeVersion {
		t.Errorf("%+v, %v", r, err)
	}
	until(t, "the line",
		func() bool { return len(b.logs.lines("rejected connection", "incompatible version")) > 0 })
}

func TestBrokenHandshakes(t *testing.T) {
	a, b := newMember(t, 0xa), newMember(t, 0xb)
	know(1, a, b)
	b.start(t)
	h := hello{minProtocol: 1, maxProtocol: 1, kind: kindMessages, cluster: testCluster,
		from: a.id, to: b.id}
	good := h.encode()
	for i := range good {
		bad := append([]byte(nil), good...)
		bad[i] ^= 4
		if i == len(magic)+1 { // a length that asks for more than is there
			continue
		}
		conn, err := net.Dial("tcp", strings.TrimPrefix(b.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		conn.Write(bad)
		conn.(*net.TCPConn).CloseWrite()
		conn.SetDeadline(time.Now().Add(patience))
		body, err := readSealed(conn)
		if err == nil {
			if r, err := decodeReply(body); err != nil || r.code == 0 {
				t.Errorf("bit of byte %d altered: %+v, %v", i, r, err)
			}
		}
		conn.Close()
	}
	if b.about(a.id).ReceivedBytes != 0 {
		t.Error("a stream was opened")
	}
	h.kind = 77
	if r, err := greetRaw(t, b.url, h.encode()); err != nil || r.code != CodeUnsupported {
		t.Errorf("%+v, %v", r, err)
	}
	h.kind = kindBulk // b takes none
	if r, err := greetRaw(t, b.url, h.encode()); err != nil || r.code != CodeUnsupported {
		t.Errorf("%+v, %v", r, err)
	}
}

// Connections that send nothing are bounded in number and in time, and block no other connection.
func TestSilentConnectionsAreBounded(t *testing.T) {
	a := newMember(t, 0xa)
	b := newMember(t, 0xb, func(o *Options) { o.MaxPending = 4; o.HandshakeTimeout = time.Hour })
	know(1, a, b)
	b.start(t)
	var conns []net.Conn
	for range 20 {
		conn, err := net.Dial("tcp", strings.TrimPrefix(b.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		conns = append(conns, conn)
	}
	for _, c := range conns[:16] { // the oldest make way
		c.SetDeadline(time.Now().Add(patience))
		if _, err := c.Read(make([]byte, 1)); err == nil {
			t.Fatal("read something")
		} else if e, ok := err.(net.Error); ok && e.Timeout() {
			t.Fatal("an old connection is still open")
		}
	}
	if _, n := b.Refused(); n > 4 {
		t.Errorf("%d connections are waiting", n)
	}
	a.start(t)
	up(t, a, b)

	c := newMember(t, 0xc, func(o *Options) { o.HandshakeTimeout = 50 * time.Millisecond })
	c.start(t)
	conn, err := net.Dial("tcp", strings.TrimPrefix(c.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.Write([]byte(magic[:3])) // it may be closed by now, and is reset then
	conn.SetDeadline(time.Now().Add(patience))
	if _, err := io.ReadAll(conn); err != nil && !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("a silent connection: %v", err)
	}
}

// A member that this one does not know is let in if it knows a newer membership: it may lead.
func TestNewerMembershipIsLearned(t *testing.T) {
	a, b := newMember(t, 0xa), newMember(t, 0xb)
	a.SetMembers(9, []Member{{a.id, []string{a.url}}, {b.id, []string{b.url}}}, nil)
	b.SetMembers(5, []Member{{b.id, []string{b.url}}}, nil)
	a.start(t)
	b.start(t)
	up(t, a, b)
	up(t, b, a) // by the URL that a sent
	b.send(msg(raftpb.MsgAppResp, b.id, a.id, 1))
	until(t, "the answer arrived", func() bool { return len(a.sink.all()) == 1 })
	b.SetMembers(7, []Member{{b.id, []string{b.url}}}, nil) // still older than what a knows
	if b.about(a.id).ID == 0 {
		t.Error("forgotten too early")
	}
	b.SetMembers(9, []Member{{b.id, []string{b.url}}}, nil)
	if b.about(a.id).ID != 0 {
		t.Error("still known though the newer membership does not have it")
	}
	until(t, "it is refused",
		func() bool { n, _ := b.Refused(); return n[CodeUnknown.Error()] > 0 })
}

// A program of another cluster on a reused address stops no member by reporting it as removed.
func TestStrangersClaimOfRemoval(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	defer l.Close()
	wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			readSealed(conn)
			conn.Write((&reply{code: CodeRemoved, cluster: 0xc2, member: 0xb,
				text: "go away"}).encode())
			conn.Close()
		}
	})
	a := newMember(t, 0xa)
	a.SetMembers(1, []Member{{0xb, []string{"http://" + l.Addr().String()}}}, nil)
	a.start(t)
	until(t, "the line", func() bool {
		return len(a.logs.lines("failed to connect to peer",
			"wrong cluster: it belongs to cluster c2, this member to c1")) == 1
	})
	select {
	case <-a.Removed():
		t.Error("it was believed")
	default:
	}
}

// A member that was removed while it is connected hears of it at once.
func TestRemovedMemberIsTold(t *testing.T) {
	a, b := pair(t)
	up(t, a, b)
	up(t, b, a)
	b.SetMembers(2, []Member{{b.id, []string{b.url}}}, []uint64{a.id})
	select {
	case <-a.Removed():
	case <-time.After(patience):
		t.Fatal("it did not receive the report")
	}
	if len(a.logs.lines("this member was removed from the cluster", "remote-peer-id=b")) != 1 {
		t.Error("no line")
	}
	if b.about(a.id).ID != 0 {
		t.Error("b keeps the member")
	}
	select {
	case <-b.Removed():
		t.Error("b believes that it was removed")
	default:
	}
	b.send(msg(raftpb.MsgHeartbeat, b.id, a.id, 1)) // goes nowhere
}

// A member that moves is dialed at its new URL at once, and its old stream continues until it ends.
func TestNewURLIsDialed(t *testing.T) {
	a, b := newMember(t, 0xa,
		func(o *Options) { o.BackoffMax = time.Hour; o.BackoffMin = time.Millisecond }),
		newMember(t, 0xb)
	a.SetMembers(1, []Member{{b.id, []string{"http://127.0.0.1:1"}}}, nil)
	b.SetMembers(1, []Member{{a.id, []string{"http://127.0.0.1:1"}}}, nil)
	a.start(t)
	b.start(t)
	until(t, "the dial failed", func() bool { return len(a.logs.lines("failed to connect")) == 1 })
	a.SetMembers(2, []Member{{b.id, []string{"http://127.0.0.1:1", b.url}}}, nil)
	up(t, a, b)
}

// A dial in from a member ends the wait before it is dialed.
func TestIncomingStreamEndsBackoff(t *testing.T) {
	slow := func(o *Options) { o.BackoffMin, o.BackoffMax = time.Millisecond, time.Hour }
	a, b := newMember(t, 0xa, slow), newMember(t, 0xb)
	know(1, a, b)
	a.start(t) // b refuses: it does not run
	until(t, "a was refused until its wait is long",
		func() bool { n, _ := b.Refused(); return n[CodeClosing.Error()] >= 10 })
	b.start(t)
	up(t, a, b)
}

// HTTP on the peer port goes to the listener for it, and is refused if there is none.
func TestHTTPOnPeerPort(t *testing.T) {
	a := newMember(t, 0xa, func(o *Options) { o.HTTP = true })
	a.start(t)
	srv := http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter,
		r *http.Request) {
		io.WriteString(w, "path "+r.URL.Path)
	})}
	go srv.Serve(a.HTTP())
	defer srv.Close()
	get := func(url string) (string, error) {
		c := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		r, err := c.Get(url)
		if err != nil {
			return "", err
		}
		defer r.Body.Close()
		b, err := io.ReadAll(r.Body)
		return string(b), err
	}
	for range 3 {
		if got, err := get(a.url + "/version"); got != "path /version" || err != nil {
			t.Errorf("%q, %v", got, err)
		}
	}
	b := newMember(t, 0xb)
	b.start(t)
	if got, err := get(b.url + "/version"); err == nil {
		t.Errorf("answered %q", got)
	}
	until(t, "the line", func() bool {
		return len(b.logs.lines("rejected connection on peer endpoint",
			"does not speak this protocol")) == 1
	})
}

// The other side's nature shows in what a dialer says.
func TestDialerNamesWhatItFound(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := http.Server{}
	go srv.Serve(l)
	defer srv.Close()
	a := newMember(t, 0xa)
	a.SetMembers(1, []Member{{0xb, []string{"http://" + l.Addr().String()}}}, nil)
	a.start(t)
	until(t, "the line",
		func() bool {
			return len(a.logs.lines("failed to connect to peer",
				"answers in HTTP")) == 1
		})
}

func TestOptionsAreChecked(t *testing.T) {
	_, err := New(Options{PingInterval: time.Second, DeadAfter: time.Second, MaxPending: -1,
		Version: strings.Repeat("v", 65)})
	for _, want := range []string{"ClusterID is 0", "MemberID is 0", "less than two PingIntervals",
		"MaxPending is -1", "Version has 65 bytes"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %q", err, want)
		}
	}
	a := newMember(t, 1)
	if a.Start(Receivers{}) == nil {
		t.Error("started without a receiver")
	}
	a.start(t)
	if a.Start(a.recv) == nil {
		t.Error("started twice")
	}
	for url, ok := range map[string]bool{"http://h:1": true, "https://[::1]:2/": true,
		"unix:///peer.sock": true, "unixs://x": true,
		"http://h": false, "http://:1": false, "http://h:1/p": false, "h:1": false, "": false,
		"unix://": false, "http://" + strings.Repeat("h", maxURL) + ":1": false} {
		if _, err := parseURL(url); (err == nil) != ok {
			t.Errorf("%q: %v", url, err)
		}
	}
}
