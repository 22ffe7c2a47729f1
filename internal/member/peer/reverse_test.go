package peer

import (
	"bytes"
	"context"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"
)

// oneWay makes two members of which a cannot connect to b, and b can connect to a.
func oneWay(t *testing.T, edit ...func(*Options)) (a, b *member, got chan delivery) {
	a, b = newMember(t, 0xa, edit...), newMember(t, 0xb, edit...)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nowhere := "http://" + l.Addr().String()
	l.Close()
	a.SetMembers(1, []Member{{a.id, []string{a.url}}, {b.id, []string{nowhere}}}, nil)
	b.SetMembers(1, []Member{{a.id, []string{a.url}}, {b.id, []string{nowhere}}}, nil)
	got = keeping(b)
	a.recv.Calls, b.recv.Calls = callFunc(echo), callFunc(echo)
	a.start(t)
	b.start(t)
	return a, b, got
}

// A member that the other one cannot connect to gets its messages, calls and bulk transfers all the
// same, in order, also after its stream has ended; and it says in its log why the other one cannot
// connect.
func TestAMemberThatCanOnlyConnect(t *testing.T) {
	a, b, got := oneWay(t)
	index := uint64(0)
	send := func(n int) {
		t.Helper()
		before := len(b.sink.indexes(raftpb.MsgApp))
		for range n {
			index++
			a.send(app(a.id, b.id, index, 3*maxFrame), msg(raftpb.MsgHeartbeat, a.id, b.id, index))
		}
		until(t, "the messages arrive",
			func() bool { return len(b.sink.indexes(raftpb.MsgApp)) == before+n })
		if !ascending(b.sink.indexes(raftpb.MsgApp)) ||
			!ascending(b.sink.indexes(raftpb.MsgHeartbeat)) {
			t.Error("messages are out of order")
		}
	}
	up(t, a, b)
	send(20)
	failures := len(a.logs.lines("failed to connect to peer", "connection refused"))
	if out, err := a.Call(t.Context(), b.id, 1, []byte("x")); err != nil || string(out) != "a/1/x" {
		t.Errorf("call: %q, %v", out, err)
	}
	if len(a.logs.lines("failed to connect to peer", "connection refused")) == failures {
		t.Error("a does not say that the dial failed, for which b was invited")
	}
	data := noise(5 << 20)
	if err := a.SendBulk(t.Context(), b.id, []byte("meta"), bytes.NewReader(data)); err != nil {
		t.Error(err)
	} else if d := <-got; d.from != a.id || !bytes.Equal(d.data, data) || d.err != nil {
		t.Errorf("transfer: %d bytes from %x, %v", len(d.data), d.from, d.err)
	}
	if len(b.logs.lines("a member cannot connect to a peer URL of this member",
		"connection refused")) != 1 {
		t.Error("b does not say once that a cannot connect, and why")
	}
	connects := a.about(b.id).Connects
	b.hangUp(t, a.id)
	until(t, "connected again",
		func() bool {
			return a.about(b.id).Connects > connects &&
				!a.about(b.id).Connected.IsZero()
		})
	send(20)
	if s := a.about(b.id); s.Failure != nil || s.Detour == nil ||
		!strings.Contains(s.Detour.Text, "connection refused") {
		t.Errorf("the failure %+v, and the reason why b has connected %+v", s.Failure, s.Detour)
	}
	if s := b.about(a.id); s.Failure != nil || s.Detour != nil {
		t.Errorf("b, which can connect, has %+v and %+v", s.Failure, s.Detour)
	}
	if s := a.about(b.id); s.RoundTrip == 0 {
		t.Errorf("no round trip was measured: %+v", s)
	}
}

// A member that could only connect can be dialed again: the reason why it could not be is
// forgotten, and the connection stays.
func TestADetourEnds(t *testing.T) {
	a, b, _ := oneWay(t)
	index := uint64(0)
	until(t, "b connects", func() bool {
		index++
		a.send(app(a.id, b.id, index, 10))
		return a.about(b.id).Detour != nil
	})
	before := a.about(b.id)
	a.SetMembers(2, []Member{{a.id, []string{a.url}}, {b.id, []string{b.url}}}, nil)
	until(t, "a dials b", func() bool { return a.about(b.id).Detour == nil })
	if s := a.about(b.id); s.Connected != before.Connected || s.Failure != nil {
		t.Errorf("the connection of %v is replaced by one of %v; %+v", before.Connected,
			s.Connected, s.Failure)
	}
}

// A stream that nobody asked for is rejected, and an invitation to a member that ends or does not
// come ends the wait.
func TestInvitations(t *testing.T) {
	a, b, _ := oneWay(t)
	up(t, a, b)
	p := b.remote(a.id)
	b.dialReversed(p, invitation{id: 99, kind: kindBulk})
	if len(b.logs.lines("failed to connect to a member that asked for it", "not invited")) != 1 {
		t.Error("a stream that nobody asked for was accepted")
	}
	if n, _ := a.Refused(); n[CodeUnknown.Error()] == 0 {
		t.Errorf("refused: %v", n)
	}
	// A member whose stream is gone cannot be invited.
	done := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		for ctx.Err() == nil {
			if _, err := a.Call(ctx, b.id, 1, nil); err != nil {
				done <- nil
				return
			}
		}
		done <- ctx.Err()
	}()
	b.Close()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// A member that no other one has connected to says so.
func TestAMemberThatNobodyReachesSaysSo(t *testing.T) {
	_, b, _ := oneWay(t, func(o *Options) { o.ReachAfter = 20 * time.Millisecond })
	until(t, "b says that no member has connected to it", func() bool {
		return len(b.logs.lines("no member has connected to a peer URL of this member")) == 1
	})
	b.Close()
}

// A member of an older version, which knows no invitations and ends a stream with one, is not
// invited.
func TestAnOlderMemberIsNotInvited(t *testing.T) {
	a := newMember(t, 0xa)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nowhere := "http://" + l.Addr().String()
	l.Close()
	a.SetMembers(1, []Member{{a.id, []string{a.url}}, {0xb, []string{nowhere}}}, nil)
	a.start(t)
	h := hello{minProtocol: minProtocol, maxProtocol: maxProtocol, kind: kindMessages,
		cluster: a.o.ClusterID, from: 0xb, to: a.id, index: 1,
		version: "1", urls: []string{nowhere}}
	d := a.o.dialer(kindMessages)
	var sent, received atomic.Uint64
	older, err := d.dial(t.Context(), a.url, &h, &sent, &received)
	if err != nil {
		t.Fatal(err)
	}
	defer older.end(io.EOF)
	signs := 0
	for signs < 5 { // of life: a dials and fails meanwhile
		typ, _, err := older.in.next()
		if err != nil || typ != frameAlive {
			t.Fatalf("frame of type %d, %v", typ, err)
		}
		signs++
	}
	if len(a.logs.lines("failed to connect to peer", "connection refused")) != 1 {
		t.Error("it did not try to connect")
	}
}

// A dial that its caller gives up does not mean that a member cannot be dialed.
func TestADialThatIsGivenUp(t *testing.T) {
	a, b := pair(t)
	up(t, a, b)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	p := a.remote(b.id)
	if _, err := a.dialMember(ctx, p, kindBulk); err == nil {
		t.Fatal("a dial that was given up made a connection")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.mu.undialed.IsZero() {
		t.Error("it counts as a failure")
	}
}
