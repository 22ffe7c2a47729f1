package peer

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"
)

const testCluster = 0xc1

// patience is how long a test waits for something that must come.
const patience = time.Minute

// until waits for a condition.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			buf := make([]byte, 1<<20)
			t.Fatalf("never: %s\n%s", what, buf[:runtime.Stack(buf, true)])
		}
	}
}

// sink takes raft messages.
type sink struct {
	mu          sync.Mutex
	msgs        []*raftpb.Message
	unreachable map[uint64]int
	absent      map[uint64][]bool     // the reports about each member, in order
	gate        chan struct{}         // if set, Step waits for it
	entered     atomic.Int64          // calls of Step
	taken       func(*raftpb.Message) // if set, Step calls it for each message
}

func (s *sink) Step(msgs ...*raftpb.Message) {
	s.entered.Add(1)
	if s.gate != nil {
		<-s.gate
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.msgs = append(s.msgs, msgs...)
	if s.taken != nil {
		for _, m := range msgs {
			s.taken(m)
		}
	}
}

func (s *sink) ReportUnreachable(id uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.unreachable == nil {
		s.unreachable = map[uint64]int{}
	}
	s.unreachable[id]++
}

func (s *sink) ReportAbsent(id uint64, absent bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.absent == nil {
		s.absent = map[uint64][]bool{}
	}
	s.absent[id] = append(s.absent[id], absent)
}

func (s *sink) lost(id uint64) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.unreachable[id]
}

func (s *sink) all() []*raftpb.Message {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.msgs[:len(s.msgs):len(s.msgs)]
}

// indexes returns the indexes of the messages of a type, in the order they came.
func (s *sink) indexes(t raftpb.MessageType) (out []uint64) {
	for _, m := range s.all() {
		if m.GetType() == t {
			out = append(out, m.GetIndex())
		}
	}
	return out
}

// logs keeps the lines of a logger.
type logs struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logs) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(b)
}

// lines returns the lines at info and above that hold all the words.
func (l *logs) lines(words ...string) (out []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
next:
	for line := range strings.Lines(l.buf.String()) {
		for _, w := range words {
			if !strings.Contains(line, w) {
				continue next
			}
		}
		out = append(out, line)
	}
	return out
}

// member is a Transport with a listener and receivers that remember.
type member struct {
	*Transport
	id   uint64
	url  string
	sink *sink
	logs *logs
	recv Receivers
}

// fast are options that let failures be noticed soon.
func fast(o *Options) {
	o.PingInterval = 50 * time.Millisecond
	o.DeadAfter = patience // the machine may be busy; tests of dead connections set less
	o.BackoffMin = 5 * time.Millisecond
	o.BackoffMax = 50 * time.Millisecond
	o.DialTimeout = patience
	o.HandshakeTimeout = patience
}

// newMember makes a member that listens and is not started. Options are changed by edit.
func newMember(t *testing.T, id uint64, edit ...func(*Options)) *member {
	t.Helper()
	m := &member{id: id, sink: &sink{}, logs: &logs{}}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	m.url = "http://" + l.Addr().String()
	o := Options{ClusterID: testCluster, MemberID: id, Version: fmt.Sprintf("test-%d", id),
		PeerURLs: []string{m.url}}
	fast(&o)
	o.Logger = slog.New(slog.NewTextHandler(m.logs, nil)).With("me", id)
	for _, e := range edit {
		e(&o)
	}
	m.Transport, err = New(o)
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	serve := m.Serve
	if o.ServerTLS != nil {
		m.url = "https://" + l.Addr().String()
		serve = m.ServeTLS
	}
	go func() { served <- serve(l) }()
	t.Cleanup(func() {
		m.Close()
		if err := <-served; err != nil {
			t.Errorf("Serve of member %d: %v", id, err)
		}
		if t.Failed() {
			t.Logf("log of member %d:\n%s", id, strings.Join(m.logs.lines(), ""))
		}
	})
	m.recv = Receivers{Raft: m.sink}
	return m
}

func (m *member) start(t *testing.T) {
	t.Helper()
	if err := m.Start(m.recv); err != nil {
		t.Fatal(err)
	}
}

// know gives each member the list of all.
func know(index uint64, all ...*member) {
	var ms []Member
	for _, m := range all {
		ms = append(ms, Member{m.id, []string{m.url}})
	}
	for _, m := range all {
		m.SetMembers(index, ms, nil)
	}
}

// pair makes two members that know each other and run.
func pair(t *testing.T, edit ...func(*Options)) (a, b *member) {
	t.Helper()
	a, b = newMember(t, 0xa, edit...), newMember(t, 0xb, edit...)
	know(1, a, b)
	a.start(t)
	b.start(t)
	return a, b
}

// up waits until a can send to b.
func up(t *testing.T, a, b *member) {
	t.Helper()
	until(t, fmt.Sprintf("%x is connected to %x", a.id, b.id),
		func() bool { return !a.about(b.id).Connected.IsZero() })
}

func (m *member) about(id uint64) Status {
	for _, s := range m.Status() {
		if s.ID == id {
			return s
		}
	}
	return Status{}
}

// hangUp ends the stream of messages that another member has opened. The other member may count as
// connected before this one has registered the stream.
func (m *member) hangUp(t *testing.T, id uint64) {
	t.Helper()
	p := m.remote(id)
	var l *link
	until(t, fmt.Sprintf("%x has a stream of %x", m.id, id), func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		l = p.mu.in[kindMessages].link
		return l != nil
	})
	l.end(io.EOF)
}

func msg(typ raftpb.MessageType, from, to, index uint64) *raftpb.Message {
	return &raftpb.Message{Type: typ.Enum(), From: new(from), To: new(to), Term: new(uint64(1)),
		Index: new(index)}
}

// app is a MsgApp with one entry of some bytes.
func app(from, to, index uint64, size int) *raftpb.Message {
	m := msg(raftpb.MsgApp, from, to, index)
	m.Entries = []*raftpb.Entry{{Term: new(uint64(1)), Index: new(index),
		Data: bytes.Repeat([]byte{byte(index)}, size)}}
	return m
}

func (m *member) send(msgs ...*raftpb.Message) { m.Send(msgs) }

func ascending(s []uint64) bool {
	for i := 1; i < len(s); i++ {
		if s[i] <= s[i-1] {
			return false
		}
	}
	return true
}

// Messages of all sizes arrive whole, in the order of their lane, in both directions.
func TestMessagesArriveInOrder(t *testing.T) {
	a, b := pair(t)
	up(t, a, b)
	up(t, b, a)
	sizes := []int{0, 1, 100, maxFrame/2 - 200, maxFrame / 2, maxFrame - 40, maxFrame, maxFrame + 1,
		3*maxFrame + 17, 2 << 20}
	want := map[uint64]int{}
	index := uint64(0)
	for range 20 {
		for _, n := range sizes {
			index++
			want[index] = n
			a.send(app(a.id, b.id, index, n), msg(raftpb.MsgHeartbeat, a.id, b.id, index))
			b.send(msg(raftpb.MsgAppResp, b.id, a.id, index))
			if a.about(b.id).QueuedBytes > 16<<20 {
				until(t, "the queue drains",
					func() bool { return a.about(b.id).QueuedBytes < 4<<20 })
			}
		}
	}
	until(t, "all messages arrived", func() bool {
		return len(b.sink.all()) == 2*int(index) && len(a.sink.all()) == int(index)
	})
	for _, typ := range []raftpb.MessageType{raftpb.MsgApp, raftpb.MsgHeartbeat} {
		if got := b.sink.indexes(typ); len(got) != int(index) || !ascending(got) {
			t.Errorf("%v: %d messages, or out of order", typ, len(got))
		}
	}
	for _, m := range b.sink.all() {
		if m.GetType() != raftpb.MsgApp {
			continue
		}
		data := m.GetEntries()[0].GetData()
		if len(data) != want[m.GetIndex()] ||
			bytes.Count(data, []byte{byte(m.GetIndex())}) != len(data) {
			t.Errorf("message %d has %d bytes, or others than were sent", m.GetIndex(), len(data))
		}
	}
	if n := a.sink.lost(b.id); n != 0 {
		t.Errorf("%d reports of lost messages", n)
	}
	until(t, "nothing waits",
		func() bool { s := a.about(b.id); return s.QueuedBytes == 0 && s.QueuedMessages == 0 })
	s := a.about(b.id)
	until(t, "a round trip was measured", func() bool { s = a.about(b.id); return s.RoundTrip > 0 })
	if s.Version != "test-11" || s.SentMessages != 2*index || s.DroppedMessages != 0 ||
		s.Connects != 1 {
		t.Errorf("status %+v", s)
	}
}

// A heartbeat that is sent after a large message overtakes it.
func TestControlPassesLog(t *testing.T) {
	a, b := pair(t)
	up(t, a, b)
	p := newProxy(t, b.url)
	p.rate(1 << 20) // bytes a second: the message takes seconds, its heartbeat must not
	a.SetMembers(2, []Member{{b.id, []string{p.url}}}, nil)
	b.hangUp(t, a.id) // so that it dials again, through the proxy
	until(t, "connected through the proxy",
		func() bool { return p.conns() > 0 && !a.about(b.id).Connected.IsZero() })
	// What b has received is counted where it takes the heartbeat, so it does not depend on when
	// the test looks.
	earlier := b.about(a.id).ReceivedBytes // little: signs of life
	var at atomic.Uint64
	b.sink.mu.Lock()
	b.sink.taken = func(m *raftpb.Message) {
		if m.GetType() == raftpb.MsgHeartbeat {
			at.Store(b.about(a.id).ReceivedBytes - earlier)
		}
	}
	b.sink.mu.Unlock()
	const large = 8 << 20
	a.send(app(a.id, b.id, 1, large))
	until(t, "the large message is under way", func() bool { return p.bytes() > 2*maxFrame })
	a.send(msg(raftpb.MsgHeartbeat, a.id, b.id, 2))
	passed := uint64(p.bytes())
	until(t, "the heartbeat arrived",
		func() bool { return len(b.sink.indexes(raftpb.MsgHeartbeat)) == 1 })
	if n := at.Load(); n > passed+1<<20 && runtime.GOOS == "linux" {
		t.Errorf("it came after %d bytes, %d had passed when it was sent", n, passed)
	}
	p.rate(0)
	until(t, "the large message arrived",
		func() bool { return len(b.sink.indexes(raftpb.MsgApp)) == 1 })
}

// The queue for a member that does not read is bounded, and lost messages are reported.
func TestQueueIsBounded(t *testing.T) {
	a, b := pair(t, func(o *Options) {
		o.MaxQueueBytes, o.MaxQueueMessages = 4<<20,
			100
		o.DeadAfter = patience
	})
	b.sink.gate = make(chan struct{})
	open := sync.OnceFunc(func() { close(b.sink.gate) })
	defer open()
	up(t, a, b)
	for i := uint64(1); a.sink.lost(b.id) == 0; i++ {
		a.send(app(a.id, b.id, i, 100<<10))
		if s := a.about(b.id); s.QueuedBytes > 4<<20+101<<10 || s.QueuedMessages > 100 {
			t.Fatalf("%d bytes and %d messages wait", s.QueuedBytes, s.QueuedMessages)
		}
		if i > 1000 {
			t.Fatal("100 MB were taken for a member that reads nothing")
		}
	}
	for i := uint64(1); i <= 1000; i++ {
		a.send(msg(raftpb.MsgHeartbeat, a.id, b.id, i))
	}
	if s := a.about(b.id); s.QueuedMessages > 200 {
		t.Errorf("%d messages wait", s.QueuedMessages)
	}
	open()
	until(t, "the newest heartbeat arrived", func() bool {
		got := b.sink.indexes(raftpb.MsgHeartbeat)
		return len(got) > 0 && got[len(got)-1] == 1000
	})
	if got := b.sink.indexes(raftpb.MsgHeartbeat); !ascending(got) {
		t.Error("heartbeats out of order")
	}
	// The first message was lost, so what arrived is a prefix.
	for i, index := range b.sink.indexes(raftpb.MsgApp) {
		if index != uint64(i+1) {
			t.Fatalf("message %d is at place %d", index, i)
		}
	}
}

// A leader probes a member that answers many heartbeats at once with the same entries many times.
// They wait once, in the newest form, and another message is never taken for one of them.
func TestRepeatedProbesWaitOnce(t *testing.T) {
	a, b := pair(t, func(o *Options) { o.DeadAfter = patience })
	b.sink.gate = make(chan struct{})
	open := sync.OnceFunc(func() { close(b.sink.gate) })
	defer open()
	up(t, a, b)
	probe := func(index, commit uint64, entries int) *raftpb.Message {
		m := app(a.id, b.id, index, 100<<10)
		for len(m.Entries) < entries {
			m.Entries = append(m.Entries, m.Entries[0])
		}
		m.Commit = &commit
		return m
	}
	// The stream takes what fits into its buffers, and waits.
	first := uint64(1)
	for ; a.about(b.id).QueuedBytes < 4<<20; first++ {
		a.send(probe(first, 1, 1))
	}
	for i := uint64(1); i <= 1000; i++ {
		a.send(probe(first, i, 1+int(i/500)))
	}
	if s := a.about(b.id); s.QueuedBytes > 6<<20 {
		t.Errorf("%d bytes and %d messages wait", s.QueuedBytes, s.QueuedMessages)
	}
	a.send(probe(first, 1001, 1), probe(first+1, 1002, 1))
	open()
	until(t, "all have arrived", func() bool {
		got := b.sink.indexes(raftpb.MsgApp)
		return len(got) > 0 && got[len(got)-1] == first+1
	})
	var commits []uint64
	for _, m := range b.sink.all() {
		if m.GetType() == raftpb.MsgApp && m.GetIndex() == first {
			commits = append(commits, m.GetCommit())
		}
	}
	if n := len(commits); n < 2 || n > 4 || commits[n-1] != 1001 || commits[n-2] != 1000 {
		t.Errorf("probes with the commit indexes %v arrived", commits)
	}
	until(t, "nothing waits",
		func() bool { s := a.about(b.id); return s.QueuedMessages == 0 && s.QueuedBytes == 0 })
}

// A message that is too large for the wire is dropped and named, and later ones arrive.
func TestTooLargeMessageIsDropped(t *testing.T) {
	a, b := pair(t, func(o *Options) { o.MaxMessageBytes = 100 << 10 })
	up(t, a, b)
	a.send(app(a.id, b.id, 1, 200<<10), app(a.id, b.id, 2, 10))
	until(t, "the later message arrived", func() bool { return len(b.sink.all()) == 1 })
	if len(a.logs.lines("cannot be sent", "MaxMessageBytes")) != 1 || a.sink.lost(b.id) != 1 {
		t.Errorf("%d reports", a.sink.lost(b.id))
	}
	until(t, "nothing waits", func() bool { return a.about(b.id).QueuedMessages == 0 })
	// Alone it takes no place in the queue either.
	a.send(app(a.id, b.id, 3, 200<<10))
	until(t, "it is dropped", func() bool { return a.sink.lost(b.id) == 2 })
	until(t, "nothing waits again",
		func() bool { s := a.about(b.id); return s.QueuedMessages == 0 && s.QueuedBytes == 0 })
}

// Nothing is sent to strangers, before Start, or of a type that is a node's own.
func TestWhatIsNotSent(t *testing.T) {
	a, b := newMember(t, 0xa), newMember(t, 0xb)
	know(1, a, b)
	a.send(msg(raftpb.MsgHeartbeat, a.id, b.id, 1)) // not started: dropped
	a.start(t)
	b.start(t)
	up(t, a, b)
	a.send(msg(raftpb.MsgHeartbeat, a.id, 0x77, 2), msg(raftpb.MsgSnap, a.id, b.id, 3),
		msg(raftpb.MsgHup, a.id, b.id, 4),
		msg(raftpb.MsgHeartbeat, a.id, b.id, 5))
	until(t, "the last message arrived", func() bool { return len(b.sink.all()) > 0 })
	if got := b.sink.all(); len(got) != 1 || got[0].GetIndex() != 5 {
		t.Errorf("%v", got)
	}
	if len(a.logs.lines("of a type that members do not send", "MsgSnap")) != 1 {
		t.Error("no line about the snapshot message")
	}
}

// After Close no goroutine is left and every connection is closed, whatever was under way.
func TestCloseLeavesNothing(t *testing.T) {
	before := runtime.NumGoroutine()
	t.Run("cluster", func(t *testing.T) {
		var all []*member
		for id := uint64(1); id <= 3; id++ {
			m := newMember(t, id)
			m.recv.Calls = callFunc(func(ctx context.Context, _ Caller, _ uint8,
				_ []byte) ([]byte, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			})
			m.recv.Bulk = bulkFunc(func(ctx context.Context, _ uint64, _ []byte,
				r io.ReadCloser) error {
				_, err := io.Copy(io.Discard, r)
				return err
			})
			all = append(all, m)
		}
		know(1, all...)
		for _, m := range all {
			m.start(t)
		}
		for _, a := range all {
			for _, b := range all {
				if a != b {
					up(t, a, b)
				}
			}
		}
		conn, err := net.Dial("tcp", strings.TrimPrefix(all[0].url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		until(t, "a connection without a handshake waits",
			func() bool { _, n := all[0].Refused(); return n == 1 })
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() { all[1].Call(t.Context(), 1, 1, nil) })
		}
		wg.Go(func() { all[1].SendBulk(t.Context(), 1, nil, endless{}) })
		wg.Go(func() { all[0].SendBulk(t.Context(), 2, nil, endless{}) })
		until(t, "transfers are under way", func() bool {
			return all[0].about(2).Sent.Bytes > 1<<20 && all[0].about(2).Received.Bytes > 1<<20
		})
		all[0].Close()
		if _, err := conn.Read(make([]byte, 1)); err == nil {
			t.Error("a connection is open after Close")
		}
		for _, m := range all {
			m.Close()
		}
		wg.Wait()
	})
	until(t, "all goroutines have ended", func() bool { return runtime.NumGoroutine() <= before })
}

// endless is a source without end.
type endless struct{}

func (endless) Read(b []byte) (int, error) { return len(b), nil }

type callFunc func(ctx context.Context, from Caller, kind uint8, payload []byte) ([]byte, error)

func (f callFunc) ServeCall(ctx context.Context, from Caller, kind uint8,
	payload []byte) ([]byte, error) {
	return f(ctx, from, kind, payload)
}

type bulkFunc func(ctx context.Context, from uint64, meta []byte, r io.ReadCloser) error

func (f bulkFunc) ReceiveBulk(ctx context.Context, from uint64, meta []byte,
	r io.ReadCloser) error {
	return f(ctx, from, meta, r)
}

// A member whose URLs in the membership cannot be dialed starts, and advertises the rest: the
// membership has them already.
func TestUndialableURLsOfSelf(t *testing.T) {
	a := newMember(t, 0xa,
		func(o *Options) { o.PeerURLs = append([]string{"ftp://x"}, o.PeerURLs...) })
	b := newMember(t, 0xb)
	for _, m := range []*member{a, b} {
		m.SetMembers(1, []Member{{ID: a.id, URLs: []string{"http://:1", a.url}},
			{ID: b.id, URLs: []string{"http://h:1/p", b.url}}}, nil)
		m.start(t)
	}
	up(t, a, b)
	if len(a.logs.lines("others cannot dial a peer URL", "ftp://x")) != 1 ||
		len(a.logs.lines("others cannot dial a peer URL", "http://:1")) != 1 {
		t.Error("no line about a URL")
	}
}

// URLs that the handshake does not carry are left out of it, too: the membership may be older than
// its limits, or come from elsewhere.
func TestURLsOfSelfBeyondTheHandshake(t *testing.T) {
	for name, extra := range map[string][]string{
		"not in ASCII": {"http://h\u00f6st:2380"},
		"too long":     {"http://h:1/" + strings.Repeat("x", maxURL)},
		"too many":     slices.Repeat([]string{"http://127.0.0.1:1"}, 300),
	} {
		t.Run(name, func(t *testing.T) {
			a := newMember(t, 0xa, func(o *Options) { o.PeerURLs = append(o.PeerURLs, extra...) })
			b := newMember(t, 0xb)
			for _, m := range []*member{a, b} {
				m.SetMembers(1, []Member{{ID: a.id, URLs: append([]string{a.url}, extra...)},
					{ID: b.id, URLs: []string{b.url}}}, nil)
				m.start(t)
			}
			up(t, a, b)
			if len(a.logs.lines("peer URL of this member")) != 1 {
				t.Error("no line about the URLs")
			}
		})
	}
}
