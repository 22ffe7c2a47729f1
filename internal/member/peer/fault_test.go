package peer

import (
	"strings"
	"sync"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"
)

// throughProxy makes two members; a reaches b through a proxy, b reaches a directly.
func throughProxy(t *testing.T, edit ...func(*Options)) (a, b *member, p *proxy) {
	t.Helper()
	a, b = newMember(t, 0xa, edit...), newMember(t, 0xb, edit...)
	p = newProxy(t, b.url)
	a.SetMembers(1, []Member{{b.id, []string{p.url}}}, nil)
	b.SetMembers(1, []Member{{a.id, []string{a.url}}}, nil)
	a.start(t)
	b.start(t)
	return a, b, p
}

// A proxy that resets connections again and again costs messages and nothing else: what arrives is
// in order and without repetition, and the stream comes back.
func TestResets(t *testing.T) {
	a, b, p := throughProxy(t)
	up(t, a, b)
	var index uint64
	for round := 1; round <= 10; round++ {
		for range 50 {
			index++
			a.send(app(a.id, b.id, index, 10<<10), msg(raftpb.MsgHeartbeat, a.id, b.id, index))
		}
		p.reset()
		until(t, "it is connected again",
			func() bool {
				s := a.about(b.id)
				return s.Connects > uint64(round) &&
					!s.Connected.IsZero()
			})
		index++
		last := index
		a.send(app(a.id, b.id, last, 1), msg(raftpb.MsgHeartbeat, a.id, b.id, last))
		until(t, "the last message arrived", func() bool {
			apps, beats := b.sink.indexes(raftpb.MsgApp), b.sink.indexes(raftpb.MsgHeartbeat)
			return len(apps) > 0 && apps[len(apps)-1] == last && len(beats) > 0 &&
				beats[len(beats)-1] == last
		})
		if a.sink.lost(b.id) < round {
			t.Fatalf("round %d: raft received %d reports", round, a.sink.lost(b.id))
		}
	}
	if !ascending(b.sink.indexes(raftpb.MsgApp)) ||
		!ascending(b.sink.indexes(raftpb.MsgHeartbeat)) {
		t.Error("out of order or repeated")
	}
	if s := a.about(b.id); s.Disconnects != 10 {
		t.Errorf("%d disconnects", s.Disconnects)
	}
}

// A delay of every piece delays and does nothing else.
func TestDelay(t *testing.T) {
	a, b, p := throughProxy(t)
	p.delay.Store(int64(20 * time.Millisecond))
	up(t, a, b)
	for i := uint64(1); i <= 100; i++ {
		a.send(app(a.id, b.id, i, 10<<10))
	}
	until(t, "all arrived", func() bool { return len(b.sink.all()) == 100 })
	until(t, "the round trip shows the delay",
		func() bool { return a.about(b.id).RoundTrip >= 40*time.Millisecond })
	if s := a.about(b.id); s.Connects != 1 || s.DroppedMessages != 0 {
		t.Errorf("%+v", s)
	}
}

// A connection that loses everything, in one direction or both, is given up in bounded time, and
// another one is made when the path works again. Nothing that is sent meanwhile piles up.
func TestBlackHoles(t *testing.T) {
	for _, c := range []struct {
		name     string
		up, down bool
	}{{"towards the receiver", true, false}, {"towards the sender", false, true},
		{"both", true, true}} {
		t.Run(c.name, func(t *testing.T) {
			a, b, p := throughProxy(t, func(o *Options) {
				o.DeadAfter = 2 * time.Second
				o.HandshakeTimeout = time.Second
			})
			up(t, a, b)
			p.dropUp.Store(c.up)
			p.dropDown.Store(c.down)
			until(t, "it is noticed",
				func() bool { return a.about(b.id).Connected.IsZero() && a.sink.lost(b.id) > 0 })
			for i := uint64(1); i <= 10_000; i++ {
				a.send(msg(raftpb.MsgHeartbeat, a.id, b.id, i))
			}
			if n := a.about(b.id).QueuedMessages; n > 4096 {
				t.Errorf("%d messages wait", n)
			}
			before := a.about(b.id).Connects
			p.dropAll(false)
			p.reset()
			until(t, "it is connected again",
				func() bool {
					s := a.about(b.id)
					return s.Connects > before &&
						!s.Connected.IsZero()
				})
			until(t, "a message arrives", func() bool {
				a.send(msg(raftpb.MsgVote, a.id, b.id, 99_999))
				return len(b.sink.indexes(raftpb.MsgVote)) > 0
			})
		})
	}
}

// A bit that is altered on the way ends the stream, with a line on both sides; nothing altered is
// delivered.
func TestAlteredMessage(t *testing.T) {
	a, b, p := throughProxy(t)
	up(t, a, b)
	const size = 50 << 10
	p.flip.Store(int64(p.bytes()) + 20*size)
	for i := uint64(1); i <= 100; i++ {
		a.send(app(a.id, b.id, i, size))
	}
	until(t, "the stream ended and came back",
		func() bool { return a.about(b.id).Connects >= 2 && !a.about(b.id).Connected.IsZero() })
	until(t, "there is a line on both sides", func() bool {
		return len(b.logs.lines("stream from peer ended", "corrupt: checksum")) == 1 &&
			len(a.logs.lines("lost connection to peer", "corrupt: checksum")) == 1
	})
	apps := b.sink.indexes(raftpb.MsgApp)
	if len(apps) == 100 || !ascending(apps) {
		t.Errorf("%d messages arrived", len(apps))
	}
	for _, m := range b.sink.all() {
		for _, e := range m.GetEntries() {
			if strings.Count(string(e.GetData()), string([]byte{byte(m.GetIndex())})) != size {
				t.Errorf("message %d is altered", m.GetIndex())
			}
		}
	}
	if b.about(a.id).ReceiveFailures != 1 {
		t.Errorf("%d failures are counted", b.about(a.id).ReceiveFailures)
	}
}

// A member that is gone for long costs a dial now and then; when it is back it is found, and its
// older stream, whose end was not reported, makes way.
func TestNewerStreamReplacesOlder(t *testing.T) {
	a, b, p := throughProxy(t)
	up(t, a, b)
	a.send(msg(raftpb.MsgHeartbeat, a.id, b.id, 1))
	until(t, "it arrived", func() bool { return len(b.sink.all()) == 1 })
	// The sender's side ends; the receiver does not hear of it.
	p.dropAll(true)
	p.mu.Lock()
	var outs int
	for range p.live {
		outs++
	}
	p.mu.Unlock()
	if outs < 2 {
		t.Fatal("no connection to cut")
	}
	pa := a.remote(b.id)
	pa.mu.Lock()
	l := pa.mu.link
	pa.mu.Unlock()
	direct := newProxy(t, b.url)
	a.SetMembers(2, []Member{{b.id, []string{direct.url}}}, nil)
	l.end(ErrDisconnected)
	until(t, "connected on another way",
		func() bool { return direct.conns() > 0 && !a.about(b.id).Connected.IsZero() })
	a.send(msg(raftpb.MsgHeartbeat, a.id, b.id, 2))
	until(t, "it arrived", func() bool { return len(b.sink.all()) == 2 })
	pb := b.remote(a.id)
	pb.mu.Lock()
	defer pb.mu.Unlock()
	if pb.mu.in[kindMessages] == nil {
		t.Error("the newer stream is not the one that counts")
	}
}

// The older of two streams of a member is over, its last message delivered, before the newer
// begins.
func TestOlderStreamEndsFirst(t *testing.T) {
	a, b := newMember(t, 0xa), newMember(t, 0xb)
	know(1, a, b)
	b.sink.gate = make(chan struct{})
	deliver := sync.OnceFunc(func() { close(b.sink.gate) })
	defer deliver()
	b.start(t)
	dial := func() (*link, error) {
		h := a.hello(kindMessages, b.id)
		var s stats
		return a.o.dialer(kindMessages).dial(t.Context(), b.url, &h, &s.sentBytes, &s.receivedBytes)
	}
	older, err := dial()
	if err != nil {
		t.Fatal(err)
	}
	defer older.end(ErrClosed)
	beat, err := appendMessage(nil, frameControl, msg(raftpb.MsgHeartbeat, a.id, b.id, 1))
	if err == nil {
		err = older.send(beat)
	}
	if err != nil {
		t.Fatal(err)
	}
	// A message that the receiver has not read is lost with its stream.
	until(t, "the message is being delivered", func() bool { return b.sink.entered.Load() == 1 })
	p := b.remote(a.id)
	p.mu.Lock()
	in := p.mu.in[kindMessages]
	p.mu.Unlock()
	open := make(chan struct{})
	go func() {
		defer close(open)
		newer, err := dial()
		if err != nil {
			t.Error(err)
			return
		}
		newer.end(ErrClosed)
	}()
	until(t, "the older one is closed", func() bool {
		_, _, err := older.in.next()
		return err != nil
	})
	select {
	case <-open:
		t.Error("the newer one was opened while the older one delivers")
	default:
	}
	deliver()
	<-open
	<-in.done
	if len(b.sink.all()) != 1 {
		t.Error("the last message of the older one was lost")
	}
}

// Many goroutines send while connections break and members change; the race detector watches.
func TestEverythingAtOnce(t *testing.T) {
	a, b, p := throughProxy(t)
	// A member that was invited, because dials failed for a while, connects through the other one.
	// No other way is advertised.
	q := newProxy(t, a.url)
	members := []Member{{a.id, []string{q.url}}, {b.id, []string{p.url}}}
	a.SetMembers(1, members, nil)
	b.SetMembers(1, members, nil)
	up(t, a, b)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	again := func(f func(i uint64)) {
		wg.Go(func() {
			for i := uint64(1); ; i++ {
				select {
				case <-stop:
					return
				default:
					f(i)
				}
			}
		})
	}
	again(func(i uint64) {
		a.send(app(a.id, b.id, i,
			int(i%100_000)))
		time.Sleep(100 * time.Microsecond)
	})
	again(func(i uint64) {
		a.send(msg(raftpb.MsgHeartbeat, a.id, b.id,
			i))
		time.Sleep(100 * time.Microsecond)
	})
	again(func(i uint64) { a.SetMembers(i, members, nil); time.Sleep(time.Millisecond) })
	again(func(uint64) { a.Status(); b.Refused(); time.Sleep(time.Millisecond) })
	for range 20 {
		before, connects := p.conns(), a.about(b.id).Connects
		p.reset()
		q.reset()
		until(t, "a new connection",
			func() bool { return p.conns() > before || a.about(b.id).Connects > connects })
	}
	close(stop)
	wg.Wait()
	until(t, "a message arrives", func() bool {
		a.send(msg(raftpb.MsgVote, a.id, b.id, 1))
		return len(b.sink.indexes(raftpb.MsgVote)) > 0
	})
	if !ascending(b.sink.indexes(raftpb.MsgApp)) ||
		!ascending(b.sink.indexes(raftpb.MsgHeartbeat)) {
		t.Error("out of order or repeated")
	}
}
