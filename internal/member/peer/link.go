package peer

import (
	"bufio"
	"context"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// link is a connection after the handshake. One goroutine reads it; any may write.
type link struct {
	conn net.Conn
	in   frames // owned by the goroutine that reads
	// other is the identity that the other side gave in the handshake.
	other  identity
	limits linkLimits
	began  time.Time
	// invited is set if this side could not dial, and the other one made the connection instead.
	invited bool
	// due is the time at which to send the next sign of life.
	due *time.Timer
	// sent and received count bytes; they belong to the peer, or are discarded.
	sent, received *atomic.Uint64

	write struct {
		sync.Mutex
		buf []byte
	}
	down struct {
		why  sync.Once
		err  error // set by why
		shut sync.Once
		done chan struct{} // closed by shut, after why
	}
}

// identity identifies a side of a handshake.
type identity struct {
	cluster, member uint64
	version         string
	comes           bool // it takes invitations
}

type linkLimits struct {
	// dead and write are how long a read or a write may take before the link ends.
	dead, write time.Duration
	ping        time.Duration
	// since is the beginning of the intervals in which all links of a member ping: their pings are
	// sent together.
	since time.Time
}

// idleReader sets the deadline of each read, once the handshake is over.
type idleReader struct {
	conn net.Conn
	dead time.Duration // 0 during the handshake, which has one deadline for all
	n    *atomic.Uint64
}

func (r *idleReader) Read(b []byte) (int, error) {
	if r.dead > 0 {
		if err := r.conn.SetReadDeadline(time.Now().Add(r.dead)); err != nil {
			return 0, err
		}
	}
	n, err := r.conn.Read(b)
	if r.n != nil {
		r.n.Add(uint64(n))
	}
	return n, err
}

// greeted is a connection during the handshake.
type greeted struct {
	conn net.Conn
	idle *idleReader
	br   *bufio.Reader
}

func greet(conn net.Conn) *greeted {
	idle := &idleReader{conn: conn}
	return &greeted{conn: conn, idle: idle, br: bufio.NewReaderSize(idle, maxFrame+frameHeader)}
}

// open ends the handshake: from now on the link's own deadlines hold.
func (g *greeted) open(other identity, limits linkLimits, limit int, sent,
	received *atomic.Uint64) (*link, error) {
	if err := g.conn.SetDeadline(time.Time{}); err != nil {
		return nil, err
	}
	g.idle.dead, g.idle.n = limits.dead, received
	l := &link{conn: g.conn, in: frames{r: g.br, limit: limit}, other: other, limits: limits,
		began: time.Now(), sent: sent, received: received}
	l.due = time.NewTimer(limits.ping)
	l.down.done = make(chan struct{})
	return l, nil
}

// send writes encoded frames.
func (l *link) send(b []byte) error {
	l.write.Lock()
	defer l.write.Unlock()
	return l.sendLocked(b)
}

// sendLocked writes in parts, each with its own deadline.
func (l *link) sendLocked(b []byte) error {
	for len(b) > 0 {
		if err := l.conn.SetWriteDeadline(time.Now().Add(l.limits.write)); err != nil {
			return err
		}
		n, err := l.conn.Write(b[:min(len(b), 2*maxFrame)])
		l.sent.Add(uint64(n))
		if err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

// sendFrame writes one small frame.
func (l *link) sendFrame(t frameType, payload []byte) error {
	l.write.Lock()
	defer l.write.Unlock()
	l.write.buf = appendFrame(l.write.buf[:0], t, 0, payload)
	return l.sendLocked(l.write.buf)
}

// blame sets the reason for the end of the link. Only the first reason counts.
func (l *link) blame(err error) { l.down.why.Do(func() { l.down.err = err }) }

// end closes the link for a reason.
func (l *link) end(err error) {
	l.blame(err)
	l.down.shut.Do(func() {
		l.conn.Close()
		close(l.down.done)
	})
}

// grace returns how long a closing side waits for the other to read the reason. Closing at once
// could reset the connection before the reason arrives.
func (l *link) grace() time.Duration { return min(l.limits.dead, time.Second) }

// endWith sends the reason, lets the other side close the link, and closes it if it does not.
// Another goroutine reads the link.
func (l *link) endWith(e *Error) {
	l.blame(e)
	if l.sendFrame(frameClose, encodeReason(e)) == nil {
		timer := time.NewTimer(l.grace())
		defer timer.Stop()
		select {
		case <-l.down.done:
		case <-timer.C:
		}
	}
	l.end(e)
}

// giveUp is endWith for the goroutine that reads the link.
func (l *link) giveUp(e *Error) {
	l.blame(e)
	if l.sendFrame(frameClose, encodeReason(e)) == nil &&
		l.conn.SetReadDeadline(time.Now().Add(l.grace())) == nil {
		_, _ = io.Copy(io.Discard, l.conn)
	}
	l.end(e)
}

// reason waits for the end of the link and returns its reason.
func (l *link) reason() error {
	<-l.down.done
	return l.down.err
}

// pulse sends signs of life until the link or ctx ends. The side that dialed sends pings, whose
// answers measure the round trip. As long as pings arrive, the other side only answers them.
func (l *link) pulse(ctx context.Context, t frameType) {
	defer l.due.Stop()
	var payload []byte
	for {
		next := l.untilAnswered()
		if t == framePing {
			next = l.limits.ping - time.Since(l.limits.since)%l.limits.ping
			payload = le.AppendUint64(payload[:0], uint64(time.Since(l.began)))
		}
		l.due.Reset(next)
		if err := l.sendFrame(t, payload); err != nil {
			l.end(err)
			return
		}
		select {
		case <-l.due.C:
		case <-l.down.done:
			return
		case <-ctx.Done():
			return
		}
	}
}

// untilAnswered returns how long a side that answers pings waits for the next one before it sends a
// sign of life itself.
func (l *link) untilAnswered() time.Duration { return l.limits.ping + l.limits.ping/4 }

// handleCommon handles the frames of every stream. It returns false for all others.
func (l *link) handleCommon(t frameType, payload []byte, rtt *roundTrips) (bool, error) {
	switch t {
	case frameAlive:
		return true, nil
	case framePing:
		l.due.Reset(l.untilAnswered())
		return true, l.sendFrame(framePong, payload)
	case framePong:
		if len(payload) != 8 {
			return true, refuse(CodeMalformed, "pong of %d bytes", len(payload))
		}
		if now, then := time.Since(l.began), le.Uint64(payload); rtt != nil && then <= uint64(now) {
			rtt.observe(now - time.Duration(then))
		}
		return true, nil
	case frameClose:
		e, err := decodeReason(payload)
		if err == nil && e == nil {
			err = refuse(CodeMalformed, "closed without a reason")
		}
		if err != nil {
			return true, err
		}
		return true, e
	}
	return false, nil
}
