package peer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"time"
)

// A sender may be unable to connect to a member because of a wrong advertised address, a firewall
// or a certificate, while the member can connect to the sender. So the sender invites the member to
// make the connection, on the stream of messages that the member has opened. After the handshake of
// such a connection the sides swap roles, and the stream works as if the sender had dialed it.

// Flags in a hello.
const (
	// flagReversed: the stream belongs to the side that was dialed.
	flagReversed = 1
	// flagComes: the sender accepts invitations. A member without this flag would end the stream on
	// one.
	flagComes = 2
)

// invitation asks a member to connect for a stream of a kind. It is the payload of frameInvite:
//
//	id u64 | kind u8 | why the sender cannot connect
type invitation struct {
	id   uint64
	kind kind
	why  string
}

func (i *invitation) encode() []byte {
	return append(append(le.AppendUint64(nil, i.id), byte(i.kind)), clip(i.why)...)
}

func decodeInvitation(b []byte) (invitation, error) {
	if len(b) < 9 || len(b) > 9+maxText {
		return invitation{}, refuse(CodeMalformed, "invitation of %d bytes", len(b))
	}
	i := invitation{id: le.Uint64(b), kind: kind(b[8]), why: printable(b[9:])}
	if i.kind != kindMessages && i.kind != kindCalls && i.kind != kindBulk {
		return invitation{}, refuse(CodeMalformed, "invitation to a stream of %v", i.kind)
	}
	return i, nil
}

// awaited is a connection that this side invited a member to make.
type awaited struct {
	id   uint64
	got  chan *link    // gets the connection
	done chan struct{} // closed when nobody waits for it any more
}

// lastingFailure times BackoffMin, 1 s, is how long dials must have failed before this side invites
// the member. A reset connection alone is not a reason.
const lastingFailure = 10

// reached reports whether the error of a dial is an answer of the intended member.
func reached(err error) bool {
	e := (*Error)(nil)
	return errors.As(err, &e) && e.remote && e.Code != CodeCluster && e.Code != CodeMember
}

// invite asks a member that this side cannot dial to make the connection. It returns nil if the
// member has no stream open to this one, or does not connect.
func (p *remote) invite(ctx context.Context, k kind, why error) *link {
	w := &awaited{got: make(chan *link), done: make(chan struct{})}
	p.mu.Lock()
	var via *link
	if in := p.mu.in[kindMessages]; in != nil && in.link != nil && in.link.other.comes {
		via = in.link
	}
	if via == nil || p.mu.awaited[k] != nil {
		p.mu.Unlock()
		return nil
	}
	p.mu.invited++
	w.id = p.mu.invited
	p.mu.awaited[k] = w
	p.mu.Unlock()
	defer func() {
		close(w.done)
		p.mu.Lock()
		defer p.mu.Unlock()
		p.mu.awaited[k] = nil
	}()
	i := invitation{id: w.id, kind: k, why: strings.ReplaceAll(why.Error(), "\n", "; ")}
	if err := via.sendFrame(frameInvite, i.encode()); err != nil {
		via.end(err)
		return nil
	}
	timer := time.NewTimer(p.t.o.DialTimeout + p.t.o.HandshakeTimeout)
	defer timer.Stop()
	select {
	case l := <-w.got:
		return l
	case <-timer.C:
	case <-via.down.done:
	case <-ctx.Done():
	}
	return nil
}

// welcome passes an invited connection to the goroutine that waits for it, and waits for the end of
// its use.
func (t *Transport) welcome(g *greeted, h hello, leave func()) {
	defer g.conn.Close()
	t.mu.Lock()
	e, p := t.checkLocked(&h), t.mu.members[h.from]
	t.mu.Unlock()
	var w *awaited
	if e == nil && p != nil {
		p.mu.Lock()
		w = p.mu.awaited[h.kind]
		p.mu.Unlock()
	}
	if e == nil && (w == nil || w.id != h.invitation) {
		e = refuse(CodeUnknown, "member %x was not invited to a stream of %v, or comes too late",
			h.from, h.kind)
	}
	if e != nil {
		t.reject(g, h, e)
		return
	}
	d := t.o.dialer(h.kind)
	d.limits.since = t.began
	l, err := t.reply(g, h, d.limits, d.limit, &p.stats)
	if err != nil {
		return
	}
	leave()
	stop := context.AfterFunc(p.ctx, func() { l.end(ErrClosed) })
	defer stop()
	select {
	case w.got <- l:
		<-l.down.done
	case <-w.done:
		l.end(ErrClosed)
	}
}

// acceptInvitation handles an invitation: it makes the connection, one of each kind at a time.
func (p *remote) acceptInvitation(payload []byte) error {
	i, err := decodeInvitation(payload)
	if err != nil {
		return err
	}
	t := p.t
	t.mu.Lock()
	urls := strings.Join(t.mu.self, ",")
	t.mu.Unlock()
	t.log.line(t.o.Logger, slog.LevelWarn, lineKey{p.id, "invitation"},
		"a member cannot connect to a peer URL of this member, and has this one connect instead",
		hexID("remote-peer-id", p.id), slog.String("advertised-peer-urls", urls),
		slog.String("error-there", i.why))
	if !t.serves(i.kind) {
		return nil
	}
	p.mu.Lock()
	busy := p.mu.answering[i.kind]
	p.mu.answering[i.kind] = true
	p.mu.Unlock()
	if busy {
		return nil
	}
	if !t.spawn(func() { t.dialReversed(p, i) }) {
		return ErrClosed
	}
	return nil
}

// dialReversed connects to a member for a stream of that member, and serves the stream.
func (t *Transport) dialReversed(p *remote, i invitation) {
	connected := func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.mu.answering[i.kind] = false
	}
	t.mu.Lock()
	h := t.helloLocked(i.kind, p.id)
	t.mu.Unlock()
	h.flags, h.invitation = h.flags|flagReversed, i.id
	d := t.o.dialer(i.kind)
	d.limits, d.limit = t.o.acceptLimits(i.kind)
	var errs []error
	for _, u := range p.urls() {
		in, entered := &inbound{done: make(chan struct{})}, false
		d.ready = func(conn net.Conn) error {
			// The other side may begin as soon as it has the hello. The stream before this one has
			// ended then.
			e := p.enterStream(i.kind, in, conn, t.o.HandshakeTimeout/2)
			if e != nil {
				return e
			}
			entered = true
			return nil
		}
		l, err := d.dial(p.ctx, u, &h, &p.stats.sentBytes, &p.stats.receivedBytes)
		if err == nil {
			connected()
			stop := context.AfterFunc(p.ctx, func() { l.conn.Close() })
			t.serveInbound(p, in, l, i.kind)
			stop()
			p.leaveStream(i.kind, in)
			return
		}
		if entered {
			p.leaveStream(i.kind, in)
		}
		errs = append(errs, err)
	}
	connected()
	t.log.line(t.o.Logger, slog.LevelWarn, lineKey{p.id, "invited"},
		"failed to connect to a member that asked for it",
		hexID("remote-peer-id", p.id), slog.String("stream", i.kind.String()),
		slog.Any("error", errors.Join(errs...)))
}

// watchReach logs a warning if no other member has connected to this one by ReachAfter.
func (t *Transport) watchReach() {
	timer := time.NewTimer(t.o.ReachAfter)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-t.ctx.Done():
		return
	}
	t.mu.Lock()
	others, urls := len(t.mu.members), strings.Join(t.mu.self, ",")
	t.mu.Unlock()
	if others > 0 && t.visits.Load() == 0 {
		t.o.Logger.Warn("no member has connected to a peer URL of this member: the others do not "+
			"run or "+
			"cannot reach it; check --initial-advertise-peer-urls, firewalls and certificates",
			slog.String("advertised-peer-urls", urls), slog.Int("other-members", others),
			slog.String("after", fmt.Sprint(t.o.ReachAfter)))
	}
}
