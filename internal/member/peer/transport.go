package peer

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"vigil/internal/portmux"
)

// Raft receives the messages of other members. No method may block or call the Transport. All may
// be called while a Send runs.
type Raft interface {
	// Step receives messages. The Transport reuses the slice; the receiver owns the messages.
	Step(msgs ...*raftpb.Message)
	// ReportUnreachable reports that a MsgApp or MsgProp to a member was lost on this side.
	ReportUnreachable(id uint64)
	// ReportAbsent reports that the process of a member has ended, as far as this member can see:
	// no stream of messages is open in either direction, and its ports refuse connections. It
	// reports false when the member opens a stream again, or accepts one, before the first message
	// of that stream. See DESIGN.md.
	ReportAbsent(id uint64, absent bool)
}

// Caller identifies the origin of a call.
type Caller struct {
	// Member is the id of a member of this cluster, 0 for any other program that reaches the peer
	// port, such as a member that is about to join.
	Member uint64
	// Addr is the remote address.
	Addr string
}

// CallServer answers calls. ServeCall is called concurrently, at most MaxCalls times for a member;
// ctx ends when the caller stops waiting, its stream ends, or the Transport is closed.
type CallServer interface {
	ServeCall(ctx context.Context, from Caller, kind uint8, payload []byte) ([]byte, error)
}

// BulkReceiver receives bulk transfers, one at a time from each member. r returns io.EOF after all
// bytes, if their checksum is right, and otherwise an error. Returning nil before io.EOF fails the
// transfer. The Transport reports an error to the sender. ctx ends when the Transport is closed.
// Closing r, from any goroutine, ends the transfer and with it a Read under way. The receiver must
// not use r after it returns.
type BulkReceiver interface {
	ReceiveBulk(ctx context.Context, from uint64, meta []byte, r io.ReadCloser) error
}

// Receivers are the consumers of messages, calls and transfers. Raft is required; calls and
// transfers without a receiver are rejected.
type Receivers struct {
	Raft  Raft
	Calls CallServer
	Bulk  BulkReceiver
}

// maxLearned bounds the members that are known only from their own handshake.
const maxLearned = 16

// Transport is one member's end of all its streams.
type Transport struct {
	o         Options
	began     time.Time
	ctx       context.Context // ends with Close
	cancel    context.CancelFunc
	wg        sync.WaitGroup
	receivers Receivers // set by Start, read only after it
	log       lines
	http      *portmux.Listener
	removed   chan uint64 // the ids of members that report the removal of this one
	removal   sync.Once
	pending   pending
	refused   [CodeClosing + 1]atomic.Uint64 // connections refused, by code
	// streams that other members have opened by their own choice
	visits    atomic.Uint64
	strangers stats // connections of no member

	mu struct {
		sync.Mutex
		started, closed bool
		selfGiven, self []string // the URLs of this member, and those of them that others can dial
		index           uint64   // of the membership
		members         map[uint64]*remote
		removed         map[uint64]bool
		singles         int // calls of one connection each that are under way
		closers         map[io.Closer]struct{}
	}
}

// remote is another member.
type remote struct {
	t      *Transport
	id     uint64
	ctx    context.Context // ends when the member is given up
	cancel context.CancelFunc
	queue  *queue
	kicked chan struct{} // has room for one
	ended  chan struct{} // has room for one: a stream of messages has ended
	stats  stats
	calls  caller

	mu struct {
		sync.Mutex
		urls []string // of the membership
		// learned are the URLs that the member itself advertised at a newer membership, the one of
		// index learnedAt. known is false if our membership does not contain it.
		learned   []string
		learnedAt uint64
		known     bool
		good      int // index of the URL that worked last

		in      [lastKind + 1]*inbound
		link    *link // of the messages to it, nil while there is none
		since   time.Time
		version string // of the member's program, as last received
		sending bool   // a bulk transfer to it is under way
		absence absence
		// failure is the reason of the last failed dial for messages, nil while the stream is open.
		failure *Failure
		// detour is why the last dial failed, if the member made the open connection on invitation.
		detour *Failure
		// undialed is the time since which the member does not answer dials. Invitations do not
		// change it.
		undialed time.Time
		// awaited holds the connections that the member was invited to make; invited counts
		// invitations. answering is set for a kind while this member connects on the other's
		// invitation.
		awaited   [lastKind + 1]*awaited
		invited   uint64
		answering [lastKind + 1]bool
	}
}

// inbound is a stream that a member has opened.
type inbound struct {
	conn net.Conn
	link *link         // nil until the handshake is over
	done chan struct{} // closed when its goroutine has ended
}

// New makes a Transport that sends and accepts nothing until Start.
func New(o Options) (*Transport, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	o.setDefaults()
	t := &Transport{o: o, began: time.Now(), http: portmux.NewListener(peerPort{}),
		removed: make(chan uint64, maxReports)}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	t.setSelfLocked(o.PeerURLs)
	t.mu.members = map[uint64]*remote{}
	t.mu.removed = map[uint64]bool{}
	t.mu.closers = map[io.Closer]struct{}{}
	t.pending.init(o.MaxPending)
	return t, nil
}

// Start begins to dial and to accept.
func (t *Transport) Start(r Receivers) error {
	if r.Raft == nil {
		return errors.New("peer: no receiver of raft messages")
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.mu.closed || t.mu.started {
		return ErrClosed
	}
	t.receivers = r
	t.mu.started = true
	for _, p := range t.mu.members {
		t.wg.Go(p.keepConnected)
	}
	t.wg.Go(t.watchReach)
	return nil
}

// SetMembers replaces the membership with that of the change at a raft index. removed has the ids
// of all former members. If members contains this member, others dial the URLs given there. Streams
// of removed members end.
func (t *Transport) SetMembers(index uint64, members []Member, removed []uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.mu.closed {
		return
	}
	t.mu.index = index
	for _, id := range removed {
		t.mu.removed[id] = true
	}
	keep := map[uint64]bool{}
	for _, m := range members {
		if m.ID == t.o.MemberID {
			t.setSelfLocked(m.URLs)
			continue
		}
		keep[m.ID] = true
		p := t.mu.members[m.ID]
		if p == nil {
			p = t.addRemoteLocked(m.ID)
		}
		p.setURLs(m.URLs)
	}
	for id, p := range t.mu.members {
		switch {
		case keep[id]:
		case t.mu.removed[id]:
			t.giveUpLocked(p, refuse(CodeRemoved, "member %x was removed from the cluster", id))
		case !p.isLearned(index):
			t.giveUpLocked(p, refuse(CodeUnknown, "member %x is no member of the cluster", id))
		}
	}
}

func (t *Transport) addRemoteLocked(id uint64) *remote {
	p := &remote{t: t, id: id, stats: newStats(),
		queue: newQueue(t.o.MaxQueueBytes, t.o.MaxQueueMessages), kicked: make(chan struct{}, 1),
		ended: make(chan struct{}, 1)}
	p.ctx, p.cancel = context.WithCancel(t.ctx)
	p.calls.p = p
	t.mu.members[id] = p
	if t.mu.started {
		t.wg.Go(p.keepConnected)
	}
	return p
}

// giveUpLocked ends all streams with a member and sends it the reason.
func (t *Transport) giveUpLocked(p *remote, why *Error) {
	delete(t.mu.members, p.id)
	links := p.links()
	t.wg.Go(func() {
		var wg sync.WaitGroup
		for _, l := range links {
			wg.Go(func() { l.endWith(why) })
		}
		wg.Wait()
		p.cancel()
		p.mu.Lock()
		defer p.mu.Unlock()
		p.reportLocked(false)
	})
}

// links returns the open streams of messages and calls, in both directions.
func (p *remote) links() []*link {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []*link
	if p.mu.link != nil {
		out = append(out, p.mu.link)
	}
	for _, in := range p.mu.in {
		if in != nil && in.link != nil {
			out = append(out, in.link)
		}
	}
	return out
}

// setURLs sets the URLs of the membership. New ones are tried at once.
func (p *remote) setURLs(urls []string) {
	p.mu.Lock()
	changed := !slices.Equal(p.mu.urls, urls)
	p.mu.urls, p.mu.known = slices.Clone(urls), true
	if changed {
		p.mu.learned, p.mu.good = nil, 0
	}
	p.mu.Unlock()
	if changed {
		p.kick()
	}
}

// isLearned reports whether the member advertised itself at a membership newer than index: its
// absence there means nothing yet.
func (p *remote) isLearned(index uint64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.learnedAt > index
}

// kick ends the wait before the next dial.
func (p *remote) kick() {
	select {
	case p.kicked <- struct{}{}:
	default:
	}
}

// urls returns the URLs to dial, the one that worked last first.
func (p *remote) urls() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := slices.Clone(p.mu.urls)
	for _, u := range p.mu.learned {
		if !slices.Contains(all, u) {
			all = append(all, u)
		}
	}
	if n := len(all); n > 0 {
		all = slices.Concat(all[p.mu.good%n:], all[:p.mu.good%n])
	}
	return all
}

// Send hands messages to the streams of their receivers. It drops messages that cannot be sent.
func (t *Transport) Send(msgs []*raftpb.Message) {
	for _, m := range msgs {
		p := t.remote(m.GetTo())
		switch {
		case p == nil:
			t.strangers.dropped.Add(1)
		case !remoteTypes[m.GetType()]:
			t.log.line(t.o.Logger, slog.LevelError, lineKey{p.id, m.GetType().String()},
				"raft message of a type that members do not send each other",
				hexID("to", p.id), slog.String("type", m.GetType().String()))
			p.drop(1, false)
		default:
			p.drop(p.queue.put(m))
		}
	}
}

func (t *Transport) remote(id uint64) *remote {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.mu.started {
		return nil
	}
	return t.mu.members[id]
}

// maxReports bounds the reports that wait. A member repeats its report at each dial.
const maxReports = 8

// ConnectedSince returns the time since which messages can be sent to a member, zero if they
// cannot.
func (t *Transport) ConnectedSince(id uint64) time.Time {
	p := t.remote(id)
	if p == nil {
		return time.Time{}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.since
}

// Removed receives the id of each member that reports that this one was removed from the cluster,
// also repeatedly.
func (t *Transport) Removed() <-chan uint64 { return t.removed }

func (t *Transport) wasRemoved(by uint64, e *Error) {
	t.removal.Do(func() {
		t.o.Logger.Error("this member was removed from the cluster",
			hexID("local-member-id", t.o.MemberID), hexID("remote-peer-id", by),
			slog.Any("error", e))
	})
	select {
	case t.removed <- by:
	default:
	}
}

// Close ends all streams and listeners and waits for their goroutines, calls of the receivers and
// of the sources of bulk transfers included.
func (t *Transport) Close() {
	t.mu.Lock()
	t.mu.closed = true
	closers := t.mu.closers
	t.mu.closers = nil
	t.mu.Unlock()
	t.cancel()
	for c := range closers {
		c.Close()
	}
	t.http.Close()
	t.wg.Wait()
}

// connected notes that the stream of messages to the member is open.
func (p *remote) connected(l *link) {
	p.mu.Lock()
	p.mu.link, p.mu.since, p.mu.version = l, time.Now(), l.other.version
	if l.invited {
		p.mu.detour = p.mu.failure
	}
	p.mu.failure = nil
	p.reportLocked(false)
	p.mu.Unlock()
	p.stats.connects.Add(1)
	p.t.log.forget(p.id)
	p.t.o.Logger.Info("connected to peer", hexID("remote-peer-id", p.id),
		slog.String("remote-addr", l.conn.RemoteAddr().String()),
		slog.String("remote-version", l.other.version))
}

func (p *remote) disconnected(err error) {
	p.mu.Lock()
	p.noteEndLocked(p.mu.link)
	p.mu.link, p.mu.since, p.mu.detour = nil, time.Time{}, nil
	p.mu.Unlock()
	if p.ctx.Err() != nil {
		return
	}
	p.stats.disconnects.Add(1)
	p.noteRefusal(err)
	p.noteFailure(err)
	// Bytes that the kernel had accepted are lost too, and are not counted.
	p.t.receivers.Raft.ReportUnreachable(p.id)
	p.t.o.Logger.Warn("lost connection to peer", hexID("remote-peer-id", p.id),
		slog.Any("error", err))
}

func hexID(key string, id uint64) slog.Attr { return slog.String(key, strconv.FormatUint(id, 16)) }

// lineKey distinguishes log lines that may repeat with every attempt.
type lineKey struct {
	id   uint64
	what string
}

// lines limits repeated log lines: it shows each once a minute.
type lines struct {
	mu struct {
		sync.Mutex
		last map[lineKey]time.Time
	}
}

const (
	repeatAfter = time.Minute
	maxLines    = 256
)

func (l *lines) line(to *slog.Logger, level slog.Level, key lineKey, msg string,
	attrs ...slog.Attr) {
	now := time.Now()
	l.mu.Lock()
	last, seen := l.mu.last[key]
	if seen = seen && now.Sub(last) < repeatAfter; !seen {
		if l.mu.last == nil || len(l.mu.last) >= maxLines {
			l.mu.last = map[lineKey]time.Time{}
		}
		l.mu.last[key] = now
	}
	l.mu.Unlock()
	if seen {
		level = slog.LevelDebug
	}
	to.LogAttrs(context.Background(), level, msg, attrs...)
}

// forget lets a member's lines appear again.
func (l *lines) forget(id uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for k := range l.mu.last {
		if k.id == id {
			delete(l.mu.last, k)
		}
	}
}

// failureKey returns equal keys for failures that a reader would call the same.
func failureKey(id uint64, err error) lineKey {
	if e := (*Error)(nil); errors.As(err, &e) {
		return lineKey{id, fmt.Sprintf("code %d", e.Code)}
	}
	return lineKey{id, "dial: " + failureClass(err)}
}

// failureClass distinguishes failures that need different reactions: a lasting failure must not
// suppress the log line of the next kind.
func failureClass(err error) string {
	var errno syscall.Errno
	var timeout net.Error
	switch {
	case errors.As(err, &errno):
		return errno.Error()
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "EOF"
	case errors.As(err, &timeout) && timeout.Timeout():
		return "timeout"
	case errors.Is(err, errHandshakeTLS):
		return "TLS" + certificateFailure(err)
	}
	return "other"
}

// certificateFailure distinguishes the failures of TLS handshakes. It does not depend on what the
// other side puts in a certificate.
func certificateFailure(err error) string {
	var (
		alert   *net.OpError
		unknown x509.UnknownAuthorityError
		name    x509.HostnameError
		invalid x509.CertificateInvalidError
	)
	switch {
	case errors.As(err, &alert) && alert.Op == "remote error":
		return " alert: " + alert.Err.Error()
	case errors.As(err, &unknown):
		return " authority"
	case errors.As(err, &name):
		return " name"
	case errors.As(err, &invalid):
		return fmt.Sprintf(" invalid: %d", invalid.Reason)
	}
	return ""
}
