package transport

import (
	"context"
	"io"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"vigil/internal/edge/rpc/transport/h2"
	"vigil/internal/edge/rpc/wire"
)

// Session is the service's side of a stream that has no goroutine while nothing happens. Receive
// and EndReceive are never called concurrently with each other, nor is Fill with itself. Receive,
// Fill and Close may run concurrently.
type Session interface {
	// Receive handles a message of the client, which Method.NewRequest has made. It may block; the
	// next message waits until it returns.
	Receive(message any)
	// EndReceive notes that the client sends no more messages.
	EndReceive()
	// Fill queues responses by WatchEncoder.Queue until there is no room, or nothing is ready. The
	// client takes about room bytes now. Fill is called after Wake, and when there is room again.
	// It must not block.
	Fill(room int)
	// Close is called once, after the stream has ended, with the reason: nil or a status. Receive
	// and Fill may still run, and should return soon.
	Close(reason error)
}

// PromptSession is a Session that answers some messages without waiting.
type PromptSession interface {
	Session
	// Answer may be called instead of Receive, on the goroutine that reads the connection. It must
	// not keep message, which is encoded, must not wait and must not read files. It appends the
	// encoded answer, a few hundred bytes at most, to to. Or it does nothing and returns false, for
	// example if it cannot decode the message: then Receive is called.
	Answer(message, to []byte) (_ []byte, ok bool)
}

// Peer is the client of a Session. Its methods may be called concurrently, but a session must send
// either in Receive only or in Fill only.
type Peer interface {
	// Context ends with the stream.
	Context() context.Context
	// SendMsg sends a message, as Stream.SendMsg does. Only Receive may call it.
	SendMsg(m any) error
	// Wake makes the transport call Fill soon. It does not wait.
	Wake()
	// End ends the stream with the status of err after everything queued. It does not wait. Only
	// the first call counts.
	End(err error)

	// queueWatch implements WatchEncoder.Queue.
	queueWatch(e *WatchEncoder, list []wire.WatchResponse) (sent, bytes int, room bool, err error)
}

// WakeAll wakes many peers at once, which costs less than to wake one after another.
func WakeAll(peers []Peer) {
	streams := make([]*h2.Stream, 0, len(peers))
	for _, p := range peers {
		if c, ok := p.(*sessionCall); ok {
			streams = append(streams, &c.stream)
		} else {
			p.Wake()
		}
	}
	h2.WakeAll(streams)
}

// ServeSession serves a session on a stream whose methods block. It needs two goroutines.
func ServeSession(s Stream, m *Method) error {
	p := &blockingPeer{stream: s, wake: make(chan struct{}, 1)}
	p.ctx, p.end = context.WithCancelCause(s.Context())
	defer p.end(errOver)
	session, err := m.Open(p)
	if err != nil {
		return err
	}
	go p.receiveAll(session, m) // only the end of the handler interrupts a RecvMsg
	for {
		select {
		case <-p.wake:
			session.Fill(blockingRoom)
		case <-p.ctx.Done():
			err := p.endReason()
			session.Close(err)
			return err
		}
	}
}

// blockingPeer is the client of a session on a stream whose methods block.
type blockingPeer struct {
	stream Stream
	ctx    context.Context
	end    context.CancelCauseFunc
	wake   chan struct{} // one token
}

// blockingRoom is how many bytes a session queues at once on a stream whose methods block.
const blockingRoom = 64 << 10

// errOver is the cause of the end of a stream that ends without an error.
var errOver = status.Error(codes.Canceled, "the stream is over")

// endReason returns the status of a stream that has ended.
func (p *blockingPeer) endReason() error {
	cause := context.Cause(p.ctx)
	if cause == errOver {
		return nil
	}
	if _, ok := status.FromError(cause); ok {
		return cause
	}
	return status.FromContextError(cause).Err()
}

func (p *blockingPeer) receiveAll(session Session, m *Method) {
	for {
		message := m.NewRequest()
		err := p.stream.RecvMsg(message)
		switch {
		case err == io.EOF:
			session.EndReceive()
			return
		case err != nil:
			if p.stream.Context().Err() == nil {
				p.end(&ReceiveError{err})
			}
			return
		}
		session.Receive(message)
	}
}

// ReceiveError is the reason for Session.Close if the client has sent an invalid message.
type ReceiveError struct{ Err error }

// Error implements error.
func (e *ReceiveError) Error() string { return e.Err.Error() }

// Unwrap returns the status.
func (e *ReceiveError) Unwrap() error { return e.Err }

// GRPCStatus returns the status.
func (e *ReceiveError) GRPCStatus() *status.Status { return status.Convert(e.Err) }

// Context implements Peer.
func (p *blockingPeer) Context() context.Context { return p.ctx }

// SendMsg implements Peer.
func (p *blockingPeer) SendMsg(m any) error { return p.stream.SendMsg(m) }

// Wake implements Peer.
func (p *blockingPeer) Wake() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// End implements Peer.
func (p *blockingPeer) End(err error) {
	if err == nil {
		err = errOver
	}
	p.end(err)
}

func (p *blockingPeer) queueWatch(_ *WatchEncoder, list []wire.WatchResponse) (sent, bytes int,
	room bool, err error) {
	list = splitByWatcher(list)
	for len(list) > 0 {
		messages := encodeWatch(list)
		list = list[len(messages):]
		for i := range messages {
			n := messages[i].Len()
			if err := p.stream.SendMsg(&messages[i]); err != nil {
				return sent, bytes, false, err
			}
			sent++
			bytes += n
		}
	}
	return sent, bytes, true, nil
}
