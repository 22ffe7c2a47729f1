package h2

import (
	"math"
	"sync"

	"golang.org/x/net/http2"
)

const (
	// maxFrame is the largest frame in either direction. Clients must accept it.
	maxFrame = 16 << 10
	// maxPrompt is about the largest number of bytes in scheduler.prompt. Further answers wait with
	// their streams, whose memory is counted.
	maxPrompt = 16 << 10
)

// scheduler has the frames that wait for the writer, and decides their order: first frames without
// data, then small answers, then streams in turns of one frame. It does no I/O. link.mu guards it.
type scheduler struct {
	control []byte  // frames that belong to no answer
	prompt  *[]byte // frames of small answers; nil if empty
	prompts int     // how many answers and messages are in prompt

	ready   streamList // streams that have something to write
	stalled streamList // streams that wait for the window of the connection
	sources []*Stream  // streams that may have output for Fill to queue
	filled  int        // bytes that sources have queued so far

	window   int64 // how many bytes the client accepts on all streams
	initial  int64 // the window of a new stream
	encoder  *headerEncoder
	mostHead int64 // the largest header that the client accepts, not compressed

	earned   int  // how many more frames the client may send, see guard
	answered bool // something was sent since the client's last ping
}

// initialWindow is the window of a connection and of its streams until the client changes it.
const initialWindow = 65535

func newScheduler() scheduler {
	return scheduler{ready: streamList{kind: inReady}, stalled: streamList{kind: inStalled},
		encoder: newHeaderEncoder(),
		window:  initialWindow, initial: initialWindow, mostHead: math.MaxUint32}
}

// hasOutput reports whether something can be written.
func (d *scheduler) hasOutput() bool {
	return len(d.sources) > 0 || len(d.control) > 0 || d.prompt != nil || d.ready.head != nil ||
		d.window > 0 && d.stalled.head != nil
}

// schedule lists a stream that has something to write, unless its window is closed.
func (d *scheduler) schedule(s *Stream) {
	if s.out.bytes > 0 && s.out.window <= 0 && s.out.header == nil {
		return
	}
	d.ready.push(s)
}

// unschedule removes a stream from its list.
func (d *scheduler) unschedule(s *Stream) {
	switch s.list {
	case inReady:
		d.ready.remove(s)
	case inStalled:
		d.stalled.remove(s)
	}
}

// openWindow lets n more bytes pass on all streams. It returns false if the window is too large.
// nextTurn finds the stalled streams.
func (d *scheduler) openWindow(n int64) bool {
	d.window += n
	return d.window <= math.MaxInt32
}

// openStreamWindow lets n more bytes pass on a stream; n may be negative. It returns false if the
// window is too large.
func (d *scheduler) openStreamWindow(s *Stream, n int64) bool {
	if s.out.window += n; s.out.window > math.MaxInt32 {
		return false
	}
	switch {
	case s.out.bytes > 0:
		d.schedule(s)
	case s.out.source == sourceFull:
		d.wakeFull(s)
	}
	return true
}

// roomOf returns how many bytes a source may queue. It is what the windows let pass, so that output
// for a client that does not read stays with its owner.
func (d *scheduler) roomOf(s *Stream) int64 {
	return min(sendQuota, s.out.window, d.window) - int64(s.out.bytes)
}

// wakeSource lists a stream that may have output. The caller makes sure that there is a writer.
func (d *scheduler) wakeSource(s *Stream) {
	if s.out.source != sourceWoken {
		s.out.source = sourceWoken
		d.sources = append(d.sources, s)
	}
}

// wakeFull wakes a full source if there is room now. Otherwise the source waits for the window of
// the connection, or for its own.
func (d *scheduler) wakeFull(s *Stream) {
	switch {
	case s.out.bytes > 0 || s.out.window <= 0: // writeTurn calls it again
	case d.window <= 0:
		d.stalled.push(s)
	default:
		d.wakeSource(s)
	}
}

// nextSource takes the next stream that can be filled now from the list, and returns it with its
// room. It returns nil if there is none.
func (d *scheduler) nextSource() (s *Stream, room int64) {
	for len(d.sources) > 0 {
		s := d.sources[0]
		d.sources[0] = nil
		if d.sources = d.sources[1:]; len(d.sources) == 0 {
			d.sources = nil
		}
		s.out.source = sourceEmpty
		if !s.state.sends() {
			continue
		}
		room := d.roomOf(s)
		if room > 0 || !s.out.begun { // the header of an answer waits for no window
			return s, max(room, 1)
		}
		s.out.source = sourceFull
		d.wakeFull(s)
	}
	return nil, 0
}

// addFilled adds a message of n bytes from a source. It reports whether there is room for more.
func (d *scheduler) addFilled(s *Stream, header *Header, m message, n int) (room bool) {
	s.out.addMessage(header, m, n)
	d.filled += n
	d.schedule(s)
	room = d.roomOf(s) > 0
	if s.out.source != sourceWoken { // otherwise nextSource finds out about the room
		s.out.source = sourceEmpty
		if !room {
			s.out.source = sourceFull
		}
	}
	return room
}

// takeFrames moves the control frames and the small answers to a batch.
func (d *scheduler) takeFrames(b *batch) {
	b.own = append(b.own, d.control...)
	if d.control = d.control[:0]; cap(d.control) > 1<<10 {
		d.control = nil
	}
	b.own = d.takePrompt(b.own)
}

// nextTurn takes the stream whose turn it is from its list, and returns it. Streams that waited for
// the window of the connection come first.
func (d *scheduler) nextTurn() *Stream {
	if d.window > 0 {
		if s := d.stalled.pop(); s != nil {
			return s
		}
	}
	return d.ready.pop()
}

// turn is the result of a stream's turn.
type turn uint8

const (
	turnOver     turn = iota // the stream is listed again if it can go on
	turnLast                 // the answer was written to its end
	turnTooLarge             // the client rejects the header or trailer: nothing is written
)

// writeTurn writes the frames of a stream's turn, at most one with data, to a batch.
func (d *scheduler) writeTurn(b *batch, s *Stream) turn {
	if s.state.gone() {
		return turnOver
	}
	d.earned += 2
	d.answered = true
	q := &s.out
	answered := s.state.answered()
	if q.header != nil && d.tooLarge(q.header) || answered && d.tooLarge(q.trailer) {
		return turnTooLarge
	}
	if q.header != nil {
		b.own = d.appendHeaders(b.own, s.id, q.header, false)
		q.header = nil
	}
	if q.bytes > 0 {
		if n := int(min(int64(q.bytes), maxFrame, q.window, d.window)); n > 0 {
			d.writeData(b, s, n)
		}
		if q.bytes > 0 {
			switch {
			case q.window <= 0: // until the client opens it
			case d.window <= 0:
				d.stalled.push(s)
			default:
				d.ready.push(s)
			}
			return turnOver
		}
	}
	switch {
	case answered:
		if q.trailer == nil {
			b.own = appendFrame(b.own, 0, http2.FrameData, http2.FlagDataEndStream, s.id)
		} else {
			b.own = d.appendHeaders(b.own, s.id, q.trailer, true)
		}
		b.own = appendLateReset(b.own, s)
		return turnLast
	case q.source == sourceFull:
		d.wakeFull(s)
	}
	return turnOver
}

// appendLateReset appends a reset after a complete answer if the client has not ended its body, so
// that it does not send the rest.
func appendLateReset(b []byte, s *Stream) []byte {
	if s.state.bodyEnded() {
		return b
	}
	return appendReset(b, s.id, http2.ErrCodeNo)
}

// writeData writes a frame with n bytes of a stream.
func (d *scheduler) writeData(b *batch, s *Stream, n int) {
	q := &s.out
	if n < q.bytes && n < copyMost {
		d.earned -= 2 // a client that takes little at a time earns nothing
	}
	b.own = appendFrame(b.own, n, http2.FrameData, 0, s.id)
	q.window -= int64(n)
	d.window -= int64(n)
	q.moveBytes(b, n)
	if q.room != nil && !q.isFull() {
		q.wakeSender()
	}
	if q.source == sourceFull && q.bytes < sendQuota/2 && d.roomOf(s) > 0 {
		d.wakeSource(s)
	}
}

// tooLarge reports whether the client does not accept a header because of its size.
func (d *scheduler) tooLarge(h *Header) bool {
	if h == nil || d.mostHead >= 1<<31 { // the usual case: the client has no limit
		return false
	}
	n := int64(0)
	for i := range h.Fields {
		n += int64(h.Fields[i].Size())
	}
	return n > d.mostHead
}

// appendHeaders appends the frames of a header.
func (d *scheduler) appendHeaders(b []byte, id uint32, h *Header, end bool) []byte {
	block := d.encoder.encodeHeader(h)
	kind, flags := http2.FrameHeaders, http2.Flags(0)
	if end {
		flags = http2.FlagHeadersEndStream
	}
	for first := true; first || len(block) > 0; first = false {
		part := block[:min(len(block), maxFrame)]
		if block = block[len(part):]; len(block) == 0 {
			flags |= http2.FlagHeadersEndHeaders
		}
		b = append(appendFrame(b, len(part), kind, flags, id), part...)
		kind, flags = http2.FrameContinuation, 0
	}
	return b
}

// promptBuffers has buffers for scheduler.prompt. A connection without small answers needs none.
var promptBuffers = sync.Pool{New: func() any { return new(make([]byte, 0, maxPrompt)) }}

// makePromptRoom makes room for a message of n bytes that becomes a frame at once. It returns false
// if the message must wait in the queue of its stream.
func (d *scheduler) makePromptRoom(s *Stream, n int) bool {
	if n > copyMost || d.prompt != nil && len(*d.prompt)+n > maxPrompt ||
		int64(n) > min(s.out.window, d.window) || d.stalled.head != nil {
		return false
	}
	if d.prompt == nil {
		d.prompt = promptBuffers.Get().(*[]byte)
	}
	return true
}

// addPromptMessage appends a message as a frame to b. makePromptRoom must have made room for it.
func (d *scheduler) addPromptMessage(b []byte, s *Stream, m []byte) []byte {
	d.prompts++
	s.out.window -= int64(len(m))
	d.window -= int64(len(m))
	return append(appendFrame(b, len(m), http2.FrameData, 0, s.id), m...)
}

// addPromptAnswer adds a whole answer. makePromptRoom must have made room for its message.
func (d *scheduler) addPromptAnswer(s *Stream, header *Header, m []byte, trailer *Header) {
	b := d.appendHeaders(*d.prompt, s.id, header, false)
	b = d.addPromptMessage(b, s, m)
	b = d.appendHeaders(b, s.id, trailer, true)
	*d.prompt = appendLateReset(b, s)
}

// takePrompt moves the small answers to b. They must precede all headers that are encoded later,
// which may refer to table entries of theirs.
func (d *scheduler) takePrompt(b []byte) []byte {
	if d.prompt == nil {
		return b
	}
	b = append(b, *d.prompt...)
	*d.prompt = (*d.prompt)[:0]
	promptBuffers.Put(d.prompt)
	d.prompt = nil
	d.earned += 2 * d.prompts
	d.answered = true
	d.prompts = 0
	return b
}

// addReset adds the reset of a stream, after the stream's last small messages.
func (d *scheduler) addReset(id uint32, code http2.ErrCode) {
	d.control = appendReset(d.takePrompt(d.control), id, code)
}

// addSettingsAck acknowledges settings. Answers that are frames already obey the settings before,
// so they precede it.
func (d *scheduler) addSettingsAck() {
	d.control = appendFrame(d.takePrompt(d.control), 0, http2.FrameSettings,
		http2.FlagSettingsAck, 0)
}

// takeEarned returns how many more frames the client may send because of the frames that were sent
// since the last call.
func (d *scheduler) takeEarned() int {
	n := max(d.earned, 0)
	d.earned = 0
	return n
}

// listKind says in which list of the scheduler a stream is.
type listKind uint8

const (
	inNone listKind = iota
	inReady
	inStalled
)

// streamList is a queue of streams. A stream is in one list at most.
type streamList struct {
	kind       listKind
	head, tail *Stream
}

// push adds a stream, unless it is in a list.
func (l *streamList) push(s *Stream) {
	if s.list != inNone {
		return
	}
	s.list, s.prev = l.kind, l.tail
	if l.tail == nil {
		l.head = s
	} else {
		l.tail.next = s
	}
	l.tail = s
}

// pop removes the first stream and returns it, nil if there is none.
func (l *streamList) pop() *Stream {
	s := l.head
	if s != nil {
		l.remove(s)
	}
	return s
}

// remove removes a stream that is in this list.
func (l *streamList) remove(s *Stream) {
	if s.prev == nil {
		l.head = s.next
	} else {
		s.prev.next = s.next
	}
	if s.next == nil {
		l.tail = s.prev
	} else {
		s.next.prev = s.prev
	}
	s.list, s.prev, s.next = inNone, nil, nil
}
