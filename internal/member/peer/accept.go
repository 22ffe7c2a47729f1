package peer

import (
	"container/list"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"vigil/internal/portmux"
)

// Serve accepts connections until Close, after which it returns nil, or until the listener fails
// for good. The Transport then owns the listener.
func (t *Transport) Serve(l net.Listener) error { return t.serve(l, false) }

// ServeTLS is Serve for connections that begin with a TLS handshake, configured by
// Options.ServerTLS.
func (t *Transport) ServeTLS(l net.Listener) error {
	if t.o.ServerTLS == nil {
		l.Close()
		return errors.New("peer: no certificates are configured for https peer URLs")
	}
	return t.serve(l, true)
}

func (t *Transport) serve(l net.Listener, secure bool) error {
	t.mu.Lock()
	if t.mu.closed {
		t.mu.Unlock()
		return l.Close()
	}
	t.mu.closers[l] = struct{}{}
	t.mu.Unlock()
	defer l.Close()
	var delay time.Duration
	for {
		conn, err := l.Accept()
		switch {
		case err == nil:
			delay = 0
			if secure {
				conn = tls.Server(conn, t.o.ServerTLS())
			}
			t.ServeConn(conn)
			continue
		case t.ctx.Err() != nil:
			return nil
		case errors.Is(err, net.ErrClosed):
			return err
		}
		// Out of file descriptors, most likely. Others close theirs, so this passes.
		delay = min(max(2*delay, 5*time.Millisecond), time.Second)
		t.o.Logger.Warn("failed to accept a connection", slog.String("address", l.Addr().String()),
			slog.Any("error", err), slog.Duration("retry in", delay))
		select {
		case <-time.After(delay):
		case <-t.ctx.Done():
		}
	}
}

// ServeConn takes over one accepted connection and returns at once. A *tls.Conn may still have its
// handshake before it.
func (t *Transport) ServeConn(conn net.Conn) {
	place, evicted := t.pending.add(conn)
	if evicted != nil {
		t.o.Logger.Debug("closed the oldest connection without a handshake",
			slog.String("remote-addr", evicted.RemoteAddr().String()))
	}
	if !t.spawn(func() { t.handle(conn, place) }) {
		conn.Close()
	}
}

// spawn starts a goroutine that Close waits for. It returns false if the Transport is closed.
func (t *Transport) spawn(f func()) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.mu.closed {
		return false
	}
	t.wg.Go(f)
	return true
}

// handle serves one accepted connection.
func (t *Transport) handle(conn net.Conn, place *list.Element) {
	stop := context.AfterFunc(t.ctx, func() { conn.Close() })
	defer stop()
	defer t.pending.remove(place)
	g, h, err := t.readHello(conn)
	if err == errHTTP {
		t.pending.remove(place)
		if !stop() || !t.http.Give(&sniffed{Conn: conn, r: g.br}) {
			conn.Close()
		}
		return
	}
	if err != nil {
		t.reject(g, hello{}, err)
		return
	}
	if h.flags&flagReversed != 0 {
		t.welcome(g, h, func() { t.pending.remove(place) })
		return
	}
	if h.kind == kindCall {
		t.admitCall(g, h, place)
		return
	}
	p, refusal := t.admit(&h)
	if refusal != nil {
		t.reject(g, h, refusal)
		return
	}
	in := &inbound{done: make(chan struct{})}
	if refusal := p.enterStream(h.kind, in, conn, t.o.HandshakeTimeout/2); refusal != nil {
		t.reject(g, h, refusal)
		return
	}
	defer p.leaveStream(h.kind, in)
	leave := context.AfterFunc(p.ctx, func() { conn.Close() })
	defer leave()
	l, err := t.accept(g, h, &p.stats)
	if err != nil {
		conn.Close()
		return
	}
	t.pending.remove(place)
	t.visits.Add(1)
	t.serveInbound(p, in, l, h.kind)
}

var errHTTP = errors.New("a connection in HTTP")

// readHello reads the first bytes of a new connection: a hello, or another protocol.
func (t *Transport) readHello(conn net.Conn) (*greeted, hello, error) {
	g := greet(conn)
	if err := conn.SetDeadline(time.Now().Add(t.o.HandshakeTimeout)); err != nil {
		return g, hello{}, err
	}
	tune(conn, t.o.DeadAfter)
	if c, ok := conn.(*tls.Conn); ok {
		if err := c.HandshakeContext(t.ctx); err != nil {
			plain := tls.RecordHeaderError{}
			if errors.As(err, &plain) && plain.Conn != nil &&
				strings.HasPrefix(magic, string(plain.RecordHeader[:])) {
				g.conn = plain.Conn // where it understands the answer
				return g, hello{}, refuse(CodeMalformed,
					"it speaks no TLS: an https peer URL is needed")
			}
			return g, hello{}, fmt.Errorf("%w: %w", errHandshakeTLS, err)
		}
	}
	first, err := g.br.Peek(1)
	if err != nil {
		return g, hello{}, err
	}
	if first[0] != magic[0] && t.o.HTTP {
		if err := conn.SetDeadline(time.Time{}); err != nil {
			return g, hello{}, err
		}
		return g, hello{}, errHTTP
	}
	body, err := readSealed(g.br)
	if err != nil {
		return g, hello{}, err
	}
	h, err := decodeHello(body)
	return g, h, err
}

// accept answers that the stream may begin. The other side sends on it.
func (t *Transport) accept(g *greeted, h hello, s *stats) (*link, error) {
	limits, limit := t.o.acceptLimits(h.kind)
	return t.reply(g, h, limits, limit, s)
}

// acceptLimits returns the limits for a stream on which the other side sends.
func (o *Options) acceptLimits(k kind) (linkLimits, int) {
	limit := o.MaxMessageBytes
	if k != kindMessages {
		limit = o.MaxCallBytes + requestHeader
	}
	return linkLimits{dead: o.DeadAfter, write: o.DeadAfter, ping: o.PingInterval}, limit
}

// reply answers that the stream may begin.
func (t *Transport) reply(g *greeted, h hello, limits linkLimits, limit int,
	s *stats) (*link, error) {
	r := reply{protocol: min(h.maxProtocol, maxProtocol), cluster: t.o.ClusterID,
		member: t.o.MemberID, version: t.o.Version}
	if _, err := g.conn.Write(r.encode()); err != nil {
		return nil, err
	}
	portmux.CallMade(g.conn)
	return g.open(identity{h.cluster, h.from, h.version, h.flags&flagComes != 0}, limits, limit,
		&s.sentBytes, &s.receivedBytes)
}

// reject reports to both sides why a connection is refused, and closes it.
func (t *Transport) reject(g *greeted, h hello, err error) {
	if t.ctx.Err() != nil {
		g.conn.Close()
		return
	}
	e := (*Error)(nil)
	level := slog.LevelWarn
	what := failureClass(err)
	if errors.As(err, &e) {
		t.refused[min(e.Code, CodeClosing)].Add(1)
		what = fmt.Sprintf("code %d", e.Code)
		r := reply{code: e.Code, cluster: t.o.ClusterID, member: t.o.MemberID,
			version: t.o.Version, text: e.Text}
		_, _ = g.conn.Write(r.encode())
	} else {
		t.refused[0].Add(1)
		if err == io.EOF || errors.Is(err, net.ErrClosed) {
			level = slog.LevelDebug // somebody looked whether the port is open, or it made way
		}
	}
	g.conn.Close()
	host, _, _ := net.SplitHostPort(g.conn.RemoteAddr().String())
	attrs := []slog.Attr{slog.String("remote-addr", g.conn.RemoteAddr().String())}
	if h.from != 0 {
		attrs = append(attrs, hexID("remote-peer-id", h.from),
			slog.String("stream", h.kind.String()))
	}
	t.log.line(t.o.Logger, level, lineKey{h.from, what + " from " + host},
		"rejected connection on peer endpoint", append(attrs, slog.Any("error", err))...)
}

// checkLocked returns why a hello is rejected, for any sender.
func (t *Transport) checkLocked(h *hello) *Error {
	switch {
	case h.minProtocol > maxProtocol || h.maxProtocol < minProtocol:
		return refuse(CodeVersion,
			"it speaks versions %d to %d of the protocol, this member %d to %d", h.minProtocol,
			h.maxProtocol, minProtocol, maxProtocol)
	case t.mu.closed || !t.mu.started:
		return refuse(CodeClosing, "this member is not running")
	case h.kind < kindMessages || h.kind > lastKind:
		return refuse(CodeUnsupported, "stream of %v", h.kind)
	case h.cluster != t.o.ClusterID && (h.cluster != 0 || h.kind != kindCall):
		return refuse(CodeCluster, "it belongs to cluster %x, this member to %x",
			h.cluster, t.o.ClusterID)
	case h.to != t.o.MemberID && (h.to != 0 || h.kind != kindCall):
		return refuse(CodeMember, "it wants member %x, this is %x", h.to, t.o.MemberID)
	case h.from == t.o.MemberID:
		return refuse(CodeMember, "it has the id of this member, %x", h.from)
	case t.mu.removed[h.from]:
		return refuse(CodeRemoved, "member %x was removed from the cluster", h.from)
	case h.flags&flagReversed != 0: // this member is the one that sends on it
	case !t.serves(h.kind):
		return refuse(CodeUnsupported, "stream of %v", h.kind)
	}
	return nil
}

// serves reports whether there is a receiver for streams of a kind.
func (t *Transport) serves(k kind) bool {
	switch k {
	case kindCalls, kindCall:
		return t.receivers.Calls != nil
	case kindBulk:
		return t.receivers.Bulk != nil
	}
	return true
}

// admit decides whether a member may open a stream. It admits an unknown member that knows a newer
// membership than this one: that may be the leader, which brings this member up to date.
func (t *Transport) admit(h *hello) (*remote, *Error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e := t.checkLocked(h); e != nil {
		return nil, e
	}
	p := t.mu.members[h.from]
	newer := h.index > t.mu.index && len(h.urls) > 0
	if p == nil && newer && h.from != 0 && t.learnedLocked() < maxLearned {
		p = t.addRemoteLocked(h.from)
	}
	if p == nil {
		return nil, refuse(CodeUnknown,
			"member %x is no member of the cluster as far as this member knows", h.from)
	}
	if newer {
		p.mu.Lock()
		p.mu.learned, p.mu.learnedAt = h.urls, h.index
		p.mu.Unlock()
	}
	return p, nil
}

func (t *Transport) learnedLocked() (n int) {
	for _, p := range t.mu.members {
		p.mu.Lock()
		if !p.mu.known {
			n++
		}
		p.mu.Unlock()
	}
	return n
}

// enterStream registers the stream of a kind. A newer stream replaces an older one, whose other end
// is gone, since a member never opens two at once. The older stream ends before the newer begins,
// so a receiver that is not done with a transfer keeps the next one out.
func (p *remote) enterStream(k kind, in *inbound, conn net.Conn, patience time.Duration) *Error {
	in.conn = conn
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	for {
		p.mu.Lock()
		old := p.mu.in[k]
		if old == nil {
			p.mu.in[k] = in
			if k == kindMessages {
				p.reportLocked(false)
			}
			p.mu.Unlock()
			return nil
		}
		l := old.link
		p.mu.Unlock()
		switch {
		case l != nil:
			l.end(refuse(CodeReplaced, "a newer stream of %v", k))
		default:
			old.conn.Close()
		}
		select {
		case <-old.done:
		case <-timeout.C:
			return refuse(CodeBusy, "the older stream of %v from member %x has not ended", k, p.id)
		}
	}
}

func (p *remote) leaveStream(k kind, in *inbound) {
	p.mu.Lock()
	if k == kindMessages {
		p.noteEndLocked(in.link)
	}
	p.mu.in[k] = nil
	p.mu.Unlock()
	close(in.done)
}

// serveInbound serves a stream that a member opened, until it ends.
func (t *Transport) serveInbound(p *remote, in *inbound, l *link, k kind) {
	p.mu.Lock()
	in.link = l
	p.mu.version = l.other.version
	p.mu.Unlock()
	if k == kindMessages {
		p.kick() // it is up, and can be invited
	}
	var wg sync.WaitGroup
	wg.Go(func() { l.pulse(p.ctx, frameAlive) })
	var err error
	switch k {
	case kindMessages:
		err = t.receive(p, l)
	case kindCalls:
		err = t.answer(p.ctx, l, Caller{p.id, l.conn.RemoteAddr().String()}, false)
	case kindBulk:
		err = t.receiveBulk(p, l)
	}
	if e := (*Error)(nil); errors.As(err, &e) && !e.remote && e.Code != CodeReplaced {
		l.giveUp(e)
	}
	l.end(err)
	wg.Wait()
	t.noteInboundEnd(p, k, l.reason())
}

// noteInboundEnd logs why a stream that a member opened ended.
func (t *Transport) noteInboundEnd(p *remote, k kind, err error) {
	if p.ctx.Err() != nil || k == kindBulk {
		return
	}
	level := slog.LevelInfo
	if e := (*Error)(nil); errors.As(err, &e) && e.Code != CodeReplaced {
		level = slog.LevelWarn
	}
	if err != io.EOF && !errors.Is(err, CodeReplaced) {
		p.stats.receiveFailures.Add(1)
	}
	p.noteRefusal(err)
	t.o.Logger.LogAttrs(context.Background(), level, "stream from peer ended",
		hexID("remote-peer-id", p.id), slog.String("stream", k.String()), slog.Any("error", err))
}

// admitCall serves a connection that carries one call.
func (t *Transport) admitCall(g *greeted, h hello, place *list.Element) {
	defer g.conn.Close()
	t.mu.Lock()
	e := t.checkLocked(&h)
	if e == nil && t.mu.singles >= t.o.MaxCalls {
		e = refuse(CodeBusy, "%d calls are under way", t.mu.singles)
	}
	if e == nil {
		t.mu.singles++
	}
	from := Caller{Addr: g.conn.RemoteAddr().String()}
	if t.mu.members[h.from] != nil {
		from.Member = h.from
	}
	t.mu.Unlock()
	if e != nil {
		t.reject(g, h, e)
		return
	}
	defer func() {
		t.mu.Lock()
		t.mu.singles--
		t.mu.Unlock()
	}()
	l, err := t.accept(g, h, &t.strangers)
	if err != nil {
		return
	}
	t.pending.remove(place)
	ctx, cancel := context.WithTimeout(t.ctx, longestSingle)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { l.end(ctx.Err()) })
	defer stop()
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { l.pulse(ctx, frameAlive) })
	l.end(t.answer(ctx, l, from, true))
}

// longestSingle bounds a connection that carries one call: it may be a stranger's.
const longestSingle = time.Minute

// receive delivers the messages of a stream. Messages that arrive together are delivered together.
func (t *Transport) receive(p *remote, l *link) error {
	const most = 256
	var batch []*raftpb.Message
	for {
		typ, payload, err := l.in.next()
		if err != nil {
			return err
		}
		switch typ {
		case frameControl, frameLog:
			m, err := decodeMessage(payload, typ, p.id, t.o.MemberID)
			if err != nil {
				return err
			}
			batch = append(batch, m)
		default:
			known, err := l.handleCommon(typ, payload, nil)
			if err != nil {
				return err
			}
			if !known {
				return refuse(CodeMalformed, "frame of type %d on a stream of messages", typ)
			}
		}
		if len(batch) > 0 && (len(batch) == most || !l.in.ready()) {
			p.stats.received.Add(uint64(len(batch)))
			t.receivers.Raft.Step(batch...)
			clear(batch)
			batch = batch[:0]
		}
	}
}

// pending holds the connections whose handshake is not over, the oldest first.
type pending struct {
	max int
	mu  struct {
		sync.Mutex
		conns *list.List
	}
}

func (p *pending) init(most int) {
	p.max = most
	p.mu.conns = list.New()
}

// add adds a connection. If there are then too many, it closes the oldest and returns it.
func (p *pending) add(conn net.Conn) (place *list.Element, evicted net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.conns.Len() >= p.max {
		evicted = p.mu.conns.Remove(p.mu.conns.Front()).(net.Conn)
		evicted.Close()
	}
	return p.mu.conns.PushBack(conn), evicted
}

// remove may be called twice, and for an evicted connection.
func (p *pending) remove(place *list.Element) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.conns.Remove(place)
}

func (p *pending) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.conns.Len()
}
