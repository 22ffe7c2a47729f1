package transport

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/metadata"
)

// sentCall is a call as a client has sent it.
type sentCall struct {
	fields []hpack.HeaderField
	body   []byte
	ended  bool
}

// sentCalls are the calls of a client, by stream. Each header is decompressed. The last frame may
// be incomplete: zeros follow.
func sentCalls(data []byte) map[uint32]*sentCall {
	out := map[uint32]*sentCall{}
	const most = 16 << 10
	r := http2.NewFramer(nil,
		io.MultiReader(bytes.NewReader(data), bytes.NewReader(make([]byte, most))))
	r.SetMaxReadFrameSize(most)
	r.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	for {
		frame, err := r.ReadFrame()
		if _, ok := err.(http2.StreamError); ok {
			continue
		}
		if err != nil {
			return out
		}
		c := out[frame.Header().StreamID]
		switch f := frame.(type) {
		case *http2.MetaHeadersFrame:
			if c != nil {
				c.ended = true
				continue
			}
			out[f.StreamID] = &sentCall{fields: slices.Clone(f.Fields), ended: f.StreamEnded()}
		case *http2.DataFrame:
			if c != nil && !c.ended {
				c.body = append(c.body, f.Data()...)
				c.ended = f.StreamEnded()
			}
		}
	}
}

func (c *sentCall) field(name string) (value string) {
	for _, f := range c.fields {
		if f.Name == name {
			value = f.Value
		}
	}
	return value
}

// message returns a message of the body; ok is false if it is compressed, or there is none.
func (c *sentCall) message(i int) (m []byte, ok bool) {
	for rest := c.body; len(rest) >= messageHead; i-- {
		n := binary.BigEndian.Uint32(rest[1:])
		if rest[0] != 0 || uint32(len(rest)-messageHead) < n {
			break
		}
		if m = rest[messageHead:][:n]; i == 0 {
			return m, true
		}
		rest = rest[messageHead+n:]
	}
	return nil, false
}

// checks compares what handlers and sessions get with what a client has sent.
type checks struct {
	t        *testing.T
	sent     map[uint32]*sentCall
	opened   talkEnds
	prompted int // messages that were answered by the reader, which counts them
}

// call checks the head of a call. Then it tries to change what the next call gets.
func (k *checks) call(ctx context.Context) {
	c := ctx.Value(callKey{}).(*call)
	sent := k.sent[c.stream.ID()]
	if sent == nil {
		k.t.Errorf("call %d was not sent", c.stream.ID())
		return
	}
	alone := lastMetadata{base: context.Background()}
	want := alone.metadataOf(sent.fields).md
	timeout := sent.field("grpc-timeout")
	if _, ok := ctx.Deadline(); !maps.EqualFunc(c.header.metadata.md, want, slices.Equal) ||
		c.header.method.path != sent.field(":path") || ok != (timeout != "") {
		k.t.Errorf("call %d has %s, %v and a deadline %v, sent was %v", c.stream.ID(),
			c.header.method.path, c.header.metadata.md, ok, sent.fields)
	}
	if kind, _ := subtype(sent.field("content-type")); kind != c.header.peekSpecial().subtype ||
		sent.field("grpc-encoding") != c.header.peekSpecial().received {
		k.t.Errorf("call %d has %v, sent was %v", c.stream.ID(),
			c.header.peekSpecial(), sent.fields)
	}
	if d, err := parseTimeout(timeout); timeout != "" && (err != nil || d != c.header.timeout) {
		k.t.Errorf("call %d has the timeout %v, sent was %v", c.stream.ID(),
			c.header.timeout, timeout)
	}
	md, _ := metadata.FromIncomingContext(ctx)
	for _, values := range md {
		values[0] = "changed"
	}
	md["added"] = []string{"x"}
}

// services are the services of tests, and sessions that answer in both ways.
func (k *checks) services() []Service {
	list := testServices()
	for i := range list[0].Methods {
		m := &list[0].Methods[i]
		if unary := m.Unary; unary != nil {
			m.Unary = func(ctx context.Context, r any) (any, error) {
				k.call(ctx)
				return unary(ctx, r)
			}
		}
		if stream := m.Stream; stream != nil {
			m.Stream = func(s Stream) error {
				k.call(s.Context())
				return stream(s)
			}
		}
		if m.Name == "Echo" {
			m.Begin = func(ctx context.Context, r any, _ Pending) (any, Begun) {
				k.call(ctx)
				if ctx.(*call).stream.ID()%4 == 1 {
					return nil, Declined
				}
				return r, Answered
			}
		}
	}
	talks := talkService(nil, nil)
	for i := range talks.Methods {
		m := &talks.Methods[i]
		m.NewRequest = newWord
		m.Open = func(p Peer) (Session, error) {
			k.call(p.Context())
			s := &talkEnd{checks: k, peer: p, id: p.(*sessionCall).stream.ID()}
			k.opened.mu.Lock()
			k.opened.list = append(k.opened.list, s)
			k.opened.mu.Unlock()
			if p.(*sessionCall).header.method.Name == "Echo" {
				return &promptEnd{s}, nil
			}
			return s, nil
		}
	}
	return append(list, talks)
}

// talkEnd is a session that answers each message, and counts how often it is closed. A message that
// ends with a dot ends it.
type talkEnd struct {
	*checks
	peer   Peer
	id     uint32
	closes atomic.Int32
	got    int    // messages so far, owned by those that pass them on
	last   []byte // the last one of Receive, and a copy
	copied []byte
}

// next checks the next message. The one before must not have changed.
func (s *talkEnd) next(m []byte) {
	sent := s.sent[s.id]
	if want, ok := sent.message(s.got); ok && !bytes.Equal(m, want) {
		s.t.Errorf("message %d of call %d is % x, sent was % x", s.got, s.id, m, want)
	}
	if s.got++; !bytes.Equal(s.last, s.copied) {
		s.t.Errorf("a message of call %d has become % x from % x", s.id, s.last, s.copied)
	}
}

func (s *talkEnd) Receive(m any) {
	b := m.(*word).b
	s.next(b)
	s.last, s.copied = b, bytes.Clone(b)
	if bytes.HasSuffix(b, []byte(".")) {
		s.peer.End(nil)
		return
	}
	if s.peer.SendMsg(m) != nil {
		s.peer.End(nil)
	}
}
func (s *talkEnd) EndReceive() { s.peer.End(nil) }
func (s *talkEnd) Fill(int)    {}
func (s *talkEnd) Close(error) { s.closes.Add(1) }

// promptEnd is a talkEnd that answers messages with an even sum without a wait. One that ends with
// an exclamation mark is ended by another goroutine then.
type promptEnd struct{ *talkEnd }

func (s *promptEnd) Answer(message, to []byte) ([]byte, bool) {
	sum := 0
	for _, b := range message {
		sum += int(b)
	}
	if sum%2 == 1 || len(message) > maxPrompt || bytes.HasSuffix(message, []byte(".")) {
		return append(to, "nothing"...), false
	}
	s.next(message)
	s.prompted++
	if bytes.HasSuffix(message, []byte("!")) {
		go s.peer.End(nil)
	}
	return append(to, message...), true
}

// randomCalls are the frames of a client that repeats headers, with tokens and deadlines, and has
// sessions with messages of a few bytes, in pieces, of which some are reset.
func randomCalls(r *rand.Rand) []byte {
	var b, head bytes.Buffer
	w := http2.NewFramer(&b, nil)
	w.AllowIllegalWrites = true
	enc := hpack.NewEncoder(&head)
	// a buffer does not fail
	_ = w.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize,
		Val: []uint32{1 << 20, 20}[r.IntN(4)/3]})
	_ = w.WriteWindowUpdate(0, 1<<20)
	var fields []hpack.HeaderField
	next, session := uint32(1), false
	var open []uint32 // sessions
	rests := map[uint32][]byte{}
	for i := range 30 + r.IntN(200) {
		if i == 0 || r.IntN(4) == 0 {
			q := request{path: []string{"Echo", "Echo", "Metadata", "Chat", "Nothing"}[r.IntN(5)],
				fields: []string{"authorization", fmt.Sprint("token", r.IntN(3))}}
			if session = r.IntN(3) == 0; session {
				q.fields = append(q.fields, ":path",
					"/test.Talks/"+[]string{"Talk", "Echo"}[r.IntN(2)])
			}
			switch r.IntN(10) {
			case 0:
				q.fields = append(q.fields, "grpc-timeout",
					[]string{"1H", "0n", "1n", "5M"}[r.IntN(4)])
			case 1:
				q.fields = append(q.fields, "content-type",
					[]string{"application/grpc+proto", "text/plain", ""}[r.IntN(3)])
			case 2:
				q.fields = append(q.fields, "grpc-encoding",
					[]string{"identity", "br", "gzip"}[r.IntN(3)])
			case 3:
				q.fields = append(q.fields, "a-bin", []string{"AAEC", "!"}[r.IntN(2)])
			case 4: // more than is kept for the next call, in a few bytes
				for range 6 {
					q.fields = append(q.fields, "large", strings.Repeat("x", 3000))
				}
			}
			fields = q.header()
		}
		k := r.IntN(3)
		if session && len(open) > 0 {
			k = r.IntN(12)
		}
		switch {
		case k == 3:
			at := r.IntN(len(open))
			_ = w.WriteRSTStream(open[at], http2.ErrCodeCancel)
			open = slices.Delete(open, at, at+1)
		case k > 3: // messages; one may have several frames, with frames of other sessions between them
			id, m := open[r.IntN(len(open))], []byte(nil)
			for range 1 + r.IntN(3) {
				text := fmt.Append(nil, i, "x", r.IntN(1000),
					string("0123456789012345678901234567890123456789"[:r.IntN(40)]))
				if r.IntN(30) == 0 {
					text = append(text, "!."[r.IntN(2)])
				}
				m = append(m, frame(0, text)...)
			}
			m, rests[id] = append(rests[id], m...), nil
			if r.IntN(3) == 0 {
				at := r.IntN(len(m))
				m, rests[id] = m[:at], m[at:]
			}
			_ = w.WriteDataPadded(id, false, m, make([]byte, r.IntN(3)))
		default:
			head.Reset()
			for _, f := range fields {
				_ = enc.WriteField(f)
			}
			_ = w.WriteHeaders(http2.HeadersFrameParam{StreamID: next, EndHeaders: true,
				BlockFragment: head.Bytes()})
			if session {
				open = append(open, next)
			} else {
				_ = w.WriteData(next, r.IntN(5) > 0, message("hello"))
			}
			next += 2
		}
	}
	return b.Bytes()
}

// TestSentCalls: calls have the metadata, deadlines and messages that were sent, whatever was sent
// for the one before.
func TestSentCalls(t *testing.T) {
	prompted, messages := 0, 0
	for seed := range uint64(60) {
		k := serveSent(t, uint8(1+seed%255), randomCalls(rand.New(rand.NewPCG(seed, 1))))
		prompted += k.prompted
		for _, s := range k.opened.list {
			messages += s.got
		}
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	if t.Logf("%d messages, of which the reader answered %d", messages, prompted); prompted == 0 {
		t.Error("the reader answered nothing")
	}
}
