package peer

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"
)

// reports returns the reports about a member.
func (s *sink) reports(id uint64) []bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.absent[id])
}

// listenAt listens at an address that was in use before.
func listenAt(t *testing.T, addr string) (l net.Listener) {
	until(t, "the port is free again", func() (ok bool) {
		var err error
		l, err = net.Listen("tcp", addr)
		return err == nil
	})
	return l
}

// A member whose process has ended is reported as absent, and as present before the first message
// of its next process.
func TestAbsentMember(t *testing.T) {
	a, b := pair(t)
	up(t, a, b)
	up(t, b, a)
	b.Close()
	until(t, "it is absent",
		func() bool { return slices.Equal(a.sink.reports(b.id), []bool{true}) })
	early := false
	a.sink.mu.Lock()
	a.sink.taken = func(*raftpb.Message) {
		early = early ||
			a.sink.absent[b.id][len(a.sink.absent[b.id])-1]
	}
	a.sink.mu.Unlock()

	again, err := New(b.o)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	again.SetMembers(1, []Member{{a.id, []string{a.url}}}, nil)
	l := listenAt(t, b.url[len("http://"):])
	go again.Serve(l)
	if err := again.Start(Receivers{Raft: &sink{}}); err != nil {
		t.Fatal(err)
	}
	until(t, "a message of the next process arrives", func() bool {
		again.Send([]*raftpb.Message{msg(raftpb.MsgVote, b.id, a.id, 1)})
		return len(a.sink.indexes(raftpb.MsgVote)) > 0
	})
	a.sink.mu.Lock()
	defer a.sink.mu.Unlock()
	if !slices.Equal(a.sink.absent[b.id], []bool{true, false}) || early {
		t.Errorf("reports %v; a message came before the last of them: %v",
			a.sink.absent[b.id], early)
	}
}

// The report about a member that leaves the membership is taken back: nothing would do so later,
// and its id may come back.
func TestAbsentMemberThatIsGivenUp(t *testing.T) {
	a, b := pair(t)
	up(t, a, b)
	up(t, b, a)
	b.Close()
	until(t, "it is absent",
		func() bool { return slices.Equal(a.sink.reports(b.id), []bool{true}) })
	a.SetMembers(2, []Member{{a.id, []string{a.url}}}, nil)
	until(t, "it is not absent",
		func() bool { return slices.Equal(a.sink.reports(b.id), []bool{true, false}) })
}

// A member that lives is not absent while it reaches this one, though its port refuses connections.
func TestMemberBehindClosedPortIsNotAbsent(t *testing.T) {
	var refused atomic.Int64
	a, b, p := throughProxy(t, func(o *Options) {
		o.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			c, err := new(net.Dialer).DialContext(ctx, network, address)
			if refusedEverywhere(err) {
				refused.Add(1)
			}
			return c, err
		}
	})
	up(t, a, b)
	up(t, b, a)
	p.l.Close()
	p.reset()
	until(t, "a connection is refused, and the member makes it", func() bool {
		return refused.Load() > 0 && !a.about(b.id).Connected.IsZero() &&
			len(b.logs.lines("a member cannot connect to a peer URL of this member")) > 0
	})
	if r := a.sink.reports(b.id); len(r) > 0 {
		t.Errorf("reports about a member that is connected: %v", r)
	}
	// Its streams are made again, and each time the dials that follow are refused.
	var ended *link
	for i := range 3 {
		until(t, "the stream is there", func() bool { // b can know before a
			links := a.inbound(b.id)
			if len(links) == 0 || links[0] == ended {
				return false
			}
			ended = links[0]
			return true
		})
		ended.end(errors.New("reset by the test"))
		until(t, "the stream is made again", func() bool {
			s := b.about(a.id)
			return s.Connects >= uint64(i)+2 && !s.Connected.IsZero()
		})
	}
	b.send(msg(raftpb.MsgVote, b.id, a.id, 1))
	until(t, "a message arrives", func() bool { return len(a.sink.indexes(raftpb.MsgVote)) > 0 })
	if r := a.sink.reports(b.id); len(r)%2 != 0 {
		t.Errorf("reports about a member that is connected: %v", r)
	}
	b.Close()
	until(t, "it is absent",
		func() bool { r := a.sink.reports(b.id); return len(r)%2 == 1 && r[len(r)-1] })
}

// inbound returns the streams of messages that a member has opened here.
func (m *member) inbound(id uint64) (out []*link) {
	m.mu.Lock()
	p := m.mu.members[id]
	m.mu.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	if in := p.mu.in[kindMessages]; in != nil && in.link != nil {
		out = append(out, in.link)
	}
	return out
}

// Resets of connections make no member absent while something listens at its address.
func TestResetsMakeNobodyAbsent(t *testing.T) {
	a, b, p := throughProxy(t)
	for i := uint64(1); i <= 20; i++ {
		until(t, "connected",
			func() bool { s := a.about(b.id); return s.Connects >= i && !s.Connected.IsZero() })
		up(t, b, a)
		p.reset()
		for _, link := range a.inbound(b.id) {
			link.end(errors.New("reset by the test"))
		}
	}
	if x, y := a.sink.reports(b.id), b.sink.reports(a.id); len(x)+len(y) > 0 {
		t.Errorf("reports %v and %v", x, y)
	}
}

// Only a port at which nothing listens refuses.
func TestRefusedEverywhere(t *testing.T) {
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	free := gone.Addr().String()
	gone.Close()
	full := fullQueue(t)
	file := filepath.Join(t.TempDir(), "none")
	for _, c := range []struct {
		name    string
		urls    []string
		refused bool
	}{
		{"nothing listens", []string{"http://" + free}, true},
		{"nothing listens at two addresses", []string{"http://" + free, "http://" + free}, true},
		{"the queue of connections is full", []string{"http://" + full}, false},
		{"nothing listens at one address, the queue of the other is full",
			[]string{"http://" + free, "http://" + full}, false},
		{"there is no socket", []string{"unix://" + file}, false},
		{"the connection is reset", []string{"http://" + resetting(t)}, false},
	} {
		a := newMember(t, 0xa,
			func(o *Options) { o.DialTimeout, o.HandshakeTimeout = time.Second, patience })
		a.SetMembers(1, []Member{{0xb, c.urls}}, nil)
		a.mu.Lock()
		p := a.mu.members[0xb]
		a.mu.Unlock()
		_, err := a.dialMember(t.Context(), p, kindMessages)
		if err == nil || refusedEverywhere(err) != c.refused {
			t.Errorf("%s: refused everywhere is %v: %v", c.name, refusedEverywhere(err), err)
		}
	}
	for _, err := range []error{nil, context.DeadlineExceeded, os.ErrNotExist, syscall.ECONNRESET,
		syscall.EHOSTUNREACH,
		errors.Join(syscall.ECONNREFUSED, errors.New("lookup failed")), refuse(CodeClosing, "")} {
		if refusedEverywhere(err) {
			t.Errorf("%v counts as refused", err)
		}
	}
	if !refusedEverywhere(fmt.Errorf("dial: %w",
		errors.Join(syscall.ECONNREFUSED,
			&net.OpError{Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}))) {
		t.Error("wrapped refusals do not count")
	}
}

// A host with several addresses refuses if all of them do, and not if the first one does.
func TestRefusedByAllAddressesOfAHost(t *testing.T) {
	full := fullQueueAt(t, [4]byte{127, 0, 0, 2})
	_, port, err := net.SplitHostPort(full)
	if err != nil {
		t.Fatal(err)
	}
	one, two := net.IPAddr{IP: net.IPv4(127, 0, 0, 1)}, net.IPAddr{IP: net.IPv4(127, 0, 0, 2)}
	for _, c := range []struct {
		addrs   []net.IPAddr
		refused bool
	}{{[]net.IPAddr{one}, true}, {[]net.IPAddr{one, one}, true}, {[]net.IPAddr{one, two}, false}} {
		d := &dialer{timeout: time.Second,
			lookup: func(context.Context, string) ([]net.IPAddr, error) { return c.addrs, nil }}
		conn, err := d.open(t.Context(), target{network: "tcp", addr: "localhost:" + port})
		if err == nil {
			conn.Close()
			t.Fatalf("something listens at port %s of this machine", port)
		}
		if refusedEverywhere(err) != c.refused {
			t.Errorf("%v: refused everywhere is %v: %v", c.addrs, refusedEverywhere(err), err)
		}
	}
}

// resetting returns the address of a listener that resets what it accepts.
func resetting(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			c.(*net.TCPConn).SetLinger(0)
			c.Close()
		}
	}()
	return l.Addr().String()
}

// fullQueue returns the address of a listener that accepts nothing, and whose queue is full.
func fullQueue(t *testing.T) string { return fullQueueAt(t, [4]byte{127, 0, 0, 1}) }

func fullQueueAt(t *testing.T, ip [4]byte) string {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Close(fd) })
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: ip}); err != nil {
		t.Skip(err) // not all systems have more than one address of themselves
	}
	if err := syscall.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	name, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	addr := fmt.Sprintf("%v:%d", net.IP(ip[:]), name.(*syscall.SockaddrInet4).Port)
	for range 10 {
		c, err := net.DialTimeout("tcp", addr, 200*time.Millisecond)
		if err != nil {
			return addr
		}
		t.Cleanup(func() { c.Close() })
	}
	t.Skip("the queue of a listener does not get full here")
	return ""
}
