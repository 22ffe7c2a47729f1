package peer

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// keepConnected keeps the stream of messages to a member open until the member is given up. It is
// the only goroutine that writes messages there.
func (p *remote) keepConnected() {
	o := &p.t.o
	delay := o.BackoffMin
	for p.ctx.Err() == nil {
		// While it dials, messages wait, so that the first votes are not lost. They never wait
		// longer, since old ones only do harm.
		p.queue.setOpen(true)
		l, err := p.t.dialMember(p.ctx, p, kindMessages)
		p.noteDial(err)
		if err == nil {
			delay = o.BackoffMin
			p.connected(l)
			err = p.stream(l)
			p.disconnected(err)
		} else {
			p.noteDialFailed(err)
		}
		p.drop(p.queue.setOpen(false))
		p.pause(&delay)
	}
	p.queue.setOpen(false)
}

// pause waits before the next dial; the member's own dial cuts it short. It does not wait while the
// reason for the end of a stream is unknown.
func (p *remote) pause(delay *time.Duration) {
	o := &p.t.o
	least, most, begun := jitter(o.BackoffMin), jitter(*delay), time.Now()
	for p.ctx.Err() == nil {
		kicked := (<-chan struct{})(nil)
		wait, probing := p.nextProbe()
		if !probing {
			if wait = least - time.Since(begun); wait <= 0 {
				wait, kicked = most-time.Since(begun), p.kicked
			}
		}
		if wait <= 0 {
			if !probing {
				*delay = min(2**delay, o.BackoffMax)
			}
			return
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-p.ended:
		case <-kicked:
			most = 0
		case <-p.ctx.Done():
		}
		timer.Stop()
	}
}

// jitter shortens a wait by up to half, so that members do not dial in step.
func jitter(d time.Duration) time.Duration { return d - rand.N(d/2+1) }

// drop counts messages that are not sent, and reports to raft if it should probe.
func (p *remote) drop(n int, lost bool) {
	if n == 0 {
		return
	}
	p.stats.dropped.Add(uint64(n))
	p.stats.sendFailures.Add(uint64(n))
	if lost {
		p.t.receivers.Raft.ReportUnreachable(p.id)
	}
}

// stream writes messages until the link ends, and returns why it did.
func (p *remote) stream(l *link) error {
	stop := context.AfterFunc(p.ctx, func() { l.end(ErrClosed) })
	defer stop()
	var wg sync.WaitGroup
	ctx, cancel := context.WithCancel(p.ctx)
	wg.Go(func() { l.pulse(p.ctx, framePing) })
	wg.Go(func() { l.end(p.listen(l)) })
	if l.invited {
		wg.Go(func() { p.watchDetour(ctx) })
	}
	w := writer{p: p, l: l}
	for err := error(nil); err == nil; {
		select {
		case <-p.queue.woken:
			if err = w.drain(); err != nil {
				l.end(err)
			}
		case <-l.down.done:
			err = l.reason()
		}
	}
	cancel()
	wg.Wait()
	return l.reason()
}

// listen reads the answers on a stream of messages: heartbeats, and the reason of its end.
func (p *remote) listen(l *link) error {
	for {
		t, payload, err := l.in.next()
		if err != nil {
			return err
		}
		if t == frameInvite {
			if err := p.acceptInvitation(payload); err != nil {
				return err
			}
			continue
		}
		known, err := l.handleCommon(t, payload, &p.stats.rtt)
		if err != nil {
			return err
		}
		if !known {
			return refuse(CodeMalformed, "frame of type %d on a stream of messages", t)
		}
	}
}

// writer turns messages into writes. Each write holds all control messages that wait and at most
// about one frame of the log lane, so that no control message waits for more than that.
type writer struct {
	p *remote
	l *link

	buf     []byte
	control []*raftpb.Message
	log     []*raftpb.Message // taken and not encoded: log[next:]
	next    int
	// big is the encoding of a message that does not fit into a frame, rest its unsent part.
	big, rest []byte
	bigSize   int // of the message, as the queue counts it
	// bytes and count measure the log-lane messages that the buffer completes.
	bytes, count int
}

// drain writes until nothing waits.
func (w *writer) drain() error {
	for {
		w.buf, w.bytes, w.count = w.buf[:0], 0, 0
		w.control = w.p.queue.takeControl(w.control)
		messages := 0
		for i, m := range w.control {
			w.control[i] = nil
			w.addWhole(m, frameControl)
			messages++
		}
		w.addLog()
		if len(w.buf) == 0 {
			w.p.queue.release(w.bytes, w.count) // what could not be sent
			return nil
		}
		if err := w.l.send(w.buf); err != nil {
			return err
		}
		w.p.stats.sent.Add(uint64(messages + w.count))
		w.p.queue.release(w.bytes, w.count)
	}
}

// addLog adds messages of the log lane up to the limit of one write.
func (w *writer) addLog() {
	for room := maxFrame; room > 0; {
		before := len(w.buf)
		if len(w.rest) == 0 {
			if w.next == len(w.log) {
				w.log, w.next = w.p.queue.takeLog(w.log), 0
				if len(w.log) == 0 {
					return
				}
			}
			m := w.log[w.next]
			w.log[w.next] = nil
			w.next++
			n := size(m)
			if n <= maxFrame/2 {
				w.addWhole(m, frameLog)
				w.bytes += n
				w.count++
			} else {
				w.beginFragments(m, n)
			}
		} else {
			w.addFragment()
		}
		room -= len(w.buf) - before
	}
}

// addWhole encodes a message that fits into a frame.
func (w *writer) addWhole(m *raftpb.Message, t frameType) {
	b, err := appendMessage(w.buf, t, m)
	if err != nil {
		w.unsendable(m, err)
		return
	}
	w.buf = b
}

// beginFragments encodes a message that is sent in fragments.
func (w *writer) beginFragments(m *raftpb.Message, n int) {
	b, err := proto.MarshalOptions{}.MarshalAppend(w.big[:0], m)
	if most := w.p.t.o.MaxMessageBytes; err == nil && len(b) > most {
		err = refuse(CodeTooLarge,
			"message of type %v with %d bytes, the most is %d (MaxMessageBytes)",
			m.GetType(), len(b), most)
	}
	if err != nil {
		w.bytes += n
		w.count++
		w.unsendable(m, err)
		return
	}
	w.big, w.rest, w.bigSize = b, b, n
}

// addFragment adds the next part of the message that beginFragments encoded.
func (w *writer) addFragment() {
	n := min(len(w.rest), maxFrame)
	flags := byte(flagMore)
	if n == len(w.rest) {
		flags = 0
	}
	w.buf = appendFrame(w.buf, frameLog, flags, w.rest[:n])
	w.rest = w.rest[n:]
	if len(w.rest) == 0 {
		w.bytes += w.bigSize
		w.count++
		if cap(w.big) > keepPartial {
			w.big = nil
		}
	}
}

func (w *writer) unsendable(m *raftpb.Message, err error) {
	w.p.t.o.Logger.Error("raft message cannot be sent", hexID("to", w.p.id),
		slog.String("type", m.GetType().String()), slog.Any("error", err))
	w.p.drop(1, inLogLane(m.GetType()))
}

// noteDialFailed records and logs a failed dial.
func (p *remote) noteDialFailed(err error) {
	if p.ctx.Err() != nil {
		return
	}
	p.noteRefusal(err)
	p.noteFailure(err)
	p.t.log.line(p.t.o.Logger, slog.LevelWarn, failureKey(p.id, err), "failed to connect to peer",
		hexID("remote-peer-id", p.id), slog.Any("error", err))
}

// noteRefusal handles a failure that says something about this member, such as its removal.
func (p *remote) noteRefusal(err error) {
	var e *Error
	if errors.As(err, &e) && e.remote && e.Code == CodeRemoved {
		p.t.wasRemoved(p.id, e)
	}
}
