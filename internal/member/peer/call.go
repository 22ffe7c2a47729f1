package peer

import (
	"context"
	"crypto/tls"
	"fmt"
	"math"
	"net"
	"sync"
	"time"
)

// callTimeout bounds a call whose context has no deadline.
const callTimeout = 10 * time.Second

// Call asks a member and returns its answer. It waits until ctx ends, 10 s if it has no deadline.
// An answer that is an error is an *Error; any other error leaves open whether the call took
// effect. The caller may reuse the payload afterwards.
func (t *Transport) Call(ctx context.Context, to uint64, kind uint8,
	payload []byte) ([]byte, error) {
	if len(payload) > t.o.MaxCallBytes {
		return nil, refuse(CodeTooLarge, "call of %d bytes, the most is %d (MaxCallBytes)",
			len(payload), t.o.MaxCallBytes)
	}
	if t.ctx.Err() != nil {
		return nil, ErrClosed
	}
	p := t.remote(to)
	if p == nil {
		return nil, fmt.Errorf("call to member %x: %w", to, ErrNotMember)
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	answer, err := p.calls.call(ctx, kind, payload)
	if err != nil {
		return nil, fmt.Errorf("call to member %x: %w", to, err)
	}
	return answer, nil
}

func bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, callTimeout)
}

// millis returns the time until ctx's deadline in milliseconds, at least 1.
func millis(ctx context.Context) uint32 {
	d, _ := ctx.Deadline()
	return uint32(min(max(time.Until(d).Milliseconds(), 1), math.MaxUint32))
}

// caller keeps the stream of calls to a member. It dials when the first call needs it.
type caller struct {
	p  *remote
	mu struct {
		sync.Mutex
		stream  *callStream
		dialing chan struct{} // closed when the dial under way is over
		err     error         // of the last dial
	}
}

// callStream is one stream of calls.
type callStream struct {
	l  *link
	mu struct {
		sync.Mutex
		next    uint64
		waiting map[uint64]chan response
		ended   bool
	}
}

// call makes a call, on a second stream if the first ended before it was made.
func (c *caller) call(ctx context.Context, kind uint8, payload []byte) ([]byte, error) {
	for again := false; ; again = true {
		s, err := c.open(ctx)
		if err != nil {
			return nil, err
		}
		answer, err := s.call(ctx, kind, payload, c.p.t.o.MaxCalls)
		if err != errEnded || again {
			return answer, err
		}
	}
}

// errEnded: a stream had ended before a call was made on it.
var errEnded = fmt.Errorf("%w before the call", ErrDisconnected)

// open returns the stream, and dials if there is none. Concurrent callers share a dial.
func (c *caller) open(ctx context.Context) (*callStream, error) {
	c.mu.Lock()
	if s := c.mu.stream; s != nil {
		c.mu.Unlock()
		return s, nil
	}
	if c.mu.dialing == nil {
		done := make(chan struct{})
		if !c.p.t.spawn(func() { c.dial(done) }) {
			c.mu.Unlock()
			return nil, ErrClosed
		}
		c.mu.dialing = done
	}
	dialing := c.mu.dialing
	c.mu.Unlock()
	select {
	case <-dialing:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.mu.stream != nil:
		return c.mu.stream, nil
	case c.mu.err != nil:
		return nil, c.mu.err
	}
	return nil, ErrDisconnected
}

// dial opens the stream and reads answers until it ends.
func (c *caller) dial(done chan struct{}) {
	p := c.p
	l, err := p.t.dialMember(p.ctx, p, kindCalls)
	s := &callStream{l: l}
	s.mu.waiting = map[uint64]chan response{}
	c.mu.Lock()
	c.mu.err, c.mu.dialing = err, nil
	if err == nil {
		c.mu.stream = s
	}
	c.mu.Unlock()
	close(done)
	if err != nil {
		p.noteRefusal(err)
		return
	}
	stop := context.AfterFunc(p.ctx, func() { l.end(ErrClosed) })
	defer stop()
	var wg sync.WaitGroup
	wg.Go(func() { l.pulse(p.ctx, framePing) })
	l.end(s.read(false))
	wg.Wait()
	c.mu.Lock()
	c.mu.stream = nil
	c.mu.Unlock()
	s.failAll()
	p.noteRefusal(l.reason())
}

// read delivers answers until the stream ends, or just one.
func (s *callStream) read(one bool) error {
	for {
		t, payload, err := s.l.in.next()
		if err != nil {
			return err
		}
		if t != frameResponse {
			known, err := s.l.handleCommon(t, payload, nil)
			if err == nil && !known {
				err = refuse(CodeMalformed, "frame of type %d on a stream of calls", t)
			}
			if err != nil {
				return err
			}
			continue
		}
		r, err := decodeResponse(payload)
		if err != nil {
			return err
		}
		r.payload = append([]byte(nil), r.payload...)
		s.mu.Lock()
		ch := s.mu.waiting[r.id]
		delete(s.mu.waiting, r.id)
		s.mu.Unlock()
		if ch != nil { // or its caller has gone
			ch <- r
		}
		if one {
			return nil
		}
	}
}

// failAll ends every waiting call.
func (s *callStream) failAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.ended = true
	for id, ch := range s.mu.waiting {
		delete(s.mu.waiting, id)
		close(ch)
	}
}

func (s *callStream) call(ctx context.Context, kind uint8, payload []byte,
	most int) ([]byte, error) {
	ch := make(chan response, 1)
	s.mu.Lock()
	switch {
	case s.mu.ended:
		s.mu.Unlock()
		return nil, errEnded
	case len(s.mu.waiting) >= most:
		s.mu.Unlock()
		return nil, refuse(CodeBusy, "%d calls are under way", most)
	}
	s.mu.next++
	r := request{id: s.mu.next, kind: kind, millis: millis(ctx), payload: payload}
	s.mu.waiting[r.id] = ch
	s.mu.Unlock()
	if err := s.l.send(appendFrames(nil, frameRequest, r.encode())); err != nil {
		s.l.end(err)
	}
	select {
	case resp, ok := <-ch:
		switch {
		case !ok:
			return nil, fmt.Errorf("%w: %w", ErrDisconnected, s.l.reason())
		case resp.err != nil:
			return nil, resp.err
		}
		return resp.payload, nil
	case <-ctx.Done():
		s.mu.Lock()
		delete(s.mu.waiting, r.id)
		s.mu.Unlock()
		return nil, ctx.Err()
	}
}

// Client calls members of which it knows only a URL, for instance before it joins a cluster. The
// zero value belongs to no cluster.
type Client struct {
	// ClusterID and MemberID are 0 if they are not known yet.
	ClusterID, MemberID uint64
	// Version is the version of this program, at most 64 bytes.
	Version string
	// TLS returns the configuration for each connection to an https or unixs URL.
	TLS func() *tls.Config
	// LocalAddr is as in Options.
	LocalAddr string
	// Dial is as in Options.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// MaxCallBytes bounds the payload of a call and of its answer, default 1 MiB.
	MaxCallBytes int
}

// Answer is a member's answer and its identity.
type Answer struct {
	ClusterID, MemberID uint64
	Version             string
	Payload             []byte
}

// Call makes one call on a connection of its own, like Transport.Call.
func (c *Client) Call(ctx context.Context, url string, kind uint8, payload []byte) (Answer, error) {
	o := Options{MaxCallBytes: c.MaxCallBytes, ClientTLS: c.TLS,
		LocalAddr: c.LocalAddr, Dial: c.Dial}
	o.setDefaults()
	h := hello{minProtocol: minProtocol, maxProtocol: maxProtocol, cluster: c.ClusterID,
		from: c.MemberID, version: c.Version}
	return callURL(ctx, o.dialer(kindCall), &h, url, kind, payload, o.MaxCallBytes)
}

// CallURL makes one call to whichever member of this cluster answers at a peer URL, on a connection
// of its own.
func (t *Transport) CallURL(ctx context.Context, url string, kind uint8,
	payload []byte) (Answer, error) {
	t.mu.Lock()
	h := t.helloLocked(kindCall, 0)
	t.mu.Unlock()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(t.ctx, cancel)
	defer stop()
	return callURL(ctx, t.o.dialer(kindCall), &h, url, kind, payload, t.o.MaxCallBytes)
}

func callURL(ctx context.Context, d *dialer, h *hello, url string, kind uint8, payload []byte,
	most int) (Answer, error) {
	if len(payload) > most {
		return Answer{}, refuse(CodeTooLarge, "call of %d bytes, the most is %d (MaxCallBytes)",
			len(payload), most)
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	h.kind = kindCall
	var s stats
	l, err := d.dial(ctx, url, h, &s.sentBytes, &s.receivedBytes)
	if err != nil {
		return Answer{}, err
	}
	defer l.end(ErrClosed)
	stop := context.AfterFunc(ctx, func() { l.end(ctx.Err()) })
	defer stop()
	r := request{id: 1, kind: kind, millis: millis(ctx), payload: payload}
	if err := l.send(appendFrames(nil, frameRequest, r.encode())); err != nil {
		return Answer{}, fmt.Errorf("%s: %w", url, err)
	}
	cs := &callStream{l: l}
	ch := make(chan response, 1)
	cs.mu.waiting = map[uint64]chan response{1: ch}
	err = cs.read(true)
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	if err != nil {
		return Answer{}, fmt.Errorf("%s: %w", url, err)
	}
	var resp response
	select {
	case resp = <-ch:
	default:
		return Answer{}, fmt.Errorf("%s: %w", url, refuse(CodeMalformed, "answer to another call"))
	}
	if resp.err != nil {
		return Answer{}, fmt.Errorf("%s: %w", url, resp.err)
	}
	return Answer{ClusterID: l.other.cluster, MemberID: l.other.member, Version: l.other.version,
		Payload: resp.payload}, nil
}
